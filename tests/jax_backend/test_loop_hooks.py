"""What is done around the steps of MaxText's loop, with stand-ins for jax and the device."""

import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.inside import worker_kit as kit
from jax_backend.inside import loop_hooks
from jax_backend.inside.loop_hooks import COMPILED, EMPTY_TRACE, PgleWatch

# --- slower steps ---------------------------------------------------------------------------------------


def test_each_step_is_begun_when_the_one_before_is_done_and_slept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a loop that reads a step's end when the next one has begun, like MaxText's."""
    clock = SimpleNamespace(now=100.0, perf_counter=lambda: clock.now)
    clock.sleep = lambda seconds: vars(clock).update(now=clock.now + seconds)
    monkeypatch.setattr(kit, "time", clock)
    monkeypatch.setattr(loop_hooks, "time", clock)
    slowed = loop_hooks.SlowedSteps(kit.Slowdown(0.5), lambda done_at: vars(clock).update(now=done_at))
    step, ends = slowed.around(lambda: clock.now + 1.0), []  # a device on which a step takes 1 s
    for number in range(4):
        step()
        ends += [slowed.end_of_next()] if number else []
    assert [*ends, slowed.end_of_next()] == [101.0, 102.5, 104.0, 105.5]


# --- jax's own PGLE -------------------------------------------------------------------------------------


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[..., None]]]:
    """Stands in for jax.monitoring: those that listen."""
    listeners: list[Callable[..., None]] = []
    jax, monitoring = ModuleType("jax"), ModuleType("jax.monitoring")
    monitoring.__dict__["register_event_duration_secs_listener"] = listeners.append
    jax.__dict__["monitoring"] = monitoring
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax.monitoring", monitoring)
    with warnings.catch_warnings():
        warnings.showwarning = lambda *_arguments, **_named: None
        yield listeners


def trained(listeners: list[Callable[..., None]], compiles: set[int], empty: set[int], steps: int) -> Any:
    """A run in which jax compiles in some steps, and warns of empty traces in some."""
    watch = PgleWatch(runs=3, settling=4)
    at = {"step": 0}

    def train_step() -> int:
        if at["step"] in compiles:
            listeners[0](COMPILED, 2.5, fun_name="jit(train_step)")
        if at["step"] in empty:
            warnings.warn(f"{EMPTY_TRACE}, may be due to contention", RuntimeWarning, stacklevel=1)
        return at["step"]

    step = watch.around(train_step)
    for at["step"] in range(steps):
        listeners[0](COMPILED, 0.1, fun_name="jit(another)")  # outside the training step
        assert step() == at["step"]
    return watch


def test_the_recompile_is_found_and_its_settling_left_out(registered: list[Callable[..., None]]) -> None:
    watch = trained(registered, {0, 3}, set(), 10)
    assert [watch.reason_against(step) for step in range(10)] == [None, *["pgle"] * 7, None, None]
    assert watch.seen() == {
        "applied": True,
        "reason": "jax profiled 3 steps and compiled again in step 3 (2.5 s)",
        "profiled_steps": 3,
        "empty_traces": 0,
        "recompile_step": 3,
    }


@pytest.mark.parametrize(
    ("compiles", "empty", "steps", "recompiled", "applied", "words"),
    [
        ({0, 1, 4}, set(), 10, 4, True, "in step 4"),  # one before the profile is complete does not use it
        ({0}, set(), 10, None, False, "of 10 steps, but did not"),
        ({0}, set(), 2, None, False, "of 2 steps, but did not"),  # it was cut off
        ({3}, {1}, 10, 3, True, "1 of the traces were empty"),
        ({3}, {0, 1, 2}, 10, 3, False, "every trace was empty"),
    ],
)
def test_the_actions_of_jax_are_reported(
    registered: list[Callable[..., None]],
    compiles: set[int],
    empty: set[int],
    steps: int,
    recompiled: int | None,
    applied: bool,
    words: str,
) -> None:
    watch = trained(registered, compiles, empty, steps)
    seen = watch.seen()
    assert (seen["recompile_step"], seen["applied"], seen["empty_traces"]) == (recompiled, applied, len(empty))
    assert seen["profiled_steps"] == min(steps, 3)
    assert words in seen["reason"]
    if recompiled is None:
        assert {watch.reason_against(step) for step in range(1, 10)} == {"pgle"}
