"""Rows of the simulations' table, and when a simulated share breaks its goal."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

RARE = 0.01  # a share breaks its goal if one that just keeps it would look as bad in fewer cases than this

Random = np.random.Generator
Array = np.ndarray


class Line(NamedTuple):
    """One simulated share and its goal."""

    part: str
    what: str
    goal: str  # empty: nothing is promised
    found: str
    holds: bool | None = None  # None: there is no goal

    @property
    def verdict(self) -> str:
        return {True: "holds", False: "FAILS", None: ""}[self.holds]


Lines = Iterator[Line]


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
    """Return the share of events in histories x events; one event per history is the plain binomial case."""
    events = np.asarray(histories, dtype=float)
    events = events[:, None] if events.ndim == 1 else events
    found, of = float(events.mean()), events.size
    plain = found * (1 - found) / of
    seen = float(events.mean(1).var(ddof=1) / len(events)) if len(events) > 1 else plain
    design = max(seen / plain, 1.0) if plain else 1.0
    cases = of / design
    return Share(found, math.sqrt(max(plain, seen)), found * cases, cases)


def at_most(part: str, what: str, found: Share, bound: float, digits: int = 1) -> Line:
    return Line(part, what, f"at most {100 * bound:g}%", found.text(digits), found.at_most(bound))


def at_least(part: str, what: str, found: Share, bound: float, digits: int = 1) -> Line:
    return Line(part, what, f"at least {100 * bound:g}%", found.text(digits), found.at_least(bound))


def markdown(lines: Sequence[Line]) -> str:
    rows = [["part", "claim", "goal", "found", "verdict"], ["---"] * 5]
    rows += [[line.part, line.what, line.goal, line.found, line.verdict] for line in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
