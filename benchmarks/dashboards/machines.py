"""What the machines did in each step: the samples of all nodes between a step's begin and its end, as scalars.

A step that no sample falls in has none: its figures are those of the next one that has.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measuring.statistics import mean
from benchmarks.telemetry.gpu import THROTTLE_BITS
from benchmarks.telemetry.samples import NODE_FILES, GpuSample, NodeSample
from benchmarks.values import Value

FIRST_EVENTS = "events-rank0.jsonl"
SLOWER = sum(THROTTLE_BITS.values())

DESCRIPTIONS = {
    "telemetry/gpu_power_watts": "of one GPU: mean over all GPUs and the samples of the step",
    "telemetry/gpu_power_watts_highest": "of one GPU: the highest of all GPUs and samples",
    "telemetry/gpu_sm_clock_mhz": "mean over all GPUs and the samples of the step",
    "telemetry/gpu_sm_clock_mhz_lowest": "of the slowest GPU",
    "telemetry/gpu_memory_clock_mhz": "mean over all GPUs and the samples of the step",
    "telemetry/gpu_utilization_percent": "NVML's: the share of time in which any kernel ran; mean over all GPUs",
    "telemetry/gpu_memory_gb_highest": "of one GPU, decimal GB: the most that any held",
    "telemetry/gpu_temperature_c_highest": "of the hottest GPU",
    "telemetry/gpu_throttled_percent": "samples in which a GPU was slower than asked for (power, heat, hardware)",
    "telemetry/cpu_utilisation_percent": "busy share of all processors of a node: mean over nodes and samples",
    "telemetry/host_memory_gb_highest": "of one node, decimal GB: the most that any used",
}


def scalars(samples: Sequence[NodeSample], *, gpus: bool = True) -> dict[str, float]:
    """Tag -> value of what was sampled in one step. `gpus`: whether the nodes' GPUs are the run's."""
    rows = [row for sample in samples for row in sample.gpus if row is not None] if gpus else []
    used = [sample.memory_used_bytes for sample in samples if sample.memory_used_bytes is not None]
    busy = [100 * sample.cpu_utilisation for sample in samples if sample.cpu_utilisation is not None]
    figures = {
        **_of_gpus(rows),
        "cpu_utilisation_percent": mean(busy),
        "host_memory_gb_highest": max(used) / 1e9 if used else None,
    }
    return {f"telemetry/{name}": float(value) for name, value in figures.items() if value is not None}


def _of_gpus(rows: Sequence[GpuSample]) -> dict[str, float | None]:
    power = [row.power_w for row in rows if row.power_w is not None]
    clocks = [row.sm_clock_mhz for row in rows if row.sm_clock_mhz is not None]
    memory = [row.memory_used_bytes for row in rows if row.memory_used_bytes is not None]
    reasons = [row.throttle_reasons for row in rows if row.throttle_reasons is not None]
    return {
        "gpu_power_watts": mean(power),
        "gpu_power_watts_highest": max(power, default=None),
        "gpu_sm_clock_mhz": mean(clocks),
        "gpu_sm_clock_mhz_lowest": min(clocks, default=None),
        "gpu_memory_clock_mhz": mean([row.memory_clock_mhz for row in rows if row.memory_clock_mhz is not None]),
        "gpu_utilization_percent": mean(
            [row.utilization_percent for row in rows if row.utilization_percent is not None]
        ),
        "gpu_memory_gb_highest": max(memory) / 1e9 if memory else None,
        "gpu_temperature_c_highest": max(
            (row.temperature_c for row in rows if row.temperature_c is not None), default=None
        ),
        "gpu_throttled_percent": mean([100.0 * bool(bits & SLOWER) for bits in reasons]),
    }


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
