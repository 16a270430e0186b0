"""The gate's rule on nights whose answer is known; how often it errs is test_simulation.py's."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.errors import RequestError
from benchmarks.gate.level import MEAN_VARIANCE, Level, level
from benchmarks.gate.rule import G3, Judged, judge, stands
from benchmarks.gate.sensitivity import smallest_detectable
from benchmarks.gate.values import Direction
from benchmarks.measuring.clipped_mean import quantile


def nights(count: int = 20, noise: float = 0.002, seed: int = 7, centre: float = 4.0) -> list[float]:
    """Of exactly this mean and spread, so that a test knows both."""
    logs = np.random.RandomState(seed).standard_normal(count)
    logs = noise * (logs - logs.mean()) / logs.std(ddof=1)
    return list((centre * np.exp(logs)).tolist())


BASELINE = nights()
LEVEL = math.exp(level([math.log(value) for value in BASELINE], G3).centre)


def at(*shares: float) -> list[float]:
    return [LEVEL * (1 + share) for share in shares]


def judged(
    recent: Sequence[float],
    confirmations: Sequence[float] | None = None,
    direction: Direction = "lower",
    baseline: Sequence[float] = BASELINE,
    since: Sequence[float] = (),
) -> Judged:
    return judge(baseline, recent, direction, confirmations, since)


# --- the way to a verdict -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "recent", "reruns", "verdict"),
    [
        (0.002, [0.02], None, "suspect"),
        (0.002, [0.02], [0.019, 0.021, 0.02], "regression"),
        (0.002, [0.06], [0.0, 0.001, -0.001], "no change"),  # re-runs as before stand for tonight
        (0.002, [0.02], [-0.02, -0.02, -0.02], "inconclusive"),  # far off the other way confirms nothing
        # One odd re-run of three neither makes nor breaks a regression.
        (0.002, [0.02], [0.02, 0.02, -0.1], "regression"),
        (0.002, [0.02], [0.0, 0.0, 0.1], "no change"),
        # At 0.5% noise 1.2% passes the screen's 5%, and not the re-runs' 0.5%.
        (0.005, [0.012], None, "suspect"),
        (0.005, [0.012], [0.012, 0.012, 0.012], "inconclusive"),
        (0.005, [0.018], [0.018, 0.018, 0.018], "regression"),
        # Three nights a little slow are suspect where each alone is not.
        (0.005, [0.0085], None, "inconclusive"),
        (0.005, [0.0085, 0.0085, 0.0085], None, "suspect"),
        # Below half a percent nobody acts, however sure it is.
        (0.001, [0.0045], None, "no change"),
        (0.001, [0.0055], None, "suspect"),
        (0.001, [0.0055], [0.0045, 0.0045, 0.0045], "no change"),
        (0.002, [0.001], None, "no change"),
        # All of the interval must lie within the margin.
        (0.0029, [0.0], None, "no change"),
        (0.0029, [0.0049], None, "inconclusive"),
    ],
)
def test_the_way_to_a_verdict(noise: float, recent: list[float], reruns: list[float] | None, verdict: str) -> None:
    again = None if reruns is None else at(*reruns)
    assert judged(at(*recent), again, baseline=nights(noise=noise)).verdict == verdict


def test_the_effect_of_a_regression_is_that_of_its_re_runs_with_their_interval() -> None:
    found = judged(at(0.05), at(0.018, 0.02, 0.5))
    assert found.effect_percent == pytest.approx(2.0)
    assert (found.low_percent or 0) < 2.0 < (found.high_percent or 0)
    width = (found.high_percent or 0) - (found.low_percent or 0)
    assert width == pytest.approx(200 * 1.729 * 1.04 * 0.002 * 1.025 * 1.02, rel=0.1)
    assert (found.p or 1.0) < 0.001
    assert found.baseline == pytest.approx(LEVEL)
    assert "2% above the baseline of 20 nights" in found.why


@pytest.mark.parametrize("shares", [[], [0.02], [0.02, 0.02]])
def test_too_few_re_runs_confirm_nothing_and_the_verdict_says_how_many_there_were(shares: list[float]) -> None:
    found = judged(at(0.02), at(*shares))
    assert found.verdict == "inconclusive"
    assert f"only {len(shares)} of 3 re-runs" in found.why


# --- which way is worse ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "share", "outcome"),
    [
        ("lower", 0.02, "regression"),
        ("lower", -0.02, "improvement"),
        ("higher", 0.02, "improvement"),
        ("higher", -0.02, "regression"),
        ("same", 0.02, "regression"),
        ("same", -0.02, "regression"),
    ],
)
def test_directions(direction: Direction, share: float, outcome: str) -> None:
    assert judged(at(share), None, direction).verdict == "suspect"
    assert judged(at(share), at(share, share, share), direction).verdict == outcome


@given(st.floats(-0.05, 0.05), st.lists(st.floats(-0.05, 0.05), min_size=3, max_size=3))
def test_an_improvement_is_the_mirror_image_of_a_regression(share: float, reruns: list[float]) -> None:
    """The reciprocals of all nights, where more is better, must be judged the same."""

    def turned(values: Sequence[float]) -> list[float]:
        return [1 / value for value in values]

    one = judge(BASELINE, at(share), "lower", at(*reruns))
    other = judge(turned(BASELINE), turned(at(share)), "higher", turned(at(*reruns)))
    assert other.verdict == one.verdict
    ratios = [1 + (found.effect_percent or 0.0) / 100 for found in (one, other)]
    assert ratios[1] == pytest.approx(1 / ratios[0])


@given(st.floats(1e-6, 1e6), st.floats(-0.03, 0.03))
def test_the_unit_does_not_matter(factor: float, share: float) -> None:
    assume(abs(abs(math.log1p(share)) - G3.relevant_log) > 1e-9)  # on the very edge, rounding decides
    recent, again = at(share), at(share, share, share)
    scaled = judge(
        [factor * value for value in BASELINE],
        [factor * value for value in recent],
        "lower",
        [factor * value for value in again],
    )
    assert scaled.verdict == judged(recent, again).verdict


# --- no change, or not known ----------------------------------------------------------------------


def test_noisier_nights_need_more_of_them_and_the_verdict_says_how_many() -> None:
    baseline = nights(noise=0.0045)
    for undecided, needed in ((1, 5), (2, 4), (3, 3)):
        found = judged(at(0.0), baseline=baseline, since=at(*[0.0] * undecided))
        assert (found.verdict, found.nights_needed, found.unreachable) == ("inconclusive", needed, False)
    assert "takes about 3 more nights" in found.why
    assert judged(at(0.0), baseline=baseline, since=at(0.0, 0.0, 0.0, 0.0)).verdict == "no change"


@pytest.mark.parametrize(
    ("baseline", "undecided", "never", "said"),
    [
        (nights(noise=0.013), 1, True, "no number of nights"),
        (nights(noise=0.013), 10, True, "no number of nights"),
        (nights(noise=0.01), 1, False, "turns out to be lower"),
        # Noise of odd nights may leave with them.
        ([*BASELINE[:-4], *at(0.08, 0.08, 0.08, 0.08)], 1, False, "turns out to be lower"),
    ],
)
def test_where_no_number_of_nights_would_do(baseline: list[float], undecided: int, never: bool, said: str) -> None:
    found = judged(at(0.0), baseline=baseline, since=at(*[0.0] * undecided))
    assert (found.verdict, found.unreachable, found.nights_needed) == ("inconclusive", never, None)
    assert said in found.why


def test_nights_before_do_not_hide_a_change_that_began_tonight() -> None:
    baseline = nights(noise=0.004)
    quiet = at(*[0.0] * 9)
    assert judged(at(0.0), baseline=baseline, since=[*quiet, *at(0.0)]).verdict == "no change"
    assert judged(at(0.0065), baseline=baseline, since=[*quiet, *at(0.0065)]).verdict == "inconclusive"


def test_too_little_history_is_inconclusive_and_says_how_much_is_missing() -> None:
    found = judged(at(0.5), baseline=BASELINE[:7])
    assert (found.verdict, found.nights_needed, found.unreachable) == ("inconclusive", 3, False)
    assert found.effect_percent is None
    assert "7 nights" in found.why
    assert judged(at(0.5), baseline=[]).nights_needed == 10
    assert judged(at(0.5), baseline=BASELINE[:10]).verdict == "suspect"


# --- strange values -------------------------------------------------------------------------------


def test_identical_nights_have_the_least_noise_not_none() -> None:
    found = judged([4.0], baseline=[4.0] * 20)
    assert found.noise_percent == 100 * G3.least_noise
    assert found.verdict == "no change"
    assert judged([4.0 * 1.003], baseline=[4.0] * 20).verdict == "no change"
    assert judged([4.0 * 1.02], baseline=[4.0] * 20).verdict == "suspect"


@pytest.mark.parametrize("odd", [1.05, 100.0, 0.01])
def test_one_huge_outlier_in_the_baseline_changes_next_to_nothing(odd: float) -> None:
    baseline = [*BASELINE[:-1], 4.0 * odd]
    found, without = judged(at(0.01), baseline=baseline), judged(at(0.01), baseline=BASELINE[:-1])
    assert found.verdict == "suspect"
    assert found.noise_percent == pytest.approx(without.noise_percent, rel=0.02)
    assert found.baseline == pytest.approx(without.baseline, rel=1e-4)


def test_where_many_nights_are_far_off_the_machine_is_like_that_and_all_count() -> None:
    baseline = [*BASELINE[:-4], *at(0.05, 0.05, 0.05, 0.05)]
    usual = judged(at(0.0)).noise_percent or 0
    found = judged(at(0.0), baseline=baseline)
    assert found.baseline_nights == 20
    assert (found.noise_percent or 0) > 1.3 * usual


def test_where_many_are_off_none_is_clipped_however_near() -> None:
    """7 of 20 nights on nodes that are 2% slow: the spread is 1%, and one more such night is nothing new."""
    baseline = [*nights(13, noise=0.002), *(1.02 * value for value in nights(7, noise=0.002))]
    found = judge(baseline, [4.08], "lower", [4.08, 4.08, 4.08])
    assert found.noise_percent == pytest.approx(1.01, rel=0.05)
    assert found.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("odd", "outcome"), [(0, "regression"), (1, "regression"), (2, "inconclusive"), (3, "inconclusive")]
)
def test_what_happens_now_and_then_takes_more_to_be_a_regression(odd: int, outcome: str) -> None:
    """One of the three re-runs is as ever: nights that were left out tell how often runs are slow by chance."""
    baseline = [*BASELINE[: 20 - odd], *at(*[0.02] * odd)]
    found = judged(at(0.02), at(0.02, 0.02, 0.0), baseline=baseline)
    assert found.verdict == outcome
    if outcome == "inconclusive":
        assert f"so are now and then nights of the baseline ({odd} of them)" in found.why
    assert judged(at(0.02), at(0.02, 0.02, 0.02), baseline=baseline).verdict == "regression"
    assert judged(at(0.08), at(0.08, 0.08, 0.0), baseline=baseline).verdict == "regression"
    assert judged(at(-0.02), at(-0.02, -0.02, 0.0), baseline=baseline).verdict == "improvement"


def test_what_was_confirmed_stands_while_tonight_alone_looks_the_same() -> None:
    slow, fast = at(0.02)[0], at(-0.02)[0]
    assert stands(BASELINE, slow, "lower", "regression") == "regression"
    assert stands(BASELINE, fast, "lower", "improvement") == "improvement"
    assert stands(BASELINE, fast, "higher", "regression") == "regression"
    assert stands(BASELINE, fast, "lower", "regression") is None
    assert stands(BASELINE, LEVEL, "lower", "regression") is None
    assert stands(BASELINE, slow, "lower", "inconclusive") is None
    assert stands(BASELINE, slow, "lower", None) is None


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("place", ["baseline", "recent", "confirmations", "since"])
def test_what_has_no_logarithm_is_refused_and_named(bad: float, place: str) -> None:
    given = {"baseline": BASELINE, "recent": at(0.0), "confirmations": at(0.0, 0.0, 0.0), "since": at(0.0)}
    given[place] = [*given[place][:-1], bad]
    with pytest.raises(RequestError) as refused:
        judge(given["baseline"], given["recent"], "lower", given["confirmations"], given["since"])
    assert repr(bad) in str(refused.value)
    assert f"value {len(given[place])}" in str(refused.value)


# --- what it could have seen ----------------------------------------------------------------------


def test_more_noise_hides_more() -> None:
    seen = [judged(at(0.0), baseline=nights(noise=n)).smallest_detectable_percent for n in (0.002, 0.005, 0.01)]
    assert seen == pytest.approx([0.76, 1.88, 3.77], rel=0.1)
    either = judge(BASELINE, at(0.0), "same").smallest_detectable_percent or 0
    assert either > (seen[0] or 0)


@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_four_of_five_first_nights_find_the_smallest_detectable_effect(noise: float) -> None:
    """Of the level whose noise is known; 1,000 nights, through screen and re-runs."""
    random, found = np.random.RandomState(11), 0
    detectable = judge(nights(noise=noise), at(0.0), "lower").smallest_detectable_percent or 0
    shift = math.log1p(detectable / 100)
    for _ in range(1000):
        logs = noise * random.standard_normal(24)
        logs[20:] += shift
        values = np.exp(logs).tolist()
        found += judge(values[:20], values[20:21], "lower", values[21:]).verdict == "regression"
    assert 0.74 <= found / 1000 <= 0.86


def test_the_power_allows_for_the_error_of_the_baseline() -> None:
    """Of ten nights, whose mean is a third of a night's noise off: drawn instead of integrated."""
    random, noise = np.random.RandomState(19), 0.01
    wanted = smallest_detectable(Level(0.0, noise, 10), G3, "lower") / noise
    error = math.sqrt(1 + 1 / 10)
    centres = random.standard_normal(400_000) / math.sqrt(10)
    tonight = wanted + random.standard_normal(400_000) - centres
    reruns = wanted + np.median(random.standard_normal((400_000, 3)), axis=1) - centres
    found = (tonight > quantile(0.95, 9) * error) & (reruns > quantile(0.995, 9) * error)
    assert found.mean() == pytest.approx(0.8, abs=0.004)


def test_the_variance_of_a_mean_without_its_extremes_is_as_simulated() -> None:
    random = np.random.RandomState(5)
    for count, variance in MEAN_VARIANCE.items():
        drawn = np.sort(random.standard_normal((100_000, count)), axis=1)
        inner = drawn[:, 1:-1] if count >= 3 else drawn
        assert inner.mean(axis=1).var() == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("count", [10, 15, 20])
def test_the_tail_of_the_test_is_what_it_says(count: int) -> None:
    """Clipping takes spread away; what is given back makes 5% be 5%, and 0.5% nearly 0.5%."""
    random = np.random.RandomState(13)
    drawn = random.standard_normal((10_000, count + 1))
    p = []
    for *base, tonight in (0.01 * drawn).tolist():
        found = level(base, G3)
        p.append(found.p(tonight - found.centre) if tonight > found.centre else 1.0)
    assert 0.04 <= np.mean(np.array(p) < 0.05) <= 0.06
    assert 0.003 <= np.mean(np.array(p) < 0.005) <= 0.008
