"""When a worker evaluates, and what it writes down."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.inside.goal import Evaluations, Goal

GOAL = Goal(target=3.3, first=24, every=12, batches=8, sequences=16)


class Events(list[dict[str, Any]]):
    def write(self, event: str, **fields: Any) -> None:
        self.append({"event": event, **fields})


def test_it_is_looked_at_first_and_then_every_so_many_steps() -> None:
    assert [step for step in range(61) if GOAL.due(step)] == [24, 36, 48, 60]


@given(st.floats(1e-6, 1e6), st.lists(st.integers(1, 10**9), min_size=4, max_size=4))
def test_a_goal_reads_back_from_its_text(target: float, counts: list[int]) -> None:
    goal = Goal(target, *counts)
    assert Goal.parse(goal.text()) == goal


@pytest.mark.parametrize(
    ("loss", "met"),
    [(3.3, True), (3.2999, True), (3.3001, False), (math.nan, False), (-math.inf, False), (None, False)],
)
def test_the_target_is_met_by_a_finite_loss_of_it_or_less(loss: float | None, met: bool) -> None:
    assert GOAL.met(loss) is met


def test_the_first_rank_writes_what_all_find() -> None:
    first, other = Events(), Events()
    assert not Evaluations(GOAL, first, writes=True).take(24, 0.5, 3.4)
    assert Evaluations(GOAL, other, writes=False).take(36, 0.5, 3.3)
    (event,) = first
    assert {**event, "ended_unix": None} == {
        "event": "evaluation", "steps": 24, "sequences": 384, "loss": 3.4, "seconds": 0.5, "ended_unix": None,
    }  # fmt: skip
    assert other == []
