"""Live scalars of a run for TensorBoard, without TensorFlow: step seconds, tokens/s, loss.

TensorBoard's own writer has a thread that dies with a traceback on a full disk and takes time from a CPU that
trains; its records are written here in place.

Times are `perf/...`. Those of a run under a profiler are `profiled/...`, so that no dashboard draws them beside runs
that are comparable; so are the steps of other runs in which jax recorded or compiled (PGLE). The loss is `train/loss`
of either: recording does not change it.
"""

import contextlib
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.figures import RECORDED
from benchmarks.values import Step


class ScalarWriter:
    """Writes <run>/tensorboard/; opened at the first step, because importing TensorBoard takes a while.

    Encoding scalars takes processor time. On a machine that trains on its own CPU that would show in quick
    steps, so those are kept until the run has ended; nobody watches ten points a second.
    """

    LIVE_STEP_SECONDS = 0.1

    def __init__(self, folder: Path, *, profiled: bool) -> None:
        self._folder = folder
        self._profiled = profiled
        self._started = time.time()
        self._file: BinaryIO | None = None
        self._records: Any = None  # TensorBoard ships no types
        self._waiting: list[Step] = []

    def write(self, steps: list[Step]) -> None:
        self._waiting += [step for step in steps if step.rank == 0]
        newest = self._waiting[-1].seconds if self._waiting else None
        if newest is not None and newest >= self.LIVE_STEP_SECONDS:
            self._write_waiting()

    def close(self) -> None:
        self._write_waiting()
        if self._file is not None:
            with contextlib.suppress(OSError):  # said already, when it was written to
                self._file.close()

    def _write_waiting(self) -> None:
        """The scalars are made from steps.jsonl's steps: where the disk is full, they are not worth the run."""
        steps, self._waiting = self._waiting, []
        if not steps:
            return
        try:
            if self._file is None:
                self._open()
            for step in steps:
                self._records.write(_event(step, self._started, self._profiled))
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            print(f"stepmark: TensorBoard's events could not be written: {error.strerror}", file=sys.stderr)

    def _open(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._folder.mkdir(exist_ok=True)
        self._file = (self._folder / f"events.out.tfevents.{int(self._started)}.stepmark").open("ab")
        self._records = RecordWriter(self._file)
        self._records.write(Event(wall_time=self._started, file_version="brain.Event:2").SerializeToString())


def _event(step: Step, started: float, profiled: bool) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(step, profiled).items()]
    when = started + (step.elapsed_seconds or 0.0)
    data: bytes = Event(wall_time=when, step=step.step, summary=Summary(value=values)).SerializeToString()
    return data


def scalars(step: Step, profiled: bool) -> dict[str, float]:
    times = "profiled" if profiled or step.excluded_because in RECORDED else "perf"
    found = {}
    if step.seconds is not None:
        found[f"{times}/step_seconds"] = step.seconds
        if step.tokens and step.seconds > 0:
            found[f"{times}/tokens_per_second"] = step.tokens / step.seconds
    if step.loss is not None:
        found["train/loss"] = step.loss
    return found
