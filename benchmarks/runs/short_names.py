"""Runs called by the shortest end of their names that no other run's name contains; every command takes it. Pure.

The end of a name that Stepmark gave is its four digits of chance. A folder that a person has renamed is called by the
whole of its name, of a long one by its last words.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable

from benchmarks.runs.runfolder import RUN_ID

LENGTHS = (4, 6, 9, 14, 24)
WORD = re.compile(r"(?<=[^\w.])\w|(?<=_)[^\W_]")


def short_names(names: Iterable[str], among: Collection[str]) -> dict[str, str]:
    """`among`: the names of all runs of the folder."""
    found: dict[str, str] = {}
    asked = list(names)
    left = [name for name in asked if RUN_ID.search(name)]
    for length in LENGTHS:
        if not left:
            break
        counts = Counter(part for name in {*among, *left} for part in _parts(name, length))
        found |= {name: name[-length:] for name in left if counts[name[-length:]] == 1}
        left = [name for name in left if name not in found]
    every = "\n".join({*among, *asked})
    return found | {name: _last_words(name, every) for name in asked if name not in found}


def _parts(name: str, length: int) -> set[str]:
    return {name[place : place + length] for place in range(len(name) - length + 1)}


def _last_words(name: str, every: str) -> str:
    """As many of them as no other name contains; all where that is not long."""
    if len(name) <= LENGTHS[-1] or RUN_ID.search(name):
        return name
    ends = (name[word.start() :] for word in reversed(list(WORD.finditer(name))))
    return next((end for end in ends if len(end) >= LENGTHS[2] and every.count(end) == 1), name)
