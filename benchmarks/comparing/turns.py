"""Whether the sides were run in turns; where they were not, their difference adjusted for a trend of the day. Pure.

If a machine slows by 3% over a day and all runs of A came first, B looks worse than A by half of that. The runs
within each side show such a trend, so it can be taken out (an analysis of covariance with the time as covariate, and
its square where one side ran in the middle of the other). The price is precision: with all of A before all of B the
interval is about twice as wide. Where the two sides do not show one common trend, it cannot be taken out. No rule can
tell a sudden change between the last run of A and the first of B from a difference.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.comparing.days import Spread, combined
from benchmarks.measuring import statistics
from benchmarks.measuring.clipped_mean import CLIPPED_SPREAD_CORRECTION, clipped_mean

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.floating[Any]]

# Welch's t of the starting times, at most, and of their squares. It is also the t of two equal sides under a trend
# without noise, so that below it a trend widens the interval of Welch's t more than it moves its centre.
IN_TURNS = 1.0
OWN_TRENDS = 0.05  # p of trends of the sides' own, against one that they share
FEWEST_FOR_A_CURVE = 4  # runs of a side
LEAST_FREEDOM = 0.5

Times = tuple[Sequence[float], Sequence[float]]  # of the runs of both sides, since the first run of their day


def times_of(started: Sequence[float | None], days: Sequence[int]) -> list[float]:
    """Seconds since the first run of the same day; 0 for those whose time is not known."""
    known = [(day, time) for day, time in zip(days, started, strict=True) if time is not None]
    first = {day: min(time for own, time in known if own == day) for day, _ in known}
    return [0.0 if time is None else time - first[day] for day, time in zip(days, started, strict=True)]


def in_turns(times: Times) -> bool:
    """Whether the sides' starting times are about the same on average, and as far from the middle of the day."""
    return _balanced(times) and _balanced(_squares(times))


def order_text(times: Times) -> str:
    """How sides lie that were not run in turns."""
    if _balanced(times):
        off = [fmean(squares) for squares in _squares(times)]
        return f"the runs of {'A' if off[0] < off[1] else 'B'} began nearer the middle on average"
    (first, early), (second, late) = sorted(zip("AB", times, strict=True), key=lambda side: fmean(side[1]))
    if max(early) < min(late):
        return f"{first} was run before {second}"
    return f"the runs of {first} began earlier on average"


def _balanced(times: Times) -> bool:
    apart = abs(fmean(times[1]) - fmean(times[0]))
    variance = math.fsum((statistics.stdev(own) or 0.0) ** 2 / len(own) for own in times)
    return apart <= IN_TURNS * math.sqrt(variance)


def _squares(times: Times) -> Times:
    middle = fmean([*times[0], *times[1]])
    first, second = ([(time - middle) ** 2 for time in own] for own in times)
    return first, second


class Adjusted(NamedTuple):
    """B minus A with a trend taken out, its standard error and its degrees of freedom."""

    difference: float
    error: float
    freedom: float
    common: bool  # whether the sides show one trend, as is taken for granted


def adjusted_for_trend(a: Sequence[float], b: Sequence[float], times: Times) -> Adjusted | None:
    """Both sides have one trend, and each its own variance as in Welch's t. None: their runs show no trend."""
    import numpy as np

    covariates = [times] if _balanced(_squares(times)) else [times, _squares(times)]
    sides = [_Side.of(logs, [covariate[side] for covariate in covariates]) for side, logs in enumerate((a, b))]
    inverse: Array = np.linalg.pinv(sum(side.within.T @ side.within for side in sides), rcond=1e-12, hermitian=True)
    trend = inverse @ sum(side.within.T @ side.logs for side in sides)
    apart: Array = sides[1].at - sides[0].at
    parts = [side.part(trend, inverse, apart) for side in sides]
    if not inverse.any() or any(part.freedom < LEAST_FREEDOM for part in parts):
        return None
    whole = combined(parts)
    difference = sides[1].mean - sides[0].mean - float(apart @ trend)
    return Adjusted(difference, math.sqrt(whole.variance), whole.freedom, _is_common(sides, times, trend))


class _Side(NamedTuple):
    """One side's runs; a run far off counts as in clipped_mean.py."""

    mean: float
    logs: "Array"  # less their mean
    at: "Array"  # the mean of each covariate
    within: "Array"  # runs x covariates, less that
    correction: float

    @classmethod
    def of(cls, logs: Sequence[float], covariates: Sequence[Sequence[float]]) -> "_Side":
        import numpy as np

        found = clipped_mean(logs)
        counted = np.array(found.counted if found else logs)
        correction = 1.0 if list(counted) == list(logs) else CLIPPED_SPREAD_CORRECTION
        table = np.array(covariates, dtype=float).T
        mean, at = float(counted.mean()), table.mean(axis=0)
        return cls(mean, counted - mean, at, table - at, correction)

    def part(self, trend: "Array", inverse: "Array", apart: "Array") -> Spread:
        """What its runs' noise adds to the variance: by its mean, and by the trend."""
        taken = float(((self.within @ inverse) * self.within).sum())  # degrees of freedom; of both sides, the trend's
        freedom = len(self.logs) - 1 - taken
        off = self.correction**2 * float(((self.logs - self.within @ trend) ** 2).sum())
        by_trend = float(((self.within @ (inverse @ apart)) ** 2).sum())
        return Spread(off / max(freedom, LEAST_FREEDOM) * (1 / len(self.logs) + by_trend), freedom)


def _is_common(sides: Sequence[_Side], times: Times, trend: "Array") -> bool:
    """Whether curves of the sides' own would describe them no better than chance makes them."""
    import numpy as np
    from scipy.special import fdtrc

    degrees = [min(len(set(at)) - 1, 2) for at in times]  # runs that began together show no curve
    count, own = sum(len(side.logs) for side in sides), sum(degrees) + len(sides)
    more = own - len(sides) - len(trend)
    if min(len(side.logs) for side in sides) < FEWEST_FOR_A_CURVE or count - own < 2 or more < 1:
        return True
    shared = math.fsum(float(((side.logs - side.within @ trend) ** 2).sum()) for side in sides)
    fit = np.polynomial.Polynomial.fit
    curves = [fit(at, side.logs, degree) for at, side, degree in zip(times, sides, degrees, strict=True)]
    each = math.fsum(
        float(((side.logs - curve(np.array(at))) ** 2).sum())
        for at, side, curve in zip(times, sides, curves, strict=True)
    )
    return each <= 0 or float(fdtrc(more, count - own, (shared - each) / more / (each / (count - own)))) > OWN_TRENDS
