"""A difference with its interval -> one of few words, and the sentence that says why. Pure."""

import math

from benchmarks.comparing.intervals import Estimate, lacking
from benchmarks.comparing.values import Direction, Verdict

SHORT = 100.0  # percent: from here on two digits would need an exponent


def verdict_of(
    found: Estimate, direction: Direction, margin_percent: float, counts: tuple[int, int]
) -> tuple[Verdict, str]:
    """Whether a difference is shown, or shown to be small; `counts` are the runs of the sides."""
    if not found.of_runs or found.low is None or found.high is None:
        return "no verdict", _why_none(found, counts)
    outside = found.low > 0 or found.high < 0
    if _within(found, margin_percent):
        also = ", though a difference is shown" if outside else ""
        return "equal within the margin", f"the 90% interval lies within +-{margin_percent:g}%{also}; {found.by}"
    if not outside:
        return "no difference shown", f"the interval holds 0; {found.by}{_what_would_show(found)}"
    return _better_or_worse(direction, found.centre), f"the interval does not hold 0; {found.by}"


def _why_none(found: Estimate, counts: tuple[int, int]) -> str:
    lacks = found.lacks or lacking(same_day=True)
    if found.low is None or found.high is None:
        runs = " and ".join(f"{count} run{'s' * (count > 1)}" for count in counts)
        return f"{runs}: how much such runs differ by chance is not known; {lacks}"
    differ = found.low > 0 or found.high < 0
    if found.days_explain is not None:
        return _of_other_days(found.days_explain, differ, lacks)
    words = "the two windows differ" if differ else "the two windows do not differ beyond their own noise"
    return f"{words}; how much runs differ by chance is not in that: {lacks}"


def _of_other_days(explain: float, differ: bool, lacks: str) -> str:
    """Both sides are sets, made on different days."""
    words = "these runs differ" if differ else "these runs do not differ beyond their own noise"
    chance = (
        f"; days that differ by {_short(explain)}% (one standard deviation) can make it by chance" if differ else ""
    )
    return (
        f"{words}, but A and B were made on different days; how much days differ by chance is not in that{chance}: "
        f"{lacks}"
    )


def _within(found: Estimate, margin_percent: float) -> bool:
    if found.equal_low is None or found.equal_high is None or not margin_percent:
        return False
    low, high = (100 * math.expm1(end) for end in (found.equal_low, found.equal_high))
    return -margin_percent < low and high < margin_percent


def _what_would_show(found: Estimate) -> str:
    if not found.detectable:
        return ""
    return f"; at this noise {_short(found.detectable)}% or more shows in 4 of 5 cases"


def _short(log: float) -> str:
    percent = 100 * math.expm1(log)
    return f"{percent:.2g}" if percent < SHORT else f"{percent:,.0f}"


def _better_or_worse(direction: Direction, centre: float) -> Verdict:
    if direction == "same":
        return "changed"
    return "better" if (centre < 0) == (direction == "lower") else "worse"
