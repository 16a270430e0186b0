"""When a run that trains towards a target evaluates, what it found, and whether that is the target.

A worker loads this file by its path: the standard library alone. What a run came to is recomputed from the events
that are written here (reached.py), so a decision that does not follow from them is seen.
"""

import math
import time
from typing import Any, NamedTuple

FLAG = "--goal"


class Goal(NamedTuple):
    """The loss to reach, and after how many steps it is looked at: first, then every so many."""

    target: float
    first: int
    every: int
    batches: int  # of one evaluation
    sequences: int  # of one batch

    @classmethod
    def parse(cls, text: str) -> "Goal":
        target, *counts = text.split(",")
        return cls(float(target), *map(int, counts))

    def text(self) -> str:
        return ",".join([repr(self.target), *map(str, self[1:])])

    def due(self, steps: int) -> bool:
        """Whether it is looked at after so many steps."""
        return steps >= self.first and (steps - self.first) % self.every == 0

    def met(self, loss: float | None) -> bool:
        return loss is not None and math.isfinite(loss) and loss <= self.target


class Evaluations:
    """What one rank writes down of the evaluations; every rank finds the same loss, so all decide alike."""

    def __init__(self, goal: Goal, events: Any, *, writes: bool) -> None:
        self.goal = goal
        self._events = events
        self._writes = writes

    def take(self, steps: int, seconds: float, loss: float) -> bool:
        """An evaluation has just ended; whether the target is reached, and training with it."""
        if self._writes:
            finite = loss if math.isfinite(loss) else None
            trained = steps * self.goal.sequences
            self._events.write(
                "evaluation", steps=steps, sequences=trained, loss=finite, seconds=seconds, ended_unix=time.time()
            )
        return self.goal.met(loss)
