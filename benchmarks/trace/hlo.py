"""The programs inside a trace: of every HLO instruction, what tells its kind. Pure: bytes in, values out."""

from collections.abc import Mapping
from typing import Any

from benchmarks.trace.kinds import UNCOUNTED, Instruction
from benchmarks.trace.schema import messages

# Of a scalar these are work all the same: the rest of what is done to a scalar is arithmetic on an index.
REDUCING = {"dot", "reduce", "reduce-window", "all-reduce", "custom-call"}

Program = Mapping[str, Instruction]  # by the instruction's name


def read_program(data: bytes) -> tuple[str, Program]:
    """An HloProto as it stands in a trace: the module's name, and its instructions."""
    module = messages()["HloProto"].FromString(data).hlo_module
    inside = _Inside(module)
    found = {
        instruction.name: Instruction(
            opcode=instruction.opcode,
            holds=inside.of(instruction),
            target=instruction.custom_call_target,
            scope=instruction.metadata.op_name,
        )
        for computation in module.computations
        for instruction in computation.instructions
    }
    return module.name, found


class _Inside:
    """The opcodes that a computation holds, those of what it calls included."""

    def __init__(self, module: Any) -> None:
        self._computations = {computation.id: computation for computation in module.computations}
        self._known: dict[int, frozenset[str]] = {}

    def of(self, instruction: Any) -> frozenset[str]:
        called = [self._of_computation(number) for number in instruction.called_computation_ids]
        return frozenset().union(*called)

    def _of_computation(self, number: int) -> frozenset[str]:
        if number not in self._known:
            self._known[number] = frozenset()  # HLO does not call itself; a damaged one shall not hang
            computation = self._computations.get(number)
            instructions = computation.instructions if computation is not None else []
            own = {instruction.opcode for instruction in instructions if _is_work(instruction)}
            self._known[number] = frozenset(own).union(*map(self.of, instructions))
        return self._known[number]


def _is_work(instruction: Any) -> bool:
    shape = instruction.shape
    scalar = not shape.dimensions and not shape.tuple_shapes
    return instruction.opcode not in UNCOUNTED and (not scalar or instruction.opcode in REDUCING)
