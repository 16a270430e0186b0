"""Compute MFU for every convention and every peak that applies, and HFU. No I/O.

A peak comes from one of four tables: the datasheet, the published table if its peak differs, an achievable rate, or a
measurement on this device. The name of an entry's convention includes the table: "recipe" (the datasheet), "recipe,
published", "recipe, achievable" or "recipe, measured".
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from benchmarks.model import flops
from benchmarks.model.ledger import hardware_conventions, hardware_flops_per_token, mix_of_peaks
from benchmarks.values import QUANTIZED, Benchmark, Hardware, Model, Peak, Recompute, Value

DATASHEET, PUBLISHED, ACHIEVABLE, MEASURED = "datasheet", "published", "achievable", "measured"
MIXED = "mixed"  # the quantized peak for the layers, the bf16 peak for attention core and head
MIXED_SOURCE = "weighted by the FLOPs of each precision: {} in the layers, bf16 elsewhere"

RECOMPUTE_UNKNOWN = "the recomputed work is unknown: neither the backend nor the log reports it"


class Mfu(Value, frozen=True):
    convention: str
    precision_peak: str
    peak_tflops: float
    peak_source: str
    percent: float

    @property
    def counted_by(self) -> str:
        """Return the name of the convention without the table of the peak."""
        return self.convention.partition(", ")[0]

    @property
    def table(self) -> str:
        return self.convention.partition(", ")[2] or DATASHEET


class Workload(Value, frozen=True):
    """The work of a run. For a log that Stepmark did not write, only fields without a default are set."""

    model: Model
    hardware: Hardware
    task: str
    dtype: str
    gpus: int
    sequence_length: int
    global_batch_size: int
    measured_peaks: dict[str, Peak] = {}
    recompute: Recompute | None = None  # None: unknown

    @property
    def tokens_per_step(self) -> int:
        return self.sequence_length * self.global_batch_size

    def flops_per_step(self, convention: str) -> float:
        return flops.flops_per_token(self.model, self.sequence_length, convention) * self.tokens_per_step


def workload_of(benchmark: Benchmark, recompute: Recompute | None = None) -> Workload:
    return Workload(
        model=benchmark.model,
        hardware=benchmark.hardware,
        task=benchmark.trains,
        dtype=benchmark.dtype,
        gpus=benchmark.gpus,
        sequence_length=benchmark.batch.sequence_length,
        global_batch_size=benchmark.batch.global_batch_size,
        measured_peaks=benchmark.measured_peaks,
        recompute=recompute,
    )


# --- the peaks that apply -----------------------------------------------------------------------


class _PeakReference(NamedTuple):
    table: str
    precision: str
    tflops: float
    source: str

    def entry(self, convention: str, flops_per_second: float) -> Mfu:
        """Return the MFU entry of one device that computes `flops_per_second`."""
        return Mfu(
            convention=convention if self.table == DATASHEET else f"{convention}, {self.table}",
            precision_peak=self.precision,
            peak_tflops=self.tflops,
            peak_source=self.source,
            percent=100 * flops_per_second / (self.tflops * 1e12),
        )


def _tables(workload: Workload) -> list[tuple[str, Mapping[str, Peak]]]:
    """Return the tables that contain a peak for the run's precision. The datasheet comes first."""
    tables = [
        (DATASHEET, workload.hardware.peaks),
        (PUBLISHED, workload.hardware.published),
        (ACHIEVABLE, workload.hardware.achievable),
        (MEASURED, workload.measured_peaks),
    ]
    return [(name, peaks) for name, peaks in tables if workload.dtype in peaks]


def _own_precision(workload: Workload, table: str, peaks: Mapping[str, Peak]) -> _PeakReference:
    peak = peaks[workload.dtype]
    return _PeakReference(table, workload.dtype, peak.tflops, _source(table, peak))


def _source(table: str, peak: Peak) -> str:
    known = table != MEASURED or peak.source.startswith(MEASURED)
    return peak.source if known else f"{MEASURED}: {peak.source}"


def _bf16_and_mixed(
    workload: Workload, table: str, peaks: Mapping[str, Peak], convention: str
) -> Iterator[_PeakReference]:
    """Yield, for quantized precisions, also the bf16 peak, which many tables use, and the peak of mixed precision."""
    bf16 = peaks.get("bf16")
    if workload.dtype not in QUANTIZED or bf16 is None:
        return
    yield _PeakReference(table, "bf16", bf16.tflops, _source(table, bf16))
    mixed = mix_of_peaks(workload.model, workload.sequence_length, peaks, convention, workload.dtype)
    if mixed is not None:
        yield _PeakReference(table, MIXED, mixed, MIXED_SOURCE.format(workload.dtype))


# --- the figures --------------------------------------------------------------------------------


def mfu(workload: Workload, step_seconds: float, nulls: dict[str, str]) -> list[Mfu] | None:
    """Return MFU for every convention and peak, first for the recipe's convention at the run's own precision."""
    if workload.model.uncounted:
        nulls["mfu"] = workload.model.uncounted
        return None
    tables = _tables(workload)
    if not tables:
        has = f" (only {', '.join(workload.hardware.peaks)})" if workload.hardware.peaks else ""
        nulls["mfu"] = (
            f"no {workload.dtype} peak is published for {workload.hardware.name}{has}; measure one with "
            "python launch/peak.py"
        )
        return None
    found = []
    for table, peaks in tables:
        columns = [
            [one.entry(name, _rate(workload, workload.flops_per_step(name), step_seconds)) for one in against]
            for name in flops.conventions_for(workload.task, workload.model)
            if (against := [_own_precision(workload, table, peaks), *_bf16_and_mixed(workload, table, peaks, name)])
        ]
        found += [entry for row in zip(*columns, strict=True) for entry in row]
    return found


def hfu(workload: Workload, step_seconds: float, nulls: dict[str, str]) -> list[Mfu] | None:
    """Return HFU, which also counts recomputed FLOPs, for the peaks of the run's precision."""
    if workload.recompute is None or workload.model.uncounted:
        nulls["hfu"] = workload.model.uncounted or RECOMPUTE_UNKNOWN
        return None
    tables = _tables(workload)
    if not tables:
        nulls["hfu"] = nulls["mfu"]
        return None
    return [
        _own_precision(workload, table, peaks).entry(
            name, _rate(workload, hardware_flops_per_step(workload, name), step_seconds)
        )
        for table, peaks in tables
        for name in hardware_conventions(workload.task, workload.model)
    ]


def hardware_flops_per_step(workload: Workload, convention: str) -> float:
    """Return the FLOPs of one step on all devices, including recomputed FLOPs."""
    again = workload.recompute or Recompute()
    a_token = hardware_flops_per_token(workload.model, workload.sequence_length, again, convention)
    return a_token * workload.tokens_per_step


def _rate(workload: Workload, flops_per_step: float, step_seconds: float) -> float:
    return flops_per_step / step_seconds / workload.gpus


# --- the limit of the hardware ------------------------------------------------------------------


def fastest_possible_seconds(workload: Workload) -> float | None:
    """Return the shortest possible step time: the FLOPs of the lowest convention at the peak of all devices.

    The peak comes only from the datasheet, because a measured peak may be too low.
    """
    peak = workload.hardware.peaks.get(workload.dtype)
    if peak is None or workload.model.uncounted:
        return None
    fewest = min(workload.flops_per_step(name) for name in flops.conventions_for(workload.task, workload.model))
    return fewest / (peak.tflops * 1e12 * workload.gpus)
