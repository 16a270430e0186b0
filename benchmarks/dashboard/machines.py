"""What the machines did in each step: the samples of all nodes between a step's begin and its end, as scalars.

A step that no sample falls in has none: its figures are those of the next one that has.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.files import NOT_JSON
from benchmarks.measuring.statistics import mean
from benchmarks.telemetry.gpu import THROTTLE_BITS
from benchmarks.telemetry.samples import GpuSample, NodeSample

FIRST_EVENTS = "events-rank0.jsonl"
SLOWER = sum(THROTTLE_BITS.values())


def _throttled(reasons: Sequence[float]) -> float | None:
    """The share of samples in which something made a GPU slower."""
    return mean([100.0 * bool(int(bits) & SLOWER) for bits in reasons])


class Scalar(NamedTuple):
    """A tag: which number of a sample, what is made of those of one step, and what it means."""

    name: str
    field: str
    made: Callable[[Sequence[float]], float | None]
    description: str
    scale: float = 1.0


OF_GPUS = (
    Scalar("gpu_power_watts", "power_w", mean, "of one GPU: mean over all GPUs and the samples of the step"),
    Scalar("gpu_power_watts_highest", "power_w", max, "of one GPU: the highest of all GPUs and samples"),
    Scalar("gpu_sm_clock_mhz", "sm_clock_mhz", mean, "mean over all GPUs and the samples of the step"),
    Scalar("gpu_sm_clock_mhz_lowest", "sm_clock_mhz", min, "of the slowest GPU"),
    Scalar("gpu_memory_clock_mhz", "memory_clock_mhz", mean, "mean over all GPUs and the samples of the step"),
    Scalar("gpu_utilization_percent", "utilization_percent", mean, "NVML's: the time in which any kernel ran; mean"),
    Scalar("gpu_memory_gb_highest", "memory_used_bytes", max, "of one GPU, decimal GB: the most that any held", 1e-9),
    Scalar("gpu_temperature_c_highest", "temperature_c", max, "of the hottest GPU"),
    Scalar("gpu_throttled_percent", "throttle_reasons", _throttled, "samples slowed by power, heat or hardware"),
)
OF_NODES = (
    Scalar("cpu_utilisation_percent", "cpu_utilisation", mean, "busy share of a node's processors: mean", 100.0),
    Scalar("host_memory_gb_highest", "memory_used_bytes", max, "of one node, decimal GB: the most in use", 1e-9),
)
DESCRIPTIONS = {f"telemetry/{one.name}": one.description for one in (*OF_GPUS, *OF_NODES)}


def scalars(samples: Sequence[NodeSample], *, gpus: bool = True) -> dict[str, float]:
    """Tag -> value of what was sampled in one step. `gpus`: whether the nodes' GPUs are the run's."""
    rows = [row for sample in samples for row in sample.gpus if row is not None] if gpus else []
    return _made(OF_GPUS, rows) | _made(OF_NODES, samples)


def _made(table: Sequence[Scalar], rows: Sequence[GpuSample | NodeSample]) -> dict[str, float]:
    found = {}
    for one in table:
        numbers = [number * one.scale for row in rows if (number := getattr(row, one.field)) is not None]
        value = one.made(numbers) if numbers else None
        if value is not None:
            found[f"telemetry/{one.name}"] = float(value)
    return found


# --- which samples are a step's -------------------------------------------------------------------


def by_step(
    begin_unix: float, ends: Iterable[tuple[int, float]], samples: Iterable[NodeSample]
) -> Iterator[tuple[int, float, list[NodeSample]]]:
    """The steps that have samples, when each ended, and its own. Samples from outside all steps are of none."""
    known = sorted((one for one in samples if one.time >= begin_unix), key=lambda one: one.time)
    first = 0
    for step, unix_seconds in ends:
        after = bisect_right(known, unix_seconds, key=lambda one: one.time)
        if after > first:
            yield step, unix_seconds, known[first:after]
            first = after


def begin_of(phase_dir: Path) -> float | None:
    """When rank 0 began its first step, by its own clock; None where its worker does not say so."""
    with contextlib.suppress(OSError), (phase_dir / FIRST_EVENTS).open("rb") as stream:
        for line in stream:
            with contextlib.suppress(*NOT_JSON, TypeError, KeyError):
                fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
                if fields.get("event") == "started":
                    return float(fields["unix_seconds"])
                if fields.get("event") == "step":
                    return None
    return None
