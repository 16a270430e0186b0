"""Figures of one run's step times: median with its interval, mean, spread, excess. Pure functions.

Which steps count is decided in window.py. An interval here speaks of the window it was computed
from, not of the machine: step times have long memory, and on real logs it holds the median of the
surrounding steps in 50-93% of windows. The arithmetic of the interval is in interval.py, which workers load too.
"""

import math
from collections.abc import Sequence

from benchmarks.measuring.interval import DEVIATIONS_PER_MAD, MedianInterval, median, median_interval, stdev

__all__ = ["DEVIATIONS_PER_MAD", "MedianInterval", "excess", "mean", "median", "median_interval", "stdev"]


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None when there is no value."""
    return math.fsum(values) / len(values) if values else None


def excess(seconds: Sequence[float]) -> float | None:
    """Mean over median, less 1: what slow steps add to the time, which the median hides by design."""
    middle, average = median(seconds), mean(seconds)
    return average / middle - 1 if middle and average is not None else None
