"""How far side B is from side A, with its interval: sets of runs, pairs, single runs. Pure; logarithms throughout.

The unit is the run. Steps of one run share its machine, its placing and its minute: intervals of steps, put together,
hold a difference of nothing in far fewer cases than they say (tests/benchmarks/comparing/test_intervals.py). So a
single run against a single run has a verdict only where it is known how much such runs differ by chance. And runs of
one day share that day: sides of different days have one only where it is known how much days differ.
"""

import math
from collections.abc import Sequence
from statistics import fmean
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
from benchmarks.comparing.together import CHANCE
from benchmarks.comparing.turns import Times, adjusted_for_trend, in_turns, order_text
from benchmarks.comparing.values import Direction, Verdict
from benchmarks.measuring.clipped_mean import CONFIDENCE, FEWEST_PAIRS, POWER, clipped_mean, quantile
from benchmarks.rendering.columns import percent_text

FEWEST_RUNS = FEWEST_PAIRS  # of a side that is a set: two have an interval that holds nearly everything
FEWEST_OF_SIDE = 3  # days of a side, before its days alone say how much days differ
EQUALITY = 0.95  # two-sided 90%: two one-sided tests at 5%
NOT_KNOWN = "the noise between such runs is not known, so the intervals leave it out"
SAME_DAY = f"{NOT_KNOWN}; {FEWEST_RUNS} runs a side, or {FEWEST_FOR_NOISE} other runs of the same kind, would show it"
OTHER_DAYS = (
    f"{NOT_KNOWN}; A and B were made on different days; {FEWEST_RUNS} runs a side in turns, {FEWEST_OF_SIDE} days a "
    f"side, or other runs of the same kind on {FEWEST_DAYS} days, would show it"
)
TAKE_TURNS = "run A and B in turns: one run.py command with both values and --repeats does"
LOOKS_THE_SAME = "a trend within the day looks the same"
MOVES = "each side moves within the day in its own way, so that no common trend can be taken out"
MOST_LEFT_OPEN = math.log(2)  # by a trend that is taken out; one that leaves more open shows nothing but a difference
TOO_LIKELY = "among all figures compared, one that far off is too likely by chance"
Days = tuple[Sequence[int], Sequence[int]]  # of the runs of both sides


class Estimate(NamedTuple):
    """The logarithm of B over A."""

    centre: float
    low: float | None = None  # 95%; None: too little is known for an interval
    high: float | None = None
    equal: float = math.inf  # half of the 90% interval
    detectable: float = 0.0  # the effect that is seen in 4 of 5 cases
    by: str = ""  # what the interval is made from
    lacks: str = ""  # why there is no verdict, where what differs from run to run or day to day is not in it
    hint: str = ""  # what would make it narrower
    error: float = 0.0  # the standard error
    freedom: float = math.inf
    moves: float = 0.0  # what drifts of step times that have not settled may add, at most
    by_far: str = ""  # why it needs no interval

    @property
    def half_width(self) -> float | None:
        """Of an interval that is not symmetric, the wider half."""
        if self.low is None or self.high is None:
            return None
        return max(self.high - self.centre, self.centre - self.low)

    @property
    def is_off_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def chance(self) -> float | None:
        """The p value; None where what runs differ by is not known."""
        from scipy.special import stdtr  # --help needs none

        if self.lacks or self.by_far or self.low is None:
            return None
        against = -self.moves if self.centre > 0 else self.moves  # a drift that may make it less
        beyond = abs(self.centre) - max(against, 0.0)
        if beyond <= 0:
            return 1.0
        return 2 * float(stdtr(self.freedom, -beyond / self.error)) if self.error else 0.0

    def moved(self, by: float) -> "Estimate":
        """With room on the side to which unsettled step times still move."""
        low, high = (
            None if end is None else end + part for end, part in ((self.low, min(by, 0.0)), (self.high, max(by, 0.0)))
        )
        return self._replace(low=low, high=high, moves=by)


class Level(NamedTuple):
    """One side's own: the logarithm of its figure."""

    centre: float
    low: float | None
    high: float | None
    clipped: Sequence[int] = ()  # the places of runs that lie far off, and count as if they did not
    logs: Sequence[float] = ()  # of its runs


def level(logs: Sequence[float], window: tuple[float, float] | None = None) -> Level:
    """The mean over runs, with its interval from 3 runs on; of one run its own, with its window's interval."""
    found = clipped_mean(logs)
    if found is None:
        low, high = window or (None, None)
        return Level(fmean(logs), low, high, logs=logs)
    clipped = [place for place, (given, kept) in enumerate(zip(logs, found.counted, strict=True)) if given != kept]
    return Level(found.centre, found.centre - found.half_width, found.centre + found.half_width, clipped, logs)


# --- two sides ----------------------------------------------------------------------------------


def between_sets(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Welch's t on the means of logarithms; from 6 runs a side on, a run far off counts as in clipped_mean.py."""
    return _around(*_welch(a, b), f"{len(a)} and {len(b)} runs, Welch's t")


def between_sets_in_order(
    a: Sequence[float], b: Sequence[float], times: Times, *, of_ratio: bool = False
) -> Estimate:
    """The same for runs of the same days; if A and B were not run in turns, adjusted for a trend within the day.

    `of_ratio`: of two times of one run, which the day moves alike: not adjusted, and shown only if it were then too.
    """
    plain = between_sets(a, b)
    if in_turns(times):
        return plain
    found, order = adjusted_for_trend(a, b, times), order_text(times)
    if found is None or not found.common:
        return plain._replace(lacks=f"{order}, and {MOVES if found else LOOKS_THE_SAME}: {TAKE_TURNS}")
    by = f"{len(a)} and {len(b)} runs, adjusted for a common trend, Welch's t"
    way_on = f"{order}, and {LOOKS_THE_SAME}: {TAKE_TURNS}"
    adjusted = _around(found.difference, found.error, found.freedom, by)
    if of_ratio:
        also = not plain.is_off_zero or (adjusted.is_off_zero and adjusted.centre * plain.centre > 0)
        return plain if also else plain._replace(lacks=way_on)
    if (adjusted.half_width or 0.0) > MOST_LEFT_OPEN and not adjusted.is_off_zero:
        return plain._replace(lacks=way_on)
    return adjusted._replace(hint=way_on)


def between_sets_of_days(
    a: Sequence[float], b: Sequence[float], days: Days, times: Times, noise: Noise | None, *, of_ratio: bool = False
) -> Estimate:
    """The same, where the days of both sides are known: what differs from day to day is in it, or it says less."""
    missing = left_out(*days)
    if not missing:
        return between_sets_in_order(a, b, times, of_ratio=of_ratio)
    runs, counts = f"{len(a)} and {len(b)} runs", [len(set(own)) for own in days]
    if min(counts) >= FEWEST_OF_SIDE:
        means = _welch(day_means(a, days[0]), day_means(b, days[1]))
        return _around(*means, f"{runs} on {counts[0]} and {counts[1]} days, Welch's t on the days")
    centre, error, freedom = _welch(a, b)
    if noise is None or noise.between is None:
        return _around(centre, error, freedom, "the runs of these days alone")._replace(lacks=OTHER_DAYS)
    days_part = Spread(missing * noise.between.variance, noise.between.freedom)
    whole = combined([Spread(error**2, freedom), days_part])
    by = f"{runs}, and the noise from day to day, {_described(noise.between)}"
    return _around(centre, math.sqrt(whole.variance), whole.freedom, by)


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """The difference, its standard error and its degrees of freedom."""
    one, other = clipped_mean(a), clipped_mean(b)
    if one is None or other is None:
        raise ValueError(f"a set has {FEWEST_RUNS} runs or more")
    # Satterthwaite: as many degrees of freedom as the noisier side leaves.
    parts = [Spread(side.deviation**2 / len(logs), len(logs) - 1) for side, logs in ((one, a), (other, b))]
    whole = combined(parts)
    return other.centre - one.centre, math.sqrt(whole.variance), whole.freedom


def between_pairs(logs: Sequence[float]) -> Estimate:
    """Student's t on the ratios of pairs: what slows both runs of a pair falls out."""
    found = clipped_mean(logs)
    if found is None:
        raise ValueError(f"an interval needs {FEWEST_PAIRS} pairs")
    error = found.deviation / math.sqrt(len(logs))
    return _around(found.centre, error, len(logs) - 1, f"{len(logs)} pairs of one sweep, Student's t")


def with_noise(a: Sequence[float], b: Sequence[float], days: Days, noise: Noise) -> Estimate:
    """Fewer runs than a set has, beside a known noise: of runs of one day where they are, else of any days."""
    centre, parts = fmean(b) - fmean(a), shared_out(*days)
    same_day = len({*days[0], *days[1]}) == 1
    each = 1 / len(a) + 1 / len(b)
    one = (noise.within if same_day else None) or noise.single
    if one is None:
        return Estimate(centre, lacks=SAME_DAY if same_day else OTHER_DAYS)
    kind = "run to run" if one is noise.within else "run to run and day to day"
    by = f"the noise from {kind}, {_described(one)}"
    return _around(centre, math.sqrt(one.variance * max(parts, each)), one.freedom, by)


def between_windows(a: Level, b: Level) -> Estimate:
    """Two single runs: their windows' intervals together (MOVER, Zou and Donner 2008). Of these windows alone."""
    centre = b.centre - a.centre
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Estimate(centre, lacks=SAME_DAY)
    below = math.hypot(b.centre - b.low, a.high - a.centre)
    above = math.hypot(b.high - b.centre, a.centre - a.low)
    return Estimate(centre, centre - below, centre + above, by="the two windows", lacks=SAME_DAY)


def _around(centre: float, error: float, freedom: float, by: str) -> Estimate:
    half = quantile(CONFIDENCE, freedom) * error
    equal, detectable = quantile(EQUALITY, freedom) * error, half + quantile(POWER, freedom) * error
    return Estimate(centre, centre - half, centre + half, equal, detectable, by, error=error, freedom=freedom)


def _described(spread: Spread) -> str:
    return f"{percent_text(100 * math.expm1(math.sqrt(spread.variance)))}, {spread.of}"


# --- verdicts -----------------------------------------------------------------------------------


def verdict_of(
    found: Estimate, direction: Direction, margin_percent: float, together: float | None = None
) -> tuple[Verdict, str]:
    """Whether a difference is shown, or shown to be small; and the sentence that says why.

    `together`: its p value with all figures of the comparison; None where it is the only one.
    """
    if found.by_far:
        return _named(found, direction), found.by_far
    if found.low is None or found.high is None or found.lacks:
        return "no verdict", found.lacks
    outside = found.is_off_zero
    shown = outside and (together is None or together <= CHANCE)
    moved = (
        f"; the interval has room for {percent_text(100 * math.expm1(abs(found.moves)))} of drift"
        if found.moves
        else ""
    )
    by = f"{found.by}{moved}"
    low, high = (100 * math.expm1(end) for end in _equality(found))
    if -margin_percent < low and high < margin_percent:
        also = ", though a difference is shown" if shown else ""
        return "equal within the margin", f"the 90% interval lies within +-{margin_percent:g}%{also}; {by}"
    if outside and not shown:
        return "no difference shown", f"the interval does not contain 0, but {TOO_LIKELY}; {by}"
    if not outside:
        shows = 100 * math.expm1(found.detectable)
        more = f"; at this noise {percent_text(shows)} or more shows in 4 of 5 cases" if shows else ""
        hint = f"; {found.hint}" if found.hint else ""
        return "no difference shown", f"the interval contains 0; {by}{more}{hint}"
    return _named(found, direction), f"the interval does not contain 0; {by}"


def _equality(found: Estimate) -> tuple[float, float]:
    """The 90% interval."""
    return found.centre - found.equal + min(found.moves, 0.0), found.centre + found.equal + max(found.moves, 0.0)


def _named(found: Estimate, direction: Direction) -> Verdict:
    if direction == "same":
        return "changed"
    return "better" if (found.centre < 0) == (direction == "lower") else "worse"
