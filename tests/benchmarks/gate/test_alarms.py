"""What the gate says after an alarm, and whether its forecasts come true, on synthetic nights with fixed seeds."""

import pytest

from benchmarks.gate.level import Level
from benchmarks.gate.rule import G3
from benchmarks.gate.self_test import LASTS, SEED, Count, course_of
from benchmarks.gate.sensitivity import nights_needed, unreachable
from benchmarks.gate.simulation import Case, Watched, World, watch

pytestmark = pytest.mark.slow(seconds=1)  # simulations


@pytest.mark.parametrize(
    ("noise", "effect", "said", "is_open"),
    [(0.002, 0.01, 0.95, 0.97), (0.005, 0.02, 0.9, 0.95), (0.01, 0.03, 0.6, 0.8)],
)
def test_a_lasting_regression_does_not_turn_green_by_itself(
    noise: float, effect: float, said: float, is_open: float
) -> None:
    found = course_of(noise, effect, G3, SEED, 150)
    for night in (20, 60):
        assert found.at(night, "regression").share >= said
        assert found.open(night).share >= is_open


def test_a_regression_that_is_mended_is_green_again_and_no_improvement() -> None:
    found = course_of(0.005, 0.02, G3, SEED, 150)
    assert found.at(LASTS + 1, "regression").share <= 0.15
    assert found.at(LASTS + 3, "regression").share <= 0.02
    assert found.after(LASTS, "improvement").share <= 0.05


def test_an_alarm_is_closed_after_mending_even_where_no_change_cannot_be_said() -> None:
    mended = watch(Case(World(0.01), 0.05, nights=60, lasts=20), G3, SEED, 60)
    assert sum(one.open[19] for one in mended) >= 58
    assert sum(one.open[-1] for one in mended) <= 3


def test_an_improvement_that_lasts_becomes_the_level_and_its_loss_a_regression() -> None:
    for noise, effect in ((0.005, -0.02), (0.01, -0.03)):
        lost = watch(Case(World(noise), effect, nights=50, lasts=40), G3, SEED, 60)
        assert sum(one.open[30] for one in lost) <= 3
        assert sum("regression" in one.verdicts[40:] for one in lost) >= 50


FORECAST_NIGHTS = 15


def level(one: Watched) -> Level:
    assert one.first.level is not None
    return one.first.level


def needed(one: Watched) -> int | None:
    return nights_needed(level(one), one.first.nights, G3)


def forecast(noise: float) -> tuple[Count, Count]:
    """Of inconclusive first nights: which forecasts of "no change" came true; which "unreachable" were reached."""
    seen = watch(Case(World(noise), nights=1 + G3.since_nights + G3.baseline_nights), G3, SEED, 200)
    undecided = [one for one in seen if one.verdicts[0] == "inconclusive"]

    def reached(some: list[Watched]) -> Count:
        within = [one for one in some if "no change" in one.verdicts[1 : 1 + (needed(one) or FORECAST_NIGHTS)]]
        return Count(count=len(within), of=len(some))

    numbered = reached([one for one in undecided if needed(one) is not None])
    never = [one for one in undecided if needed(one) is None and unreachable(level(one), one.first.nights, G3)]
    return numbered, reached(never)


@pytest.mark.parametrize(("noise", "least"), [(0.005, 0.9), (0.007, 0.8)])
def test_the_nights_that_no_change_takes_come_true(noise: float, least: float) -> None:
    reached, unreachable = forecast(noise)
    assert reached.of > 100
    assert reached.share >= least
    assert unreachable.of <= 0.02 * 200


def test_what_is_called_unreachable_is_seldom_reached() -> None:
    _, unreachable = forecast(0.01)
    assert unreachable.of >= 30
    assert unreachable.share <= 0.2
