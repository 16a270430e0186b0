"""Steps that are made longer, on a device that runs on while nobody waits for it; a real one is end to end."""

import itertools
from typing import Any

import pytest

from benchmarks.inside import worker_kit as kit
from jax_backend.inside import slowed_steps


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
    monkeypatch: pytest.MonkeyPatch, fraction: float, between: float = 0.0, behind: bool = True
) -> tuple[list[float], Device]:
    """Of a loop that asks for a step's end when the next one is begun (`behind`), as MaxText's, or at once."""
    device, ends = Device(), list[float]()
    monkeypatch.setattr(kit, "time", device)
    monkeypatch.setattr(slowed_steps, "time", device)
    slowed = slowed_steps.SlowedSteps(kit.Slowdown(fraction), device.wait_for)
    step = slowed.around(device.train_step)
    for number in range(4):
        step("state", "batch")
        if number or not behind:
            ends.append(slowed.end_of_next())
        device.sleep(between)
    return [*ends, *([slowed.end_of_next()] if behind else [])], device


def seconds_of(ends: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("fraction", [0.5, 2.0])
def test_each_step_after_the_first_takes_as_much_longer(
    monkeypatch: pytest.MonkeyPatch, fraction: float, behind: bool
) -> None:
    ends, device = ends_of(monkeypatch, fraction, behind=behind)
    assert ends[0] == device.begun[0] + 1.0
    assert seconds_of(ends) == pytest.approx([1 + fraction] * 3)


def test_no_step_begins_before_the_one_before_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    ends, device = ends_of(monkeypatch, 0.5)
    assert device.begun[1:] == ends[:-1]


def test_what_the_loop_does_between_two_steps_hides_behind_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does where nothing is slowed; what takes longer than a step makes it longer."""
    ends, _ = ends_of(monkeypatch, 0.5, between=0.25)
    assert seconds_of(ends) == pytest.approx([1.5] * 3)
    ends, _ = ends_of(monkeypatch, 0.5, between=1.25)
    assert seconds_of(ends)[:2] == pytest.approx([1.875] * 2)
