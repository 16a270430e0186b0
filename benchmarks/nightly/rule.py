"""The rule: nights of one figure -> a verdict and its reason. Pure.

The rule compares logarithms, so differences are ratios. One night is one value: its steps and re-runs share what
differs from night to night. `tests/simulate.py` prints how often the rule is wrong.

1. Screen: a t test of the latest night against the baseline nights. If it passes, the night is suspect.
2. Confirm: the same test of the median of 3 re-runs with a smaller p. If it passes, the verdict is `worse` or
   `better`. If the control cell moved in the same direction, the verdict is `inconclusive`: the night was slow.
3. `same` if the interval of the last 3 nights is within the margin. Otherwise `inconclusive`.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.nightly.values import Direction, RuleVerdict, Suspicion
from benchmarks.text import percent_text, plural
from benchmarks.verdict import Verdict

BASELINE_NIGHTS = 20  # a month of working days: enough for a spread, and it follows a machine that ages
FEWEST_BASELINE_NIGHTS = 10  # a t test on 5 nights finds nothing below 1.5 times what one on 10 nights finds
RECENT_NIGHTS = 3  # the interval behind `same` averages these nights, so they are not in the baseline
CONFIRMATIONS = 3  # the median of 3 re-runs withstands one outlier
SCREEN_P = 0.05  # a false suspicion costs only re-runs
CONFIRM_P = 0.005  # simulated: with the screen less than 0.5% false alarms a night and cell
CLIP_DEVIATIONS = 2.5  # baseline nights further from the median count as if they were this far
OUTLIERS = 0.15  # share of the baseline nights; if more would be clipped, they are noise and no outliers
LEAST_NOISE = 0.001  # medians of runs of one day differ by 0.1% on the middle cluster of MLPerf v5.1
RELEVANT = 0.005  # smaller changes are never suspect
MARGIN = 0.01  # changes within it are `same`
CONFIDENCE = 0.90  # of intervals: two one-sided tests at 5%
POWER = 0.80  # of the smallest detectable change


class Level(NamedTuple):
    """The level that the latest night is compared with."""

    centre: float  # logarithm
    deviation: float  # of one night, as a share
    nights: int

    def error(self, variance: float = 1.0) -> float:
        """Return the standard error of a distance from the centre; `variance` is in units of one night's."""
        return self.deviation * math.sqrt(variance + 1 / self.nights)

    def p(self, distance: float) -> float:
        """Return the probability of this distance or more by chance, on this side."""
        from scipy.special import stdtr

        return float(stdtr(self.nights - 1, -abs(distance) / self.error()))

    def quantile(self, probability: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.nights - 1, probability))

    def reach(self, variance: float) -> float:
        """Return half of the interval of a distance."""
        return self.quantile((1 + CONFIDENCE) / 2) * self.error(variance)


class Test(NamedTuple):
    """One distance from the level, in logarithms."""

    of: str
    distance: float
    p: float
    variance: float = 1.0  # in units of one night's

    def passes(self, p: float) -> bool:
        return self.p < p and abs(self.distance) >= math.log1p(RELEVANT)


def level_of(logs: Sequence[float]) -> Level:
    """Return the mean and the spread of the baseline nights, with outliers clipped.

    If they are many, such as in a bimodal baseline, no night is clipped, because the next one can be as far away.
    Clipping narrows the spread; 1 + 1/n restores the 5% and the 0.5% tail for 10 to 20 nights (simulated).
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

    `reruns` is None before any re-run, and empty if there can be none. `alarm` is the verdict of an open alarm: it
    needs no new confirmation. `control` is the distance of a control cell that moved, as a logarithm.
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
        end = f", but the control moved by {percent_text(_percent(control), '+.2g')} too, so the whole night differs"
        return _judged(Verdict.INCONCLUSIVE, Suspicion.SHARED, level, screen, direction, end)
    if alarm == side and not again:
        return _judged(side, Suspicion.CONFIRMED, level, screen, direction, ", as confirmed on an earlier night")
    if len(again) < CONFIRMATIONS:
        only = f", but only {len(again)} of {CONFIRMATIONS} re-runs to confirm it exist"
        end = only if reruns is not None else f": {CONFIRMATIONS} re-runs must confirm it"
        return _judged(Verdict.INCONCLUSIVE, Suspicion.OPEN, level, screen, direction, end)
    return _confirm(level, nights, again, screen, direction)


def _confirm(
    level: Level, nights: Sequence[float], reruns: Sequence[float], screen: Test, direction: Direction
) -> RuleVerdict:
    # The median counts as one night: re-runs of one night share what the night has.
    middle = statistics.median(reruns)
    confirm = _test(f"the median of {len(reruns)} re-runs is", level, middle, direction)
    if confirm.passes(CONFIRM_P) and confirm.distance * screen.distance > 0:
        end, side = ", which confirms the suspicion", _side(confirm, direction)
        return _judged(side, Suspicion.CONFIRMED, level, confirm, direction, end)
    return _same_or_not(level, [*nights[:-1], middle], direction, len(reruns))


def screen_distance(baseline: Sequence[float], latest: float) -> float | None:
    """Return how far the latest night is from the level, as a logarithm; None if the screen sees nothing."""
    if len(baseline) < FEWEST_BASELINE_NIGHTS:
        return None
    level = level_of([math.log(value) for value in baseline])
    test = _test("", level, math.log(latest), "lower")
    return test.distance if test.passes(SCREEN_P) else None


def smallest_detectable(level: Level, direction: Direction) -> float:
    """Return the change, as a logarithm, that the re-runs of the first night confirm in 4 of 5 cases."""
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
    """Return `same` if the interval of the recent nights' mean is within the margin."""
    of = "the latest night is" if len(nights) == 1 else f"the mean of the last {len(nights)} nights is"
    mean = _test(of, level, statistics.fmean(nights), direction)._replace(variance=1 / len(nights))
    suspicion = Suspicion.REFUTED if reruns else Suspicion.NONE
    lead = f"{reruns} re-runs did not confirm a suspicion; with them, " if reruns else ""
    if abs(mean.distance) + level.reach(mean.variance) < math.log1p(MARGIN):
        end = f": the whole interval is within {MARGIN:.0%}"
        return _judged(Verdict.SAME, suspicion, level, mean, direction, end, lead)
    end = f": a change of {MARGIN:.0%} is not ruled out at this noise ({100 * level.deviation:.2g}% a night)"
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
