"""The weekly sweep on series whose changes are known."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.errors import RequestError
from benchmarks.gate.change_points import change_points
from benchmarks.gate.self_test import SEED
from benchmarks.gate.simulation import World, sweep_finds


def series(nights: int, noise: float, changes: Sequence[tuple[int, float]], seed: int = 3) -> list[float]:
    """Each change is the night from which on the level is another one, and by what share."""
    logs = noise * np.random.RandomState(seed).standard_normal(nights)
    for night, share in changes:
        logs[night:] += math.log1p(share)
    return [float(value) for value in 4.0 * np.exp(logs)]


def test_a_lasting_change_is_found_with_its_size() -> None:
    (found,) = change_points(series(60, 0.003, [(35, 0.02)]))
    assert found.position == 35
    assert found.percent == pytest.approx(2.0, abs=0.3)
    assert found.p == 0.001


def test_several_changes_of_either_sign_are_found_in_order() -> None:
    found = change_points(series(120, 0.003, [(40, 0.03), (70, -0.02), (95, 0.03)]))
    assert [change.position for change in found] == pytest.approx([40, 70, 95], abs=1)
    assert [change.percent for change in found] == pytest.approx([3.0, -2.0, 3.0], abs=0.4)


def test_a_change_below_half_a_percent_is_not_told() -> None:
    values = series(150, 0.001, [(70, 0.004)])
    assert change_points(values) == []
    assert [change.position for change in change_points(values, smallest=0.002)] == [70]


def test_without_a_small_change_its_neighbours_are_measured_anew() -> None:
    values = series(150, 0.001, [(50, 0.02), (100, 0.003)])
    assert len(change_points(values, smallest=0.001)) == 2
    (found,) = change_points(values)
    assert found.position == 50
    assert found.percent == pytest.approx(2.15, abs=0.1)


def test_one_night_far_off_is_no_change_and_hides_none() -> None:
    values = series(50, 0.003, [])
    values[20] *= 1.5
    assert change_points(values) == []
    values = series(50, 0.003, [(30, 0.01)])
    for odd in (5, 17, 40):
        values[odd] *= 2.0
    (found,) = change_points(values)
    assert found.position == pytest.approx(30, abs=1)


def test_a_change_near_either_end_needs_five_nights() -> None:
    assert change_points(series(40, 0.001, [(39, 0.05)])) == []
    assert [change.position for change in change_points(series(40, 0.001, [(37, 0.05)]))] in ([], [35])
    assert [change.position for change in change_points(series(40, 0.001, [(35, 0.05)]))] == [35]
    assert [change.position for change in change_points(series(40, 0.001, [(5, 0.05)]))] == [5]


@pytest.mark.parametrize("values", [[], [4.0], [4.0] * 9, [4.0] * 40])
def test_nothing_to_find(values: list[float]) -> None:
    assert change_points(values) == []


def test_the_unit_does_not_matter_and_neither_does_which_way_is_up() -> None:
    values = series(60, 0.003, [(35, 0.02)])
    plain = change_points(values)
    assert [(c.position, c.p) for c in change_points([1000 * value for value in values])] == [
        (c.position, c.p) for c in plain
    ]
    turned = change_points([1 / value for value in values])
    assert [c.position for c in turned] == [c.position for c in plain]
    assert 1 + turned[0].percent / 100 == pytest.approx(1 / (1 + plain[0].percent / 100))


def test_what_has_no_logarithm_is_refused() -> None:
    with pytest.raises(RequestError, match="cannot judge"):
        change_points([4.0] * 10 + [0.0])


def test_false_changes_are_as_rare_as_p_says() -> None:
    """400 series of 60 nights without any change: each is split in 1 of 1,000 cases, at p = 0.05 in 50."""
    logs = np.random.RandomState(17).standard_normal((400, 60))
    values = np.exp(0.003 * logs).tolist()
    assert sum(bool(change_points(row)) for row in values) <= 3
    often = sum(bool(change_points(row, p=0.05, smallest=1e-9)) for row in values)
    assert 8 <= often <= 34


def test_on_nights_as_real_ones_it_finds_what_the_documentation_says() -> None:
    assert sweep_finds(World(0.005), 0.0, SEED, 100) <= 1
    assert sweep_finds(World(0.002), 0.01, SEED, 20) >= 18
    assert sweep_finds(World(0.005), 0.01, SEED, 20) >= 14
