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
)
from benchmarks.rendering.columns import percent_text
from benchmarks.sweeps.pairs import FEWEST_PAIRS, POWER, Paired, paired

FEWEST_RUNS = FEWEST_PAIRS  # of a side that is a set: two have an interval that holds nearly everything
FEWEST_OF_SIDE = 3  # days of a side, before its days alone say how much days differ
CONFIDENCE = 0.975  # two-sided 95%
EQUALITY = 0.95  # two-sided 90%: two one-sided tests at 5%


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
    days_explain: float | None = None  # days that differ by so much (one standard deviation) make it by chance


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


def between_sets_of_days(
    a: Sequence[float], b: Sequence[float], days: tuple[Sequence[int], Sequence[int]], noise: Noise | None
) -> Estimate:
    """The same, where the days of both sides are known: what differs from day to day is in it, or it says less."""
    missing = left_out(*days)
    if not missing:
        return between_sets(a, b)
    counts = [len(set(own)) for own in days]
    if min(counts) >= FEWEST_OF_SIDE:
        found = _welch(day_means(a, days[0]), day_means(b, days[1]))
        return _around(
            *found, f"{len(a)} and {len(b)} runs on {counts[0]} and {counts[1]} days, Welch's t on the days"
        )
    centre, error, freedom = _welch(a, b)
    if noise is None or noise.between is None:
        return _of_these_days(_around(centre, error, freedom, ""), error, missing)
    days_part = Spread(missing * noise.between.variance, noise.between.freedom)
    whole = combined([Spread(error**2, freedom), days_part])
    by = (
        f"{len(a)} and {len(b)} runs, and the noise from day to day, "
        f"{percent_text(100 * math.expm1(math.sqrt(noise.between.variance)))}, {noise.between.of}"
    )
    return _around(centre, math.sqrt(whole.variance), whole.freedom, by)


def _of_these_days(found: Estimate, error: float, missing: float) -> Estimate:
    half = found.half_width or 0.0
    factor = half / error if error else quantile(CONFIDENCE, math.inf)
    room = (abs(found.centre) / factor) ** 2 - error**2
    return found._replace(
        by="the runs of these days alone",
        of_runs=False,
        lacks=f"runs of A and B in turns, {FEWEST_OF_SIDE} days a side, or other runs of the same kind on "
        f"{FEWEST_DAYS} days, would show it",
        equal_low=None,
        equal_high=None,
        detectable=None,
        days_explain=math.sqrt(room / missing) if room > 0 else 0.0,
    )


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


def with_noise(
    a: Sequence[float], b: Sequence[float], days: tuple[Sequence[int], Sequence[int]], noise: Noise
) -> Estimate:
    """Fewer runs than a set has, beside a known noise: of runs of one day where they are, else of any days."""
    centre, parts = _mean(b) - _mean(a), shared_out(*days)
    same_day = len({*days[0], *days[1]}) == 1
    each = 1 / len(a) + 1 / len(b)
    one = (noise.within if same_day else None) or noise.single
    if one is None:
        return unknown_interval(centre)._replace(
            lacks=lacking(same_day=same_day, of=noise.within.of if noise.within else "")
        )
    kind = "run to run" if one is noise.within else "run to run and day to day"
    by = f"the noise from {kind}, {percent_text(100 * math.expm1(math.sqrt(one.variance)))}, {one.of}"
    return _around(centre, math.sqrt(one.variance * max(parts, each)), one.freedom, by)


def lacking(*, same_day: bool, of: str = "") -> str:
    """What two sides of few runs need for a verdict."""
    if same_day:
        return f"{FEWEST_RUNS} runs a side, or {FEWEST_FOR_NOISE} other runs of the same kind, would show it"
    known = f" (known is the noise within a day, {of})" if of else ""
    ways = f"{FEWEST_RUNS} runs a side in turns, or other runs of the same kind on {FEWEST_DAYS} days"
    return f"A and B are of different days; {ways}, would show it{known}"


def between_windows(a: Level, b: Level) -> Estimate:
    """Two single runs: their windows' intervals together (MOVER, Zou and Donner 2008). Of these windows alone."""
    centre = b.centre - a.centre
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return unknown_interval(centre)
    below = math.hypot(b.centre - b.low, a.high - a.centre)
    above = math.hypot(b.high - b.centre, a.centre - a.low)
    half, by = max(below, above), "the two windows' own intervals"
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
