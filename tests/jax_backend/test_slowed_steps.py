"""Steps that are made longer, in a loop that would hide a sleep behind the next step; a real one is end to end."""

import importlib.util
import itertools
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from jax_backend.slowed_steps import around

KIT = Path(__file__).resolve().parents[2] / "benchmarks" / "worker_kit.py"
STEP_SECONDS = 0.04


@pytest.fixture(scope="module")
def kit() -> Any:
    spec = importlib.util.spec_from_file_location("stepmark_kit_of_slowed_steps", KIT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Device:
    """Runs one step after another, and lets nobody wait who does not ask."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.free_at = 0.0

    def train_step(self, *_: Any) -> float:
        self.begun.append(max(time.perf_counter(), self.free_at))
        self.free_at = self.begun[-1] + STEP_SECONDS
        return self.free_at

    def wait_for(self, done_at: float) -> None:
        time.sleep(max(0.0, done_at - time.perf_counter()))


def ends_of(kit: Any, fraction: float, between: float = 0.0, steps: int = 6) -> tuple[list[float], Device]:
    device, ended = Device(), deque[float]()
    step = around(device.train_step, kit.Slowdown(fraction), ended, device.wait_for)
    for _ in range(steps):
        step("state", "batch")
        time.sleep(between)
    return list(ended), device


def seconds_of(ends: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


@pytest.mark.parametrize("fraction", [0.5, 2.0])
def test_each_step_after_the_first_takes_as_much_longer(kit: Any, fraction: float) -> None:
    ends, device = ends_of(kit, fraction)
    assert ends[0] == pytest.approx(device.begun[0] + STEP_SECONDS, abs=STEP_SECONDS / 4)
    wanted = (1 + fraction) * STEP_SECONDS
    assert sorted(seconds_of(ends))[2] == pytest.approx(wanted, rel=0.15)


def test_no_step_begins_before_the_one_before_is_over(kit: Any) -> None:
    ends, device = ends_of(kit, 0.5)
    assert all(begun >= end for begun, end in zip(device.begun[1:], ends, strict=False))


def test_what_the_loop_does_between_two_steps_is_not_made_longer(kit: Any) -> None:
    """Where nothing is slowed it hides behind the running step; here it has its place in the wait."""
    ends, _ = ends_of(kit, 0.5, between=STEP_SECONDS / 4)
    assert sorted(seconds_of(ends))[2] == pytest.approx(1.5 * STEP_SECONDS, rel=0.15)


def test_the_framework_has_its_step_back_as_it_was(kit: Any) -> None:
    made = object()
    step = around(lambda *words: (made, words), kit.Slowdown(0.5), deque(), lambda _made: None)
    assert step("state", "batch") == (made, ("state", "batch"))
