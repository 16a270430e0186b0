"""Live scalars of a run for TensorBoard, without TensorFlow; which there are is in benchmarks/dashboards/live.py.

TensorBoard's own writer has a thread that dies with a traceback on a full disk and takes time from a CPU that
trains; its records are written here in place.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.dashboards import machines
from benchmarks.dashboards.live import StepScalars, step_scalars
from benchmarks.runs.runfolder import RunFolder
from benchmarks.telemetry.samples import NodeSample
from benchmarks.values import Benchmark, Step

EVENT_FILES = "events.out.tfevents.*"


class ScalarWriter:
    """Writes <run>/tensorboard/; opened at the first step, because importing TensorBoard takes a while.

    Encoding scalars takes processor time. On a machine that trains on its own CPU that would show in quick
    steps, so those are kept until the run has ended; nobody watches ten points a second.
    """

    LIVE_STEP_SECONDS = 0.1

    def __init__(self, folder: Path, figures: StepScalars, machines: "Machines | None" = None) -> None:
        self._folder = folder
        self._figures = figures
        self._machines = machines
        self._started = time.time()
        self._file: BinaryIO | None = None
        self._records: Any = None  # TensorBoard ships no types
        self._described: set[str] = set()
        self._waiting: list[Step] = []

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
        if not steps and not (last and self._file):
            return
        try:
            if self._file is None:
                self._open()
            for step in steps:
                self._put(step.step, self._when(step), self._figures.of(step), self._figures.descriptions)
            if self._machines is not None:
                for end, samples in self._machines.look(at_once=last):
                    found = machines.scalars(samples, gpus=self._machines.gpus)
                    self._put(end.step, end.unix_seconds, found, lambda: machines.DESCRIPTIONS)
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            print(f"stepmark: TensorBoard's events could not be written: {error.strerror}", file=sys.stderr)

    def _when(self, step: Step) -> float:
        end = self._machines.end(step) if self._machines is not None else None
        return self._started + (step.elapsed_seconds or 0.0) if end is None else end

    def _put(
        self, step: int, when: float, found: Mapping[str, float], described: Callable[[], Mapping[str, str]]
    ) -> None:
        new = found.keys() - self._described
        if found:
            self._records.write(event(step, when, found, described() if new else {}, new))
        self._described |= new

    def _open(self) -> None:
        self._folder.mkdir(exist_ok=True)
        self._file = (self._folder / f"events.out.tfevents.{int(self._started)}.stepmark").open("ab")
        self._records = records_of(self._file, self._started)


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


# --- of a run -----------------------------------------------------------------------------------


class Machines:
    """The samples of a run's machines, beside the steps of its attempts: read as they are written, and seldom.

    A shared folder with the files of hundreds of nodes takes its time: what a look takes, it waits twenty times.
    """

    REST = 20

    def __init__(self, folder: RunFolder, phase: str, *, gpus: bool) -> None:
        self.gpus = gpus
        self._folder, self._phase = folder, phase
        self._attempt: int | None = None
        self._begin: float | None = None
        self._steps = machines.BesideSteps(0.0)
        self._new_samples: Callable[[], list[NodeSample]] = list
        self._looks_again = 0.0

    def end(self, step: Step) -> float | None:
        """When a step ended, by the clock of rank 0's host; None where nothing says it."""
        if step.attempt != self._attempt:
            self._begin_attempt(step.attempt)
        if self._begin is None or step.elapsed_seconds is None:
            return None
        when = self._begin + step.elapsed_seconds
        self._steps.end(step.step, when)
        return when

    def look(self, *, at_once: bool) -> list[tuple[machines.StepEnd, list[NodeSample]]]:
        """The steps that have samples now, with them."""
        before = time.monotonic()
        if self._begin is None or (before < self._looks_again and not at_once):
            return []
        found = self._steps.take(self._new_samples())
        after = time.monotonic()
        self._looks_again = after + self.REST * (after - before)
        return found

    def _begin_attempt(self, attempt: int) -> None:
        self._attempt = attempt
        self._begin = machines.begin_of(self._folder.phase_dir(self._phase, attempt))
        self._steps = machines.BesideSteps(self._begin or 0.0)
        self._new_samples = machines.follow(self._folder.telemetry_dir(attempt))


def writer_of(folder: RunFolder, benchmark: Benchmark) -> ScalarWriter:
    """What writes a run's scalars as its steps come."""
    machines = Machines(folder, folder.measured_phase().name, gpus=benchmark.hardware.kind != "cpu")
    return ScalarWriter(folder.path / "tensorboard", step_scalars(benchmark), machines)


def write_ended(folder: RunFolder) -> None:
    """The scalars of a run that has ended, where nobody followed it and wrote them as its steps came."""
    if any((folder.path / "tensorboard").glob(EVENT_FILES)):
        return
    last = max(folder.attempts(), default=0)
    writer = writer_of(folder, folder.benchmark())
    writer.write([step for step in folder.stored_steps() if step.attempt == last])
    writer.close()
