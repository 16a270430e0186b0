"""Lists in flags, such as --gpus=64,128 -> a request for every combination, in order. Pure."""

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec

from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request

# The first varies slowest; pgle fastest, so that the runs of a pair are neighbours.
LISTED = ("backend", "model", "task", "engine", "dtype", "hardware", "gpus", "nodes", "pgle")
NUMBERS = ("gpus", "nodes")


def cells(lists: Mapping[str, str | None], rest: Mapping[str, Any]) -> list[Request]:
    """Every combination of what the flags of LISTED name, in the order typed; `rest` is the same for all."""
    axes = [_axis(name, lists.get(name)) for name in LISTED]
    typed = [name for name in LISTED if lists.get(name) is not None]
    combinations = itertools.product(*(axis for axis in axes if axis))
    return [msgspec.convert({**rest, **dict(zip(typed, values, strict=True))}, Request) for values in combinations]


def _axis(name: str, text: str | None) -> list[int | str]:
    if text is None:
        return []
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        rest = ",".join(filter(None, words)) or "..."
        raise RequestError(f"--{name}={text}: a name is empty", where=f"--{name}", next_command=f"--{name}={rest}")
    values: list[int | str] = [number(name, word) if name in NUMBERS else word for word in words]
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        what, repeats = f"--{name}={text}: {twice} is named twice", "--repeats=N runs every cell N times"
        raise RequestError(what, where=f"--{name}", why="two cells would differ in nothing", next_command=repeats)
    return values


def number(name: str, word: str) -> int:
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 9:
        what = f"--{name}: '{word}' is no whole number"
        raise RequestError(what, where=f"--{name}", next_command=f"--{name}=8, or 8,16 for both")
    return int(word)
