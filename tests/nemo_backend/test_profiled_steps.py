"""What begins and ends nsys's recording inside NeMo, with a torch that writes down what it is asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from nemo_backend.inside import profiled_steps


class Torch:
    """Notes the calls, each with how many steps were done before it."""

    def __init__(self, on_gpu: bool = True) -> None:
        self.done = 0
        self.asked: list[tuple[str, int]] = []
        runtime = SimpleNamespace(
            cudaProfilerStart=lambda: self.note("start"), cudaProfilerStop=lambda: self.note("stop")
        )
        self.cuda = SimpleNamespace(
            is_available=lambda: on_gpu, cudart=lambda: runtime, check_error=lambda code: self.note(f"checked {code}")
        )
        self.autograd = SimpleNamespace(profiler=SimpleNamespace(emit_nvtx=self.ranges))

    def note(self, what: str) -> int:
        self.asked.append((what, self.done))
        return 0

    def ranges(self) -> Any:
        torch = self

        class Ranges:
            def __enter__(self) -> None:
                torch.note("ranges begin")

            def __exit__(self, *_: object) -> None:
                torch.note("ranges end")

        return Ranges()


def trained(torch: Torch, profile: Any, steps: int = 10) -> list[tuple[str, int]]:
    for step in range(steps):
        profile.before(step, torch)
        torch.done += 1
        profile.after(step, torch)
    return [asked for asked in torch.asked if not asked[0].startswith("checked")]


def profile_of(recorded: tuple[int, ...] = (5, 6, 7), *, mine: bool = True) -> Any:
    return profiled_steps.ProfiledSteps(recorded, mine=mine)


def test_a_recording_begins_before_its_first_step_and_ends_after_its_last() -> None:
    expected = [("start", 5), ("ranges begin", 5), ("stop", 8), ("ranges end", 8)]
    assert trained(Torch(), profile_of()) == expected
    assert trained(Torch(), profile_of(mine=False)) == []


@pytest.mark.parametrize("mine", [True, False])
def test_on_a_cpu_nothing_is_begun_and_every_rank_says_so(mine: bool) -> None:
    """The first rank's notes are the result's, and it may not be one of those that are recorded."""
    profile = profile_of(mine=mine)
    assert trained(Torch(on_gpu=False), profile) == []
    assert profile.notes() == [profiled_steps.NO_CUDA]


def test_without_a_profile_nothing_is_done() -> None:
    profile = profile_of(())
    assert trained(Torch(), profile) == []
    assert profile.notes() == []
