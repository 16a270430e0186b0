"""Steps as they come -> steps.jsonl and TensorBoard, so that a killed launcher loses none.

TensorBoard's records are written here in place, without TensorFlow: its own writer has a thread that dies with a
traceback on a full disk and takes time from a CPU that trains. Which scalars there are is in
benchmarks/dashboards/live.py.
"""

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import msgspec

from benchmarks.dashboards import machines
from benchmarks.dashboards.live import step_scalars
from benchmarks.files import cannot_write, leave_word
from benchmarks.runs.runfolder import STEPS, RunFolder, remake_command
from benchmarks.telemetry import samples
from benchmarks.values import Benchmark, Step

EVENT_FILES = "events.out.tfevents.*"


class StepSink:
    """Writes every step the moment it is read. Of several launchers that follow one run, the first alone writes."""

    def __init__(self, folder: RunFolder, benchmark: Benchmark) -> None:
        self._path = folder.path / STEPS
        self._folder, self._benchmark = folder, benchmark
        self._tokens = benchmark.tokens_per_step
        self._queued = folder.is_queued()
        self._events: ScalarWriter | None = None
        self._descriptor = -1

    def __enter__(self) -> "StepSink":
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another launcher writes them
            return self
        except OSError:  # a file system without locks
            pass
        # What a launcher before this one has written is read again from the raw files.
        os.ftruncate(self._descriptor, 0)
        for old in (self._folder.path / "tensorboard").glob(EVENT_FILES):
            old.unlink()
        self._events = ScalarWriter(self._folder, self._benchmark)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        if self._events is not None:
            self._events.close()

    def take(self, steps: list[Step]) -> list[Step]:
        """The same steps with their tokens, written down."""
        counted = [msgspec.structs.replace(step, tokens=self._tokens) for step in steps]
        if self._events is None:
            return counted
        text = b"".join(msgspec.json.encode(step) + b"\n" for step in counted)
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError as error:
            if not self._queued:  # of a job that trains on, this is not how it ended
                leave_word(self._folder.phase_dir(self._folder.measured_phase().name), error)
            why = "the steps written until then are kept, and so are the raw files"
            raise cannot_write(error, self._path, why, remake_command(self._path.parent)) from None
        self._events.write(counted)
        return counted


# --- TensorBoard --------------------------------------------------------------------------------


class ScalarWriter:
    """Writes <run>/tensorboard/; opened at the first step, because importing TensorBoard takes a while.

    Encoding scalars takes processor time. On a machine that trains on its own CPU that would show in quick
    steps, so those are kept until the run has ended; nobody watches ten points a second. So are the samples of the
    machines: the files of hundreds of nodes on a shared disk are read once.
    """

    LIVE_STEP_SECONDS = 0.1

    def __init__(self, folder: RunFolder, benchmark: Benchmark) -> None:
        self._run, self._benchmark = folder, benchmark
        self._phase = folder.measured_phase().name
        self._figures = step_scalars(benchmark)
        self._started = time.time()
        self._file: BinaryIO | None = None
        self._records: Any = None  # TensorBoard ships no types
        self._described: set[str] = set()
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
                self._put(step.step, self._when(step), self._figures.of(step), self._figures.descriptions)
            if last:
                self._put_samples()
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            print(f"stepmark: TensorBoard's events could not be written: {error.strerror}", file=sys.stderr)

    def _when(self, step: Step) -> float:
        """When a step ended, by the clock of rank 0's host where its worker says when it began."""
        if step.attempt not in self._begins:
            self._begins[step.attempt] = machines.begin_of(self._run.phase_dir(self._phase, step.attempt))
        begin = self._begins[step.attempt]
        if begin is None or step.elapsed_seconds is None:
            return self._started + (step.elapsed_seconds or 0.0)
        self._ends.setdefault(step.attempt, []).append((step.step, begin + step.elapsed_seconds))
        return begin + step.elapsed_seconds

    def _put_samples(self) -> None:
        gpus = self._benchmark.hardware.kind != "cpu"
        for attempt, ends in self._ends.items():
            nodes = samples.read(self._run.telemetry_dir(attempt)).nodes
            sampled = [sample for node in nodes for sample in node.samples]
            for step, when, own in machines.by_step(self._begins[attempt] or 0.0, ends, sampled):
                self._put(step, when, machines.scalars(own, gpus=gpus), lambda: machines.DESCRIPTIONS)

    def _put(
        self, step: int, when: float, found: Mapping[str, float], described: Callable[[], Mapping[str, str]]
    ) -> None:
        if not found:
            return
        if self._file is None:
            folder = self._run.path / "tensorboard"
            folder.mkdir(exist_ok=True)
            self._file = (folder / f"events.out.tfevents.{int(self._started)}.stepmark").open("ab")
            self._records = records_of(self._file, self._started)
        new = found.keys() - self._described
        self._records.write(event(step, when, found, described() if new else {}, new))
        self._described |= new


def records_of(stream: BinaryIO, when: float) -> Any:
    """What writes TensorBoard's records to a new file, which begins with the version."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    records = RecordWriter(stream)
    records.write(Event(wall_time=when, file_version="brain.Event:2").SerializeToString())
    return records


def event(
    step: int, when: float, found: Mapping[str, float], descriptions: Mapping[str, str], new: Iterable[str] = ()
) -> bytes:
    """One event with all scalars of a step; a tag that is `new` to its file says what it means."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar.metadata import create_summary_metadata

    told = {tag: create_summary_metadata("", descriptions[tag]) for tag in new if tag in descriptions}
    values = [
        Summary.Value(tag=tag, simple_value=value, **({"metadata": told[tag]} if tag in told else {}))
        for tag, value in found.items()
    ]
    data: bytes = Event(wall_time=when, step=step, summary=Summary(value=values)).SerializeToString()
    return data


def write_ended(folder: RunFolder) -> None:
    """The scalars of a run that has ended, where nobody followed it and wrote them as its steps came."""
    if any((folder.path / "tensorboard").glob(EVENT_FILES)):
        return
    last = max(folder.attempts(), default=0)
    writer = ScalarWriter(folder, folder.benchmark())
    writer.write([step for step in folder.stored_steps() if step.attempt == last])
    writer.close()
