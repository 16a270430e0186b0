"""Write TensorBoard's event files: the scalars of a run's steps, and the records of a dashboard.

The tags of times begin with `perf/`. While a profiler runs, and for steps in which jax recorded or compiled (PGLE),
they begin with `profiled/`. In a run with an injected slowdown, they begin with `slowed/`. So no chart mixes
comparable times with other times. The loss is always `train/loss`, because profilers and slowdowns do not change it.

TensorFlow's writer is not used: on a full disk, its thread ends with a traceback, and on a CPU, it slows down the
training.
"""

import contextlib
import functools
import os
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


@functools.lru_cache(maxsize=8192)  # many runs share the same texts
def plain(text: str) -> str:
    """Return the text in a form that fits into a tag or a folder's name: only letters, digits and a few signs."""
    return re.sub(r"[^A-Za-z0-9.=+-]+", "_", text).strip("_.") or "_"


# --- one run --------------------------------------------------------------------------------------


class ScalarWriter:
    """Writes <run>/tensorboard/. It opens the file at the first step, because importing TensorBoard takes time.

    Encoding scalars takes processor time, which would slow down short steps that train on a CPU. Short steps are
    therefore written after the run has ended. The samples of the machines are also written then, so that the files of
    hundreds of nodes are read only once from a shared disk.
    """

    LIVE_STEP_SECONDS = 0.1

    def __init__(self, folder: RunFolder, benchmark: Benchmark) -> None:
        self._run, self._benchmark = folder, benchmark
        self._phase = folder.measured_phase().name
        self._place = PROFILED if not_comparable(benchmark) else PERF
        if benchmark.instruments.inject_slowdown and benchmark.instruments.profile == "none":
            self._place = SLOWED
        # For each peak, the MFU of a step that takes one second. MFU is inversely proportional to the step time.
        entries = [] if benchmark.dtype in benchmark.hardware.emulated else mfu(workload_of(benchmark), 1.0, {}) or []
        self._mfu = [one for one in entries if one.counted_by == entries[0].counted_by]
        self._started = time.time()
        self._file: BinaryIO | None = None
        self._records: Any = None  # TensorBoard ships no types
        self._waiting: list[Step] = []
        self._begins: dict[int, float | None] = {}  # attempt -> when its first step started
        self._ends: dict[int, list[tuple[int, float]]] = {}  # attempt -> (step, end time) of its steps

    def write(self, steps: list[Step]) -> None:
        self._waiting += [step for step in steps if step.rank == 0]
        newest = self._waiting[-1].seconds if self._waiting else None
        if newest is not None and newest >= self.LIVE_STEP_SECONDS:
            self._write_waiting()

    def close(self) -> None:
        self._write_waiting(last=True)
        if self._file is not None:
            with contextlib.suppress(OSError):  # a failed write is already reported
                self._file.close()

    def _write_waiting(self, *, last: bool = False) -> None:
        """Write the steps in memory. An error only prints a message, because steps.jsonl contains the data too."""
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
        """Return tag -> value for a step, without unknown values."""
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
        """Return when a step ended. The time is exact if rank 0's worker recorded its start."""
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
        if self._records is None:  # set last, because Ctrl-C may interrupt this, and `close` still writes
            folder, name = self._run.path / "tensorboard", f"events.out.tfevents.{int(self._started)}.stepmark"
            folder.mkdir(exist_ok=True)
            # Follow no link, because another user's link could point to any file of this user.
            inside = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=inside)
                new = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=inside)
                self._file = os.fdopen(new, "wb")
            finally:
                os.close(inside)
            self._records = records_of(self._file, self._started)
        self._records.write(event(step, when, found))


def records_of(stream: BinaryIO, when: float) -> Any:
    """Return a writer of TensorBoard's records for a new file, after writing the first record with the version."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    records = RecordWriter(stream)
    records.write(Event(wall_time=when, file_version="brain.Event:2").SerializeToString())
    return records


def event(step: int, when: float, found: Mapping[str, float]) -> bytes:
    """Return an encoded event that contains all scalars of one step."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in found.items()]
    data: bytes = Event(wall_time=when, step=step, summary=Summary(value=values)).SerializeToString()
    return data


def write_ended(folder: RunFolder) -> None:
    """Write the scalars of an ended run, unless they were already written during the run."""
    if any((folder.path / "tensorboard").glob(EVENT_FILES)):
        return
    writer = ScalarWriter(folder, folder.benchmark())
    writer.write(
        [step for step in folder.each_stored_step() if step.rank == 0 and step.excluded_because not in OTHER_ATTEMPTS]
    )
    writer.close()


# --- the samples of the machines in each step --------------------------------------------------------
# If no sample exists for a step, the step has no values.

FIRST_EVENTS = "events-rank0.jsonl"
SLOWER = sum(THROTTLE_BITS.values())


class Scalar(NamedTuple):
    """A tag: the field of the samples that it shows, and how the values within one step are combined."""

    name: str
    field: str
    made: Callable[[Sequence[float]], float | None]
    number: Callable[[float], float] = float


def _throttled(reasons: float) -> float:
    """Return 100 if the GPU was throttled, otherwise 0. The mean of these is the percentage of throttled samples."""
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
    """Yield (step, end time) and tag -> value for each step that has samples. Samples outside steps are skipped.

    Only the samples of one node are in memory at a time. `gpus` is true if the run uses the GPUs of the nodes.
    """
    until = list(accumulate((when for _, when in ends), max))
    of_steps: dict[int, dict[str, Any]] = {}  # index in `ends` -> name -> value so far
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
    """Add the samples of a node to the values of a step."""
    for one in table:
        numbers = [one.number(number) for row in rows if (number := getattr(row, one.field)) is not None]
        if numbers and one.made is mean:
            step.setdefault(one.name, RunningMean()).add(numbers)
        elif numbers:
            step[one.name] = one.made([*numbers, step.get(one.name, numbers[0])])


def _begin_of(phase_dir: Path) -> float | None:
    """Return when rank 0's first step started, by that worker's clock; None if it did not record the start."""
    with contextlib.suppress(OSError), (phase_dir / FIRST_EVENTS).open("rb") as stream:
        for line in stream:
            with contextlib.suppress(*NOT_JSON, TypeError, KeyError):
                fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
                if fields.get("event") == "started":
                    return float(fields["unix_seconds"])
                if fields.get("event") == "step":
                    return None
    return None
