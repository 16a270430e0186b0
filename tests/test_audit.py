"""The audit of the figures, at its small size: which claims hold, and that it can tell those that do not."""

import numpy as np
import pytest

from tests.audit import PARTS, audit
from tests.auditing.table import Line, Size, at_least, at_most, found_in, markdown, share

pytestmark = pytest.mark.slow(seconds=10)  # simulations


@pytest.mark.parametrize("part", PARTS)
def test_claims_hold(part: str) -> None:
    lines = audit([part], Size(full=False))
    assert lines
    assert [line for line in lines if line.holds is False] == []


def test_a_share_breaks_a_goal_where_chance_hardly_would() -> None:
    rare, often = share([True] + 99 * [False]), share(10 * [True] + 90 * [False])
    assert at_most("part", "claim", rare, 0.003).holds
    assert not at_most("part", "claim", often, 0.003).holds
    assert at_least("part", "claim", share(93 * [True] + 7 * [False]), 0.95).holds
    assert not at_least("part", "claim", share(80 * [True] + 20 * [False]), 0.95).holds


def test_alarms_of_one_history_count_as_one_piece_of_evidence() -> None:
    """Ten alarms in a row say no more than one history that went wrong."""
    nights = np.zeros((20, 10), dtype=bool)
    nights[0] = True
    assert share(nights).at_most(0.01)
    nights = np.zeros((20, 10), dtype=bool)
    nights[:10, 0] = True
    assert not share(nights).at_most(0.01)


def test_an_earlier_table_stands_beside() -> None:
    line = Line("gate", "false alarms", "at most 1%", "2%", False)
    table = markdown([line])
    assert found_in(table) == {("gate", "false alarms"): "2%"}
    beside = markdown([line._replace(found="3%", holds=True)], found_in(table))
    assert "| at most 1% | 2% | 3% | holds |" in beside
    assert found_in(beside) == found_in(table)
