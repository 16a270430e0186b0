"""How far one side is from the other: the arithmetic, and whether it holds what it says, by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.comparing import intervals
from benchmarks.comparing.days import Noise, Spread
from benchmarks.comparing.intervals import Estimate, Level, between_pairs, between_sets, between_windows, with_noise
from benchmarks.measuring.statistics import median_interval
from tests.benchmarks.comparing.nights import NOISE, Random, rates, sets, singles
from tests.benchmarks.made_steps import Array, autoregressive

DRAWS = 2000


# --- arithmetic ---------------------------------------------------------------------------------


def test_sets_are_held_side_by_side_as_scipy_does_it() -> None:
    a, b = [0.0, 0.01, 0.03, 0.02], [0.05, 0.02, 0.06]
    found = between_sets(a, b)
    expected = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    narrower = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.90)
    assert (found.centre - found.equal, found.centre + found.equal) == pytest.approx((narrower.low, narrower.high))


def test_a_run_far_off_counts_as_less_far_from_six_runs_on() -> None:
    calm = [0.001 * number for number in range(6)]
    disturbed = [*calm[:5], 0.5]
    assert 0 < between_sets(calm, disturbed).centre < 0.01
    assert intervals.level(disturbed).clipped == [5]
    assert between_sets(calm[:5], disturbed[1:]).centre == pytest.approx(0.1, abs=0.01)  # of 5 none is the odd one


def test_pairs_see_through_what_slows_both_runs() -> None:
    found = between_pairs([(one + 0.02) - one for one in (0.0, 0.3, -0.2, 0.1)])
    assert found.centre == pytest.approx(0.02)
    assert found.half_width == pytest.approx(0.0, abs=1e-12)


def test_two_windows_are_put_together_each_with_its_own_side() -> None:
    found = between_windows(Level(0.0, -0.01, 0.03), Level(0.1, 0.08, 0.14))
    assert found.low == pytest.approx(0.1 - math.hypot(0.02, 0.03))
    assert found.high == pytest.approx(0.1 + math.hypot(0.04, 0.01))
    assert found.lacks


def test_a_known_noise_counts_once_for_each_run() -> None:
    noise = Noise(Spread(1e-4, 4), None, None)
    found = with_noise([0.0], [0.1, 0.2], ([1], [1, 1]), noise)
    assert found.centre == pytest.approx(0.15)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 4) * 0.01 * math.sqrt(1.5))


# --- how often it is right ------------------------------------------------------------------------


@pytest.mark.parametrize("outliers", [0.0, 0.03])
@pytest.mark.parametrize("wider", [1.0, 3.0])
@pytest.mark.parametrize("runs", [(3, 3), (5, 5), (10, 10), (3, 10)])
def test_intervals_of_sets_hold_the_truth_and_verdicts_are_seldom_false(
    runs: tuple[int, int], wider: float, outliers: float
) -> None:
    found = rates(lambda random: sets(random, runs, outliers, wider), DRAWS, 7)
    assert found.held >= 0.93
    assert found.with_margin <= 0.05
    assert found.without <= 0.07


@pytest.mark.parametrize(
    ("earlier", "outliers", "false_at_most"), [(5, 0.0, 0.05), (10, 0.0, 0.06), (20, 0.0, 0.06), (10, 0.03, 0.10)]
)
def test_single_runs_beside_a_known_noise(earlier: int, outliers: float, false_at_most: float) -> None:
    """A lone run that was disturbed looks like a change: where 3% are, 8% of verdicts on nothing are false."""
    found = rates(lambda random: singles(random, earlier, outliers), DRAWS, 11)
    assert found.with_margin <= false_at_most
    assert found.held >= (0.93 if not outliers else 0.88)


def steps(random: Random, count: int = 50) -> Array:
    """One run: its own level, and steps that depend on each other."""
    noise = NOISE * autoregressive(random, (count,), 0.5)
    seconds: Array = np.exp(random.normal(0.0, NOISE) + noise)
    return seconds


def test_steps_taken_as_if_independent_are_wrong_most_of_the_time() -> None:
    """The negative control: all steps of 3 runs a side in one t test see differences where there is none."""
    random, draws, naive = Random(12), 400, 0

    def drawn(random: Random) -> Estimate:
        return between_sets(*([float(np.log(np.median(steps(random)))) for _ in range(3)] for _ in range(2)))

    for _ in range(draws):
        a, b = (np.concatenate([steps(random) for _ in range(3)]) for _ in range(2))
        naive += stats.ttest_ind(a, b, equal_var=False).pvalue < 0.05
    assert naive / draws > 0.5
    assert rates(drawn, draws, 12).without < 0.07


def test_two_single_runs_have_no_verdict_and_their_windows_differ_far_too_often() -> None:
    def drawn(random: Random) -> Estimate:
        windows = []
        for _ in range(2):
            found = median_interval(list(steps(random)))
            assert found is not None
            windows.append(Level(math.log(found.median), math.log(found.low), math.log(found.high)))
        return between_windows(*windows)

    found = rates(drawn, 300, 13)
    assert found.none == 1.0
    assert found.held < 0.9
