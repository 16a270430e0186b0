"""How far side B is from side A, with its interval: sets of runs, pairs, single runs. Pure; logarithms throughout.

The unit is the run. Steps of one run share its machine, its placing and its minute: intervals of steps, put together,
hold a difference of nothing in far fewer cases than they say (tests/benchmarks/comparing/test_intervals.py). So a
single run against a single run has a verdict only where it is known how much such runs differ by chance. And runs of
one day share that day: sides of different days have one only where it is known how much days differ.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.comparing.days import (
    FEWEST_DAYS,
    FEWEST_FOR_NOISE,
    Noise,
    Spread,
    combined,
    day_means,
    left_out,
    shared_out,
)  # fmt: skip
from benchmarks.comparing.values import Direction, Verdict
from benchmarks.rendering.columns import percent_text
from benchmarks.sweeps.pairs import FEWEST_PAIRS, POWER, Paired, paired

FEWEST_RUNS = FEWEST_PAIRS  # of a side that is a set: two have an interval that holds nearly everything
FEWEST_OF_SIDE = 3  # days of a side, before its days alone say how much days differ
CONFIDENCE = 0.975  # two-sided 95%
EQUALITY = 0.95  # two-sided 90%: two one-sided tests at 5%
SAME_DAY = f"{FEWEST_RUNS} runs a side, or {FEWEST_FOR_NOISE} other runs of the same kind, would show it"
OTHER_DAYS = (
    f"{FEWEST_RUNS} runs a side in turns, {FEWEST_OF_SIDE} days a side, or other runs of the same kind on "
    f"{FEWEST_DAYS} days, would show it"
)
Days = tuple[Sequence[int], Sequence[int]]  # of the runs of both sides


class Estimate(NamedTuple):
    """The logarithm of B over A. None: too little is known for an interval."""

    centre: float
    half_width: float | None  # 95%; of an interval that is not symmetric, the wider half
    low: float | None
    high: float | None
    equal_low: float | None  # 90%
    equal_high: float | None
    detectable: float | None  # the effect that is seen in 4 of 5 cases
    by: str  # what the interval is made from
    of_runs: bool = True  # whether what differs from run to run, and from day to day, is in it
    lacks: str = ""  # what would have to be known, where it is not


class Level(NamedTuple):
    """One side's own: the logarithm of its figure."""

    centre: float
    low: float | None
    high: float | None
    runs: int
    clipped: list[int]  # the places of runs that lie far off, and count as if they did not


# --- one side -----------------------------------------------------------------------------------


def level(logs: Sequence[float], window: tuple[float, float] | None = None) -> Level:
    """The mean over runs, with its interval from 3 runs on; of one run its own, with its window's interval."""
    if len(logs) == 1:
        low, high = window or (None, None)
        return Level(logs[0], low, high, 1, [])
    found = paired(logs)
    if found is None:
        return Level(_mean(logs), None, None, len(logs), [])
    clipped = [place for place, (given, kept) in enumerate(zip(logs, found.counted, strict=True)) if given != kept]
    low, high = found.centre - found.half_width, found.centre + found.half_width
    return Level(found.centre, low, high, len(logs), clipped)


# --- two sides ----------------------------------------------------------------------------------


def between_sets(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Welch's t on the means of logarithms; from 6 runs a side on, a run far off counts as in pairs.py."""
    centre, error, freedom = _welch(a, b)
    return _around(centre, error, freedom, f"{len(a)} and {len(b)} runs, Welch's t")


def between_sets_of_days(a: Sequence[float], b: Sequence[float], days: Days, noise: Noise | None) -> Estimate:
    """The same, where the days of both sides are known: what differs from day to day is in it, or it says less."""
    missing = left_out(*days)
    if not missing:
        return between_sets(a, b)
    counts = [len(set(own)) for own in days]
    if min(counts) >= FEWEST_OF_SIDE:
        means = _welch(day_means(a, days[0]), day_means(b, days[1]))
        return _around(
            *means, f"{len(a)} and {len(b)} runs on {counts[0]} and {counts[1]} days, Welch's t on the days"
        )
    centre, error, freedom = _welch(a, b)
    if noise is None or noise.between is None:
        found = _around(centre, error, freedom, "the runs of these days alone")
        return found._replace(of_runs=False, lacks=f"A and B were made on different days; {OTHER_DAYS}")
    days_part = Spread(missing * noise.between.variance, noise.between.freedom)
    whole = combined([Spread(error**2, freedom), days_part])
    by = (
        f"{len(a)} and {len(b)} runs, and the noise from day to day, "
        f"{percent_text(100 * math.expm1(math.sqrt(noise.between.variance)))}, {noise.between.of}"
    )
    return _around(centre, math.sqrt(whole.variance), whole.freedom, by)


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """The difference, its standard error and its degrees of freedom."""
    sides: list[tuple[Paired, int]] = []
    for logs in (a, b):
        found = paired(logs)
        if found is None:
            raise ValueError(f"a set has {FEWEST_RUNS} runs or more")
        sides.append((found, len(logs)))
    # Satterthwaite: as many degrees of freedom as the noisier side leaves.
    whole = combined([Spread(side.deviation**2 / count, count - 1) for side, count in sides])
    return sides[1][0].centre - sides[0][0].centre, math.sqrt(whole.variance), whole.freedom


def between_pairs(logs: Sequence[float]) -> Estimate:
    """Student's t on the ratios of pairs: what slows both runs of a pair falls out."""
    found = paired(logs)
    if found is None:
        raise ValueError(f"an interval needs {FEWEST_PAIRS} pairs")
    error = found.deviation / math.sqrt(len(logs))
    return _around(found.centre, error, len(logs) - 1, f"{len(logs)} pairs of one sweep, Student's t")


def with_noise(a: Sequence[float], b: Sequence[float], days: Days, noise: Noise) -> Estimate:
    """Fewer runs than a set has, beside a known noise: of runs of one day where they are, else of any days."""
    centre, parts = _mean(b) - _mean(a), shared_out(*days)
    same_day = len({*days[0], *days[1]}) == 1
    each = 1 / len(a) + 1 / len(b)
    one = (noise.within if same_day else None) or noise.single
    if one is None:
        return unknown_interval(centre)._replace(
            lacks=SAME_DAY if same_day else f"A and B are of different days; {OTHER_DAYS}"
        )
    kind = "run to run" if one is noise.within else "run to run and day to day"
    by = f"the noise from {kind}, {percent_text(100 * math.expm1(math.sqrt(one.variance)))}, {one.of}"
    return _around(centre, math.sqrt(one.variance * max(parts, each)), one.freedom, by)


def between_windows(a: Level, b: Level) -> Estimate:
    """Two single runs: their windows' intervals together (MOVER, Zou and Donner 2008). Of these windows alone."""
    centre = b.centre - a.centre
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return unknown_interval(centre)
    below = math.hypot(b.centre - b.low, a.high - a.centre)
    above = math.hypot(b.high - b.centre, a.centre - a.low)
    half, by = max(below, above), "the two windows"
    return Estimate(centre, half, centre - below, centre + above, None, None, None, by, of_runs=False)


def unknown_interval(centre: float) -> Estimate:
    return Estimate(centre, None, None, None, None, None, None, "", of_runs=False)


def _around(centre: float, error: float, freedom: float, by: str) -> Estimate:
    half, equal = quantile(CONFIDENCE, freedom) * error, quantile(EQUALITY, freedom) * error
    return Estimate(
        centre=centre,
        half_width=half,
        low=centre - half,
        high=centre + half,
        equal_low=centre - equal,
        equal_high=centre + equal,
        detectable=half + quantile(POWER, freedom) * error,
        by=by,
    )


def _mean(logs: Sequence[float]) -> float:
    return math.fsum(logs) / len(logs)


def quantile(probability: float, freedom: float) -> float:
    from scipy.special import stdtrit  # --help needs no quantile

    return float(stdtrit(freedom, probability))


# --- verdicts -----------------------------------------------------------------------------------


def verdict_of(found: Estimate, direction: Direction, margin_percent: float) -> tuple[Verdict, str]:
    """Whether a difference is shown, or shown to be small; and the sentence that says why."""
    if found.low is None or found.high is None:
        return "no verdict", f"how much such runs differ by chance is not known; {found.lacks or SAME_DAY}"
    outside = found.low > 0 or found.high < 0
    if not found.of_runs:
        words = "differ" if outside else "do not differ beyond their own noise"
        return "no verdict", f"{found.by} {words}; more than that is not known: {found.lacks or SAME_DAY}"
    if _within(found, margin_percent):
        also = ", though a difference is shown" if outside else ""
        return "equal within the margin", f"the 90% interval lies within +-{margin_percent:g}%{also}; {found.by}"
    if not outside:
        shows = 100 * math.expm1(found.detectable or 0.0)
        more = f"; at this noise {shows:.2g}% or more shows in 4 of 5 cases" if shows else ""
        return "no difference shown", f"the interval holds 0; {found.by}{more}"
    why = f"the interval does not hold 0; {found.by}"
    if direction == "same":
        return "changed", why
    return ("better" if (found.centre < 0) == (direction == "lower") else "worse"), why


def _within(found: Estimate, margin_percent: float) -> bool:
    if found.equal_low is None or found.equal_high is None or not margin_percent:
        return False
    low, high = (100 * math.expm1(end) for end in (found.equal_low, found.equal_high))
    return -margin_percent < low and high < margin_percent
