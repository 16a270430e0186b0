"""A pattern for a log of no known format, guessed from its most repeated line with a step in it. Pure.

No guess is better than a wrong one: it must name a step and a time or a loss, fit the lines it was made from, and
their steps must go up.
"""

import re
from collections import defaultdict
from itertools import pairwise

from benchmarks.errors import RequestError
from benchmarks.logs.templates import Template, lines_of

FEWEST_LINES = 3
LONGEST_LINE = 1000
NUMBER = re.compile(
    r"(?<![\w.])[+-]?(?:\d{1,3}(?:[,_]\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)(?![\d.])", re.IGNORECASE
)
BEFORE = {  # a field -> what stands before its number
    "step": re.compile(r"(?:\b|_)(?:step|iter|iteration)s?\W{0,3}\s*$", re.IGNORECASE),
    "loss": re.compile(r"(?<![\w.])(?:train[_ ])?loss\W{0,3}\s*$", re.IGNORECASE),
    "milliseconds": re.compile(r"(?:(?:\b|_)ms|\(ms\))\W{0,3}\s*$", re.IGNORECASE),
    "seconds": re.compile(r"(?:(?:\b|_)(?:sec|seconds|step_time)|step time|\(s\))\W{0,3}\s*$", re.IGNORECASE),
}
AFTER = {  # and behind it
    "milliseconds": re.compile(r" ?ms\b"),
    "seconds": re.compile(r" ?s(?:ec|econds)?(?:/(?:step|it|iter))?(?![\w/])"),
}


def guessed_pattern(head: bytes) -> str | None:
    """A template as --pattern takes it."""
    alike: dict[str, list[str]] = defaultdict(list)
    for line in lines_of(head):
        if len(line) <= LONGEST_LINE:
            text = line.decode(errors="replace").strip()
            alike[re.sub(r"[ \t]+", " ", NUMBER.sub("#", text))].append(text)
    for lines in sorted(alike.values(), key=len, reverse=True):
        pattern = _pattern(lines[0]) if len(lines) >= FEWEST_LINES else None
        if pattern is not None and _fits(pattern, lines):
            return pattern
    return None


def _fields(line: str) -> list[tuple[str, int, int]]:
    """Field, begin and end of the numbers of a line that are known, each field once."""
    found: dict[str, tuple[str, int, int]] = {}
    for number in NUMBER.finditer(line):
        before, after = line[: number.start()], line[number.end() :]
        names = [name for name, pattern in AFTER.items() if pattern.match(after)]
        names += [name for name, pattern in BEFORE.items() if pattern.search(before)]
        if names:
            found.setdefault(names[0], (names[0], number.start(), number.end()))
    return sorted(found.values(), key=lambda field: field[1])


def _pattern(line: str) -> str | None:
    """The words around the known numbers; all between is `...`."""
    fields = _fields(line)
    names = [name for name, *_ in fields]
    if "step" not in names or len(names) < 2 or "{" in line or "..." in line:
        return None
    parts, last = [], 0
    for name, start, end in fields:
        words = re.search(r"(?:[A-Za-z_()/]+[^\w]{0,3}[ \t]*)?$", line[last:start])
        literal = words[0] if words else ""
        parts += ["..."] if last and literal != line[last:start] else []
        literal = re.sub(r"[ \t]+", " ", literal)
        unit = AFTER[name].match(line[end:]) if name in AFTER else None
        parts.append(literal + "{" + name + "}" + (unit[0] if unit else ""))
        last = end + (unit.end() if unit else 0)
    return re.sub(r"(?<! )\.\.\.(?=\S)|\.\.\.(?=[A-Za-z])", "... ", " ".join(parts)) if parts else None


def _fits(pattern: str, lines: list[str]) -> bool:
    try:
        template = Template(pattern)
    except RequestError:
        return False
    values = [template.values_in(line.encode(), cut="") for line in lines]
    steps = [found["step"] for found in values if found]
    return len(steps) == len(lines) and all(a <= b for a, b in pairwise(steps)) and steps[0] < steps[-1]
