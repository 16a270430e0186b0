"""Days and their noise: what runs of one day share is no proof that two sides differ. Much of it by simulation."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.comparing.compare import compare
from benchmarks.comparing.days import Timed, days_of, left_out, noise_of, spread, started_at
from benchmarks.comparing.intervals import Estimate
from tests.benchmarks.comparing.made import entry, figure, run, side
from tests.benchmarks.comparing.nights import NIGHT, Machine, Rates, compared, machine, rates

DRAWS = 400
Make = Callable[[Machine], Estimate]


def said(make: Make, night_noise: float = 0.002, run_noise: float = 0.002, draws: int = DRAWS) -> Rates:
    return rates(lambda random: make(machine(random, night_noise, run_noise)), draws, 31)


# --- days ---------------------------------------------------------------------------------------


def test_a_night_over_midnight_is_one_day_and_unknown_times_are_one() -> None:
    night = [started_at(f"20261121T{clock}00Z-jax-x") for clock in ("2210", "2355")]
    later = started_at("20261122T030000Z-jax-x")
    next_night = started_at("20261122T221000Z-jax-x")
    assert days_of([next_night, *night, later, None, None]) == [2, 1, 1, 1, 0, 0]
    assert started_at("a-run-of-another-name") is None


def test_what_the_spread_of_runs_shows_of_days_is_not_left_out() -> None:
    assert left_out([1, 2, 3], [4, 5, 6]) == 0  # each run has a day of its own
    assert left_out([1, 1, 1], [1, 1, 1]) == 0
    assert left_out([1, 1, 1], [2, 2, 2]) == 2
    assert 0 < left_out([1, 1, 2, 2], [3, 3, 4, 4]) < 1


# --- noise --------------------------------------------------------------------------------------


def nightly(logs: list[float]) -> list[Timed]:
    return [Timed(log, NIGHT * number) for number, log in enumerate(logs)]


@pytest.mark.parametrize("shift", [0.05, -0.02])
def test_a_lasting_shift_of_the_past_is_no_noise(shift: float) -> None:
    random = np.random.RandomState(6)
    logs = [float(one) + (shift if n >= 12 else 0.0) for n, one in enumerate(random.normal(0.0, 0.003, 20))]
    noise = noise_of([nightly(logs)])
    assert noise.between is not None
    assert math.sqrt(noise.between.variance) < 0.005


def test_a_disturbed_night_counts_as_less_far_and_a_machine_of_two_kinds_counts_whole() -> None:
    random = np.random.RandomState(7)
    calm = [float(one) for one in random.normal(0.0, 0.002, 20)]
    few = noise_of([nightly([*calm[:10], 0.5, *calm[11:]])])
    assert few.between is not None
    assert math.sqrt(few.between.variance) < 0.005
    many = spread([[one + (0.05 if n % 4 == 0 else 0.0) for n, one in enumerate(calm)]])
    assert many is not None
    assert math.sqrt(many.variance) > 0.02


def test_a_difference_is_found_though_the_past_had_a_shift() -> None:
    """Beside 20 earlier nights of 0.3% noise, of which the last half is 5% slower."""

    def make(machine: Machine) -> Estimate:
        earlier = machine.runs(range(10), 1) + machine.runs(range(10, 20), 1, effect=0.05)
        return compared(machine.runs([30], 1), machine.runs([31], 1, effect=0.02), earlier)

    assert said(make, night_noise=0.003, run_noise=1e-9, draws=100).without > 0.95


# --- two sides ----------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [3, 10])
def test_sides_of_one_night_each_have_no_verdict_where_nothing_says_how_nights_differ(each: int) -> None:
    assert said(lambda m: compared(m.runs([1], each), m.runs([2], each))).none == 1.0
    assert said(lambda m: compared(m.runs([1], each), m.runs([2], each), m.runs([0], 20))).none == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda m: compared(m.runs([41], 10), m.runs([42], 10), m.runs(range(10), 1)),
        lambda m: compared(m.runs([41], 3), m.runs([42], 3), m.runs(range(5), 1)),
        lambda m: compared(m.runs([41], 10), m.runs([42], 10), m.runs(range(20), 3)),
        lambda m: compared(m.runs([41, 42], 5), m.runs([42, 43], 5), m.runs(range(10), 1)),
        lambda m: compared(m.runs([41, 42, 43], 3), m.runs([44, 45, 46], 3)),
        lambda m: compared(m.runs(range(41, 51), 1), m.runs([52], 3)),
        lambda m: compared(m.runs([41], 10), m.runs([41], 10)),
        lambda m: compared(m.runs([41, 42], 5), m.runs([41, 42], 5)),
        lambda m: compared(m.runs([41], 1), m.runs([42], 1), m.runs(range(10), 3)),
        lambda m: compared(m.runs([41], 2), m.runs([42], 1), m.runs(range(10), 2)),
        lambda m: compared(m.runs([41], 1), m.runs([41], 1), m.runs([0], 5)),
        lambda m: compared(m.runs([41], 1), m.runs([41], 1), m.runs(range(10), 1)),
    ],
)
def test_nights_that_differ_by_chance_seldom_make_a_verdict(make: Make) -> None:
    found = said(make)
    assert found.without <= 0.075  # 5%, and two standard errors
    assert found.none <= 0.05  # by chance, the runs of each side seem to have a trend of their own


def test_runs_in_turns_see_what_runs_of_two_nights_can_not() -> None:
    assert said(lambda m: compared(m.runs([1], 10), m.runs([1], 10, 0.01))).without > 0.95
    assert said(lambda m: compared(m.runs([1, 2], 5), m.runs([1, 2], 5, 0.01))).without > 0.95
    assert said(lambda m: compared(m.runs([31], 10), m.runs([32], 10, 0.02), m.runs(range(20), 3))).without > 0.95


# --- what is said ---------------------------------------------------------------------------------


def named(day: int, number: int) -> str:
    return f"202611{day:02}T06{number:02}00Z-jax-llama2_tiny-pretrain-bf16-1xcpu-{day:02}{number:02}"


def test_sides_of_different_days_say_what_is_missing_and_what_would_explain_it() -> None:
    a = side("A", *(run(named(1, n), 1.0 + 0.0001 * n) for n in range(3)))
    b = side("B", *(run(named(2, n), 1.02 + 0.0001 * n) for n in range(3)))
    one = figure(compare(a, b), "seconds/step")
    assert one.verdict == "no verdict"
    assert "A and B were made on different days" in one.why
    earlier = [entry(named(10 + n, 0), 1.0 + 0.001 * (n % 3)) for n in range(8)]
    known = [entry(named(1, 0), 1.0)]
    with_days = figure(compare(a, b, history=lambda: [*earlier, *known]), "seconds/step")
    assert with_days.verdict == "worse"
    assert "the noise from day to day, 0.083%, of 8 runs of the same kind on 8 days" in with_days.why
