"""A trace as values, whichever profiler wrote it: what each device did when, and the marks of the steps. Pure."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.trace.kinds import Instruction, Operation

Numbers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


# --- intervals: sets of moments, in whole picoseconds ---------------------------------------------


class Intervals(NamedTuple):
    """From each beginning to its end. Sorted and without overlap where `union` made them."""

    begins: Numbers
    ends: Numbers

    def total(self) -> int:
        return int((self.ends - self.begins).sum())


NOTHING = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(pieces: Sequence[Intervals]) -> Intervals:
    """The moments that lie in any of them."""
    begins = np.concatenate([NOTHING.begins, *(piece.begins for piece in pieces)])
    ends = np.concatenate([NOTHING.ends, *(piece.ends for piece in pieces)])
    if not len(begins):
        return NOTHING
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], begins[1:] > ends[:-1]])  # begins after all before it have ended
    last = np.concatenate([first[1:], [True]])
    return Intervals(begins[first], ends[last])


def within(moments: Intervals, begin: int, end: int) -> Intervals:
    """The part between two moments."""
    begins, ends = np.maximum(moments.begins, begin), np.minimum(moments.ends, end)
    kept = ends > begins
    return Intervals(begins[kept], ends[kept])


def shares(ranked: Sequence[Intervals]) -> list[int]:
    """How much each set has for itself where every moment belongs to the first set that holds it."""
    totals = [union(ranked[:count]).total() for count in range(len(ranked) + 1)]
    return [after - before for before, after in pairwise(totals)]


# --- the trace --------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """Where the host began a step (the device does it later), in picoseconds of the trace."""

    step: int
    begin: int


@dataclass(frozen=True)
class Device:
    """The operations of one device: row i of every array is one of them."""

    name: str
    begins: Numbers  # picoseconds of the trace
    ends: Numbers
    operation: Indices  # in Trace.operations


@dataclass(frozen=True)
class Trace:
    """What one profiler saw of one host."""

    host: str
    operations: list[Operation]
    instructions: list[Instruction | None]  # of each operation, where the trace holds its program
    devices: list[Device]
    marks: list[Mark]
    launches: int = 0  # of the training program, where the host marks no steps
    notes: list[str] = field(default_factory=list)


class Collected:
    """The rows of one device while a trace is read."""

    def __init__(self) -> None:
        self.begins, self.ends = array("q"), array("q")  # a list of numbers would take five times the room
        self.operation = array("i")
        self.dropped = 0

    def add(self, begin: int, end: int, operation: int) -> None:
        """An operation that ends before it begins is only counted."""
        if end < begin:
            self.dropped += 1
            return
        self.begins.append(begin)
        self.ends.append(end)
        self.operation.append(operation)

    def device(self, name: str) -> Device:
        return Device(
            name,
            np.array(self.begins, dtype=np.int64),
            np.array(self.ends, dtype=np.int64),
            np.array(self.operation, dtype=np.int32),
        )


def dropped_notes(collected: Iterable[Collected]) -> list[str]:
    dropped = sum(one.dropped for one in collected)
    return [f"{dropped} operations that end before they begin are left out"] if dropped else []
