"""Runs in turns, and runs of one side after the other: a trend within the day is no difference."""

import math
from functools import partial

import numpy as np
import pytest

from benchmarks.comparing.compare import compare
from benchmarks.comparing.intervals import between_sets, between_sets_in_order
from benchmarks.comparing.turns import adjusted_for_trend, in_turns, order_text, times_of
from benchmarks.comparing.values import Difference
from tests.benchmarks.comparing.made import figure, paired_runs, run, side
from tests.benchmarks.comparing.nights import in_order, rates

DRAWS = 300
BLOCKS, TURNS = ("AAABBB", "AAAAABBBBB"), ("ABABAB", "ABBAAB", "ABABABABAB")


@pytest.mark.parametrize("trend", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("order", BLOCKS + TURNS)
def test_a_trend_within_the_day_seldom_makes_a_verdict(order: str, trend: float) -> None:
    assert rates(partial(in_order, order=order, trend=trend), DRAWS, 3).without <= 0.075  # 5%, two standard errors


@pytest.mark.parametrize("order", ["AAABBBBBAA", "BBBAAAAAABBB"])
def test_one_side_in_the_middle_of_the_other_is_not_in_turns(order: str) -> None:
    """Slower in the middle of the day: taken for runs in turns, nearly half of these would make a verdict."""
    humps = rates(partial(in_order, order=order, trend=0.01, shape="up and down again"), DRAWS, 3)
    assert humps.without <= 0.085
    assert rates(partial(in_order, order=order, trend=0.0, effect=0.02), DRAWS, 3).without > 0.85


def test_sides_that_move_each_in_its_own_way_have_no_verdict() -> None:
    order = 10 * "A" + 10 * "B"
    assert rates(partial(in_order, order=order, trend=0.01, shape="a wave"), DRAWS, 3).none > 0.9
    assert rates(partial(in_order, order=order, trend=0.01), DRAWS, 3).none <= 0.08


def test_taken_for_runs_in_turns_the_same_runs_would_nearly_always_make_one() -> None:
    """The negative control."""
    random = np.random.RandomState(4)
    logs = random.normal(0.0, 0.003, (DRAWS, 10)) + np.linspace(0.0, 0.03, 10)
    false = [between_sets(list(one[:5]), list(one[5:])) for one in logs]
    assert sum((one.low or 0.0) > 0 for one in false) / DRAWS > 0.9


@pytest.mark.parametrize(("order", "seen"), [("AAAAABBBBB", 0.9), ("ABABAB", 0.95)])
def test_two_percent_is_seen_all_the_same(order: str, seen: float) -> None:
    assert rates(partial(in_order, order=order, trend=0.0, effect=0.02), DRAWS, 5).without > seen


def test_the_difference_adjusted_for_a_trend_is_that_of_least_squares() -> None:
    a, b, times = [0.0, 0.013, 0.018], [0.05, 0.041, 0.066, 0.07], ([0.0, 1.0, 3.0], [4.0, 5.0, 6.0, 9.0])
    of_b = [0.0] * 3 + [1.0] * 4
    design = np.column_stack([np.ones(7), of_b, np.concatenate(times)])
    coefficients, squares, *_ = np.linalg.lstsq(design, np.array(a + b), rcond=None)
    found = adjusted_for_trend(a, b, times)
    assert found is not None
    assert found[0] == pytest.approx(coefficients[1])
    error = math.sqrt(squares[0] / 4 * np.linalg.inv(design.T @ design)[1, 1])
    assert found[1] == pytest.approx(error, rel=0.2)  # one variance for both sides, there
    assert found[2] < 4


def test_runs_of_each_side_that_all_began_at_once_show_no_trend() -> None:
    found = between_sets_in_order([0.0, 0.01, 0.02], [1.0, 1.01, 1.02], ([0.0] * 3, [60.0] * 3))
    assert "A was run before B" in found.lacks


def test_a_trend_that_leaves_more_than_a_factor_of_two_open_is_not_taken_out() -> None:
    """Runs of minutes, hours apart: their trend would be carried on for hours."""
    times = ([0.0, 60.0, 120.0, 180.0], [36_000.0, 36_060.0, 36_120.0, 36_180.0])
    found = between_sets_in_order([0.0, 0.1, 0.05, 0.02], [0.1, 0.02, 0.13, 0.08], times)
    assert "A was run before B" in found.lacks
    assert found.half_width is not None
    assert found.half_width < math.log(2)


def test_a_difference_that_is_left_when_a_trend_is_taken_out_has_a_verdict_however_wide_its_interval() -> None:
    """4 runs against 3, of great noise: 5.4 times as slow is no trend; where nothing differs there is no verdict."""
    made = partial(in_order, order="AABABAB", noise=0.4)
    slower, equal = (
        rates(partial(made, trend=trend, effect=effect), DRAWS, 6) for trend, effect in ((0, 1.7), (1, 0))
    )
    assert slower.without > 0.8
    assert equal.without <= 0.075
    assert equal.none > 0.7


@pytest.mark.parametrize("trend", [0.0, 0.003, 0.01, 0.03])
def test_the_ratio_of_two_times_of_a_run_is_not_adjusted_and_seldom_has_a_false_verdict(trend: float) -> None:
    made = partial(in_order, order="AAAABBBB", trend=trend, of_ratio=True)
    assert rates(made, DRAWS, 3).without <= 0.075
    random, times = np.random.RandomState(1), ([0.0, 1.0, 3.0, 5.0], [2.0, 4.0, 6.0])
    a, b = (list(random.normal(0.0, 0.003, len(side)) + trend * np.array(side)) for side in times)
    assert between_sets_in_order(a, b, times, of_ratio=True).centre == between_sets(a, b).centre


def test_the_clock_of_each_day_begins_with_its_first_run() -> None:
    assert times_of([100.0, 130.0, 90_100.0, None], [1, 1, 2, 0]) == [0.0, 30.0, 0.0, 0.0]
    assert in_turns(([0.0, 30.0, 40.0, 70.0], [10.0, 20.0, 50.0, 60.0]))
    assert not in_turns(([0.0, 10.0, 50.0, 60.0], [20.0, 30.0, 40.0]))
    assert not in_turns(([0.0, 10.0, 20.0], [30.0, 40.0, 50.0]))


# --- as it is said --------------------------------------------------------------------------------


def at(minute: int) -> str:
    return f"20261122T06{minute:02}00Z-jax-llama2_tiny-pretrain-bf16-1xcpu-00{minute:02}"


def seconds_of(order: str, percent_a_run: float = 0.5) -> Difference:
    """Each run a little slower than the one before."""
    runs = [run(at(n), 1.0 + percent_a_run / 100 * n + 0.006 * (n % 3 == 1)) for n in range(len(order))]
    chosen = [[one for one, letter in zip(runs, order, strict=True) if letter == name] for name in "AB"]
    return figure(compare(side("A", *chosen[0]), side("B", *chosen[1])), "seconds/step")


def test_one_side_after_or_within_the_other_is_told_to_take_turns() -> None:
    found = seconds_of("AAAABBBB")
    assert found.verdict == "no difference shown"
    assert "A was run before B, and a trend within the day looks the same: run A and B in turns" in found.why
    assert "B was run before A" in seconds_of("BBBBAAAA").why
    assert "the runs of B began nearer the middle on average" in seconds_of("AAABBBBAA").why
    assert order_text(([0.0, 1.0, 3.0, 5.0], [2.0, 4.0, 6.0])) == "the runs of A began earlier on average"
    assert "in turns" not in seconds_of("ABABABAB").why


def test_repeats_of_which_one_cell_ran_later_are_no_pairs() -> None:
    early = [one._replace(nodes=()) for one in paired_runs("a", 0, [1.0, 1.001, 1.002])]
    late = [one._replace(nodes=()) for one in paired_runs("b", 1, [1.003, 1.004, 1.005])]
    named = [
        one._replace(name=at(n), result=run(at(n), 1.0 + 0.001 * n).result) for n, one in enumerate((*early, *late))
    ]
    found = figure(compare(side("A", *named[:3]), side("B", *named[3:])), "seconds/step")
    assert "common trend" in found.why


@pytest.mark.filterwarnings("error")
def test_runs_that_began_together_show_no_curve_of_their_own() -> None:
    found = adjusted_for_trend(
        [0.0, 0.01, 0.02, 0.01, 0.0], [0.5, 0.52, 0.51, 0.5], ([0.0] * 5, [60.0, 70.0, 80.0, 90.0])
    )
    assert found is not None and found.common
