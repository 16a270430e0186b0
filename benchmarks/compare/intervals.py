"""Compute the difference of side B from side A with a 95% interval, and the verdict. Values are logarithms. No I/O.

A sample is a run, not a step. The steps of one run share a machine and a period, so they are not independent.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from statistics import fmean, variance
from typing import Any, NamedTuple

from benchmarks.values import Window
from benchmarks.verdict import Verdict

FEWEST_RUNS = 3  # the fewest runs of a side, or earlier runs; two runs give a uselessly wide interval
CONFIDENCE = 0.95
DEFAULT_MARGIN_PERCENT = 1.0


class Interval(NamedTuple):
    """The logarithm of B divided by A, or of the value of one side, with its 95% interval."""

    centre: float
    low: float | None = None  # the ends of the 95% interval; None: there are too few data for an interval
    high: float | None = None
    by: str = ""  # how the interval was computed, or why it is missing

    def widened(self, by: float) -> "Interval":
        """Return the interval, extended in the direction in which step times still drift."""
        if self.low is None or self.high is None:
            return self
        return self._replace(low=self.low + min(by, 0.0), high=self.high + max(by, 0.0))


class Noise(NamedTuple):
    """How much the step times of equal runs differ by chance."""

    deviation: float
    freedom: int  # degrees of freedom
    runs: int  # the number of runs that the deviation is computed from


def of_sets(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the Welch t interval for the difference of the sides, from the logarithm of each run's metric."""
    from scipy import stats

    by = f"{len(a)} and {len(b)} runs, by Welch's t-test"
    return _confidence(lambda: stats.ttest_ind(b, a, equal_var=False), fmean(b) - fmean(a), by)


def of_pairs(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the paired t interval. A disturbance that slows both runs of a pair cancels out."""
    from scipy import stats

    if len(a) < FEWEST_RUNS:
        centre = fmean(b) - fmean(a) if a else 0.0
        return Interval(centre, by=f"only {len(a)} of the {FEWEST_RUNS} pairs that a verdict needs")
    by = f"{len(a)} pairs of one sweep, by a paired t-test"
    return _confidence(lambda: stats.ttest_rel(b, a), fmean(b) - fmean(a), by)


def of_few(a: Interval, b: Interval, counts: tuple[int, int], noise: Noise | None) -> Interval:
    """Return the interval if a side has fewer than 3 runs: from the interval within each run, and from the noise.

    Student's t of the noise between equal runs widens the interval. The noise comes from at least 3 other runs.
    """
    from scipy.special import stdtrit

    centre = b.centre - a.centre
    needed = f"an interval needs {FEWEST_RUNS} runs per side, or {FEWEST_RUNS} earlier runs of the same kind"
    if noise is None:
        return Interval(centre, by=f"the noise between equal runs is not known: {needed}")
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Interval(centre, by="the window of a run has no interval")
    reach = float(stdtrit(noise.freedom, 1 - (1 - CONFIDENCE) / 2)) * noise.deviation
    reach *= math.sqrt(sum(1 / count for count in counts))
    by = f"the intervals of {counts[0]} and {counts[1]} runs, widened by the noise of {noise.runs} other runs"
    return Interval(centre, b.low - a.high - reach, b.high - a.low + reach, by)


def noise_of(groups: Sequence[Sequence[float]]) -> Noise | None:
    """Return the pooled deviation of runs from the mean of their group of equal runs; None if no group has 3 runs."""
    known = [group for group in groups if len(group) >= FEWEST_RUNS]
    freedom = sum(len(group) - 1 for group in known)
    squares = sum((len(group) - 1) * variance(group) for group in known)
    return Noise(math.sqrt(squares / freedom), freedom, sum(map(len, known))) if known else None


def still_moves(found: Window) -> float:
    """Return how much an unfinished drift may still change the median; positive: the run would become slower."""
    off = math.log1p((found.median_off_percent or 0.0) / 100)
    return math.copysign(off, found.drift_percent_per_minute or 0.0)


def percent(log: float) -> float:
    return 100 * math.expm1(log)


def verdict_of(found: Interval, margin_percent: float, *, lower_is_better: bool = True) -> tuple[Verdict, str]:
    """Return the verdict on a step time (or on a speed, its inverse), and the reason in one sentence."""
    if found.low is None or found.high is None:
        return Verdict.INCONCLUSIVE, found.by
    if -margin_percent < percent(found.low) and percent(found.high) < margin_percent:
        return Verdict.SAME, f"the 95% interval is within ±{margin_percent:g}%; {found.by}"
    if found.low <= 0 <= found.high:
        return Verdict.INCONCLUSIVE, f"the 95% interval contains 0; {found.by}"
    verdict = Verdict.BETTER if (found.centre < 0) == lower_is_better else Verdict.WORSE
    return verdict, f"the 95% interval does not contain 0; {found.by}"


def _confidence(test: Callable[[], Any], centre: float, by: str) -> Interval:
    """Return the 95% interval of a test. If all runs are equal, scipy returns NaN; the interval then has no width."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        low, high = map(float, test().confidence_interval(CONFIDENCE))
    if math.isnan(low) or math.isnan(high):
        low = high = centre
    return Interval(centre, low, high, by)
