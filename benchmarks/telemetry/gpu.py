"""The GPUs' part of telemetry: energy, power, clocks, throttling, errors; which GPU was slow. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
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
MOST_NAMED = 8
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
    times: list[float]  # of `samples`: all of the attempt
    samples: list[GpuSample]
    inside: list[GpuSample]  # those within the window
    remapped_rows_after: int | None

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
        return None, _why_none(nodes)
    nulls: dict[str, str] = {}
    samples = [] if too_short else [sample for gpu in gpus for sample in gpu.inside]
    energy = _energy(gpus, span, expected, too_short or incomplete, nulls)
    per_token = energy / tokens if energy is not None and tokens else None
    if per_token is None:
        nulls["joules_per_token"] = nulls.get("energy_joules") or unclaimed or "no token was trained in the window"
    remapped = _remapped(gpus)
    killed = [node.name for node in nodes if node.end is None]
    if remapped is None and killed:
        nulls["remapped_rows"] = f"they are read at the end, and the sampler of {killed[0]} did not come to it"

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
        "ecc_uncorrected": _increments(gpus, "ecc_uncorrected"),
        "pcie_replays": _increments(gpus, "pcie_replays"),
        "remapped_rows": remapped,
        "driver": _most_common([node.facts.driver for node in nodes if node.facts]),
        "cuda": _most_common([node.facts.cuda for node in nodes if node.facts]),
    }
    unsaid = "the driver does not say it of all GPUs"
    for figures, why in ((in_window, too_short or unsaid), (over_attempt, unsaid)):
        nulls |= {name: why for name, value in figures.items() if value is None and name not in nulls}
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
    for place, facts in enumerate(node.facts.gpus if node.facts else []):
        rows = [(s.time, s.gpus[place]) for s in node.samples if place < len(s.gpus)]
        known = [(time, row) for time, row in rows if row is not None]
        after = node.end.remapped_rows if node.end else []
        found.append(
            _Gpu(
                host=node.name,
                facts=facts,
                times=[time for time, _ in known],
                samples=[row for _, row in known],
                inside=[row for time, row in known if span is None or span[0] <= time <= span[1]],
                remapped_rows_after=after[place] if place < len(after) else None,
            )
        )
    return found


def _why_none(nodes: Sequence[NodeRecord]) -> str:
    reasons = [node.facts.no_gpus_because for node in nodes if node.facts and node.facts.no_gpus_because]
    return _most_common(reasons) or "no node says what GPUs it has"


# --- energy -----------------------------------------------------------------------------------


def _energy(
    gpus: Sequence[_Gpu], span: Span | None, expected: int | None, unfit: str, nulls: dict[str, str]
) -> float | None:
    """The difference of all counters over the window; one GPU that is unknown leaves the sum unknown."""
    if span is None:
        nulls["energy_joules"] = "no step is counted, or its time of day is unknown"
    elif unfit:
        nulls["energy_joules"] = unfit
    elif expected not in (None, len(gpus)):
        nulls["energy_joules"] = f"{len(gpus)} GPUs were sampled, the run uses {expected}"
    else:
        used = [_energy_of(gpu, span) for gpu in gpus]
        unknown = [why for why in used if isinstance(why, str)]
        if not unknown:
            return sum(joules for joules in used if not isinstance(joules, str))
        nulls["energy_joules"] = unknown[0] + (f", and {len(unknown) - 1} more" if len(unknown) > 1 else "")
    return None


def _energy_of(gpu: _Gpu, span: Span) -> float | str:
    """Joules, or why they are not known."""
    if gpu.facts.mig:
        return f"{gpu.name} is in MIG mode, and its energy is that of all its slices"
    read = [(time, s.energy_mj) for time, s in zip(gpu.times, gpu.samples, strict=True) if s.energy_mj is not None]
    if not read:
        return f"{gpu.name} has no energy counter"
    if any(after < before for (_, before), (_, after) in pairwise(read)):
        return f"the energy counter of {gpu.name} went backwards"
    begin, end = _counter_at(read, span[0]), _counter_at(read, span[1])
    if begin is None or end is None:
        return f"{gpu.name} was not sampled over the whole window"
    return (end - begin) / 1000


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
    kinds = Counter(bits)
    return {
        reason: sum(count for value, count in kinds.items() if value & bit) / len(bits)
        for reason, bit in THROTTLE_BITS.items()
    }


def _slowest(gpus: Sequence[_Gpu]) -> SlowGpu | None:
    clocks = [(gpu, median(_known(sample.sm_clock_mhz for sample in gpu.inside))) for gpu in gpus]
    known = [(clock, gpu) for gpu, clock in clocks if clock is not None]
    if not known:
        return None
    clock, gpu = min(known, key=lambda pair: pair[0])
    return SlowGpu(host=gpu.host, index=gpu.facts.index, uuid=gpu.facts.uuid, sm_clock_mhz=clock)


def _increments(gpus: Sequence[_Gpu], counter: str) -> int | None:
    """How much the counters of all GPUs grew; None where one GPU has none."""
    total = 0
    for gpu in gpus:
        read = _known(getattr(sample, counter) for sample in gpu.samples)
        if not read:
            return None
        total += max(read[-1] - read[0], 0)  # a driver that was loaded again counts from zero
    return total


def _remapped(gpus: Sequence[_Gpu]) -> int | None:
    pairs = [(gpu.facts.remapped_rows, gpu.remapped_rows_after) for gpu in gpus]
    known = [after - before for before, after in pairs if before is not None and after is not None]
    return sum(known) if len(known) == len(gpus) else None


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
    found = []
    lost = [
        f"GPU {index} of {node.name}: {error}"
        for node in nodes
        for index, error in sorted({pair for sample in node.samples for pair in sample.errors.items()})
    ]
    if lost:
        found.append(some(lost, between="; "))
    facts = [node.facts for node in nodes if node.facts]
    parts = {
        "drivers": [fact.driver for fact in facts],
        "power limits": [
            None if gpu.facts.power_limit_w is None else f"{gpu.facts.power_limit_w:g} W" for gpu in gpus
        ],
        "kinds of GPU": [gpu.facts.name for gpu in gpus],
    }
    for what, values in parts.items():
        counts = Counter(value or "unknown" for value in values)
        if len(counts) > 1:
            shown = ", ".join(f"{value} ({count})" for value, count in counts.most_common(MOST_NAMED))
            found.append(f"different {what}: {shown}")
    return found


# --- small helpers ----------------------------------------------------------------------------


def _known(values: Iterable[Known | None]) -> list[Known]:
    return [value for value in values if value is not None]


def _most_common(values: Iterable[str | None]) -> str | None:
    counts = Counter(_known(values)).most_common(1)
    return counts[0][0] if counts else None
