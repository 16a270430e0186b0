"""The GPUs' part of telemetry: energy, power, clocks, throttling, errors; which GPU was slow. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmarks.statistics import mean, median
from benchmarks.telemetry.samples import GpuFacts, GpuSample, NodeRecord
from benchmarks.text import some
from benchmarks.values import Value

# NVML's clocks event reasons that mean slower than asked for (NVIDIA, nvml.h of nvidia-ml-py 13).
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
    """The GPU with the lowest median SM clock."""

    host: str
    index: int
    uuid: str | None
    sm_clock_mhz: float


class GpuTelemetry(Value, frozen=True):
    """A part of result.json: the GPUs of all nodes within the window; errors over the whole attempt."""

    gpus: int
    energy_joules: float | None  # of all of them, over the window
    joules_per_token: float | None
    power_watts_mean: float | None  # of one GPU
    power_watts_max: float | None  # of one GPU
    power_limit_watts: float | None  # the lowest that is enforced
    sm_clock_mhz_median: float | None
    sm_clock_mhz_highest: int | None  # what the GPUs can do at most
    throttled: dict[str, float] | None  # reason -> share of the samples
    slowest: SlowGpu | None
    temperature_c_max: int | None
    memory_bytes_max: int | None  # of one GPU
    ecc_uncorrected: int | None  # errors during the attempt, here and below
    pcie_replays: int | None
    remapped_rows: int | None
    driver: str | None
    cuda: str | None  # the newest that the driver takes
    null_because: dict[str, str]
    notes: list[str]


class _Gpu(NamedTuple):
    host: str
    facts: GpuFacts
    samples: list[tuple[float, GpuSample]]  # all of the attempt
    inside: list[GpuSample]  # those within the window
    new_remapped_rows: int | None

    @property
    def name(self) -> str:
        return f"GPU {self.facts.index} of {self.host}"


def gpu_figures(
    nodes: Sequence[NodeRecord],
    span: Span | None,
    tokens: int | None,
    expected: int | None,
    *,
    too_short: str,
    incomplete: str,
    unclaimed: str | None,
) -> tuple[GpuTelemetry | None, str]:
    """The figures, or why there are none. `too_short`, `incomplete`: why some would be wrong; empty where not."""
    if expected == 0:
        return None, "the run uses no GPU"
    gpus = [gpu for node in nodes for gpu in _gpus_of(node, span)]
    if not gpus:
        reasons = _known(node.facts.no_gpus_because for node in nodes if node.facts)
        return None, reasons[0] if reasons else "no node says what GPUs it has"
    energy, no_energy = _energy(gpus, span, expected, too_short or incomplete)
    per_token = energy / tokens if energy is not None and tokens else None
    samples = [] if too_short else [sample for gpu in gpus for sample in gpu.inside]

    def sampled(field: str) -> list[Any]:
        return _known(getattr(sample, field) for sample in samples)

    in_window: dict[str, Any] = {
        "power_watts_mean": mean(sampled("power_w")),
        "power_watts_max": max(sampled("power_w"), default=None),
        "sm_clock_mhz_median": median(sampled("sm_clock_mhz")),
        "throttled": _throttled(sampled("throttle_reasons")),
        "slowest": None if too_short else _slowest(gpus),
        "temperature_c_max": max(sampled("temperature_c"), default=None),
        "memory_bytes_max": max(sampled("memory_used_bytes"), default=None),
    }
    over_attempt: dict[str, Any] = {
        "power_limit_watts": min(_known(gpu.facts.power_limit_w for gpu in gpus), default=None),
        "sm_clock_mhz_highest": max(_known(gpu.facts.max_sm_clock_mhz for gpu in gpus), default=None),
        "ecc_uncorrected": _sum([_growth(gpu, "ecc_uncorrected") for gpu in gpus]),
        "pcie_replays": _sum([_growth(gpu, "pcie_replays") for gpu in gpus]),
        "remapped_rows": _sum([gpu.new_remapped_rows for gpu in gpus]),
        "driver": next(iter(_known(node.facts.driver for node in nodes if node.facts)), None),
        "cuda": next(iter(_known(node.facts.cuda for node in nodes if node.facts)), None),
    }
    unsaid = "the driver does not say it of all GPUs"
    nulls = {name: too_short or unsaid for name, value in in_window.items() if value is None}
    nulls |= {name: unsaid for name, value in over_attempt.items() if value is None}
    if energy is None:
        nulls["energy_joules"] = no_energy
    if per_token is None:
        nulls["joules_per_token"] = no_energy or unclaimed or "no token was trained in the window"
    return GpuTelemetry(
        gpus=len(gpus),
        energy_joules=energy,
        joules_per_token=per_token,
        **in_window,
        **over_attempt,
        null_because=nulls,
        notes=_notes(nodes, gpus),
    ), ""


def _gpus_of(node: NodeRecord, span: Span | None) -> list[_Gpu]:
    found = []
    after = node.end.remapped_rows if node.end else []
    for place, facts in enumerate(node.facts.gpus if node.facts else []):
        rows = [(s.time, s.gpus[place]) for s in node.samples if place < len(s.gpus)]
        samples = [(time, row) for time, row in rows if row is not None]
        inside = [row for time, row in samples if span is None or span[0] <= time <= span[1]]
        before, now = facts.remapped_rows, after[place] if place < len(after) else None
        new = None if before is None or now is None else now - before
        found.append(_Gpu(node.name, facts, samples, inside, new))
    return found


# --- energy -----------------------------------------------------------------------------------


def _energy(gpus: Sequence[_Gpu], span: Span | None, expected: int | None, unfit: str) -> tuple[float | None, str]:
    """The difference of all counters over the window, or why it is unknown: one unknown GPU is enough."""
    if span is None or unfit:
        return None, unfit or "no step is counted, or its time of day is unknown"
    if expected not in (None, len(gpus)):
        return None, f"{len(gpus)} GPUs were sampled, the run uses {expected}"
    total = 0.0
    for gpu in gpus:
        read = [(time, sample.energy_mj) for time, sample in gpu.samples if sample.energy_mj is not None]
        if not read:
            return None, f"{gpu.name} has no energy counter"
        begin, end = _counter_at(read, span[0]), _counter_at(read, span[1])
        if begin is None or end is None:
            return None, f"{gpu.name} was not sampled over the whole window"
        total += (end - begin) / 1000
    return total, ""


def _counter_at(read: Sequence[tuple[float, int]], when: float) -> float | None:
    """Between the samples before and after, by proportion; None outside what was sampled."""
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


def _throttled(bits: Sequence[int]) -> dict[str, float] | None:
    if not bits:
        return None
    return {reason: sum(bool(value & bit) for value in bits) / len(bits) for reason, bit in THROTTLE_BITS.items()}


def _slowest(gpus: Sequence[_Gpu]) -> SlowGpu | None:
    clocks = [(gpu, median(_known(sample.sm_clock_mhz for sample in gpu.inside))) for gpu in gpus]
    known = [
        SlowGpu(host=gpu.host, index=gpu.facts.index, uuid=gpu.facts.uuid, sm_clock_mhz=clock)
        for gpu, clock in clocks
        if clock is not None
    ]
    return min(known, key=lambda gpu: gpu.sm_clock_mhz, default=None)


def _growth(gpu: _Gpu, counter: str) -> int | None:
    """How much a counter grew. A driver that was loaded again counts from zero."""
    read = _known(getattr(sample, counter) for _, sample in gpu.samples)
    return max(read[-1] - read[0], 0) if read else None


def _sum(counts: Sequence[int | None]) -> int | None:
    """None where one is unknown."""
    known = _known(counts)
    return sum(known) if len(known) == len(counts) else None


def lost_gpus(nodes: Sequence[NodeRecord]) -> list[str]:
    """GPUs that answered nothing any more when the sampling ended: why a run failed, where it did."""
    found = []
    for node in nodes:
        last = node.samples[-1] if node.samples else None
        for facts, row in zip(node.facts.gpus if node.facts else [], last.gpus if last else [], strict=False):
            error = last.errors.get(str(facts.index)) if last and row is None else None
            if error:
                place = f" ({facts.bus_id})" if facts.bus_id else ""
                found.append(f"GPU {facts.index}{place} of {node.name} fell off the bus: NVML says {error}")
    return found


def _notes(nodes: Sequence[NodeRecord], gpus: Sequence[_Gpu]) -> list[str]:
    """GPUs that were lost, and what should be the same everywhere and is not."""
    lost = [
        f"GPU {index} of {node.name}: {error}"
        for node in nodes
        for index, error in sorted({pair for sample in node.samples for pair in sample.errors.items()})
    ]
    found = [some(lost, between="; ")] if lost else []
    parts: dict[str, list[Any]] = {
        "drivers": [node.facts.driver for node in nodes if node.facts],
        "power limits (W)": [gpu.facts.power_limit_w for gpu in gpus],
        "kinds of GPU": [gpu.facts.name for gpu in gpus],
    }
    for what, values in parts.items():
        counts = Counter(values).most_common()
        if len(counts) > 1:
            shown = ", ".join(f"{value or 'unknown'} ({count})" for value, count in counts)
            found.append(f"different {what}: {shown}")
    return found


def _known(values: Iterable[Known | None]) -> list[Known]:
    return [value for value in values if value is not None]
