"""The promised rates of the nightly rule, at a small size; `python tests/simulate.py` prints the full table."""

import numpy as np
import pytest

from tests.simulation.rates import SEED, lines

pytestmark = pytest.mark.slow(seconds=10)


def test_the_rule_keeps_its_promises() -> None:
    found = list(lines(30, np.random.default_rng(SEED)))
    assert sum(line.holds is True for line in found) >= 20
    assert [line for line in found if line.holds is False] == []
