"""The promised rates of the nightly rule and of comparisons, at a small size; tests/simulate.py prints all."""

import numpy as np
import pytest

from tests.simulation import comparisons
from tests.simulation.rates import SEED, lines
from tests.simulation.table import share

pytestmark = pytest.mark.slow(seconds=10)


def test_the_rule_keeps_its_promises() -> None:
    found = list(lines(30, np.random.default_rng(SEED)))
    assert sum(line.holds is True for line in found) >= 20
    assert [line for line in found if line.holds is False] == []


def test_equal_sides_are_seldom_called_better_or_worse() -> None:
    found = list(comparisons.lines(500, np.random.default_rng(SEED)))
    assert len(found) == 2 * len(comparisons.EQUAL_SIDES) + 1
    assert [line for line in found if line.holds is False] == []


def test_a_share_breaks_a_goal_that_chance_hardly_would() -> None:
    """Alarms of one history count as one piece of evidence."""
    assert share([True] + 99 * [False]).at_most(0.003)
    assert not share(10 * [True] + 90 * [False]).at_most(0.003)
    assert share(93 * [True] + 7 * [False]).at_least(0.95)
    assert not share(80 * [True] + 20 * [False]).at_least(0.95)
    nights = np.zeros((20, 10), dtype=bool)
    nights[0] = True
    assert share(nights).at_most(0.01)
    nights = np.zeros((20, 10), dtype=bool)
    nights[:10, 0] = True
    assert not share(nights).at_most(0.01)
