"""Whether the sides were run in turns; where they were not, their difference adjusted for a trend of the day. Pure.

If a machine slows by 3% over a day and all runs of A came first, B looks worse than A by half of that. The runs
within each side show such a trend, so it can be taken out (an analysis of covariance with the time as covariate). The
price is precision: with all of A before all of B the interval is about twice as wide. No rule can tell a sudden
change between the last run of A and the first of B from a difference.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from benchmarks.comparing.days import Spread, combined
from benchmarks.measuring import statistics
from benchmarks.measuring.clipped_mean import CLIPPED_SPREAD_CORRECTION, clipped_mean

# Welch's t of the starting times, at most. It is also the t of two equal sides under a trend without noise, so that
# below it a trend widens the interval of Welch's t more than it moves its centre.
IN_TURNS = 1.0

Times = tuple[Sequence[float], Sequence[float]]  # of the runs of both sides, since the first run of their day


def times_of(started: Sequence[float | None], days: Sequence[int]) -> list[float]:
    """Seconds since the first run of the same day; 0 for those whose time is not known."""
    known = [(day, time) for day, time in zip(days, started, strict=True) if time is not None]
    first = {day: min(time for own, time in known if own == day) for day, _ in known}
    return [0.0 if time is None else time - first[day] for day, time in zip(days, started, strict=True)]


def in_turns(times: Times) -> bool:
    """Whether the sides' starting times are about the same on average."""
    apart = abs(fmean(times[1]) - fmean(times[0]))
    variance = math.fsum((statistics.stdev(own) or 0.0) ** 2 / len(own) for own in times)
    return apart <= IN_TURNS * math.sqrt(variance)


def adjusted_for_trend(a: Sequence[float], b: Sequence[float], times: Times) -> tuple[float, float, float] | None:
    """B minus A with a linear trend taken out, its standard error and its degrees of freedom.

    Both sides have one slope, and each its own variance as in Welch's t. None: the runs of each side began at the
    same time, so they show no trend.
    """
    sides = [_Side(logs, own) for logs, own in zip((a, b), times, strict=True)]
    squares = math.fsum(side.squares for side in sides)
    if not squares:
        return None
    slope = math.fsum(side.product for side in sides) / squares
    apart = sides[1].time - sides[0].time
    parts = [side.part(slope, squares, apart) for side in sides]
    whole = combined(parts)
    return sides[1].mean - sides[0].mean - slope * apart, math.sqrt(whole.variance), whole.freedom


class _Side:
    """One side's sums; a run far off counts as in clipped_mean.py."""

    def __init__(self, logs: Sequence[float], times: Sequence[float]) -> None:
        found = clipped_mean(logs)
        counted = found.counted if found else list(logs)
        self.correction = 1.0 if counted == list(logs) else CLIPPED_SPREAD_CORRECTION
        self.mean, self.time = fmean(counted), fmean(times)
        self._logs = [log - self.mean for log in counted]
        self._times = [time - self.time for time in times]
        self.squares = math.fsum(time**2 for time in self._times)
        self.product = math.fsum(log * time for log, time in zip(self._logs, self._times, strict=True))

    def part(self, slope: float, squares: float, apart: float) -> Spread:
        """What its runs' noise adds to the variance: by its mean, and by the slope."""
        share, count = self.squares / squares, len(self._logs)
        freedom = count - 1 - share  # both sides together: one less than without the slope
        off = math.fsum((log - slope * time) ** 2 for log, time in zip(self._logs, self._times, strict=True))
        variance = self.correction**2 * off / freedom
        return Spread(variance * (1 / count + apart**2 * share / squares), freedom)
