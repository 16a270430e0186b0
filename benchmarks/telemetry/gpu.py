"""Compute the GPU part of telemetry: energy, power, clocks, throttling, errors and the slowest GPU. No I/O."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmarks.statistics import RunningMean, median, median_of_counts
from benchmarks.telemetry.samples import GpuFacts, GpuSample, NodeFacts, NodeRecord
from benchmarks.text import first_few
from benchmarks.values import Value

# The bits of NVML's clocks event reasons that mean a reduced clock (nvml.h of nvidia-ml-py 13).
THROTTLE_BITS = {
    "software_power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "power_brake": 0x80,
}
Span = tuple[float, float]
Known = TypeVar("Known", int, float, str)


class SlowGpu(Value, frozen=True):
    """The GPU whose median SM clock is the lowest."""

    host: str
    index: int
    uuid: str | None
    sm_clock_mhz: float


class GpuTelemetry(Value, frozen=True):
    """A part of result.json: the GPUs of all nodes during the window, and their errors during the whole attempt."""

    gpus: int
    energy_joules: float | None  # the sum over all GPUs during the window
    joules_per_token: float | None
    power_watts_mean: float | None  # per GPU
    power_watts_max: float | None  # the highest power of any GPU
    power_limit_watts: float | None  # the lowest enforced limit of any GPU
    sm_clock_mhz_median: float | None
    sm_clock_mhz_highest: int | None  # the highest clock that the GPUs support
    throttled: dict[str, float] | None  # reason -> share of the samples
    slowest: SlowGpu | None
    temperature_c_max: int | None
    memory_bytes_max: int | None  # the highest use of any GPU
    ecc_uncorrected: int | None  # this field and the next two count errors during the attempt
    pcie_replays: int | None
    remapped_rows: int | None
    driver: str | None
    cuda: str | None  # the newest CUDA version that the driver supports
    null_because: dict[str, str]
    notes: list[str]


class _Gpu(NamedTuple):
    host: str
    facts: GpuFacts
    joules: float | None  # the energy used in the window
    no_joules: str  # why `joules` is unknown
    sm_clock_mhz: float | None  # the median within the window
    ecc_uncorrected: int | None  # this field and the next two count new errors in the attempt
    pcie_replays: int | None
    remapped_rows: int | None


class GpuFigures:
    """Collects the metrics of all GPUs. Nodes are added one by one, so that only one node's samples are in memory."""

    def __init__(self, span: Span | None) -> None:
        self._span = span
        self._gpus: list[_Gpu] = []
        self._nodes: list[NodeFacts] = []
        self._lost: list[str] = []
        # These attributes include only samples within the window.
        self._power = RunningMean()
        self._clocks: Counter[float] = Counter()
        self._reasons: Counter[int] = Counter()
        self._highest: dict[str, Any] = {}

    def add(self, node: NodeRecord) -> None:
        errors = {pair for sample in node.samples for pair in sample.errors.items()}
        self._lost += [f"GPU {index} of {node.name}: {error}" for index, error in sorted(errors)]
        if node.facts is None:
            return
        self._nodes.append(node.facts)
        after = node.end.remapped_rows if node.end else []
        for place, facts in enumerate(node.facts.gpus):
            rows = [(s.time, s.gpus[place]) for s in node.samples if place < len(s.gpus)]
            samples = [(time, row) for time, row in rows if row is not None]
            inside = [row for time, row in samples if self._span is None or self._span[0] <= time <= self._span[1]]
            self._power.add(_known(row.power_w for row in inside))
            clocks = _known(row.sm_clock_mhz for row in inside)
            self._clocks.update(clocks)
            self._reasons.update(_known(row.throttle_reasons for row in inside))
            for field in ("power_w", "temperature_c", "memory_used_bytes"):
                values = (self._highest.get(field), *(getattr(row, field) for row in inside))
                self._highest[field] = max(_known(values), default=None)
            before, now = facts.remapped_rows, after[place] if place < len(after) else None
            new_rows = None if before is None or now is None else now - before
            errors_of = (_growth(samples, "ecc_uncorrected"), _growth(samples, "pcie_replays"), new_rows)
            energy = _energy(f"GPU {facts.index} of {node.name}", samples, self._span)
            self._gpus.append(_Gpu(node.name, facts, *energy, median(clocks), *errors_of))

    def figures(
        self, tokens: int | None, expected: int | None, *, too_short: str, incomplete: str, unclaimed: str | None
    ) -> tuple[GpuTelemetry | None, str]:
        """Return the metrics, or the reason why they are missing.

        `too_short` and `incomplete` are reasons why some metrics would be wrong; empty if the metrics are correct.
        """
        gpus, nodes = self._gpus, self._nodes
        if expected == 0:
            return None, "the run uses no GPU"
        if not gpus:
            reasons = _known(node.no_gpus_because for node in nodes)
            return None, reasons[0] if reasons else "no node reports its GPUs"
        energy, no_energy = self._energy(expected, too_short or incomplete)
        per_token = energy / tokens if energy is not None and tokens else None
        in_window: dict[str, Any] = {
            "power_watts_mean": self._power.value(),
            "power_watts_max": self._highest["power_w"],
            "sm_clock_mhz_median": median_of_counts(self._clocks),
            "throttled": _throttled(self._reasons),
            "slowest": _slowest(gpus),
            "temperature_c_max": self._highest["temperature_c"],
            "memory_bytes_max": self._highest["memory_used_bytes"],
        }
        if too_short:
            in_window = dict.fromkeys(in_window)
        over_attempt: dict[str, Any] = {
            "power_limit_watts": min(_known(gpu.facts.power_limit_w for gpu in gpus), default=None),
            "sm_clock_mhz_highest": max(_known(gpu.facts.max_sm_clock_mhz for gpu in gpus), default=None),
            "ecc_uncorrected": _sum([gpu.ecc_uncorrected for gpu in gpus]),
            "pcie_replays": _sum([gpu.pcie_replays for gpu in gpus]),
            "remapped_rows": _sum([gpu.remapped_rows for gpu in gpus]),
            "driver": next(iter(_known(node.driver for node in nodes)), None),
            "cuda": next(iter(_known(node.cuda for node in nodes)), None),
        }
        unsaid = "the driver does not report it for all GPUs"
        nulls = {name: too_short or unsaid for name, value in in_window.items() if value is None}
        nulls |= {name: unsaid for name, value in over_attempt.items() if value is None}
        if energy is None:
            nulls["energy_joules"] = no_energy
        if per_token is None:
            nulls["joules_per_token"] = no_energy or unclaimed or "the window has no trained token"
        return GpuTelemetry(
            gpus=len(gpus),
            energy_joules=energy,
            joules_per_token=per_token,
            **in_window,
            **over_attempt,
            null_because=nulls,
            notes=_notes(self._lost, nodes, gpus),
        ), ""

    def _energy(self, expected: int | None, unfit: str) -> tuple[float | None, str]:
        """Return the energy of all GPUs, or the reason why it is unknown: it needs the energy of every GPU."""
        if self._span is None or unfit:
            return None, unfit or "no step is counted, or the time of day is unknown"
        if expected not in (None, len(self._gpus)):
            return None, f"{len(self._gpus)} of {expected} GPUs were sampled"
        total = 0.0
        for gpu in self._gpus:
            if gpu.joules is None:
                return None, gpu.no_joules
            total += gpu.joules
        return total, ""


# --- energy -----------------------------------------------------------------------------------


def _energy(name: str, samples: Sequence[tuple[float, GpuSample]], span: Span | None) -> tuple[float | None, str]:
    """Return by how much a GPU's energy counter grew during the window, or the reason why this is unknown."""
    read = [(time, sample.energy_mj) for time, sample in samples if sample.energy_mj is not None]
    if not read:
        return None, f"{name} has no energy counter"
    begin, end = (_counter_at(read, when) for when in span or (-math.inf, -math.inf))
    if begin is None or end is None:
        return None, f"{name} was not sampled over the whole window"
    return (end - begin) / 1000, ""


def _counter_at(read: Sequence[tuple[float, int]], when: float) -> float | None:
    """Return the counter at a time, interpolated between two samples; None outside the sampled time."""
    place = bisect_left(read, when, key=lambda pair: pair[0])
    if place == len(read):
        return None
    later, counted = read[place]
    if later == when:
        return counted
    if place == 0:
        return None
    earlier, before = read[place - 1]
    return before + (counted - before) * (when - earlier) / (later - earlier)


# --- clocks, throttling, errors ---------------------------------------------------------------


def _throttled(bits: Counter[int]) -> dict[str, float] | None:
    if not bits:
        return None
    return {
        reason: sum(count for value, count in bits.items() if value & bit) / bits.total()
        for reason, bit in THROTTLE_BITS.items()
    }


def _slowest(gpus: Sequence[_Gpu]) -> SlowGpu | None:
    known = [
        SlowGpu(host=gpu.host, index=gpu.facts.index, uuid=gpu.facts.uuid, sm_clock_mhz=gpu.sm_clock_mhz)
        for gpu in gpus
        if gpu.sm_clock_mhz is not None
    ]
    return min(known, key=lambda gpu: gpu.sm_clock_mhz, default=None)


def _growth(samples: Sequence[tuple[float, GpuSample]], counter: str) -> int | None:
    """Return by how much a counter grew, but at least 0, because the counter restarts if the driver is reloaded."""
    read: list[int] = _known(getattr(sample, counter) for _, sample in samples)
    return max(read[-1] - read[0], 0) if read else None


def _sum(counts: Sequence[int | None]) -> int | None:
    """Return the sum, or None if any count is unknown."""
    known = _known(counts)
    return sum(known) if len(known) == len(counts) else None


def lost_gpus(nodes: Iterable[NodeRecord]) -> list[str]:
    """Return the GPUs that did not respond in the last sample. They may explain a failure."""
    found = []
    for node in nodes:
        last = node.samples[-1] if node.samples else None
        for facts, row in zip(node.facts.gpus if node.facts else [], last.gpus if last else [], strict=False):
            error = last.errors.get(str(facts.index)) if last and row is None else None
            if error:
                place = f" ({facts.bus_id})" if facts.bus_id else ""
                found.append(f"GPU {facts.index}{place} of {node.name} fell off the bus: NVML reports {error}")
    return found


def _notes(lost: Sequence[str], nodes: Sequence[NodeFacts], gpus: Sequence[_Gpu]) -> list[str]:
    """Return notes about lost GPUs, and about facts that differ between nodes or GPUs."""
    found = [first_few(lost, between="; ")] if lost else []
    parts: dict[str, list[Any]] = {
        "drivers": [node.driver for node in nodes],
        "power limits (W)": [gpu.facts.power_limit_w for gpu in gpus],
        "types of GPU": [gpu.facts.name for gpu in gpus],
    }
    for what, values in parts.items():
        counts = Counter(values).most_common()
        if len(counts) > 1:
            shown = ", ".join(f"{value or 'unknown'} ({count})" for value, count in counts)
            found.append(f"different {what}: {shown}")
    return found


def _known(values: Iterable[Known | None]) -> list[Known]:
    return [value for value in values if value is not None]
