"""Runs called by the shortest end of their names that no other run's name contains; every command takes it. Pure.

The end of a name that Stepmark gave is its four digits of chance. A folder that a person has renamed is called by the
whole of its name.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from benchmarks.runs.runfolder import RUN_ID

LENGTHS = (4, 6, 9, 14, 24)


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
    return found | {name: name for name in asked if name not in found}


def _parts(name: str, length: int) -> set[str]:
    return {name[place : place + length] for place in range(len(name) - length + 1)}
