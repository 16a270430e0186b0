"""What the machines did in each step: the samples of all nodes between a step's begin and its end, as scalars.

A step that no sample falls in has none: its figures are those of the next one that has.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.measuring.statistics import mean
from benchmarks.telemetry.gpu import THROTTLE_BITS
from benchmarks.telemetry.samples import NODE_FILES, GpuSample, NodeSample
from benchmarks.values import Value

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


class StepEnd(Value, frozen=True):
    step: int
    unix_seconds: float


class BesideSteps:
    """Hands out the samples step by step. What was sampled before the first step began is of none."""

    def __init__(self, begin_unix: float) -> None:
        self._begin = begin_unix
        self._ends: list[StepEnd] = []
        self._samples: list[NodeSample] = []

    def end(self, step: int, unix_seconds: float) -> None:
        self._ends.append(StepEnd(step=step, unix_seconds=unix_seconds))

    def take(self, samples: Sequence[NodeSample]) -> list[tuple[StepEnd, list[NodeSample]]]:
        """The steps that have samples now, each with its own; samples after the last step wait for the next."""
        known = [*self._samples, *(sample for sample in samples if sample.time >= self._begin)]
        known.sort(key=lambda sample: sample.time)
        found, place = [], 0
        for end in self._ends:
            first = place
            while place < len(known) and known[place].time <= end.unix_seconds:
                place += 1
            if place > first:
                found.append((end, known[first:place]))
        self._ends, self._samples = [], known[place:]
        return found


# --- reading, while they are written --------------------------------------------------------------


def begin_of(phase_dir: Path) -> float | None:
    """When rank 0 began its first step, by its own clock; None where its worker does not say so."""
    with contextlib.suppress(OSError), (phase_dir / FIRST_EVENTS).open("rb") as stream:
        for line in stream:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, TypeError, ValueError, KeyError):
                fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
                if fields.get("event") == "started":
                    return float(fields["unix_seconds"])
                if fields.get("event") == "step":
                    return None
    return None


def follow(folder: Path) -> Callable[[], list[NodeSample]]:
    """New samples of every node at each call; a line that is still being written waits for the next call."""
    offsets: dict[Path, int] = {}
    decoder = msgspec.json.Decoder(NodeSample)

    def new_samples() -> list[NodeSample]:
        found: list[NodeSample] = []
        for path in folder.glob(NODE_FILES):
            with contextlib.suppress(OSError), path.open("rb") as stream:
                stream.seek(offsets.get(path, 0))
                text = stream.read()
                whole = text[: text.rfind(b"\n") + 1]
                offsets[path] = offsets.get(path, 0) + len(whole)
                for line in whole.splitlines():
                    with contextlib.suppress(ValueError, RecursionError):  # facts, ends, and what telemetry names
                        found.append(decoder.decode(line))
        return found

    return new_samples
