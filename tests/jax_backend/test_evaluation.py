"""When MaxText's loop is interrupted by an evaluation, and how it ends at the target; jax stands in here."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.inside.goal import Evaluations, Goal
from jax_backend.inside import evaluation as jax_evaluation


@pytest.fixture
def evaluation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(block_until_ready=lambda state: state))
    return jax_evaluation


class Clock:
    def __init__(self) -> None:
        self.ends: dict[int, float] = {}
        self.paused: list[int] = []

    def pause(self, step: int, seconds: float) -> None:
        assert seconds >= 0
        self.paused.append(step)


@pytest.mark.parametrize(("losses", "trained"), [([4.0, 3.5, 3.3], 8), ([4.0, 3.5, 3.4], 10)])
def test_it_evaluates_when_due_and_ends_after_the_step_that_reached_the_target(
    evaluation: ModuleType, monkeypatch: pytest.MonkeyPatch, losses: list[float], trained: int
) -> None:
    found = iter(losses)
    monkeypatch.setattr(evaluation, "evaluation_loss", lambda *_: next(found))
    events: list[dict[str, Any]] = []
    writer = SimpleNamespace(write=lambda event, **fields: events.append({"event": event, **fields}))
    evaluations = Evaluations(Goal(3.3, 4, 2, 1, 16), writer, writes=True)
    clock, steps = Clock(), {"steps": 10}
    loop = evaluation.between_steps(lambda *_: "metrics", evaluations, clock)
    variables: dict[str, Any] = {"step": 0, "eval_data_iterator": None}
    while variables["step"] < steps["steps"]:  # as MaxText's own loop does
        if variables["step"] == 9 and len(events) == 3:
            break  # the third was the last of the given losses
        assert loop({"state": "state"}, variables, steps) == "metrics"
        variables["step"] += 1
    assert [event["steps"] for event in events] == [4, 6, 8]
    assert clock.paused == sorted(clock.ends) == [3, 5, 7]
    assert steps["steps"] == trained
