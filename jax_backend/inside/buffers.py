"""Find in XLA's dumps which buffers are in a device's memory when a step uses the most memory.

This module imports only the standard library and can be loaded by path. XLA dumps three files per program:
buffer-assignment has each value's address, buffer-assignment-values the instruction that computes it, and live-range
the first and last instruction that need it. If several values share memory, that memory is counted once.
"""

import re
from typing import NamedTuple

ASSIGNMENT = "buffer-assignment"
FILES = (ASSIGNMENT, f"{ASSIGNMENT}-values", "live-range")  # NAME in *after_optimizations-NAME.txt

_ALLOCATION = re.compile(r"allocation (\d+): size (\d+), page \d+, (.*)")
_PLACED = re.compile(r" value: <\d+ (\S+)(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (\S+)")
_NEEDED = re.compile(r"    (\S+?)(\{[\d,]*\}):(\d+)-(\d+)$")
_MADE_BY = re.compile(r" from instruction: %(\S+) = (?:\(.*?\)|\S+) ([a-z][a-z0-9-]*)\((?:%([\w.\-]+))?")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"\bstack_frame_id=(\d+)")
_SHAPE = re.compile(r"[a-z]+\w*\[[\d,]*\]")
HOPS = 4  # how many operands to follow back from an instruction without a name
# Instructions with these opcodes only forward a buffer. Another value at the same address describes it better.
_PASSED_ON = frozenset({"parameter", "tuple", "get-tuple-element", "while", "bitcast", "copy", "opt-barrier", "call"})


class PlacedBuffer(NamedTuple):
    """A value and its address in memory."""

    name: str
    allocation: int
    size: int
    offset: int
    shape: str


class Maker(NamedTuple):
    """The instruction that computes a value."""

    opcode: str = ""
    op_name: str = ""
    frame: int = 0
    operand: str = ""  # the first operand


class LiveBuffer(NamedTuple):
    """Memory that is in use at the peak."""

    bytes: int
    shape: str
    name: str
    opcode: str
    op_name: str
    frame: int  # a key of hlo.layers
    argument: bool  # whether the value is an argument of the program, which stays in memory for the whole program


def held_at_the_peak(assignment, values, live_ranges):
    """Return the buffers in a device's memory at its peak, largest first. Their sizes add up to the peak memory."""
    allocations, placed = _placed(assignment)
    makers, needed = _makers(values), _needed(live_ranges)
    temporary = {number for number, (_, kind) in allocations.items() if kind.startswith("preallocated-temp")}
    first_of = {value.allocation: value for value in reversed(placed)}  # its name is the argument's path in the state
    begin = [
        _held(first_of[number], size, makers, argument=True)
        for number, (size, kind) in allocations.items()
        if number not in temporary and "thread-local" not in kind and number in first_of
    ]
    ranged = [
        (needed[value.name], value) for value in placed if value.allocation in temporary and value.name in needed
    ]
    found = [
        _held(value, size, makers, argument=False)
        for value, size in _distinct(_at_the_peak(ranged, makers), makers)
        if size
    ]
    return sorted([*begin, *found], key=lambda one: -one.bytes)


def _placed(text):
    allocations, placed, number = {}, [], -1
    for line in text.splitlines():
        if match := _ALLOCATION.match(line):
            number = int(match[1])
            allocations[number] = (int(match[2]), match[3])
        elif match := _PLACED.match(line):
            shape = _SHAPE.match(match[4])
            placed.append(
                PlacedBuffer(_whole(match[1]), number, int(match[2]), int(match[3]), shape[0] if shape else "")
            )
    return allocations, placed


def _whole(name):
    """Return the name with a tuple index. One of the three files omits the empty index of a value outside a tuple."""
    return name if name.endswith("}") else name + "{}"


def _makers(text):
    found = {}
    for line in text.splitlines():
        if match := _MADE_BY.match(line):
            op, frame = _OP_NAME.search(line, match.end()), _FRAME.search(line, match.end())
            name = op[1].replace("\\", "") if op else ""
            found[match[1]] = Maker(match[2], name, int(frame[1]) if frame else 0, match[3] or "")
    return found


def _needed(text):
    found = {}
    for line in text.partition("BufferLiveRange:")[2].splitlines()[1:]:
        match = _NEEDED.match(line)
        if match is None:
            break
        found[match[1] + match[2]] = (int(match[3]), int(match[4]))
    return found


NEAR = 1e-2  # a moment counts as the peak if its temporary memory is at most this fraction below the maximum


def _at_the_peak(ranged, makers):
    """Return the values that are live at the peak. Check only the starts of live ranges, because memory grows there.

    If several moments need about the same memory, choose the moment with the most memory in named values, because
    loops start with unnamed values.
    """
    moments = []
    for moment in sorted({first for (first, _), _ in ranged}):
        alive = [value for (first, last), value in ranged if first <= moment <= last]
        named = [value for value in alive if all(_telling(value, makers))]
        moments.append((_size(alive), _size(named), alive))
    largest = max((size for size, _, _ in moments), default=0)
    near = [moment for moment in moments if moment[0] >= (1 - NEAR) * largest]
    return max(near, key=lambda moment: moment[1], default=(0, 0, []))[2]


def _size(values):
    return _covered((value.offset, value.offset + value.size) for value in values)


def _covered(extents):
    total = end = 0
    for start, stop in sorted(extents):
        if stop > end:
            total += stop - max(start, end)
            end = stop
    return total


def _distinct(values, makers):
    """Yield each value with the bytes that it does not share with a larger or better named value."""
    taken = []
    for value in sorted(values, key=lambda one: (one.size, _telling(one, makers)), reverse=True):
        extent = (value.offset, value.offset + value.size)
        before = _covered(taken)
        taken.append(extent)
        yield value, _covered(taken) - before


def _maker(value, makers):
    """Return the instruction that computes a value. If it has no op_name, copy the op_name of its first operand."""
    maker = found = makers.get(value.name.partition("{")[0], Maker())
    for _ in range(HOPS):
        if found.op_name or found.operand not in makers:
            break
        found = makers[found.operand]
    return maker._replace(op_name=found.op_name, frame=found.frame)


def _telling(value, makers):
    maker = _maker(value, makers)
    return (bool(maker.op_name), maker.opcode not in _PASSED_ON)


def _held(value, size, makers, argument):
    maker = _maker(value, makers)
    return LiveBuffer(size, value.shape, value.name, maker.opcode, maker.op_name, maker.frame, argument)
