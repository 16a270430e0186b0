"""Runs called by the shortest end of their names that no other run's name contains; every command takes it. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable

LENGTHS = (4, 6, 9, 14, 24)


def short_names(names: Iterable[str], among: Collection[str]) -> dict[str, str]:
    """`among`: the names of all runs of the folder."""
    found: dict[str, str] = {}
    left = list(names)
    for length in LENGTHS:
        if not left:
            break
        counts = Counter(part for name in {*among, *left} for part in _parts(name, length))
        found |= {name: name[-length:] for name in left if counts[name[-length:]] == 1}
        left = [name for name in left if name not in found]
    return found | {name: name for name in left}


def _parts(name: str, length: int) -> set[str]:
    return {name[place : place + length] for place in range(len(name) - length + 1)}
