"""The trace of any profiler as values: the operations of each device with their times, and step marks. No I/O."""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.trace.kinds import Instruction, Operation

Numbers = npt.NDArray[np.int64]
Programs = Mapping[str, Mapping[str, Instruction]]  # module -> name of an instruction -> its properties in the HLO


class Mark(NamedTuple):
    """When the host began a step, in picoseconds of the trace. The device begins the step later."""

    step: int
    begin: int


class Device(NamedTuple):
    """The operations of one device as columns; row i of each column describes operation i."""

    name: str
    begins: Numbers  # in picoseconds of the trace
    ends: Numbers
    operation: Numbers  # the index in Trace.operations


@dataclass(frozen=True)
class Trace:
    """The trace of one host, recorded by one profiler."""

    host: str
    operations: list[Operation]
    instructions: list[Instruction | None]  # for each operation; None: the trace does not contain its program
    devices: list[Device]
    marks: Sequence[Mark]
    launches: int  # the number of launches of the training program, if the trace has no step marks
    notes: list[str]


class Collector:
    """Collects the rows of each device while a trace is read."""

    def __init__(self) -> None:
        self._operations: dict[Operation, int] = {}
        # begin, end and operation of each row; a list of Python numbers would need five times the memory
        self._rows: dict[str, array[int]] = defaultdict(lambda: array("q"))

    @property
    def has_rows(self) -> bool:
        return bool(self._rows)

    def add(self, device: str, begin: int, end: int, operation: Operation) -> None:
        self._rows[device].extend((begin, end, self._operations.setdefault(operation, len(self._operations))))

    def trace(
        self,
        host: str,
        notes: list[str],
        marks: Sequence[Mark] = (),
        launches: int = 0,
        programs: Programs | None = None,
    ) -> Trace:
        """Return the trace with all rows that were added. Devices are sorted by number."""
        known = programs or {}
        by_number = sorted(self._rows, key=lambda name: (name.split()[0], int(name.split()[1])))
        return Trace(
            host=host,
            operations=list(self._operations),
            instructions=[known.get(one.module, {}).get(one.hlo_op) for one in self._operations],
            devices=[
                Device(name, *np.array(self._rows[name], dtype=np.int64).reshape(-1, 3).T) for name in by_number
            ],
            marks=marks,
            launches=launches,
            notes=notes,
        )
