"""Figures of one run's step times: median with its interval, mean, spread, excess. Pure functions.

Which steps count is decided in window.py. An interval here speaks of the window it was computed
from, not of the machine: step times have long memory, and on real logs it holds the median of the
surrounding steps in 50-93% of windows.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

FEWEST_VALUES = 3
CONFIDENCE = 0.95
CLIP_DEVIATIONS = 3.0
DEVIATIONS_PER_MAD = 1.4826  # of a normal distribution
MEDIAN_ERROR_PER_MEAN_ERROR = 1.2533  # sqrt(pi / 2): standard error of a normal median over that of the mean
CLIPPED_SPREAD_CORRECTION = 1.02  # clipping at 3 deviations takes some spread away
HIGHEST_AUTOCORRELATION = 0.95


class MedianInterval(NamedTuple):
    """A median and its 95% interval, with the dependence between steps that the interval allows for."""

    median: float
    low: float
    high: float
    autocorrelation: float  # lag 1; one standard error above its estimate, so that the interval errs wide
    effective_n: float  # the number of independent values worth as much as these


def median(values: Sequence[float]) -> float | None:
    """The middle value; None when there is none."""
    return _at_rank(sorted(values), (len(values) + 1) / 2) if values else None


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None when there is no value."""
    return math.fsum(values) / len(values) if values else None


def excess(seconds: Sequence[float]) -> float | None:
    """Mean over median, less 1: what slow steps add to the time, which the median hides by design."""
    middle, average = median(seconds), mean(seconds)
    return average / middle - 1 if middle and average is not None else None


def stdev(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1); None when fewer than two values leave it unknown."""
    if len(values) < 2:
        return None
    return math.sqrt(_sum_of_squares(_centred(values)) / (len(values) - 1))


def median_interval(seconds: Sequence[float], resolution_seconds: float = 0.0) -> MedianInterval | None:
    """The 95% interval of the median of successive step times; None for fewer than 3.

    The union of two intervals, both widened for autocorrelation: a normal one around the median from
    the clipped spread, and one between order statistics. The variance inflation is that of the signs
    of a Gaussian AR(1) process, 1 + (4 / pi) sum asin(r^k), from P(both above the median) =
    1/4 + asin(r) / (2 pi) (Sheppard 1899); r is corrected for bias (Kendall 1954) and raised by its
    standard error. At 50 steps it covers 95% or more for AR(1) up to 0.6, spikes, drift and periodic
    slow steps, and 91% or more at 0.8 (tests/benchmarks/measuring/test_coverage_simulation.py).

    `resolution_seconds` is the last digit of a printed figure; rounding moves a median by up to half
    of it, so the interval is wider by that on either side.
    """
    if len(seconds) < FEWEST_VALUES:
        return None
    if not all(math.isfinite(value) and value >= 0 for value in seconds):
        raise ValueError("step seconds must be finite and not negative")
    count, ordered = len(seconds), sorted(seconds)
    middle = _at_rank(ordered, (count + 1) / 2)
    clipped = _clipped_deviations(seconds, middle, resolution_seconds)
    autocorrelation = _autocorrelation_bound(clipped)
    inflation = _variance_inflation(autocorrelation)
    effective_n = max(count / inflation, 1.0)
    quantile = _t_quantile(effective_n)
    half_width = (
        quantile * MEDIAN_ERROR_PER_MEAN_ERROR * CLIPPED_SPREAD_CORRECTION * (stdev(clipped) or 0.0)
    ) / math.sqrt(effective_n)
    half_ranks = quantile * math.sqrt(count * inflation) / 2
    low = min(middle - half_width, _at_rank(ordered, (count + 1) / 2 - half_ranks))
    high = max(middle + half_width, _at_rank(ordered, (count + 1) / 2 + half_ranks))
    return MedianInterval(
        median=middle,
        low=max(low - resolution_seconds / 2, 0.0),  # no step takes negative time
        high=high + resolution_seconds / 2,
        autocorrelation=autocorrelation,
        effective_n=effective_n,
    )


def _clipped_deviations(seconds: Sequence[float], middle: float, resolution_seconds: float) -> list[float]:
    """Distances from the median, cut at 3 robust deviations so that spikes do not set the spread.

    Figures that are printed coarsely can have a MAD of 0 though they vary; one printed digit is then
    the least deviation worth assuming.
    """
    deviations = [value - middle for value in seconds]
    spread = DEVIATIONS_PER_MAD * _at_rank(sorted(map(abs, deviations)), (len(deviations) + 1) / 2)
    reach = CLIP_DEVIATIONS * max(spread, resolution_seconds)
    return [min(max(deviation, -reach), reach) for deviation in deviations]


def _autocorrelation_bound(values: Sequence[float]) -> float:
    """Lag-1 autocorrelation, corrected for its bias in short series, plus one standard error."""
    count = len(values)
    if count == 3:  # the correction divides by 1 - 3/n: three values say nothing of dependence
        return HIGHEST_AUTOCORRELATION
    centred = _centred(values)
    total = _sum_of_squares(centred)
    raw = math.fsum(a * b for a, b in pairwise(centred)) / total if total > 0 else 0.0
    corrected = min(max((raw + 1 / count) / (1 - 3 / count), 0.0), HIGHEST_AUTOCORRELATION)
    return min(corrected + math.sqrt((1 - corrected**2) / count), HIGHEST_AUTOCORRELATION)


def _variance_inflation(autocorrelation: float) -> float:
    """How many times the variance of a median grows through AR(1) dependence."""
    total, power = 0.0, autocorrelation
    while power > 1e-9:
        total += math.asin(power)
        power *= autocorrelation
    return 1 + 4 / math.pi * total


def _t_quantile(effective_n: float) -> float:
    """Student's t for a two-sided interval; below one degree of freedom it has no useful value."""
    from scipy.special import stdtrit  # a dry run imports this module and needs no quantile

    return float(stdtrit(max(effective_n - 1, 1.0), (1 + CONFIDENCE) / 2))


def _at_rank(ordered: Sequence[float], rank: float) -> float:
    """The value at a rank counted from 1, between neighbours by proportion; the extremes beyond the ends."""
    position = min(max(rank - 1, 0.0), len(ordered) - 1.0)
    below = math.floor(position)
    above = math.ceil(position)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def _centred(values: Sequence[float]) -> list[float]:
    average = math.fsum(values) / len(values)
    return [value - average for value in values]


def _sum_of_squares(values: Sequence[float]) -> float:
    return math.fsum(value * value for value in values)
