"""Read the text of HLO programs: their instructions, shapes, loops, collectives and groups of devices.

This module imports only the standard library and can be loaded by path. The modules for PGLE use the names of the
collectives (`Module.collectives`). schedule.py and the programs that count FLOPs use the other functions.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

DUMPS = "*after_optimizations.txt"
BYTES = {
    "pred": 1.0, "s4": 0.5, "u4": 0.5, "s8": 1.0, "u8": 1.0, "s16": 2.0, "u16": 2.0, "s32": 4.0, "u32": 4.0,
    "s64": 8.0, "u64": 8.0, "f16": 2.0, "bf16": 2.0, "f32": 4.0, "f64": 8.0, "f8e4m3": 1.0, "f8e4m3fn": 1.0,
    "f8e4m3fnuz": 1.0, "f8e5m2": 1.0, "f8e5m2fnuz": 1.0, "f8e8m0fnu": 1.0, "c64": 8.0, "c128": 16.0,
}  # fmt: skip

# Collective -> the fraction of the whole buffer that each of n devices in a ring sends. XLA splits an asynchronous
# collective X into X-start and X-done, which waits for the result. If XLA has no opcode X-start, the collective is
# inside an async-start, which XLA prints as X-start if xla_syntax_sugar_async_ops is set.
SENT: Mapping[str, Callable[[int], float]] = {
    "all-gather": lambda n: (n - 1) / n,
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n,
    "ragged-all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda _: 1.0,
    "collective-broadcast": lambda _: 1.0,
}

# Opcodes that call computations with collectives. The computations that reduce and sort call never have collectives.
_CALLERS = frozenset({"call", "while", "conditional", "fusion", "async-start"})

_NAME = r"%?([\w.\-]+)"
_HEADER = re.compile(r"HloModule ([^,\s]+)")
_COMMENT = re.compile(r"/\*.*?\*/")
_COMPUTATION = re.compile(rf"(ENTRY\s+)?{_NAME}\s*(?:\(.*)?\{{\s*$")
_INSTRUCTION = re.compile(rf"\s+(?:ROOT\s+)?{_NAME}\s+=\s+")
_OPCODE = re.compile(r"\s*([a-z][a-z0-9\-]*)\(")
_NAMES = re.compile(r"%([\w.\-]+(?:#\d+)?)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_SHAPE = re.compile(r"\b([a-z]+[0-9a-z]*)\[([0-9,<=]*)\]")
_CALLED = re.compile(rf"\b(calls|to_apply|body|condition|true_computation|false_computation)={_NAME}")
_MANY_CALLED = re.compile(r"\b(?:calls|branch_computations|called_computations)=\{([^}]*)\}")
_KNOWN_TRIPS = re.compile(r'known_trip_count"?:\{"n":"(\d+)"')
_DEVICES = re.compile(r"\b(?:num_partitions|replica_count)=(\d+)")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_FRAME = re.compile(r"\bstack_frame_id=(\d+)")


# --- reading the text ---------------------------------------------------------------------------


class Shape(NamedTuple):
    dtype: str
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> float:
        return BYTES[self.dtype] * prod(self.sizes)


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    opcode: str
    shape: str  # the text of the shape
    arguments: str  # the text in the brackets
    attributes: str

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the result: one shape, or all shapes of a tuple."""
        return tuple(
            Shape(dtype, tuple(int(size.lstrip("<=")) for size in sizes.split(",") if size))
            for dtype, sizes in _SHAPE.findall(self.shape)
            if dtype in BYTES
        )

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(_NAMES.findall(self.arguments))

    def dims(self, key: str) -> list[int]:
        match = re.search(key + r"=\{([0-9,]*)\}", self.attributes)
        return [int(number) for number in match[1].split(",") if number] if match else []

    @property
    def op_name(self) -> str:
        match = _OP_NAME.search(self.attributes)
        return match[1] if match else ""

    @property
    def frame(self) -> int:
        """The number of the stack frame in the source, which is a key of `layers`; 0 if it is unknown."""
        match = _FRAME.search(self.attributes)
        return int(match[1]) if match else 0

    @property
    def target(self) -> str:
        """The kernel that a custom call runs; empty for any other instruction."""
        match = _TARGET.search(self.attributes) if self.opcode == "custom-call" else None
        return match[1] if match else ""

    @property
    def unquoted(self) -> str:
        """The attributes without quoted texts, which may look like attributes."""
        return _QUOTED.sub('""', self.attributes)

    @property
    def called_as(self) -> dict[str, str]:
        return dict(_CALLED.findall(self.unquoted))

    @property
    def called(self) -> list[str]:
        """The computations that run as part of the instruction."""
        many = _MANY_CALLED.findall(self.unquoted)
        return [*self.called_as.values(), *(name for names in many for name in re.findall(r"[\w.\-]+", names))]


class Module(NamedTuple):
    """One program."""

    name: str
    computations: dict[str, dict[str, Instruction]]
    entry: str  # the name of the entry computation; empty if the text does not have one
    devices: int

    def names(self) -> set[str]:
        """Return the names of all instructions."""
        return {name for lines in self.computations.values() for name in lines}

    def executed(
        self, name: str, times: int = 1, branch: bool = False, within: tuple[str, ...] = ()
    ) -> Iterator["ExecutedInstruction"]:
        """Yield all instructions that a computation reaches, including every branch of a conditional."""
        lines = self.computations.get(name, {})
        for line in lines.values():
            yield ExecutedInstruction(line, lines, times, branch, within)
            if line.opcode in _CALLERS:
                often = times * (self.trips(line) or 0) if line.opcode == "while" else times
                around = (*within, line.name) if line.opcode in ("fusion", "async-start") else within
                for called in line.called:
                    yield from self.executed(called, often, branch or line.opcode == "conditional", around)

    def trips(self, loop: Instruction) -> int | None:
        """Return how often a loop's body runs, from XLA's trip count or the loop's condition; None if it is unknown.

        A scan counts up from zero, so its condition contains only `counter < constant`.
        """
        if match := _KNOWN_TRIPS.search(loop.attributes):
            return int(match[1])
        lines = self.computations.get(loop.called_as.get("condition", ""), {})
        if fused := [line for line in lines.values() if line.opcode == "fusion"]:  # XLA also fuses the comparison
            lines = self.computations.get(fused[0].called_as["calls"], {})
        compares = [line for line in lines.values() if line.opcode == "compare"]
        if len(compares) != 1 or "direction=LT" not in compares[0].attributes:
            return None
        limits = [
            int(lines[name].arguments)
            for name in compares[0].operands[1:]  # counter < constant, not the other way round
            if name in lines and lines[name].opcode == "constant" and lines[name].arguments.isdigit()
        ]
        return limits[0] if len(limits) == 1 else None

    def collectives(self) -> list["Collective"]:
        found: dict[str, Collective] = {}
        for line, _, _, branch, within in self.executed(self.entry):
            kind = line.opcode.removesuffix("-start")
            if kind in SENT:
                moves = not branch and _moves_data_of_the_first(line, self.devices)
                before = line.name in found and found[line.name].always
                found[line.name] = Collective(line.name, kind, moves or before, (line.name, *within))
        return list(found.values())


class ExecutedInstruction(NamedTuple):
    """An instruction that a program runs."""

    line: Instruction
    lines: dict[str, Instruction]  # the computation that contains the instruction
    times: int  # how often it runs, the product of all loops around it; 0 in a loop with an unknown trip count
    branch: bool  # whether it is in a branch of a conditional
    within: tuple[str, ...]  # the fusions and async-starts around it


class Collective(NamedTuple):
    name: str
    kind: str
    always: bool  # whether it moves data of device 0 in every step, so that the profile of device 0 must contain it
    names: tuple[str, ...]  # the names that a profiler may use: its own name, and those of the instructions around it

    def known_in(self, names: Container[str]) -> bool:
        return any(name in names for name in self.names)


def _moves_data_of_the_first(line: Instruction, devices: int) -> bool:
    """Return whether a collective moves data of device 0. A group of one device moves nothing and runs no kernel."""
    attributes = line.unquoted
    if not line.opcode.startswith("collective-permute"):
        return len(first_group(attributes, devices)) > 1
    pairs = _PAIRS.search(attributes)
    return pairs is None or any(0 in pair for pair in moving_pairs(pairs[1]))


def dumps(folder: str | Path) -> list[Path]:
    """Return the files of the optimized programs that XLA dumped into a folder."""
    return sorted(Path(folder).glob(DUMPS))


def read_module(path: str | Path) -> Module:
    with Path(path).open(encoding="utf-8", errors="replace") as stream:
        return parse(stream)


def parse(lines: Iterable[str]) -> Module:
    """Parse the lines of one dump. XLA prints each instruction on one line of any length."""
    module, devices, entry, open_in = "", 1, "", ""
    computations: dict[str, dict[str, Instruction]] = {}
    for raw in lines:
        line = _COMMENT.sub("", raw)
        if open_in:
            if line.startswith("}"):
                open_in = ""
            elif found := _instruction(line):
                computations[open_in][found.name] = found
        elif match := _HEADER.match(line):
            module, devices = match[1], prod(int(number) for number in _DEVICES.findall(line))
        elif not line[:1].isspace() and (match := _COMPUTATION.match(line)):
            open_in = match[2]
            computations[open_in] = {}
            entry = open_in if match[1] else entry
    return Module(module, computations, entry, devices)


def _instruction(line: str) -> Instruction | None:
    match = _INSTRUCTION.match(line)
    if match is None:
        return None
    start = match.end()
    shape_end = _closing(line, start) if line.startswith("(", start) else line.find(" ", start)
    opcode = _OPCODE.match(line, shape_end) if shape_end > 0 else None
    if opcode is None:
        return None
    end = _closing(line, opcode.end() - 1)
    return Instruction(match[1], opcode[1], line[start:shape_end], line[opcode.end() : end - 1], line[end:])


def _closing(line: str, start: int) -> int:
    """Return the index after the bracket that closes the bracket at `start`. A tuple's shape has nested brackets."""
    depth = 0
    for match in re.finditer(r"[()]", line[start:]):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return start + match.end()
    return len(line)


def shapes_named(operand: str, lines: Mapping[str, Instruction]) -> tuple[Shape, ...]:
    """Return the shapes of an operand. The operand `while.1#2` is the third part of the tuple `while.1`."""
    name, _, part = operand.partition("#")
    shapes = lines[name].shapes
    return (shapes[int(part)],) if part else shapes


def kept(program: Module, name: str) -> Instruction | None:
    """Return the instruction that computes the value which the in-place update `name` writes to a larger array.

    The larger array may contain the saved activations of all layers. If a loop computes the value, return the loop.
    If `name` is not an in-place update, return None.
    """
    found = next(((of, lines) for of, lines in program.computations.items() if name in lines), None)
    if found is None or not found[1][name].op_name.endswith("dynamic_update_slice"):
        return None
    computation, lines = found
    line = lines[name]
    operands: Sequence[str] = line.operands
    for around in program.computations.values():
        for start in around.values():
            if start.opcode == "async-start" and computation in start.called:
                inputs = [one.name for one in lines.values() if one.opcode == "parameter"]
                operands = [start.operands[inputs.index(operand)] for operand in operands if operand in inputs]
                lines = around
    parts = [
        operand
        for operand in operands
        if operand.partition("#")[0] in lines
        and shapes_named(operand, lines)[0].sizes not in ((), line.shapes[0].sizes)
    ]
    return lines[parts[0].partition("#")[0]] if parts else None


# --- the layers in the source -------------------------------------------------------------------

_TABLE_ROW = re.compile(r'(\d+) (?:"([^"]*)"|\{(.*)\})$')
_NUMBER = re.compile(r"(\w+)=(\d+)")
_METHOD = re.compile(r"([A-Z]\w*)\.(\w+)$")
# Every layer consists of these modules, so use the name of the module that calls them.
_OF_EVERY_LAYER = frozenset({"DenseGeneral", "Fp8DirectDotGeneralOp", "NNXDecoder", "ToNNX", "Transformer"})


def layers(text: str) -> dict[int, str]:
    """Return stack frame -> the framework's layer, such as `MlpBlock` or `Attention.query_projection`.

    A dump lists file names, functions, locations and frames. A frame stores its parent's number plus one.
    """
    tables: dict[str, dict[int, tuple[str, dict[str, int]]]] = {}
    rows: dict[int, tuple[str, dict[str, int]]] = {}
    for line in text.splitlines():
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            rows = tables[line] = {}
        elif match := _TABLE_ROW.match(line):
            fields = {name: int(number) for name, number in _NUMBER.findall(match[3] or "")}
            rows[int(match[1])] = (match[2] or "", fields)
        elif line.startswith(("%", "ENTRY")):
            break
    names = {number: name for number, (name, _) in tables.get("FunctionNames", {}).items()}
    locations = {number: fields for number, (_, fields) in tables.get("FileLocations", {}).items()}
    found: dict[int, str] = {0: ""}
    for number, (_, fields) in sorted(tables.get("StackFrames", {}).items()):  # a parent comes before its children
        function = names.get(locations.get(fields["file_location_id"], {}).get("function_name_id", 0), "")
        found[number] = _layer(function) or found.get(fields.get("parent_frame_id", 1) - 1, "")
    return found


def _layer(function: str) -> str:
    match = _METHOD.match(function)
    if match is None or (match[2].startswith("_") and match[2] != "__call__"):
        return ""
    if match[1] in _OF_EVERY_LAYER and match[2] == "__call__":
        return ""
    return match[1] if match[2] == "__call__" else function


def part_of(op_name: str) -> str:
    """Return the part of a step (forward, backward, recomputed, elsewhere) from jax's name of an operation."""
    if "rematted_computation" in op_name:
        return "recomputed"
    if "transpose(" in op_name:
        return "backward"
    return "forward" if "jvp(" in op_name else "elsewhere"


# --- groups of devices --------------------------------------------------------------------------

_LISTED = re.compile(r"\breplica_groups=\{\{([\d,]+)\}")
_COUNTED = re.compile(r"\breplica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESHED = re.compile(r"\breplica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_PAIRS = re.compile(r"\bsource_target_pairs=\{([\d,{}\s]*)\}")
_MESH_AXIS = re.compile(r"'([^']+)'=(\d+)")
_TAKEN_AXIS = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")


def first_group(attributes: str, partitions: int) -> tuple[int, ...]:
    """Return the devices of the first group in any of XLA's notations; all devices if there is no group."""
    if match := _LISTED.search(attributes):
        return tuple(_numbers(match[1]))
    if match := _COUNTED.search(attributes):  # [groups,size]<=[a,b]T(1,0): transpose a grid, then cut it into groups
        sizes = _numbers(match[3])
        strides = _strides(sizes)
        order = _numbers(match[4]) if match[4] else range(len(sizes))
        return _grid([(sizes[axis], strides[axis]) for axis in order])[: int(match[2])]
    if match := _MESHED.search(attributes):
        return _meshed(match[1], match[2])
    if match := _PAIRS.search(attributes):  # a sender and a receiver, or one device without communication
        return next(iter(moving_pairs(match[1])), (0,))
    return tuple(range(partitions))


def moving_pairs(pairs: str) -> list[tuple[int, ...]]:
    """Return the pairs of different devices; a device that sends to itself only copies."""
    return [(int(a), int(b)) for a, b in re.findall(r"(\d+),(\d+)", pairs) if a != b]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _meshed(axes: str, taken: str) -> tuple[int, ...]:
    """Return the first group of mesh['a'=2,'b'=4] {'b'}. 'b':(1)2 is the part of b with size 2 and pre-size 1."""
    sizes = {name: int(size) for name, size in _MESH_AXIS.findall(axes)}
    strides = dict(zip(sizes, _strides(list(sizes.values())), strict=True))
    along = []
    for name, before, part in _TAKEN_AXIS.findall(taken):
        size = int(part) if part else sizes[name]
        along.append((size, strides[name] * sizes[name] // (int(before or 1) * size)))
    return _grid(along)


def _strides(sizes: Sequence[int]) -> list[int]:
    return [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


def _grid(along: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return all numbers in a grid whose axes have these sizes and strides. The last axis changes fastest."""
    found = [0]
    for size, stride in along:
        found = [start + step * stride for start in found for step in range(size)]
    return tuple(found)


def axes_along(group: Sequence[int], mesh: Mapping[str, int]) -> list[str]:
    """Return the axes of a mesh along which a group's devices differ. Numbers grow fastest along the last axis."""
    strides = _strides(list(mesh.values()))
    along = []
    for (axis, size), stride in zip(mesh.items(), strides, strict=True):
        if len({number // stride % size for number in group}) > 1:
            along.append(axis)
    return along
