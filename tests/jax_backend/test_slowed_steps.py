"""Steps that are made longer, on a device that runs on while nobody waits for it; a real one is end to end."""

import importlib.util
import itertools
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from jax_backend import slowed_steps

KIT = Path(__file__).resolve().parents[2] / "benchmarks" / "worker_kit.py"


@pytest.fixture
def kit() -> Any:
    spec = importlib.util.spec_from_file_location("stepmark_kit_of_slowed_steps", KIT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def ends_of(
    kit: Any, monkeypatch: pytest.MonkeyPatch, fraction: float, between: float = 0.0
) -> tuple[list[float], Device]:
    device, ended = Device(), deque[float]()
    monkeypatch.setattr(kit, "time", device)
    monkeypatch.setattr(slowed_steps, "time", device)
    step = slowed_steps.around(device.train_step, kit.Slowdown(fraction), ended, device.wait_for)
    for _ in range(4):
        step("state", "batch")
        device.sleep(between)
    return list(ended), device


def seconds_of(ends: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


@pytest.mark.parametrize("fraction", [0.5, 2.0])
def test_each_step_after_the_first_takes_as_much_longer(
    kit: Any, monkeypatch: pytest.MonkeyPatch, fraction: float
) -> None:
    ends, device = ends_of(kit, monkeypatch, fraction)
    assert ends[0] == device.begun[0] + 1.0
    assert seconds_of(ends) == pytest.approx([1 + fraction] * 3)


def test_no_step_begins_before_the_one_before_is_over(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, device = ends_of(kit, monkeypatch, 0.5)
    assert device.begun[1:] == ends[:-1]


def test_what_the_loop_does_between_two_steps_is_not_made_longer(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is slowed it hides behind the running step; here it has its place in the wait."""
    ends, _ = ends_of(kit, monkeypatch, 0.5, between=0.25)
    assert seconds_of(ends) == pytest.approx([1.5] * 3)


def test_the_framework_has_its_step_back_as_it_was(kit: Any) -> None:
    made = object()
    step = slowed_steps.around(lambda *words: (made, words), kit.Slowdown(0.5), deque(), lambda _made: None)
    assert step("state", "batch") == (made, ("state", "batch"))
