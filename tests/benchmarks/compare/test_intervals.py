"""How far one side is from the other: the arithmetic and the verdicts; tests/simulation has their rates."""

import math

import pytest
from scipy import stats

from benchmarks.compare.intervals import (
    Interval,
    noise_of,
    of_few,
    of_pairs,
    of_sets,
    verdict_of,
)
from benchmarks.verdict import Verdict

# --- arithmetic ---------------------------------------------------------------------------------


def test_sets_and_pairs_have_the_intervals_of_scipy() -> None:
    a, b = [0.0, 0.01, 0.03, 0.02], [0.05, 0.02, 0.06, 0.01]
    welch = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert of_sets(a, b)[:3] == pytest.approx((0.02, welch.low, welch.high))
    pairs = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert of_pairs(a, b)[:3] == pytest.approx((0.02, pairs.low, pairs.high))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_pairs_have_no_interval(count: int) -> None:
    found = of_pairs([0.0] * count, [0.5] * count)
    assert (found.low, verdict_of(found, 1.0)[0]) == (None, Verdict.INCONCLUSIVE)


def test_two_single_runs_need_the_gap_of_their_windows_to_exceed_the_noise() -> None:
    a, b = Interval(0.0, -0.01, 0.03), Interval(0.1, 0.08, 0.14)
    noise = noise_of([[0.0, 0.001, 0.002], [0.5]])  # a group of one run shows no noise
    assert noise is not None and (noise.runs, noise.deviation) == (3, pytest.approx(0.001))
    reach = stats.t.ppf(0.975, 2) * 0.001 * math.sqrt(2)
    found = of_few(a, b, (1, 1), noise)
    assert (found.low, found.high) == pytest.approx((0.08 - 0.03 - reach, 0.14 + 0.01 + reach))
    assert of_few(a, b, (1, 1), None).low is None
    assert of_few(a._replace(low=None), b, (1, 1), noise).low is None
    logs = [0.0, 0.01, -0.01]
    found = of_few(Interval(0.0, 0.0, 0.0), Interval(0.1, 0.1, 0.1), (3, 1), noise_of([logs]))
    reach = stats.t.ppf(0.975, 2) * 0.01 * math.sqrt(1 + 1 / 3)  # a run against a set takes the noise of the set
    assert (found.low, found.high) == pytest.approx((0.1 - reach, 0.1 + reach))


def test_noise_of_several_kinds_is_around_each_mean() -> None:
    found = noise_of([[0.0, 0.01, -0.01], [1.0, 1.01, 0.99]])
    assert found is not None
    assert (found.deviation, found.freedom, found.runs) == (pytest.approx(0.01), 4, 6)
    assert noise_of([[0.0, 1.0]]) is None


def test_an_unsettled_step_time_widens_the_side_to_which_it_moves() -> None:
    found = Interval(0.02, 0.01, 0.03)
    assert found.widened(-0.02)[:3] == pytest.approx((0.02, -0.01, 0.03))
    assert found.widened(0.02)[:3] == pytest.approx((0.02, 0.01, 0.05))
    assert Interval(0.02).widened(1.0) == Interval(0.02)


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "margin", "verdict"),
    [
        (1.5, 2.5, 1.0, Verdict.WORSE),
        (-2.5, -1.5, 1.0, Verdict.BETTER),
        (0.5, 1.5, 1.0, Verdict.WORSE),
        (0.2, 0.8, 1.0, Verdict.SAME),
        (-0.8, 0.8, 1.0, Verdict.SAME),
        (0.2, 0.8, 0.0, Verdict.WORSE),
        (-0.2, 1.2, 1.0, Verdict.INCONCLUSIVE),
        (-1e-9, 1e-9, 0.0, Verdict.INCONCLUSIVE),
    ],
)
def test_the_verdict_follows_from_the_interval_and_the_margin(
    low: float, high: float, margin: float, verdict: Verdict
) -> None:
    """In percent; of tokens/s, whose interval is mirrored, too."""
    ends = [math.log1p(end / 100) for end in (low, high)]
    assert verdict_of(Interval(sum(ends) / 2, *ends), margin)[0] == verdict
    mirrored = Interval(-sum(ends) / 2, -ends[1], -ends[0])
    if verdict != Verdict.SAME:
        assert verdict_of(mirrored, margin, lower_is_better=False)[0] == verdict
