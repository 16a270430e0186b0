"""Read the training steps in an MLLOG, as a log format of ingest.py.

A step line covers several steps. Their seconds are a mean: the time since the previous step line, or since the start
of the block if the log shows its step, divided by the number of steps. No mean includes an evaluation.
"""

import json
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.mlperf.run_log import BEGIN, Record, number, read_records, whole
from benchmarks.reading.read_log import AttemptTracker
from benchmarks.values import Step

PAUSES = ("eval_start", "block_stop", "run_stop")
SECONDS_KEYS = ("train_step_time", "train_step_timing in s")
LOSS_KEYS = ("train_loss", "reduced_train_loss")


class MllogFormat:
    """`:::MLLOG {json}` lines, either in a separate file or in the output of a job."""

    name = "mllog"
    seconds_are = "the mean of the steps since the previous line, from the lines' timestamps, without evaluations"
    no_seconds = "no line before these steps gives the time at which they began"
    prints_loss = True

    def seconds_resolution(self, seconds: float) -> float:  # noqa: ARG002
        return 0.001  # time_ms has this resolution

    def rate_resolution(self, rate: float) -> float:  # noqa: ARG002
        return 0.0  # the format prints no rates

    def recognises(self, head: bytes) -> bool:
        return any(b'"key"' in head[found.end() : found.end() + 4096] for found in BEGIN.finditer(head))

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]:
        reader = _Reader()
        yield from filter(None, map(reader.event, read_records(stream)))


MLLOG = MllogFormat()


class _Reader:
    """Converts records to events. After every pause, the timing of steps restarts."""

    def __init__(self) -> None:
        self._tracker = AttemptTracker()
        self._batch: int | None = None
        self._from: tuple[int, float] | None = None  # the previous step, and when it ended

    def event(self, found: Record | SkippedLine) -> LogEvent | None:
        if isinstance(found, SkippedLine):
            return LogEvent(attempt=self._tracker.attempt, skipped=found)
        if found.key == "global_batch_size":
            self._batch = whole(found.value) or self._batch
        if found.key == "init_start":
            self._tracker.job_started()
            self._from = None
            return LogEvent(attempt=self._tracker.attempt)
        if found.key == "block_start":
            self._from = None if found.step is None else (found.step, found.time_ms)
            return None
        if found.key in PAUSES:
            self._from = None
            return None
        return self._step(found)

    def _step(self, record: Record) -> LogEvent | None:
        logged, place = _tracked(record), record.step
        if logged is None or (logged.loss is None and place is None):
            return None  # the time of a whole block is not the time of a step
        if place is None and record.samples is not None and self._batch:
            place = record.samples // self._batch
        if place is None:
            reason = f"the step and global_batch_size of the line are unknown: {json.dumps(record.metadata)[:60]}"
            return LogEvent(attempt=self._tracker.attempt, skipped=SkippedLine(line=record.line, reason=reason))
        if not self._tracker.report(record.rank, place):
            return LogEvent(attempt=self._tracker.attempt, duplicates=1)
        step = Step(
            step=place,
            seconds=self._seconds(place, record.time_ms),
            loss=logged.loss,
            tokens=None,
            attempt=self._tracker.attempt,
            rank=record.rank or 0,
            framework_seconds=logged.seconds,
            framework_global_batch_size=self._batch,
        )
        self._from = (place, record.time_ms)
        return LogEvent(attempt=self._tracker.attempt, step=step)

    def _seconds(self, place: int, at: float) -> float | None:
        if self._from is None or place <= self._from[0] or at <= self._from[1]:
            return None
        return (at - self._from[1]) / 1000 / (place - self._from[0])


class _TrackedStep(NamedTuple):
    """The values in a line about a training step, or about the steps since the previous line."""

    seconds: float | None
    loss: float | None


def _tracked(record: Record) -> _TrackedStep | None:
    """Return the values of a step line (`train_loss`, or NVIDIA's tracked_stats); None for another line."""
    stats = {"train_loss": record.value} if record.key == "train_loss" else record.value
    if record.key not in ("train_loss", "tracked_stats") or not isinstance(stats, dict):
        return None
    seconds = next((number(stats[key]) for key in SECONDS_KEYS if key in stats), None)
    losses = [number(stats[key]) for key in LOSS_KEYS if key in stats]
    return None if seconds is None and not losses else _TrackedStep(seconds, losses[0] if losses else None)
