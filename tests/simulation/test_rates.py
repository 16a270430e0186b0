"""The promised rates of the nightly rule and of comparisons, at a small size; tests/simulate.py prints all."""

import numpy as np
import pytest

from tests.simulation import comparisons
from tests.simulation.rates import SEED, lines

pytestmark = pytest.mark.slow(seconds=10)


def test_the_rule_keeps_its_promises() -> None:
    found = list(lines(30, np.random.default_rng(SEED)))
    assert sum(line.holds is True for line in found) >= 20
    assert [line for line in found if line.holds is False] == []


def test_equal_sides_are_seldom_called_better_or_worse() -> None:
    found = list(comparisons.lines(500, np.random.default_rng(SEED)))
    assert len(found) == 2 * len(comparisons.EQUAL_SIDES) + 1
    assert [line for line in found if line.holds is False] == []
