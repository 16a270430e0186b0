"""The rule that judges one metric of a night by earlier nights, and gives a reason. No I/O.

The rule compares logarithms, so differences are ratios. Each night counts as one value, because the runs of one night
are not independent. `tests/simulate.py` prints how often the rule is wrong.

1. Screen: a t test compares the latest night with the baseline. If the difference is significant, the night is
   suspect. If the control cell changed in the same direction, the verdict is `inconclusive`: the whole night differs.
2. Confirm: the same test with a smaller p compares the median of 3 re-runs. If significant: `worse` or `better`.
3. Otherwise the verdict is `same` if the interval of the last 3 nights is within the margin; if not, `inconclusive`.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.nightly.values import Direction, RuleVerdict, Suspicion
from benchmarks.text import percent_text, plural
from benchmarks.verdict import Verdict

BASELINE_NIGHTS = 20  # a month of working days: enough to estimate the noise, and recent enough if the machine ages
FEWEST_BASELINE_NIGHTS = 10  # with only 5 nights, a change must be 1.5 times as large to be detected
RECENT_NIGHTS = 3  # the verdict `same` is about the mean of these nights, so the baseline excludes them
CONFIRMATIONS = 3  # the number of re-runs; one outlier hardly changes the median of 3
SCREEN_P = 0.05  # a false suspicion costs only re-runs
CONFIRM_P = 0.005  # in simulations, both tests together give under 0.5% false alarms per night and cell
CLIP_DEVIATIONS = 2.5  # a baseline night further from the median counts as if it were at this distance
OUTLIERS = 0.15  # if clipping would change a larger share of the nights, they are noise, not outliers
LEAST_NOISE = 0.001  # on a typical cluster of MLPerf v5.1, medians of runs of one day differ by 0.1%
RELEVANT = 0.005  # smaller changes are never suspect
MARGIN = 0.01  # changes within the margin are `same`
CONFIDENCE = 0.90  # for every interval; corresponds to two one-sided tests at 5%
POWER = 0.80  # the probability of detecting the smallest detectable change


class Level(NamedTuple):
    """The level of the baseline, with which the latest night is compared."""

    centre: float  # as a logarithm
    deviation: float  # the standard deviation between nights, as a logarithm
    nights: int

    def error(self, variance: float = 1.0) -> float:
        """Return the standard error of a distance from the centre. `variance` is relative to that of one night."""
        return self.deviation * math.sqrt(variance + 1 / self.nights)

    def p(self, distance: float) -> float:
        """Return the one-sided probability that chance causes this distance or a larger one."""
        from scipy.special import stdtr

        return float(stdtr(self.nights - 1, -abs(distance) / self.error()))

    def quantile(self, probability: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.nights - 1, probability))

    def reach(self, variance: float) -> float:
        """Return half the width of the interval around a distance."""
        return self.quantile((1 + CONFIDENCE) / 2) * self.error(variance)


class Test(NamedTuple):
    """The distance of one value from the level, as a logarithm, and its p."""

    of: str
    distance: float
    p: float
    variance: float = 1.0  # relative to the variance of one night

    def passes(self, p: float) -> bool:
        return self.p < p and abs(self.distance) >= math.log1p(RELEVANT)


def level_of(logs: Sequence[float]) -> Level:
    """Return the mean and the spread of the baseline nights, after outliers are clipped.

    If there are many outliers, as with two alternating speeds, nothing is clipped, because the next night may be
    equally far from the median. Clipping makes the spread too small; the factor 1 + 1/n corrects this for 10 to 20
    nights (by simulation).
    """
    middle = statistics.median(logs)
    unit = max(1.4826 * statistics.median(abs(log - middle) for log in logs), LEAST_NOISE)
    reach = CLIP_DEVIATIONS * unit
    clipped = [min(max(log, middle - reach), middle + reach) for log in logs]
    outliers = sum(log != one for log, one in zip(logs, clipped, strict=True))
    if outliers > OUTLIERS * len(logs):
        return Level(statistics.fmean(logs), max(statistics.stdev(logs), LEAST_NOISE), len(logs))
    deviation = (1 + 1 / len(logs)) * statistics.stdev(clipped)
    return Level(statistics.fmean(clipped), max(deviation, LEAST_NOISE), len(logs))


def judge(
    baseline: Sequence[float],
    recent: Sequence[float],
    direction: Direction,
    reruns: Sequence[float] | None = None,
    alarm: Verdict | None = None,
    control: float | None = None,
) -> RuleVerdict:
    """Return the verdict on the latest night, `recent[-1]`. All values are above 0.

    `reruns` is None before any re-run, and empty if no re-run is possible. `alarm` is the verdict of an open alarm,
    which needs no new re-runs. `control` is the control cell's change as a logarithm, or None if it did not change.
    """
    if len(baseline) < FEWEST_BASELINE_NIGHTS:
        count = len(baseline)
        why = f"{plural(count, 'night')} in the baseline: a verdict needs {FEWEST_BASELINE_NIGHTS}"
        missing = FEWEST_BASELINE_NIGHTS - count
        return RuleVerdict(verdict=Verdict.NOT_TESTED, why=why, nights_needed=missing, baseline_nights=count)
    level = level_of([math.log(value) for value in baseline])
    nights, again = [math.log(value) for value in recent], [math.log(value) for value in reruns or []]
    screen = _test("the latest night is", level, nights[-1], direction)
    if not screen.passes(SCREEN_P):
        return _same_or_not(level, nights, direction)
    side = _side(screen, direction)
    if control is not None and control * screen.distance > 0:
        end = f", but the control cell moved by {percent_text(_percent(control), '+.2g')}, so the whole night differs"
        return _judged(Verdict.INCONCLUSIVE, Suspicion.SHARED, level, screen, direction, end)
    if alarm == side and not again:
        return _judged(side, Suspicion.CONFIRMED, level, screen, direction, ", as confirmed on an earlier night")
    if len(again) < CONFIRMATIONS:
        only = f", but only {len(again)} of {CONFIRMATIONS} re-runs are available to confirm it"
        end = only if reruns is not None else f": {CONFIRMATIONS} re-runs must confirm it"
        return _judged(Verdict.INCONCLUSIVE, Suspicion.OPEN, level, screen, direction, end)
    return _confirm(level, nights, again, screen, direction)


def _confirm(
    level: Level, nights: Sequence[float], reruns: Sequence[float], screen: Test, direction: Direction
) -> RuleVerdict:
    # The median of the re-runs counts as one night, because re-runs in one night are not independent.
    middle = statistics.median(reruns)
    confirm = _test(f"the median of {len(reruns)} re-runs is", level, middle, direction)
    if confirm.passes(CONFIRM_P) and confirm.distance * screen.distance > 0:
        end, side = ", which confirms the suspicion", _side(confirm, direction)
        return _judged(side, Suspicion.CONFIRMED, level, confirm, direction, end)
    return _same_or_not(level, [*nights[:-1], middle], direction, len(reruns))


def screen_distance(baseline: Sequence[float], latest: float) -> float | None:
    """Return how far the latest night is from the baseline, as a logarithm; None if the night is not suspect."""
    if len(baseline) < FEWEST_BASELINE_NIGHTS:
        return None
    level = level_of([math.log(value) for value in baseline])
    test = _test("", level, math.log(latest), "lower")
    return test.distance if test.passes(SCREEN_P) else None


def smallest_detectable(level: Level, direction: Direction) -> float:
    """Return the smallest change, as a logarithm, that one night detects and confirms with a probability of 80%."""
    limit = level.quantile(1 - CONFIRM_P / _sides(direction)) + level.quantile(POWER)
    return max(limit * level.error(), math.log1p(RELEVANT))


def _sides(direction: Direction) -> int:
    return 2 if direction == "same" else 1


def _test(of: str, level: Level, log: float, direction: Direction) -> Test:
    distance = log - level.centre
    return Test(of, distance, min(_sides(direction) * level.p(distance), 1.0))


def _side(test: Test, direction: Direction) -> Verdict:
    better = test.distance < 0 if direction == "lower" else test.distance > 0
    return Verdict.BETTER if better and direction != "same" else Verdict.WORSE


def _same_or_not(level: Level, nights: Sequence[float], direction: Direction, reruns: int = 0) -> RuleVerdict:
    """Return `same` if the interval of the recent nights' mean is within the margin, otherwise `inconclusive`."""
    of = "the latest night is" if len(nights) == 1 else f"the mean of the last {len(nights)} nights is"
    mean = _test(of, level, statistics.fmean(nights), direction)._replace(variance=1 / len(nights))
    suspicion = Suspicion.REFUTED if reruns else Suspicion.NONE
    lead = f"{reruns} re-runs did not confirm a suspicion; with them, " if reruns else ""
    if abs(mean.distance) + level.reach(mean.variance) < math.log1p(MARGIN):
        end = f": the whole interval is within {MARGIN:.0%}"
        return _judged(Verdict.SAME, suspicion, level, mean, direction, end, lead)
    end = f": this noise ({100 * level.deviation:.2g}% per night) can hide a change of {MARGIN:.0%}"
    return _judged(Verdict.INCONCLUSIVE, suspicion, level, mean, direction, end, lead)


def _judged(
    verdict: Verdict, suspicion: Suspicion, level: Level, test: Test, direction: Direction, end: str, lead: str = ""
) -> RuleVerdict:
    reach = level.reach(test.variance)
    effect, low, high = (_percent(test.distance + shift) for shift in (0.0, -reach, reach))
    where = "above" if effect > 0 else "below"
    why = (
        f"{lead}{test.of} {percent_text(abs(effect))} {where} the baseline of {plural(level.nights, 'night')} "
        f"({CONFIDENCE:.0%} interval {low:+.2f}% to {high:+.2f}%){end}"
    )
    return RuleVerdict(
        verdict=verdict,
        why=why,
        suspicion=suspicion,
        baseline=math.exp(level.centre),
        baseline_nights=level.nights,
        effect_percent=effect,
        low_percent=low,
        high_percent=high,
        p=test.p,
        noise_percent=100 * level.deviation,
        smallest_detectable_percent=_percent(smallest_detectable(level, direction)),
    )


def _percent(log: float) -> float:
    return 100 * math.expm1(log)
