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


def profile_of(recorded: str = "5-7", disturbed: str = "4-8", ranks: str = "0-1,8", rank: int = 0) -> Any:
    return profiled_steps.ProfiledSteps(recorded, disturbed, ranks, rank)


def test_a_recording_begins_before_its_first_step_and_ends_after_its_last() -> None:
    expected = [("start", 5), ("ranges begin", 5), ("stop", 8), ("ranges end", 8)]
    assert trained(Torch(), profile_of()) == expected


@pytest.mark.parametrize(("rank", "records"), [(0, True), (1, True), (2, False), (8, True), (9, False)])
def test_only_the_named_ranks_record_and_the_steps_of_all_are_marked(rank: int, records: bool) -> None:
    profile = profile_of(rank=rank)
    assert bool(trained(Torch(), profile)) is records
    assert [step for step in range(10) if profile.reason(step)] == [4, 5, 6, 7, 8]
    assert profile.reason(4) == "profiler"


def test_on_a_cpu_nothing_is_begun_and_every_rank_says_so() -> None:
    """The first rank's notes are the result's, and it may not be one of those that are recorded."""
    for rank in (0, 2):
        profile = profile_of(rank=rank)
        assert trained(Torch(on_gpu=False), profile) == []
        assert profile.notes() == [profiled_steps.NO_CUDA]
        assert profile.reason(5) == "profiler"


def test_without_a_profile_nothing_is_done_and_nothing_marked() -> None:
    profile = profile_of("", "", "")
    assert trained(Torch(), profile) == []
    assert [profile.reason(step) for step in range(10)] == [None] * 10
    assert profile.notes() == []
