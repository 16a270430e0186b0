"""What the gate could not have seen: the smallest effect it finds, and the nights it needs to say "no change". Pure.

Both follow from the level's noise alone, not from what was measured tonight.
"""

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from benchmarks.gate.level import MEAN_VARIANCE, Level
from benchmarks.gate.rule_settings import Rule
from benchmarks.gate.values import Direction
from benchmarks.measuring.clipped_mean import quantile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

_LARGEST = 20.0  # deviations: nobody asks for more
# Of 20 nights a spread comes out within a quarter of what it is, and of the next 20 again: together within 0.7.
_LOWER_NOISE = 0.7
_STEPS = 40  # of halving: to a billionth


def smallest_detectable(level: Level, rule: Rule, direction: Direction) -> float:
    """The effect, as a logarithm, that the first night finds as often as `power` says: through screen and re-runs.

    Tonight and the median of the re-runs are both held against the same baseline, whose own error is common to
    them. Re-runs are taken to be on fresh nodes; the more they share with tonight, the more it takes.
    """
    sides = 2.0 if direction == "same" else 1.0
    return level.deviation * _detectable_deviations(level.nights, rule.relevant_log / level.deviation, rule, sides)


@lru_cache(maxsize=4096)
def _detectable_deviations(nights: int, relevant: float, rule: Rule, sides: float) -> float:
    error = math.sqrt(1 + 1 / nights)
    screen = max(quantile(1 - rule.screen_p / sides, nights - 1) * error, relevant)
    confirm = max(quantile(1 - rule.confirm_p / sides, nights - 1) * error, relevant)
    low, high = 0.0, _LARGEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _power(middle, nights, screen, confirm, rule) < rule.power:
            low = middle
        else:
            high = middle
    return high


def _power(effect: float, nights: int, screen: float, confirm: float, rule: Rule) -> float:
    """How often both are passed, over what the baseline's error may be. In deviations of one night."""
    from scipy.special import ndtr

    points, weights = _gauss()
    shifts = effect - points / math.sqrt(nights)
    of_reruns = math.sqrt(MEAN_VARIANCE[rule.confirmations])  # their median's: exact for 3
    passed = ndtr(shifts - screen) * ndtr((shifts - confirm) / of_reruns)
    return float((weights * passed).sum() / weights.sum())


@lru_cache(maxsize=1)
def _gauss() -> tuple["Array", "Array"]:
    """Where to look and how much it counts, to take a mean over a normal error."""
    import numpy as np

    return np.polynomial.hermite_e.hermegauss(15)


def nights_needed(level: Level, since: int, rule: Rule) -> int | None:
    """Until "no change" is said in 4 of 5 cases, were there none, at this noise; None: it does not allow it.

    From the first night on which the test is made, each night is another try: tonight must be near the level, and the
    interval of the nights before it changes little from one to the next, which counts as another factor of `power`.
    How often it holds is simulated (docs/gate.md).
    """
    first = _first_test(level, since, rule)
    if first is None:
        return None
    near = 2 * _normal_share(rule.relevant_log / level.error()) - 1
    failing = 1 - near * rule.power**2
    return first - 1 + math.ceil(math.log(1 - rule.power) / math.log(failing))


def unreachable(level: Level, since: int, rule: Rule) -> bool:
    """Whether even a noise as low as it may turn out to be, with other nights in the baseline, would not allow it.

    Where many nights lie far off, nobody can tell: the noise is theirs, and falls when they leave the baseline.
    """
    if len(level.odd) > rule.most_outliers * level.nights:
        return False
    return _first_test(level._replace(deviation=_LOWER_NOISE * level.deviation), since, rule) is None


def _first_test(level: Level, since: int, rule: Rule) -> int | None:
    """In how many nights the test is made first; None: never.

    Nights that are not decided yet stay out of the baseline; it grows when there are as many of them as the rule
    looks at.
    """
    for more in range(1, rule.since_nights + rule.baseline_nights + 1):
        looked_at = min(since + more, rule.since_nights)
        baseline = min(level.nights + max(since + more - rule.since_nights, 0), rule.baseline_nights)
        if shows_no_change(level._replace(nights=max(baseline, level.nights)), looked_at, rule):
            return more
    return None


def shows_no_change(level: Level, nights: int, rule: Rule) -> bool:
    """Whether two one-sided tests on so many nights are both passed as often as `power` says when nothing changed."""
    t = quantile((1 + rule.confidence) / 2, level.nights - 1) + _normal_quantile((1 + rule.power) / 2)
    return t * level.error(MEAN_VARIANCE[nights]) <= rule.same_log


@lru_cache(maxsize=64)
def _normal_quantile(probability: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(probability))


def _normal_share(value: float) -> float:
    return math.erfc(-value / math.sqrt(2)) / 2
