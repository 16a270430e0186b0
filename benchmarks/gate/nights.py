"""Which nights of a series are held against which: baseline, recent, since the last decision. Pure.

The newest baseline night is `gap_nights` ago, so that tonight and the nights just before are judged and are no
baseline. A short history makes the gap smaller: ten nights are a baseline, the eleventh is judged.

Nights that were not decided (inconclusive) stay out of the baseline while the rule still looks at them. A night that
was judged a regression never enters one, nor does an improvement, until the new level is accepted: by someone, or, of
an improvement, by itself as soon as it has nights enough for a baseline, so that a later loss of it is seen.
"""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.gate.rule_settings import G3, Rule
from benchmarks.gate.values import Verdict
from benchmarks.values import Value

OLDER_LEVEL = "before the level that counts now"
OLDER = "older than the baseline"
BETWEEN = "after the baseline, before the nights that are judged"
LEVELS: tuple[Verdict, ...] = ("regression", "improvement")  # verdicts that say that the level is another one


class PastNight(Value, frozen=True):
    """One night of one figure, as the gate looks back at it. Tonight is one too."""

    value: float  # of the night's first run: a re-run's in its place would make the noise look smaller than it is
    verdict: Verdict | None = None  # on this figure; None: it was never judged
    accepted: bool = False  # somebody said: this is the level from now on
    left_out: str = ""  # why it counts nowhere, such as a slowdown on purpose


class Division(NamedTuple):
    """Positions in the series, oldest first; tonight is the last of `recent` and of `since`."""

    baseline: list[int]
    recent: list[int]
    since: list[int]
    left_out: dict[int, str]  # every other night, and why

    def needed(self, rule: Rule = G3) -> int:
        """Nights that are missing before one is judged; 0: tonight is."""
        return max(rule.fewest_baseline_nights - len(self.baseline), 0)


class _Start(NamedTuple):
    """Where the level that counts now begins; up to `through`, verdicts were given against the level before."""

    first: int = 0
    through: int = -1


def divide(nights: Sequence[PastNight], rule: Rule = G3) -> Division:
    """The series, oldest first, the last one tonight -> what each night is used as."""
    if not nights:
        return Division([], [], [], {})
    *earlier, _ = nights
    tonight, start = len(earlier), _start(earlier, rule)
    left_out = {n: why for n, night in enumerate(earlier) if (why := _why_left_out(night, n, start))}
    counting = [n for n in range(start.first, tonight) if n not in left_out]
    able = [n for n in counting if n <= start.through or earlier[n].verdict not in LEVELS]
    undecided = _undecided(earlier, counting, rule)
    baseline = _baseline(able, counting, max(rule.gap_nights - 1, len(undecided)), rule)
    after = [n for n in counting if not baseline or n > baseline[-1]]
    recent = [*after, tonight][-rule.gap_nights :]
    recent = recent if len(recent) == rule.gap_nights else [tonight]
    since = [*(n for n in undecided if n in after), tonight]
    for n in {*counting} - {*baseline, *recent, *since}:
        passed_over = OLDER if baseline and n < baseline[0] else BETWEEN
        left_out[n] = passed_over if n in able else f"judged {earlier[n].verdict}, and not accepted"
    return Division(baseline, recent, since, dict(sorted(left_out.items())))


def _why_left_out(night: PastNight, position: int, start: _Start) -> str:
    if night.left_out or night.verdict == "invalid":
        return night.left_out or "its run was invalid"
    return OLDER_LEVEL if position < start.first else ""


def _start(earlier: Sequence[PastNight], rule: Rule) -> _Start:
    """The level that was accepted last, from the first night that was judged to have it."""
    if not any(night.accepted or night.verdict in LEVELS for night in earlier):
        return _Start()
    start, streak, first = _Start(), list[Verdict](), 0
    for n, night in enumerate(earlier):
        if night.left_out or night.verdict == "invalid":
            continue
        if night.verdict in LEVELS and night.verdict not in streak:
            streak, first = [], n
        goes_on = night.verdict in LEVELS or (streak and night.verdict == "inconclusive")
        streak = [*streak, night.verdict] if goes_on and night.verdict else []
        if night.accepted or _has_lasted(streak, rule):
            start, streak = _Start(first if streak else n, n), []
    return start


def _has_lasted(streak: Sequence[Verdict], rule: Rule) -> bool:
    """An improvement that makes a baseline of its own, most of it judged to be one."""
    return len(streak) >= rule.fewest_baseline_nights and 2 * streak.count("improvement") > len(streak)


def _undecided(earlier: Sequence[PastNight], counting: Sequence[int], rule: Rule) -> list[int]:
    """The nights since the last decision, tonight aside, as many as the rule looks at."""
    found: list[int] = []
    for n in reversed(counting):
        if earlier[n].verdict != "inconclusive" or len(found) == rule.since_nights - 1:
            break
        found.insert(0, n)
    return found


def _baseline(able: Sequence[int], counting: Sequence[int], held_back: int, rule: Rule) -> list[int]:
    """Nights before those held back; where that leaves too few, some of these too, the oldest first."""
    before = {*counting[: max(len(counting) - held_back, 0)]}
    enough = max(sum(n in before for n in able), rule.fewest_baseline_nights)
    return list(able[:enough][-rule.baseline_nights :])
