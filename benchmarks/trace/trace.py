"""A trace as values, whichever profiler wrote it: what each device did when, and the marks of the steps. Pure."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.trace.intervals import Intervals, Numbers
from benchmarks.trace.kinds import Instruction, Operation

Indices = npt.NDArray[np.int32]


class Mark(NamedTuple):
    """Where the host began a step (what it began is done on the device later), in picoseconds of the trace."""

    step: int
    begin: int


class Execution(NamedTuple):
    """One execution of a program, as the device's operations name it."""

    module: str
    run_id: int


@dataclass(frozen=True)
class Device:
    """The operations of one device: row i of every array is one of them."""

    name: str
    begins: Numbers  # picoseconds of the trace
    ends: Numbers
    operation: Indices  # in Trace.operations
    execution: Indices  # in Trace.executions; -1: the trace does not say

    def intervals(self) -> Intervals:
        return Intervals(self.begins, self.ends)


@dataclass(frozen=True)
class Trace:
    """What one profiler saw of one host."""

    host: str
    operations: list[Operation]
    instructions: list[Instruction | None]  # of each operation, where the trace holds its program
    executions: list[Execution]
    devices: list[Device]
    marks: list[Mark]
    launches: int = 0  # of the training program, where that is known but not which operation belongs to which
    marked_by: str = ""  # what the marks are called in the trace
    starts_unix_seconds: float | None = None  # moment 0 of the trace
    stops_unix_seconds: float | None = None
    notes: list[str] = field(default_factory=list)


class Collected:
    """The rows of one device while a trace is read."""

    def __init__(self) -> None:
        self.begins, self.ends = array("q"), array("q")  # a list of numbers would take five times the room
        self.operation, self.execution = array("i"), array("i")
        self.dropped = 0

    def add(self, begin: int, end: int, operation: int, execution: int = -1) -> None:
        """What ends before it begins is counted, and no more: its times say nothing."""
        if end < begin:
            self.dropped += 1
            return
        self.begins.append(begin)
        self.ends.append(end)
        self.operation.append(operation)
        self.execution.append(execution)

    def device(self, name: str) -> Device:
        return Device(
            name,
            np.array(self.begins, dtype=np.int64),
            np.array(self.ends, dtype=np.int64),
            np.array(self.operation, dtype=np.int32),
            np.array(self.execution, dtype=np.int32),
        )


def dropped_notes(collected: Iterable[Collected]) -> list[str]:
    dropped = sum(one.dropped for one in collected)
    return [f"{dropped} operations that end before they begin are left out"] if dropped else []
