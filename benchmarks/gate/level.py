"""The level that a night is held against: centre and spread of the baseline nights, and how far chance reaches.

All in logarithms, so that distances are ratios. The night is the unit: what varies from night to night (nodes,
temperature, neighbours) does not average out over the steps or the re-runs of one night.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.errors import RequestError
from benchmarks.gate.rule_settings import Rule
from benchmarks.measuring import statistics
from benchmarks.measuring.clipped_mean import clip, quantile

# Variance of the mean of n normal values without their smallest and largest (from 3 on), in units of one value's.
# Simulated; tests/benchmarks/gate/test_rule.py holds it to a fresh simulation.
MEAN_VARIANCE = {
    1: 1.0, 2: 0.5, 3: 0.449, 4: 0.298, 5: 0.227, 6: 0.184, 7: 0.155, 8: 0.134, 9: 0.118, 10: 0.106,
}  # fmt: skip
# What clipping takes from the spread, by nights: so that the tail of the t test at p = 0.005 is what it says
# (simulated, 200,000 draws: 0.5-0.6% for 10 to 20 nights).
_CORRECTION = {10: 1.10, 20: 1.04}


class Level(NamedTuple):
    """Of the baseline nights."""

    centre: float  # logarithm
    deviation: float  # of one night, as a share
    nights: int
    odd: tuple[float, ...] = ()  # distances of the nights that lie beyond the clip

    def error(self, variance: float = 1.0) -> float:
        """Standard error of a distance from the centre, of something whose variance is so many nights'."""
        return self.deviation * math.sqrt(variance + 1 / self.nights)

    def p(self, distance: float, variance: float = 1.0) -> float:
        """How often chance alone gets so far or further, to this side."""
        from scipy.special import stdtr

        return float(stdtr(self.nights - 1, -abs(distance) / self.error(variance)))

    def reach(self, confidence: float, variance: float = 1.0) -> float:
        """Half of the two-sided interval of a distance."""
        return quantile((1 + confidence) / 2, self.nights - 1) * self.error(variance)


def level(values: Sequence[float], rule: Rule) -> Level:
    """Logarithms of the baseline nights -> their level.

    A few nights that are very far off are left out, as one of them would hide a small change for weeks; what is left
    counts as if it lay no further than the clip. Where many are far off, the machine is like that: all count, as far
    off as they are, since clipping would take the very spread away that tonight has too.
    """
    middle, unit = _middle_and_unit(values, rule)
    reach = rule.clip_deviations * unit
    beyond = [value for value in values if abs(value - middle) > reach]
    near = [value for value in values if abs(value - middle) <= rule.outlier_deviations * unit]
    few_left_out = len(values) - len(near) <= rule.most_outliers * len(values)
    if few_left_out and len(beyond) <= rule.most_clipped * len(values):
        counted = clip(near, middle, reach)
    else:
        counted = list(values)
    deviation = _correction(len(values)) * (statistics.stdev(counted) or 0.0)
    centre = math.fsum(counted) / len(counted)
    odd = tuple(value - centre for value in beyond)
    return Level(centre, max(deviation, rule.least_noise), len(counted), odd)


def clipped(values: Sequence[float], rule: Rule) -> list[float]:
    """Those beyond the clip count as if they lay there."""
    middle, unit = _middle_and_unit(values, rule)
    return clip(values, middle, rule.clip_deviations * unit)


def beyond_clip(values: Sequence[float], rule: Rule) -> list[bool]:
    """Which of them lie further off than the clip."""
    middle, unit = _middle_and_unit(values, rule)
    return [abs(value - middle) > rule.clip_deviations * unit for value in values]


def _middle_and_unit(values: Sequence[float], rule: Rule) -> tuple[float, float]:
    middle = median(values)
    # Where more than half of the nights are equal, the least noise says what is far.
    unit = max(statistics.DEVIATIONS_PER_MAD * median([abs(value - middle) for value in values]), rule.least_noise)
    return middle, unit


def median(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    assert middle is not None
    return middle


def _correction(nights: int) -> float:
    (few, at_few), (many, at_many) = _CORRECTION.items()
    share = (min(max(nights, few), many) - few) / (many - few)
    return at_few + share * (at_many - at_few)


def middle_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean of nights without the smallest and the largest, and its variance in units of one night's."""
    inner = sorted(values)[1:-1] if len(values) >= 3 else list(values)
    return math.fsum(inner) / len(inner), MEAN_VARIANCE[len(values)]


def median_of(values: Sequence[float]) -> tuple[float, float]:
    """The median of up to 3 nights, and its variance in units of one night's."""
    return median(values), MEAN_VARIANCE[len(values)]


def logarithms(values: Sequence[float], where: str) -> list[float]:
    """Refuses what has no logarithm: the gate judges ratios."""
    for number, value in enumerate(values, start=1):
        if not (math.isfinite(value) and value > 0):
            raise RequestError(
                f"the gate cannot judge the value {value!r}",
                where=f"value {number} of {len(values)} in {where}",
                why="it judges ratios, so every value must be a number above 0",
                next_command="leave that night out, or watch a figure that cannot be 0 (excess: mean over median)",
            )
    return [math.log(value) for value in values]
