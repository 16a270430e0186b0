"""What launch/peak.py leaves, and what a run makes of it: the measured peak of one of its devices. Pure.

The peaks in a file follow from the rates in it. One whose do not was changed or cut off, and is refused.
"""

import msgspec

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


def decode(data: bytes, name: str) -> Measured:
    """The file as a value, or why it cannot be believed."""
    try:
        found = msgspec.json.decode(data, type=Measured)
    except NOT_JSON as error:
        raise _damaged(name, str(error)) from None
    if found.schema_version != SCHEMA_VERSION:
        raise _damaged(name, f"its schema is version {found.schema_version}, this Stepmark reads {SCHEMA_VERSION}")
    if not found.report.rates:
        raise _damaged(name, "there is no rate in it")
    if found.peaks != device_peaks(found.report.rates):
        raise _damaged(name, "the peaks in it do not follow from the rates in it: it was changed")
    return found


def _damaged(name: str, why: str) -> RequestError:
    return RequestError(
        "the file is no measured peak that can be read",
        where=f"--measured_peak={name}",
        why=why,
        next_command=f"{REMEASURE}, which writes it anew",
    )


def measured_peak(data: bytes, name: str) -> MeasuredPeak:
    found = decode(data, name)
    import hashlib

    digest = hashlib.sha256(data).hexdigest()
    return MeasuredPeak(
        file=name,
        platform=found.report.platform,
        device_kind=found.report.device_kind,
        processor=found.processor,
        cores=found.cores,
        peaks={
            dtype: Peak(tflops=peak.tflops, source=f"{_source(found, dtype, peak)}, sha256 {digest}")
            for dtype, peak in found.peaks.items()
        },
    )


def _source(found: Measured, dtype: str, peak: DevicePeak) -> str:
    shape = next(r.shape for r in found.report.rates if (r.dtype, r.shape.name) == (dtype, peak.of))
    versions = ", ".join(f"{name} {version}" for name, version in found.report.versions.items())
    return (
        f"measured: launch/peak.py, {found.date[:10]}, {found.backend} ({versions}), {dtype} {shape.text()}, "
        f"n {peak.turns}, spread {spread_text(peak.spread)}"
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
