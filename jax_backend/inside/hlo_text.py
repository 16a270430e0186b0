"""Reads the text of optimized HLO, as XLA dumps it: which instructions a program has, which of them are collectives.

Pure standard library, and loadable by path: the converter of profiles runs inside MaxText's environment. A dump of
a large model has hundreds of megabytes: it is read line by line, and only names, opcodes and calls are kept.
"""

import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

DUMPS = "*after_optimizations.txt"

# What moves data between devices; each may also be written as X-start (X-done is where it is waited for). Those for
# which XLA has no such opcode are wrapped in an async-start; xla_syntax_sugar_async_ops writes them as X-start too.
COLLECTIVES = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "ragged-all-to-all",
        "reduce-scatter",
    }
)
# Opcodes whose called computations run as part of the program. (What a reduce or a sort calls holds no collective.)
_CALLERS = frozenset({"call", "while", "conditional", "fusion", "async-start", "custom-call"})

_NAME = r"%?([\w.\-]+)"
_HEADER = re.compile(r"HloModule ([^,\s]+)")
_COMPUTATION = re.compile(rf"(ENTRY\s+)?{_NAME}\s*(?:\(.*)?\{{\s*$")
_INSTRUCTION = re.compile(rf"\s+(?:ROOT\s+)?{_NAME}\s+=\s+")
_OPCODE = re.compile(r"\s*([a-z][a-z0-9\-]*)\(")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ONE_CALLED = re.compile(rf"\b(?:calls|to_apply|body|condition|true_computation|false_computation)={_NAME}")
_MANY_CALLED = re.compile(r"\b(?:calls|branch_computations|called_computations)=\{([^}]*)\}")
_DEVICES = re.compile(r"\b(?:num_partitions|replica_count)=(\d+)")
_PAIRS = re.compile(r"\bsource_target_pairs=(\{\}|\{\{[\d,{}\s]*\}\})")
_GROUPS = re.compile(r"\breplica_groups=(\{\{.*?\}\}|\{\}|\[[\d,]+\]<=|mesh\[[^\]]*\]\s*\{[^}]*\})")


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    opcode: str
    called: tuple[str, ...] = ()  # computations that run as part of it
    alone: bool = False  # a collective of groups of one device: no data moves, and no kernel runs
    without_first: bool = False  # a permute that takes nothing from the first device, and brings it nothing


class Computation(NamedTuple):
    name: str
    instructions: list[Instruction]


class Collective(NamedTuple):
    """A collective that the program reaches. A profiler may know it by its own name or by one of the others."""

    name: str
    opcode: str
    conditional: bool  # only some branch of a conditional reaches it, so it may never run
    alone: bool
    without_first: bool
    others: tuple[str, ...]  # what it is wrapped in, or wraps

    @property
    def always(self) -> bool:
        """It runs in every step and moves data, so a profile must know it: that of the first device alone, too."""
        return not self.conditional and not self.alone and not self.without_first

    def known_in(self, names: Container[str]) -> bool:
        """XLA too looks for an async-start by the name of what it wraps."""
        return self.name in names or any(other in names for other in self.others)


class Module(NamedTuple):
    """One dumped program."""

    name: str
    computations: dict[str, Computation]
    entry: str  # empty where the text holds none
    whole: bool  # the text was written to its end

    def names(self) -> set[str]:
        """Of all instructions."""
        return {line.name for computation in self.computations.values() for line in computation.instructions}

    def reached(self) -> dict[str, bool]:
        """The computations that the entry reaches -> whether only through a branch of a conditional."""
        found: dict[str, bool] = {}
        waiting = [(self.entry, False)]
        while waiting:
            name, conditional = waiting.pop()
            before = found.get(name)
            if name not in self.computations or before is False or before == conditional:
                continue
            found[name] = conditional
            for line in self.computations[name].instructions:
                waiting.extend((called, conditional or line.opcode == "conditional") for called in line.called)
        return found

    def collectives(self) -> list[Collective]:
        """In the order of the text."""
        reached = self.reached()
        wrapped, within = self._wrapped(reached)
        found = []
        for name, conditional in reached.items():
            if name in wrapped:
                continue  # counted where it is started
            for line in self.computations[name].instructions:
                inner = self._inner(line) if line.opcode == "async-start" else None
                opcode = inner.opcode if inner else line.opcode.removesuffix("-start")
                if opcode not in COLLECTIVES:
                    continue
                others = (*((inner.name,) if inner else ()), *within.get(name, ()))
                moves = inner or line
                found.append(Collective(line.name, opcode, conditional, moves.alone, moves.without_first, others))
        order = {name: number for number, name in enumerate(self.computations)}
        places = {line.name: order[c.name] for c in self.computations.values() for line in c.instructions}
        return sorted(found, key=lambda collective: places[collective.name])

    def _inner(self, start: Instruction) -> Instruction | None:
        """The collective that an async-start wraps."""
        for name in start.called:
            for line in self.computations.get(name, Computation(name, [])).instructions:
                if line.opcode in COLLECTIVES:
                    return line
        return None

    def _wrapped(self, reached: Iterable[str]) -> tuple[set[str], dict[str, tuple[str, ...]]]:
        """The computations that async-starts wrap; and those of fusions, with the names of these fusions.

        XLA runs a fusion that holds a collective under the fusion's name.
        """
        wrapped: set[str] = set()
        within: dict[str, tuple[str, ...]] = {}
        for name in reached:
            for line in self.computations[name].instructions:
                if line.opcode == "async-start" and self._inner(line):
                    wrapped.update(line.called)
                if line.opcode == "fusion":
                    within.update({called: (*within.get(called, ()), line.name) for called in line.called})
        return wrapped, within


def dumps(folder: str | Path) -> list[Path]:
    """The optimized programs that XLA dumped into a folder, in the order in which they were compiled."""
    return sorted(Path(folder).glob(DUMPS), key=lambda path: (program_id(path) or 0, path.name))


def program_id(path: str | Path) -> int | None:
    """module_0031.jit_train_step.cpu_after_optimizations.txt -> 31, which a profiler's ranges call program_id."""
    match = re.search(r"\bmodule_(\d+)\.", Path(path).name)
    return int(match[1]) if match else None


def module_name(path: str | Path) -> str:
    """The name in the first line of a dump; empty where it is no HLO."""
    with Path(path).open(encoding="utf-8", errors="replace") as stream:
        match = _HEADER.match(stream.readline(4096))
    return match[1] if match else ""


def read_module(path: str | Path) -> Module:
    with Path(path).open(encoding="utf-8", errors="replace") as stream:
        return parse(stream)


def parse(lines: Iterable[str]) -> Module:
    """The lines of one dump. The printer of XLA writes each instruction on one line, however long."""
    module, devices, entry, open_in = "", 1, "", ""
    computations: dict[str, Computation] = {}
    for line in lines:
        if open_in:
            if line.startswith("}"):
                open_in = ""
            elif found := _instruction(line, devices):
                computations[open_in].instructions.append(found)
        elif match := _HEADER.match(line):
            module = match[1]
            for number in _DEVICES.findall(line):
                devices *= int(number)
        elif not line[:1].isspace() and (match := _COMPUTATION.match(line)):
            open_in = match[2]
            computations[open_in] = Computation(open_in, [])
            entry = open_in if match[1] else entry
    return Module(module, computations, entry, whole=bool(entry) and not open_in)


def _instruction(line: str, devices: int) -> Instruction | None:
    match = _INSTRUCTION.match(line)
    opcode = _OPCODE.match(line, _after_shape(line, match.end())) if match else None
    if match is None or opcode is None:
        return None
    name = opcode[1]
    plain = name.removesuffix("-start")
    if name in _CALLERS:
        return Instruction(match[1], name, tuple(_called(line[opcode.end() :])))
    if plain == "collective-permute":
        return _permute(match[1], name, line)
    return Instruction(match[1], name, alone=plain in COLLECTIVES and _of_one_device(line, devices))


def _permute(name: str, opcode: str, line: str) -> Instruction:
    """Pairs are of a device that sends and one that receives; one that sends to itself only copies."""
    match = _PAIRS.search(_QUOTED.sub('""', line))
    if match is None:  # written in a way that is not known here: demanded
        return Instruction(name, opcode)
    pairs = [pair for pair in re.findall(r"(\d+),(\d+)", match[1]) if pair[0] != pair[1]]
    return Instruction(name, opcode, alone=not pairs, without_first=all("0" not in pair for pair in pairs))


def _after_shape(line: str, start: int) -> int:
    """Where the shape ends that begins at `start`; that of a tuple holds blanks and brackets."""
    if not line.startswith("(", start):
        return next((at for at in range(start, len(line)) if line[at].isspace()), len(line))
    depth = 0
    for match in re.finditer(r"[()]", line[start:]):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return start + match.end()
    return len(line)


def _called(text: str) -> Iterator[str]:
    """What is called according to the attributes; what stands in quotes may look like one, and is none."""
    text = _QUOTED.sub('""', text)
    for match in _ONE_CALLED.finditer(text):
        yield match[1]
    for match in _MANY_CALLED.finditer(text):
        yield from re.findall(r"[\w.\-]+", match[1])


def _of_one_device(line: str, devices: int) -> bool:
    """Whether each device is a group of its own, in any of the ways in which groups are written."""
    match = _GROUPS.search(_QUOTED.sub('""', line))
    if match is None:
        return False
    groups = match[1]
    if groups == "{}":  # all devices are one group
        return devices == 1
    if groups.startswith("[") and "]" in groups:  # [groups,size]<=[...]
        return groups[1 : groups.index("]")].split(",")[-1] == "1"
    if groups.startswith("mesh"):  # mesh['data'=2,'fsdp'=4] {'fsdp'}
        axes, _, taken = groups.partition("]")
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", axes))
        names = re.findall(r"'([^']+)'", taken)
        return bool(names) and ":" not in taken and all(sizes.get(name) == "1" for name in names)
    return "," not in groups.replace("},{", "")
