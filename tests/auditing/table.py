"""Lines of the audit's table, and when a simulated share breaks its goal."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

RARE = 0.01  # a share breaks its goal where one that just keeps it would look as bad in fewer cases than this

Random = np.random.Generator
Array = np.ndarray


class Line(NamedTuple):
    """One claim that was looked at."""

    part: str
    what: str
    goal: str  # empty: nothing is promised
    found: str
    holds: bool | None = None  # None: there is no goal

    @property
    def verdict(self) -> str:
        return {True: "holds", False: "FAILS", None: ""}[self.holds]


Lines = Iterator[Line]


class Size(NamedTuple):
    """How much is simulated; and clones of repositories that rows cite, by their names."""

    full: bool
    clones: Mapping[str, Path] = {}

    def runs(self, full: int, small: int) -> int:
        return full if self.full else small


class Share(NamedTuple):
    """How often something happened. Events of one history depend on each other, so the histories are the unit."""

    share: float
    error: float  # one standard error
    count: float  # of independent cases that are worth as much
    cases: float

    def text(self, digits: int = 1) -> str:
        return f"{100 * self.share:.{digits}f}% +- {100 * 1.96 * self.error:.{digits}f}"

    def at_most(self, bound: float) -> bool:
        """Not shown to be above the bound."""
        from scipy.stats import binom

        return float(binom.sf(math.ceil(self.count) - 1, max(round(self.cases), 1), bound)) >= RARE

    def at_least(self, bound: float) -> bool:
        """Not shown to be below the bound."""
        return Share(1 - self.share, self.error, self.cases - self.count, self.cases).at_most(1 - bound)


def share(histories: Sequence[Sequence[bool]] | Array) -> Share:
    """Of histories x events; one event a history is the plain binomial case."""
    events = np.asarray(histories, dtype=float)
    events = events[:, None] if events.ndim == 1 else events
    found, of = float(events.mean()), events.size
    plain = found * (1 - found) / of
    seen = float(events.mean(1).var(ddof=1) / len(events)) if len(events) > 1 else plain
    design = max(seen / plain, 1.0) if plain else 1.0
    cases = of / design
    return Share(found, math.sqrt(max(plain, seen)), found * cases, cases)


def at_most(part: str, what: str, found: Share, bound: float, digits: int = 1, also: str = "") -> Line:
    return Line(part, what, f"at most {100 * bound:g}%", _text(found, digits, also), found.at_most(bound))


def at_least(part: str, what: str, found: Share, bound: float, digits: int = 1, also: str = "") -> Line:
    return Line(part, what, f"at least {100 * bound:g}%", _text(found, digits, also), found.at_least(bound))


def _text(found: Share, digits: int, also: str) -> str:
    return found.text(digits) + (f" ({also})" if also else "")


def markdown(lines: Sequence[Line], earlier: Mapping[tuple[str, str], str] | None = None) -> str:
    """A table; with a column of what an earlier one found."""
    names = ["part", "claim", "goal", *(["before"] if earlier else []), "found", "verdict"]
    rows = [names, ["---"] * len(names)]
    for line in lines:
        before = [earlier.get((line.part, line.what), "")] if earlier else []
        rows.append([line.part, line.what, line.goal, *before, line.found, line.verdict])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def found_in(table: str) -> dict[tuple[str, str], str]:
    """What an earlier table found; its own column of an earlier one, where it has that: the start is kept."""
    rows = [
        [cell.strip() for cell in line.strip()[1:-1].split(" | ")] for line in table.splitlines() if line[:1] == "|"
    ]
    place = rows[0].index("before" if "before" in rows[0] else "found") if rows else 0
    return {(row[0], row[1]): row[place] for row in rows[2:]}
