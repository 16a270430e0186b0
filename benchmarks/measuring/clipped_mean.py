"""The mean of a few runs or pairs of runs, outliers clipped, with its interval. Pure.

All in logarithms. Medians of runs of one day differ by 0.1% (one cluster in ten: 0.5%), and some runs are far off
(MLPerf's public logs).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from benchmarks.measuring import statistics

FEWEST_PAIRS = 3  # two have an interval that holds nearly everything
DEFAULT_PAIRS = 6  # the fewest of which one can be told to be far off
CLIP_DEVIATIONS = 4.0
CLIPPED_SPREAD_CORRECTION = 1.02  # clipping takes some spread away
# What makes the median absolute deviation of few normal values right on average (Croux, Rousseeuw 1992).
FEW_VALUES = {6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
CONFIDENCE = 0.975  # two-sided 95%
POWER = 0.8  # a detectable effect is seen so often


class ClippedMean(NamedTuple):
    centre: float
    half_width: float
    deviation: float  # of one value
    counted: list[float]  # what each value counts as


def clipped_mean(logs: Sequence[float]) -> ClippedMean | None:
    """The mean of runs, or of pairs, with its 95% interval by Student's t (n - 1); None for fewer than 3.

    From 6 pairs on, a pair beyond 4 robust deviations (MAD) of the median counts as if it lay there: one run that was
    disturbed would else make the interval useless. Of fewer pairs none can be told to be the odd one, and all count;
    so they do where more than half of the pairs are equal: nothing then says what is far.

    The noise of the two runs of a pair has the same shape, so their difference is symmetric and t errs on the wide
    side where runs are outliers. Simulated: for normal noise it holds the truth in 94.9%, 94.6% and 95.2% of cases
    with 3, 6 and 10 pairs (100,000 draws each); in 94.6% or more with 3 to 20 pairs (10,000 each) where noise has
    heavy tails (t with 3 degrees of freedom), 3% or 10% of runs are 2-10% slow, the machine drifts, or the second run
    is slower (tests: test_gain.py). Not covered: a machine of two states, on which every run is 2% slow by
    the toss of a coin: with 6 pairs and 0.1% noise it holds the truth in 92.2% of cases (100,000), as differences
    between states are clipped. With 6 pairs of 0.3% noise and 3% slow runs, an effect of 2% is seen in 95% of cases
    (82% without clipping); clipping 3 pairs alike would hold the truth in 87% only.
    """
    if len(logs) < FEWEST_PAIRS:
        return None
    counted, correction = _clipped(logs)
    deviation = correction * (statistics.stdev(counted) or 0.0)
    half_width = quantile(CONFIDENCE, len(logs) - 1) * deviation / math.sqrt(len(logs))
    return ClippedMean(math.fsum(counted) / len(counted), half_width, deviation, counted)


def _clipped(logs: Sequence[float]) -> tuple[list[float], float]:
    middle = statistics.median(logs) or 0.0
    reach = clip_reach([abs(value - middle) for value in logs])
    if reach is None:
        return list(logs), 1.0
    return clip(logs, middle, reach), CLIPPED_SPREAD_CORRECTION


def clip_reach(distances: Sequence[float]) -> float | None:
    """How far from the median a value may lie; None: too few to say, or more than half of them are equal."""
    count, robust = len(distances), statistics.median(distances)
    if count < DEFAULT_PAIRS or not robust:
        return None
    return CLIP_DEVIATIONS * statistics.DEVIATIONS_PER_MAD * FEW_VALUES.get(count, count / (count - 0.8)) * robust


def clip(values: Sequence[float], middle: float, reach: float) -> list[float]:
    return [min(max(value, middle - reach), middle + reach) for value in values]


@lru_cache(maxsize=1024)
def quantile(probability: float, freedom: float) -> float:
    """Of Student's t."""
    from scipy.special import stdtrit  # --help and a dry run need no quantile

    return float(stdtrit(freedom, probability))
