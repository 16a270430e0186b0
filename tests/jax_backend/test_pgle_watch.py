"""The watch over jax's own PGLE, fed with what jax says; tests/end_to_end/test_pgle.py has it on the real jax."""

import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jax_backend.inside.pgle_watch import COMPILED, EMPTY_TRACE, PgleWatch


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[..., None]]]:
    """Stands in for jax.monitoring: those that listen."""
    listeners: list[Callable[..., None]] = []
    jax = types.ModuleType("jax")
    monitoring: Any = types.ModuleType("jax.monitoring")
    monitoring.register_event_duration_secs_listener = listeners.append
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax.monitoring", monitoring)
    jax.monitoring = monitoring  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.showwarning = lambda *_arguments, **_named: None
        yield listeners


def trained(
    listeners: list[Callable[..., None]], *, compiles: set[int], empty: set[int], steps: int = 10
) -> PgleWatch:
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


def test_the_recompile_is_found_and_its_settling_left_out(said: list[Callable[..., None]]) -> None:
    watch = trained(said, compiles={0, 3}, empty=set())
    assert watch.recompile_step == 3
    assert [watch.reason_against(step) for step in range(10)] == [None, *["pgle"] * 7, None, None]
    assert watch.seen() == {
        "applied": True,
        "reason": "jax profiled 3 steps and compiled again in step 3 (2.5 s)",
        "profiled_steps": 3,
        "empty_traces": 0,
        "recompile_step": 3,
    }


def test_a_compilation_before_the_profile_is_whole_is_none_of_its_own(said: list[Callable[..., None]]) -> None:
    assert trained(said, compiles={0, 1, 4}, empty=set()).recompile_step == 4


def test_without_a_recompile_no_step_counts(said: list[Callable[..., None]]) -> None:
    watch = trained(said, compiles={0}, empty=set())
    assert {watch.reason_against(step) for step in range(1, 10)} == {"pgle"}
    assert not watch.seen()["applied"]
    assert "did not compile again in any of 10 steps" in watch.seen()["reason"]


def test_a_run_that_was_cut_off_says_how_far_it_came(said: list[Callable[..., None]]) -> None:
    seen = trained(said, compiles={0}, empty=set(), steps=2).seen()
    assert (seen["profiled_steps"], seen["recompile_step"]) == (2, None)


def test_empty_traces_are_counted_and_all_of_them_prove_nothing(said: list[Callable[..., None]]) -> None:
    some = trained(said, compiles={3}, empty={1})
    said.clear()
    every = trained(said, compiles={3}, empty={0, 1, 2})
    assert (some.empty_traces, some.seen()["applied"]) == (1, True)
    assert "1 of the traces were empty" in some.seen()["reason"]
    assert (every.empty_traces, every.seen()["applied"]) == (3, False)
    assert "every trace was empty" in every.seen()["reason"]
