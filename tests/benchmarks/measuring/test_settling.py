"""How often a run that drifts is called settled, and one that only varies still moving: simulated, with fixed seeds.

docs/measurements/2026-11-24-settling.md has a larger grid, measured at version 0.12.0.
"""

from itertools import product

import numpy as np
import pytest

from benchmarks.measuring import settling
from tests.benchmarks.measuring.settling_worlds import (
    MATTERS,
    Drift,
    Length,
    bound_holds,
    drawn,
    exponential,
    linear,
    no_drift,
    share,
    throttled,
    two_states,
)

SHORT, LONG, SLOW = Length(50, 4.5), Length(120, 4.5), Length(50, 20.0)
HIDING: dict[str, Drift] = {
    "8% over 225 s": linear(8, 225),
    "1% over 300 s": linear(1, 300),
    "1% over 600 s": linear(1, 600),
    "4%, exponential over 600 s": exponential(4, 600),
    "1% in the last third": throttled(1, 1 / 3),
    "3% in the last sixth": throttled(3, 1 / 6),
}


@pytest.mark.parametrize("noise", ["0.04%", "0.3%", "3%", "two scales"])
def test_noise_alone_does_not_move(noise: str) -> None:
    found = [one for length in (SHORT, LONG, SLOW) for one in drawn("none", no_drift(), noise, length)]
    assert share(found, "still moving") <= 0.05


@pytest.mark.parametrize("name", HIDING)
def test_a_run_whose_drift_puts_its_median_off_is_not_settled(name: str) -> None:
    found = [
        one
        for noise, length in product(("0.04%", "0.3%", "two scales"), (SHORT, LONG, SLOW))
        for one in drawn(name, HIDING[name], noise, length, runs=40)
        if one.off_percent >= MATTERS
    ]
    assert found
    assert share(found, "settled") <= 0.02
    holds, moving = bound_holds(found)
    assert holds >= 0.95 * moving
    # The negative control: settled as soon as the first steps are excluded, as up to version 0.11.0.
    assert all(one.window.excluded.get("settling") for one in found)


@pytest.mark.parametrize(
    ("drift", "noise", "length"),
    [
        (linear(8, 225), "0.3%", SHORT),
        (linear(2, 225), "0.1%", SHORT),
        (linear(2, 600), "0.3%", LONG),
        (throttled(1, 1 / 3), "0.3%", SHORT),
        (throttled(3, 1 / 12), "0.3%", LONG),
        (linear(1, 1000), "0.04%", Length(2000, 0.5)),  # the median is off by just under 0.5%
        (linear(1, 1000), "0.1%", Length(2000, 0.5)),
    ],
)
def test_what_can_be_seen_is_seen(drift: Drift, noise: str, length: Length) -> None:
    assert share(drawn("seen", drift, noise, length), "still moving") >= 0.85


@pytest.mark.parametrize(("noise", "length"), [("0.04%", SHORT), ("0.1%", LONG), ("0.3%", Length(300, 4.5))])
def test_a_run_that_is_long_enough_for_its_noise_is_settled(noise: str, length: Length) -> None:
    assert share(drawn("none", no_drift(), noise, length), "settled") >= 0.9


def test_a_run_that_is_too_short_for_its_noise_is_neither() -> None:
    for noise, length in (("0.3%", SHORT), ("0.04%", Length(500, 0.1)), ("3%", LONG)):
        assert share(drawn("none", no_drift(), noise, length), "too short") >= 0.95


@pytest.mark.parametrize(
    ("noise", "length"), [("0.1%", SHORT), ("0.3%", SHORT), ("0.3%", LONG), ("1%", LONG), ("0.1%", Length(500, 0.1))]
)
def test_as_many_steps_as_a_run_too_short_asks_for_mostly_tell(noise: str, length: Length) -> None:
    """Within a factor of two: the noise is known from 8 blocks."""
    short = [one.window for one in drawn("none", no_drift(), noise, length) if one.window.settling == "too short"]
    asked = int(np.median([window.steps_to_tell or 0 for window in short]))
    assert asked > length.steps
    assert share(drawn("more", no_drift(), noise, Length(2 * asked, length.seconds), runs=20), "settled") >= 0.7
    assert share(drawn("less", no_drift(), noise, Length(asked // 2, length.seconds), runs=20), "settled") <= 0.5


def test_a_machine_with_two_speeds_is_not_settled() -> None:
    found = drawn("two", two_states(3, 5), "0.1%", SHORT)
    assert share(found, "settled") <= 0.02


def test_the_text_for_a_run_whose_step_time_moves() -> None:
    """2% in 600 s is 0.2% a minute; at the middle of what counts, after 315 s, 0.95% of it are to come."""
    (one,) = drawn("said", linear(2, 600), "0.04%", Length(120, 5.0), runs=1)
    assert one.window.drift_percent_per_minute == pytest.approx(0.2, rel=0.1)
    assert one.window.median_off_percent == pytest.approx(0.95, rel=0.2)
    faster = drawn("said", linear(-2, 600), "0.04%", Length(120, 5.0), runs=1)[0].window
    assert faster.drift_percent_per_minute == pytest.approx(-0.2, rel=0.1)


def test_absurd_times_give_no_number_of_steps() -> None:
    assert settling.before_settling([1e-320] * 9).steps_to_tell is None
