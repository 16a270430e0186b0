"""Computes the median, its interval, the mean, the spread and the excess of one run's step times.

window.py decides which steps are in the window.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

FEWEST_VALUES = 9  # three values in each third, so that one slow step does not change the third's median
CONFIDENCE = 0.95
CLIP_DEVIATIONS = 3.0
DEVIATIONS_PER_MAD = 1.4826  # standard deviations per median absolute deviation, for a normal distribution
HIGHEST_AUTOCORRELATION = 0.95
THIRDS = 3
QUANTILE_OF_THIRDS = 4.303  # Student's t with 2 degrees of freedom, two-sided 95%
MEMORY = 1.75  # a run's level varies by this factor more than its thirds show (public runs, 50 steps)


class MedianInterval(NamedTuple):
    """A median and its 95% interval."""

    median: float
    low: float
    high: float


def median(values: Sequence[float]) -> float | None:
    """Return the middle value, or None if there are no values."""
    return _at_rank(sorted(values), (len(values) + 1) / 2) if values else None


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean, or None if there are no values."""
    return math.fsum(values) / len(values) if values else None


def median_of_counts(counts: Mapping[float, int]) -> float | None:
    """Return the median of values with counts (value -> count), or None if there are no values."""
    ordered = sorted(counts)
    ends = list(accumulate(counts[value] for value in ordered))
    if not ends:
        return None
    low, high = (ordered[bisect_right(ends, place)] for place in ((ends[-1] - 1) // 2, ends[-1] // 2))
    return low + (high - low) / 2


class RunningMean:
    """The mean of values that are added in parts. Rounding errors are tracked, so the order does not matter."""

    def __init__(self) -> None:
        self._sum, self._lost, self._count = 0.0, 0.0, 0

    def add(self, values: Sequence[float]) -> None:
        parts = (self._sum, self._lost, *values)
        self._sum = math.fsum(parts)
        self._lost = math.fsum((*parts, -self._sum))
        self._count += len(values)

    def value(self) -> float | None:
        return self._sum / self._count if self._count else None


def excess(seconds: Sequence[float]) -> float | None:
    """Return mean / median - 1: the share of time that slow steps add, which the median does not show."""
    middle, average = median(seconds), mean(seconds)
    return average / middle - 1 if middle and average is not None else None


def stdev(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None for fewer than two values."""
    if len(values) < 2:
        return None
    return math.sqrt(_sum_of_squares(_centred(values)) / (len(values) - 1))


def median_interval(seconds: Sequence[float], resolution_seconds: float = 0.0) -> MedianInterval | None:
    """Return the 95% interval of the median of successive step times; None for fewer than 9.

    The result is the union of two intervals, because step times are correlated over short and over long periods:

    - Order statistics of the steps, widened for the autocorrelation from one step to the next.
    - Student's t interval of the medians of the window's three thirds, widened by the factor MEMORY. Thirds grow with
      the window, so more steps narrow the interval only if the level of the run stays the same (batch means with few,
      long batches: Schmeiser 1982; Ibragimov and Mueller 2010).

    docs/measurements/2026-11-24-interval.md has the measured coverage. A window cannot show changes that are much
    slower than the window. If steps take seconds and the window has fewer than 50 steps, the coverage is below 95%.

    `resolution_seconds` is the value of the last digit of a printed time. Rounding moves a median by up to half of
    this value, so each side of the interval is wider by that half.
    """
    if len(seconds) < FEWEST_VALUES:
        return None
    if not all(math.isfinite(value) and value >= 0 for value in seconds):
        raise ValueError("step seconds must be finite and not negative")
    ordered = sorted(seconds)
    middle_rank = (len(ordered) + 1) / 2
    middle = _at_rank(ordered, middle_rank)
    half_ranks = _half_ranks(_clipped_deviations(seconds, middle, resolution_seconds))
    rounding = resolution_seconds / 2
    half_width = min(_half_width_of_thirds(seconds), ordered[-1] - ordered[0]) + rounding
    # The lower end is median / (upper end / median), so it is always above 0.
    below = middle * middle / (middle + half_width) if middle > 0 else 0.0
    low = min(below, max(_at_rank(ordered, middle_rank - half_ranks) - rounding, 0.0))
    high = max(middle + half_width, _at_rank(ordered, middle_rank + half_ranks) + rounding)
    return MedianInterval(middle, low, high)


def _half_width_of_thirds(seconds: Sequence[float]) -> float:
    cut = [len(seconds) * third // THIRDS for third in range(THIRDS + 1)]
    medians = [median(seconds[start:end]) or 0.0 for start, end in pairwise(cut)]
    return MEMORY * QUANTILE_OF_THIRDS * (stdev(medians) or 0.0) / math.sqrt(THIRDS)


def _half_ranks(deviations: Sequence[float]) -> float:
    """Return how many ranks above and below the middle the ends of the interval are.

    The inflation of the variance is that of the signs of a Gaussian AR(1) process: 1 + (4 / pi) sum asin(r^k), from
    P(both above the median) = 1/4 + asin(r) / (2 pi) (Sheppard 1899). The autocorrelation r is corrected for bias
    (Kendall 1954) and raised by its standard error.
    """
    inflation = _variance_inflation(_autocorrelation_bound(deviations))
    return _t_quantile(len(deviations) / inflation) * math.sqrt(len(deviations) * inflation) / 2


def _clipped_deviations(seconds: Sequence[float], middle: float, resolution_seconds: float) -> list[float]:
    """Return the distances from the median, limited to 3 robust deviations so that spikes do not set the spread.

    Coarsely printed times can have a MAD of 0 although the times vary. The spread is therefore at least one unit of
    the last printed digit.
    """
    deviations = [value - middle for value in seconds]
    spread = DEVIATIONS_PER_MAD * _at_rank(sorted(map(abs, deviations)), (len(deviations) + 1) / 2)
    reach = CLIP_DEVIATIONS * max(spread, resolution_seconds)
    return [min(max(deviation, -reach), reach) for deviation in deviations]


def _autocorrelation_bound(values: Sequence[float]) -> float:
    """Return the lag-1 autocorrelation, corrected for its bias in short series, plus one standard error."""
    count = len(values)
    centred = _centred(values)
    total = _sum_of_squares(centred)
    raw = math.fsum(a * b for a, b in pairwise(centred)) / total if total > 0 else 0.0
    corrected = min(max((raw + 1 / count) / (1 - 3 / count), 0.0), HIGHEST_AUTOCORRELATION)
    return min(corrected + math.sqrt((1 - corrected**2) / count), HIGHEST_AUTOCORRELATION)


def _variance_inflation(autocorrelation: float) -> float:
    """Return the factor by which AR(1) dependence increases the variance of a median."""
    total, power = 0.0, autocorrelation
    while power > 1e-9:
        total += math.asin(power)
        power *= autocorrelation
    return 1 + 4 / math.pi * total


def _t_quantile(effective_n: float) -> float:
    """Return Student's t for a two-sided interval, with at least one degree of freedom."""
    from scipy.special import stdtrit  # imported here, because a dry run needs no quantile

    return float(stdtrit(max(effective_n - 1, 1.0), (1 + CONFIDENCE) / 2))


def _at_rank(ordered: Sequence[float], rank: float) -> float:
    """Return the value at a rank that starts at 1, interpolated between neighbours and limited to both ends."""
    position = min(max(rank - 1, 0.0), len(ordered) - 1.0)
    below = math.floor(position)
    above = math.ceil(position)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def _centred(values: Sequence[float]) -> list[float]:
    average = math.fsum(values) / len(values)
    return [value - average for value in values]


def _sum_of_squares(values: Sequence[float]) -> float:
    return math.fsum(value * value for value in values)
