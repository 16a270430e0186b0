"""Live scalars of a run for TensorBoard, without TensorFlow: step seconds, tokens/s, loss."""

import contextlib
import sys
from pathlib import Path
from typing import Any

from benchmarks.values import Step


class ScalarWriter:
    """Writes <run>/tensorboard/; opened at the first step, because importing TensorBoard takes a while.

    Encoding scalars takes processor time. On a machine that trains on its own CPU that would show in quick
    steps, so those are kept until the run has ended; nobody watches ten points a second.
    """

    LIVE_STEP_SECONDS = 0.1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None  # TensorBoard's Writer, which has no types
        self._waiting: list[Step] = []

    def write(self, steps: list[Step]) -> None:
        self._waiting += [step for step in steps if step.rank == 0]
        newest = self._waiting[-1].seconds if self._waiting else None
        if newest is not None and newest >= self.LIVE_STEP_SECONDS:
            self._write_waiting()

    def close(self) -> None:
        self._write_waiting()
        with contextlib.suppress(OSError):
            if self._writer is not None:
                self._writer.close()

    def _write_waiting(self) -> None:
        """The scalars are made from steps.jsonl's steps: where the disk is full, they are not worth the run."""
        steps, self._waiting = self._waiting, []
        try:
            for step in steps:
                self._add(step)
            if self._writer is not None:
                self._writer.flush()
        except OSError as error:
            print(f"stepmark: TensorBoard's events could not be written: {error.strerror}", file=sys.stderr)

    def _add(self, step: Step) -> None:
        if self._writer is None:
            from tensorboard.summary import Writer

            self._writer = Writer(str(self._folder))
        for tag, value in scalars(step).items():
            self._writer.add_scalar(tag, value, step.step)


def scalars(step: Step) -> dict[str, float]:
    found = {}
    if step.seconds is not None:
        found["perf/step_seconds"] = step.seconds
        if step.tokens and step.seconds > 0:
            found["perf/tokens_per_second"] = step.tokens / step.seconds
    if step.loss is not None:
        found["train/loss"] = step.loss
    return found
