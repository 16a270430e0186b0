"""TensorBoard's event files: the scalars of a run's steps, and the records of a dashboard.

Times are `perf/...`. Times under a profiler, or in steps in which jax recorded or compiled (PGLE), are
`profiled/...`; times of a run with an injected slowdown are `slowed/...`. So no chart draws them with comparable
runs. The loss is always `train/loss`, because none of this changes it.

The records are written here without TensorFlow's writer, whose thread dies with a traceback on a full disk and takes
time from a training CPU.
"""

import contextlib
import functools
import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from benchmarks.files import NOT_JSON
from benchmarks.measuring.figures import RECORDED
from benchmarks.measuring.summary import not_comparable
from benchmarks.measuring.utilisation import mfu, workload_of
from benchmarks.runs.runfolder import OTHER_ATTEMPTS, RunFolder
from benchmarks.statistics import RunningMean, mean
from benchmarks.telemetry import samples
from benchmarks.telemetry.gpu import THROTTLE_BITS
from benchmarks.telemetry.samples import GpuSample, NodeRecord, NodeSample
from benchmarks.values import Benchmark, Step

EVENT_FILES = "events.out.tfevents.*"
PERF, PROFILED, SLOWED = "perf", "profiled", "slowed"


@functools.lru_cache(maxsize=8192)  # of a hundred thousand runs, most share their words
def plain(text: str) -> str:
    """Return a text as part of a tag or of a folder's name: letters, digits and a few signs."""
    return re.sub(r"[^A-Za-z0-9.=+-]+", "_", text).strip("_.") or "_"


# --- one run --------------------------------------------------------------------------------------


class ScalarWriter:
    """Writes <run>/tensorboard/; opened at the first step, because importing TensorBoard takes a while.

    Encoding scalars takes processor time, which would slow quick steps on a training CPU. Quick steps are therefore
    written when the run has ended. The samples of the machines are written then too, so that the files of hundreds of
    nodes on a shared disk are read once.
    """

    LIVE_STEP_SECONDS = 0.1

    def __init__(self, folder: RunFolder, benchmark: Benchmark) -> None:
        self._run, self._benchmark = folder, benchmark
        self._phase = folder.measured_phase().name
        self._place = PROFILED if not_comparable(benchmark) else PERF
        if benchmark.instruments.inject_slowdown and benchmark.instruments.profile == "none":
            self._place = SLOWED
        # What a step of one second would reach, against each peak; in a step of two it is half.
        entries = [] if benchmark.dtype in benchmark.hardware.emulated else mfu(workload_of(benchmark), 1.0, {}) or []
        self._mfu = [one for one in entries if one.counted_by == entries[0].counted_by]
        self._started = time.time()
        self._file: BinaryIO | None = None
        self._records: Any = None  # TensorBoard ships no types
        self._waiting: list[Step] = []
        self._begins: dict[int, float | None] = {}  # attempt -> when its first step began
        self._ends: dict[int, list[tuple[int, float]]] = {}  # attempt -> its steps, and when each ended

    def write(self, steps: list[Step]) -> None:
        self._waiting += [step for step in steps if step.rank == 0]
        newest = self._waiting[-1].seconds if self._waiting else None
        if newest is not None and newest >= self.LIVE_STEP_SECONDS:
            self._write_waiting()

    def close(self) -> None:
        self._write_waiting(last=True)
        if self._file is not None:
            with contextlib.suppress(OSError):  # said already, when it was written to
                self._file.close()

    def _write_waiting(self, *, last: bool = False) -> None:
        """The scalars are made from steps.jsonl's steps: where the disk is full, they are not worth the run."""
        steps, self._waiting = self._waiting, []
        try:
            for step in steps:
                self._put(step.step, self._when(step), self._scalars(step))
            if last:
                self._put_samples()
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            print(f"stepmark: TensorBoard's events could not be written: {error.strerror}", file=sys.stderr)

    def _scalars(self, step: Step) -> dict[str, float]:
        """Tag -> value; what a step does not have has no tag."""
        place = PROFILED if step.excluded_because in RECORDED else self._place
        found = {} if step.loss is None else {"train/loss": step.loss}
        if step.seconds is not None:
            found[f"{place}/step_seconds"] = step.seconds
        if step.seconds and step.tokens:
            found[f"{place}/tokens_per_second"] = step.tokens / step.seconds
            found[f"{place}/tokens_per_second_per_gpu"] = step.tokens / step.seconds / self._benchmark.gpus
            for one in self._mfu:
                peak = plain(f"{one.convention} {one.precision_peak}")
                found[f"{place}/mfu_percent/{peak}"] = one.percent / step.seconds
        return found

    def _when(self, step: Step) -> float:
        """Return when a step ended, by the clock of rank 0's host if its worker recorded the start."""
        if step.attempt not in self._begins:
            self._begins[step.attempt] = _begin_of(self._run.phase_dir(self._phase, step.attempt))
        begin = self._begins[step.attempt]
        if begin is None or step.elapsed_seconds is None:
            return self._started + (step.elapsed_seconds or 0.0)
        self._ends.setdefault(step.attempt, []).append((step.step, begin + step.elapsed_seconds))
        return begin + step.elapsed_seconds

    def _put_samples(self) -> None:
        gpus = self._benchmark.hardware.kind != "cpu"
        for attempt, ends in self._ends.items():
            nodes = samples.read(self._run.telemetry_dir(attempt))
            for (step, when), found in machine_scalars(nodes, self._begins[attempt] or 0.0, ends, gpus=gpus):
                self._put(step, when, found)

    def _put(self, step: int, when: float, found: Mapping[str, float]) -> None:
        if not found:
            return
        if self._file is None:
            folder = self._run.path / "tensorboard"
            folder.mkdir(exist_ok=True)
            self._file = (folder / f"events.out.tfevents.{int(self._started)}.stepmark").open("ab")
            self._records = records_of(self._file, self._started)
        self._records.write(event(step, when, found))


def records_of(stream: BinaryIO, when: float) -> Any:
    """Return a function that writes TensorBoard's records to a new file, which begins with the version."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    records = RecordWriter(stream)
    records.write(Event(wall_time=when, file_version="brain.Event:2").SerializeToString())
    return records


def event(step: int, when: float, found: Mapping[str, float]) -> bytes:
    """One event with all scalars of a step."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in found.items()]
    data: bytes = Event(wall_time=when, step=step, summary=Summary(value=values)).SerializeToString()
    return data


def write_ended(folder: RunFolder) -> None:
    """Write the scalars of an ended run, unless they were written during the run."""
    if any((folder.path / "tensorboard").glob(EVENT_FILES)):
        return
    writer = ScalarWriter(folder, folder.benchmark())
    writer.write(
        [step for step in folder.each_stored_step() if step.rank == 0 and step.excluded_because not in OTHER_ATTEMPTS]
    )
    writer.close()


# --- what the machines did in each step --------------------------------------------------------------
# A step without a sample has no values; they belong to the next step with one.

FIRST_EVENTS = "events-rank0.jsonl"
SLOWER = sum(THROTTLE_BITS.values())


class Scalar(NamedTuple):
    """A tag: which number of a sample, and what is made of those of one step."""

    name: str
    field: str
    made: Callable[[Sequence[float]], float | None]
    number: Callable[[float], float] = float


def _throttled(reasons: float) -> float:
    """100 if something made a GPU slower: the mean is the share of samples."""
    return 100.0 * bool(int(reasons) & SLOWER)


def _scaled(by: float) -> Callable[[float], float]:
    return lambda number: number * by


OF_GPUS = (
    Scalar("gpu_power_watts", "power_w", mean),
    Scalar("gpu_power_watts_highest", "power_w", max),
    Scalar("gpu_sm_clock_mhz", "sm_clock_mhz", mean),
    Scalar("gpu_sm_clock_mhz_lowest", "sm_clock_mhz", min),
    Scalar("gpu_utilization_percent", "utilization_percent", mean),
    Scalar("gpu_memory_gb_highest", "memory_used_bytes", max, _scaled(1e-9)),
    Scalar("gpu_temperature_c_highest", "temperature_c", max),
    Scalar("gpu_throttled_percent", "throttle_reasons", mean, _throttled),
)
OF_NODES = (
    Scalar("cpu_utilisation_percent", "cpu_utilisation", mean, _scaled(100.0)),
    Scalar("host_memory_gb_highest", "memory_used_bytes", max, _scaled(1e-9)),
)


def machine_scalars(
    nodes: Iterable[NodeRecord], begin_unix: float, ends: Sequence[tuple[int, float]], *, gpus: bool = True
) -> Iterator[tuple[tuple[int, float], dict[str, Any]]]:
    """Yield each step that has samples, with when it ended, and tag -> value; samples outside all steps are skipped.

    Only one node at a time is in memory. `gpus`: whether the run uses the nodes' GPUs.
    """
    until = list(accumulate((when for _, when in ends), max))
    of_steps: dict[int, dict[str, Any]] = {}  # place in `ends` -> name -> what is made of the nodes until now
    for node in nodes:
        inside = (sample for sample in node.samples if begin_unix <= sample.time <= until[-1])
        for place, own in groupby(inside, key=lambda sample: bisect_left(until, sample.time)):
            step, sampled = of_steps.setdefault(place, {}), list(own)
            _add(step, OF_GPUS, [row for sample in sampled for row in sample.gpus if row is not None and gpus])
            _add(step, OF_NODES, sampled)
    for place, step in sorted(of_steps.items()):
        known = {f"telemetry/{one.name}": step[one.name] for one in (*OF_GPUS, *OF_NODES) if one.name in step}
        yield ends[place], {tag: one.value() if isinstance(one, RunningMean) else one for tag, one in known.items()}


def _add(step: dict[str, Any], table: Sequence[Scalar], rows: Sequence[GpuSample | NodeSample]) -> None:
    """Fold a node's samples into those of a step."""
    for one in table:
        numbers = [one.number(number) for row in rows if (number := getattr(row, one.field)) is not None]
        if numbers and one.made is mean:
            step.setdefault(one.name, RunningMean()).add(numbers)
        elif numbers:
            step[one.name] = one.made([*numbers, step.get(one.name, numbers[0])])


def _begin_of(phase_dir: Path) -> float | None:
    """Return when rank 0 began its first step, by its own clock; None if its worker did not record it."""
    with contextlib.suppress(OSError), (phase_dir / FIRST_EVENTS).open("rb") as stream:
        for line in stream:
            with contextlib.suppress(*NOT_JSON, TypeError, KeyError):
                fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
                if fields.get("event") == "started":
                    return float(fields["unix_seconds"])
                if fields.get("event") == "step":
                    return None
    return None
