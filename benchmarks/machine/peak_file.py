"""The file that launch/peak.py writes, and the measured peak that a run reads from it.

The peaks in a file follow from the rates in it. A file whose peaks do not was changed or cut off, and is refused.
"""

from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.errors import RequestError
from benchmarks.files import NOT_JSON
from benchmarks.machine.peaks import DevicePeak, PeakReport, PeakRequest, device_peaks, spread_text
from benchmarks.values import MeasuredPeak, Peak, Value

SCHEMA_VERSION = 1
REMEASURE = "python launch/peak.py"


class Measured(Value, frozen=True):
    """One backend's measurement on one machine. Of a CPU the device is the machine, with all its cores."""

    schema_version: int
    date: str
    stepmark: str
    backend: str
    engine: str
    hardware: str | None  # of configs/hardware; None: no file there names the device
    hostname: str
    processor: str
    cores: int
    model: str  # whose matmuls these are
    request: PeakRequest
    report: PeakReport
    peaks: dict[str, DevicePeak]  # precision -> what its rates come to


class MeasuredInFile(Measured, frozen=True):
    file: str


# --- reading ------------------------------------------------------------------------------------


def read(name: str) -> MeasuredPeak:
    """The measured peak of a file, as a run takes it."""
    try:
        data = files.read(Path(name))
    except OSError as error:
        raise RequestError(
            f"the measured peak cannot be read: {error.strerror or error}",
            where=f"--measured_peak={name}",
            next_command=REMEASURE,
        ) from None
    return measured_peak(data, str(Path(name).absolute()))


def decode(data: bytes, name: str) -> Measured:
    """The file as a value, or why it cannot be believed."""
    try:
        found = msgspec.json.decode(data, type=Measured)
        why = ""
        if found.schema_version != SCHEMA_VERSION:
            why = f"its schema is version {found.schema_version}, this Stepmark reads {SCHEMA_VERSION}"
        elif not found.report.rates:
            why = "there is no rate in it"
        elif found.peaks != device_peaks(found.report.rates):
            why = "the peaks in it do not follow from the rates in it: it was changed"
    except NOT_JSON as error:
        why = str(error)
    if why:
        raise RequestError(
            "the file is no measured peak that can be read",
            where=f"--measured_peak={name}",
            why=why,
            next_command=f"{REMEASURE}, which writes it again",
        )
    return found


def measured_peak(data: bytes, name: str) -> MeasuredPeak:
    found = decode(data, name)
    import hashlib

    digest = hashlib.sha256(data).hexdigest()
    versions = ", ".join(f"{package} {version}" for package, version in found.report.versions.items())
    peaks = {}
    for dtype, peak in found.peaks.items():
        shape = next(r.shape for r in found.report.rates if (r.dtype, r.shape.name) == (dtype, peak.of))
        source = (
            f"measured: launch/peak.py, {found.date[:10]}, {found.backend} ({versions}), {dtype} {shape.text()}, "
            f"n {peak.turns}, spread {spread_text(peak.spread)}, sha256 {digest}"
        )
        peaks[dtype] = Peak(tflops=peak.tflops, source=source)
    return MeasuredPeak(
        file=name,
        platform=found.report.platform,
        device_kind=found.report.device_kind,
        processor=found.processor,
        cores=found.cores,
        peaks=peaks,
    )


def refuse_another_processor(found: MeasuredPeak, processor: str, cores: int) -> None:
    """All CPUs are called cpu; this machine's own peak is asked for where the run is here."""
    if found.platform != "cpu" or (found.processor, found.cores) == (processor, cores):
        return
    raise RequestError(
        f"the peak was measured on another machine's CPU: {found.processor}, {found.cores} cores",
        where=f"--measured_peak={found.file}",
        why=f"this machine has {processor}, {cores} cores for us",
        next_command=f"{REMEASURE} --hardware=cpu",
    )
