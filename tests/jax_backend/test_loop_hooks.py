"""What is done around the steps of MaxText's loop, with stand-ins for jax and the device."""

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from benchmarks.inside import worker_kit as kit
from jax_backend.inside import loop_hooks
from jax_backend.inside.loop_hooks import COMPILED, EMPTY_TRACE, PgleWatch

# --- slower steps ---------------------------------------------------------------------------------------


class Device:
    """Stands in for the module time as well: each step takes 1 s on it, one after another."""

    def __init__(self) -> None:
        self.now = 100.0
        self.begun: list[float] = []
        self.free_at = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def train_step(self, *_: Any) -> float:
        self.begun.append(max(self.now, self.free_at))
        self.free_at = self.begun[-1] + 1.0
        return self.free_at

    def wait_for(self, done_at: float) -> None:
        self.now = max(self.now, done_at)


@pytest.mark.parametrize(
    ("fraction", "behind", "between", "seconds"),
    [
        *((fraction, behind, 0.0, [1 + fraction] * 3) for fraction in (0.5, 2.0) for behind in (True, False)),
        (0.5, True, 0.25, [1.5] * 3),  # what the loop does between two steps hides behind one
        (0.5, True, 1.25, [1.875] * 2),  # what takes longer than a step makes it longer
    ],
)
def test_each_step_after_the_first_takes_as_much_longer(
    monkeypatch: pytest.MonkeyPatch, fraction: float, behind: bool, between: float, seconds: list[float]
) -> None:
    """Of a loop that asks for a step's end when the next one is begun (`behind`), as MaxText's, or at once."""
    device, ends = Device(), list[float]()
    monkeypatch.setattr(kit, "time", device)
    monkeypatch.setattr(loop_hooks, "time", device)
    slowed = loop_hooks.SlowedSteps(kit.Slowdown(fraction), device.wait_for)
    step = slowed.around(device.train_step)
    for number in range(4):
        step("state", "batch")
        if number or not behind:
            ends.append(slowed.end_of_next())
        device.sleep(between)
    ends += [slowed.end_of_next()] if behind else []
    took = [later - earlier for earlier, later in itertools.pairwise(ends)]
    assert took[: len(seconds)] == pytest.approx(seconds)
    assert ends[0] == device.begun[0] + max(1.0, between)
    assert all(begun >= end for begun, end in zip(device.begun[1:], ends, strict=False))


# --- jax's own PGLE -------------------------------------------------------------------------------------


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[..., None]]]:
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


def test_the_recompile_is_found_and_its_settling_left_out(said: list[Callable[..., None]]) -> None:
    watch = trained(said, {0, 3}, set(), 10)
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
        ({0, 1, 4}, set(), 10, 4, True, "in step 4"),  # one before the profile is whole is none of its own
        ({0}, set(), 10, None, False, "did not compile again in any of 10 steps"),
        ({0}, set(), 2, None, False, "any of 2 steps"),  # it was cut off
        ({3}, {1}, 10, 3, True, "1 of the traces were empty"),
        ({3}, {0, 1, 2}, 10, 3, False, "every trace was empty"),
    ],
)
def test_what_jax_did_is_told(
    said: list[Callable[..., None]],
    compiles: set[int],
    empty: set[int],
    steps: int,
    recompiled: int | None,
    applied: bool,
    words: str,
) -> None:
    watch = trained(said, compiles, empty, steps)
    seen = watch.seen()
    assert (seen["recompile_step"], seen["applied"], seen["empty_traces"]) == (recompiled, applied, len(empty))
    assert seen["profiled_steps"] == min(steps, 3)
    assert words in seen["reason"]
    if recompiled is None:
        assert {watch.reason_against(step) for step in range(1, 10)} == {"pgle"}
