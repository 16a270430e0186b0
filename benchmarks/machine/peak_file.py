"""Read the file that launch/peak.py writes, and show the measured peaks next to the published ones."""

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks import files
from benchmarks.errors import RequestError
from benchmarks.files import NOT_JSON
from benchmarks.machine.peaks import (
    ROWS,
    DevicePeak,
    MeasuredRate,
    PeakReport,
    PeakRequest,
    spread_text,
)
from benchmarks.text import columns
from benchmarks.values import Hardware, MeasuredPeak, Peak, Value

SCHEMA_VERSION: Literal[2] = 2
REMEASURE = "python launch/peak.py"
WIDE_SPREAD = 0.2  # if turns differ by more than this share, another program probably used the machine


class PeakMeasurement(Value, frozen=True):
    """The peaks that one backend measured on one machine. A CPU counts as one device with all its cores."""

    schema_version: Literal[2]
    date: str
    stepmark: str
    backend: str
    engine: str
    hardware: str  # a name in configs/hardware, or one made from NVML's name
    hostname: str
    processor: str
    cores: int
    model: str  # the model whose matmuls were measured
    request: PeakRequest
    report: PeakReport
    peaks: dict[str, DevicePeak]


class PeakMeasurementFile(PeakMeasurement, frozen=True):
    file: str


# --- reading ------------------------------------------------------------------------------------


def read(name: str) -> MeasuredPeak:
    """Return the peaks in a file that launch/peak.py wrote, as the value that a run needs."""
    try:
        data = files.read(Path(name))
    except OSError as error:
        raise RequestError(
            f"the measured peak cannot be read: {error.strerror or error}",
            where=f"--measured_peak={name}",
            next_command=REMEASURE,
        ) from None
    return measured_peak(data, str(Path(name).absolute()))


def measured_peak(data: bytes, name: str) -> MeasuredPeak:
    try:
        found = msgspec.json.decode(data, type=PeakMeasurement)
    except NOT_JSON as error:
        raise RequestError(
            "the file is not a measured peak",
            where=f"--measured_peak={name}",
            why=str(error),
            next_command=REMEASURE,
        ) from None
    digest = hashlib.sha256(data).hexdigest()
    versions = ", ".join(f"{package} {version}" for package, version in found.report.versions.items())
    peaks = {}
    for dtype, peak in found.peaks.items():
        shape = next(shape for shape in found.request.shapes if shape.name == peak.of)
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
    """Refuse a CPU peak from another machine. The device name does not reveal this: it is `cpu` for every CPU."""
    if found.platform != "cpu" or (found.processor, found.cores) == (processor, cores):
        return
    raise RequestError(
        f"the peak was measured on a different CPU: {found.processor}, {found.cores} cores",
        where=f"--measured_peak={found.file}",
        why=f"Stepmark can use {processor}, {cores} cores on this machine",
        next_command=f"{REMEASURE} --hardware=cpu",
    )


# --- text ---------------------------------------------------------------------------------------


def table(found: PeakMeasurement, hardware: Hardware, title: str) -> list[str]:
    """Return the rates of all matmuls, the peaks, and each peak as a share of the device's published peaks."""
    peaks, report = found.peaks, found.report
    device = f"{report.device_kind} ({report.platform}), one device"
    if report.platform == "cpu":
        device = f"cpu: {found.processor}, {found.cores} cores, {report.threads} threads"
    rates = {(rate.shape.name, rate.dtype): rate for rate in report.rates}
    rows = [("TFLOP/s", "median (turns, spread)", *peaks)]
    for shape in found.request.shapes:
        rows.append((shape.name, shape.text(), *(_cell(rates.get((shape.name, dtype))) for dtype in peaks)))
    rows.append(("the peak", "the highest median", *(f"{one.tflops:.4g} {one.of}" for one in peaks.values())))
    for label, published in (("published achievable", hardware.achievable), ("datasheet", hardware.peaks)):
        if published:
            shares = (_share(one.tflops, published.get(dtype)) for dtype, one in peaks.items())
            rows.append((label, "peak (measured share)", *shares))
    return [f"{device} · {title}", *columns(rows), *(f"  {line}" for line in _remarks(found, hardware))]


def _cell(rate: MeasuredRate | None) -> str:
    return "-" if rate is None else f"{rate.median:.4g} ({len(rate.tflops)}, {spread_text(rate.spread)})"


def _share(measured: float, published: Peak | None) -> str:
    return "-" if published is None else f"{published.tflops:g} ({measured / published.tflops:.1%})"


def _remarks(found: PeakMeasurement, hardware: Hardware) -> list[str]:
    """Return the warnings about the peaks."""
    report, rows = found.report, found.request.shapes[0].m
    lines = [f"{dtype} is not measured, because it is emulated on {hardware.title}" for dtype in hardware.emulated]
    lines += [f"{dtype} was not measured: {why}" for dtype, why in report.refused.items()]
    lines += report.notes
    if report.platform == "cpu":
        if rows < ROWS:
            lines.append(f"the matmuls have only {rows} rows (--tokens), but a sequence has {ROWS} tokens")
        lines.append("with --gpus=N, N virtual devices share this CPU, and the peak of each is 1/N of these peaks")
    for dtype, peak in found.peaks.items():
        if peak.spread is not None and peak.spread > WIDE_SPREAD:
            lines.append(
                f"{dtype}: repeated measurements differ by {peak.spread:.0%}, so another program probably used the "
                "machine, and the real peak may be higher"
            )
    return lines
