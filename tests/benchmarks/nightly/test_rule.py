"""The rule on nights whose answer is known; how often it is wrong is in tests/simulation."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nightly.rule import LEAST_NOISE, judge, level_of
from benchmarks.nightly.values import Direction, RuleVerdict, Suspicion
from benchmarks.verdict import Verdict

TABLES = yaml.safe_load(Path(__file__).with_name("rule.yml").read_text())


def nights(count: int = 20, noise: float = 0.002, seed: int = 7, centre: float = 4.0) -> list[float]:
    """Return nights of exactly this mean and spread."""
    logs = np.random.RandomState(seed).standard_normal(count)
    logs = noise * (logs - logs.mean()) / logs.std(ddof=1)
    return list((centre * np.exp(logs)).tolist())


BASELINE = nights()
LEVEL = math.exp(level_of([math.log(value) for value in BASELINE]).centre)


def at(*shares: float) -> list[float]:
    return [LEVEL * (1 + share) for share in shares]


def judged(
    latest: float, reruns: Sequence[float] | None = None, baseline: Sequence[float] = BASELINE, **others: object
) -> RuleVerdict:
    again = None if reruns is None else at(*reruns)
    return judge(baseline, at(latest), "lower", again, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(("noise", "latest", "reruns", "verdict", "suspicion"), TABLES["ways"])
def test_the_way_to_a_verdict(
    noise: float, latest: float, reruns: list[float] | None, verdict: str, suspicion: str
) -> None:
    found = judged(latest, reruns, nights(noise=noise))
    assert (found.verdict, found.suspicion) == (verdict, suspicion)


@pytest.mark.parametrize(
    ("direction", "change", "verdict"),
    [
        ("lower", 0.05, "worse"),
        ("lower", -0.05, "better"),
        ("higher", 0.05, "better"),
        ("higher", -0.05, "worse"),
        ("same", 0.05, "worse"),
        ("same", -0.05, "worse"),
    ],
)
def test_the_direction_of_a_figure_decides_what_is_worse(direction: Direction, change: float, verdict: str) -> None:
    assert judge(BASELINE, at(change), direction, at(change, change, change)).verdict == verdict


def test_three_nights_together_narrow_the_interval() -> None:
    baseline = nights(noise=0.005)
    assert judge(baseline, at(0.0025), "lower").verdict == "inconclusive"
    assert judge(baseline, at(0.0025, -0.0025, 0.0025), "lower").verdict == "same"


def test_identical_nights_have_the_least_noise() -> None:
    found = judge([4.0] * 20, [4.0], "lower")
    assert (found.noise_percent, found.verdict) == (100 * LEAST_NOISE, Verdict.SAME)
    assert judge([4.0] * 20, [4.0 * 1.02], "lower").suspicion is Suspicion.OPEN


@pytest.mark.parametrize("odd", [1.05, 100.0, 0.01])
def test_one_huge_outlier_in_the_baseline_hides_no_change(odd: float) -> None:
    found = judge([*BASELINE[:-1], 4.0 * odd], at(0.01), "lower")
    assert found.suspicion is Suspicion.OPEN
    assert found.baseline == pytest.approx(LEVEL, rel=1e-3)


@pytest.mark.parametrize("slow", [2, 3, 5])
def test_a_bimodal_baseline_is_noise_and_hides_changes(slow: int) -> None:
    logs = [math.log(value) for value in nights(10 - slow)] + [math.log(4.0 * 1.8)] * slow
    assert level_of(logs).deviation > 0.99 * np.std(logs, ddof=1)
    found = judge([math.exp(log) for log in logs], [4.0 * 1.8], "lower")
    assert (found.suspicion, found.verdict) == (Suspicion.NONE, Verdict.INCONCLUSIVE)
    assert (found.smallest_detectable_percent or 0) > 100


@given(st.lists(st.floats(1e-3, 1e3), min_size=10, max_size=20), st.floats(1e-3, 1e3), st.floats(0.01, 100))
def test_a_verdict_does_not_depend_on_the_unit(baseline: list[float], latest: float, unit: float) -> None:
    found = judge(baseline, [latest], "lower")
    scaled = judge([unit * value for value in baseline], [unit * latest], "lower")
    assert found.effect_percent == pytest.approx(scaled.effect_percent, rel=1e-3, abs=1e-6)
    assert found.noise_percent == pytest.approx(scaled.noise_percent, rel=1e-3)


# --- the statistics -------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_about_four_of_five_first_nights_find_the_smallest_detectable_change(noise: float) -> None:
    random, found = np.random.RandomState(11), 0
    shift = math.log1p((judged(0.0, baseline=nights(noise=noise)).smallest_detectable_percent or 0) / 100)
    for _ in range(500):
        logs = noise * random.standard_normal(24)
        logs[20:] += shift
        values = np.exp(logs).tolist()
        found += judge(values[:20], values[20:21], "lower", values[21:]).verdict is Verdict.WORSE
    assert 0.75 <= found / 500 <= 0.92


@pytest.mark.parametrize("count", [10, 15, 20])
def test_the_tail_of_the_test_is_as_stated(count: int) -> None:
    """Clipping narrows the spread; the correction makes 5% be 5%, and 0.5% nearly 0.5%."""
    drawn = 0.01 * np.random.RandomState(13).standard_normal((10_000, count + 1))
    p = []
    for *base, latest in drawn.tolist():
        found = level_of(base)
        p.append(found.p(latest - found.centre) if latest > found.centre else 1.0)
    assert 0.04 <= np.mean(np.array(p) < 0.05) <= 0.06
    assert 0.003 <= np.mean(np.array(p) < 0.005) <= 0.008
