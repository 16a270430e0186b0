"""Throughput over devices, beside the ideal."""

import pytest

from benchmarks.dashboards import scaling
from benchmarks.runs.finished_run import FinishedRun
from tests.benchmarks.dashboards.made import entry

WORK = "scaling/llama2_tiny/bf16"


def at(gpus: int, tokens: float, number: int = 0, **changes: object) -> FinishedRun:
    return entry(number, gpus=gpus, tokens_per_second=tokens, **{"global_batch_size": 2 * gpus, **changes})


def test_the_ideal_is_the_smallest_scale_times_the_devices() -> None:
    (board,) = scaling.boards([at(4, 350.0), at(2, 200.0), at(8, 640.0)])
    assert [(point.step, point.scalars) for point in board.points] == [
        (2, {f"{WORK}/tokens_per_second": 200.0, f"{WORK}/ideal": 200.0, f"{WORK}/efficiency_percent": 100.0}),
        (4, {f"{WORK}/tokens_per_second": 350.0, f"{WORK}/ideal": 400.0, f"{WORK}/efficiency_percent": 87.5}),
        (8, {f"{WORK}/tokens_per_second": 640.0, f"{WORK}/ideal": 800.0, f"{WORK}/efficiency_percent": 80.0}),
    ]
    (category,) = scaling.categories([board])
    assert [chart.tags for chart in category.charts] == [
        [f"{WORK}/tokens_per_second", f"{WORK}/ideal"], [f"{WORK}/efficiency_percent"]
    ]  # fmt: skip


def test_one_scale_is_no_scaling() -> None:
    assert scaling.boards([at(2, 200.0), at(2, 210.0)]) == []
    assert scaling.categories([]) == []


def test_a_scale_is_the_median_of_its_newest_runs() -> None:
    old = [at(2, 1.0, number) for number in range(4)]
    new = [at(2, tokens, 10 + place) for place, tokens in enumerate((180.0, 200.0, 220.0, 190.0, 210.0))]
    (board,) = scaling.boards([*old, *new, at(4, 400.0, 20)])
    assert board.points[0].scalars[f"{WORK}/tokens_per_second"] == pytest.approx(200.0)


def test_runs_of_another_layout_than_the_newest_are_not_of_its_scale() -> None:
    runs = [at(2, 2.0, 1, parallelism="fsdp 2"), at(2, 200.0, 2)]
    (board,) = scaling.boards([*runs, at(4, 400.0, 3)])
    assert board.points[0].scalars[f"{WORK}/tokens_per_second"] == 200.0


def test_weak_and_strong_scaling_are_lines_of_their_own() -> None:
    """Where the batch stays, where it grows with the devices; a run of another batch is a point of neither."""
    runs = [at(2, 200.0), at(4, 400.0, 1), at(8, 500.0, 2, global_batch_size=4), at(2, 1.0, 3, global_batch_size=64)]
    found = {board.name: [point.step for point in board.points] for board in scaling.boards(runs)}
    assert found == {
        "scaling/jax-maxtext cpu host-here pretrain seq128 weak batch2_a_device": [2, 4],
        "scaling/jax-maxtext cpu host-here pretrain seq128 strong batch4": [2, 8],
    }
    weak = next(board for board in scaling.boards(runs) if "weak" in board.name)
    assert weak.points[0].scalars[f"{WORK}/tokens_per_second"] == 200.0


def test_a_batch_that_the_devices_do_not_divide_has_no_weak_line() -> None:
    runs = [at(2, 200.0, 0, global_batch_size=9), at(4, 400.0, 1, global_batch_size=18)]
    assert scaling.boards(runs) == []


@pytest.mark.parametrize("kind", ["benchmark", "machine"])
def test_runs_of_another_benchmark_or_machine_than_the_newest_are_not_of_its_scale(kind: str) -> None:
    """Settings that no name tells of, or another processor in the same host."""
    runs = [at(2, 2.0, 1, identity={kind: "old"}), at(2, 200.0, 2, identity={kind: "new"})]
    (board,) = scaling.boards([*runs, at(4, 400.0, 3, identity={kind: "of four"})])
    assert board.points[0].scalars[f"{WORK}/tokens_per_second"] == 200.0


@pytest.mark.parametrize("layout", ["data 4", "fsdp 4", "data 2 x fsdp 2"])
def test_the_axes_that_grow_with_the_devices_are_on_one_line(layout: str) -> None:
    (board,) = scaling.boards([at(1, 100.0, 1), at(4, 400.0, 2, parallelism=layout)])
    assert [point.step for point in board.points] == [1, 4]


def test_a_line_tells_of_the_layout_that_it_keeps() -> None:
    runs = [at(2, 200.0, 1, parallelism="tensor 2"), at(4, 400.0, 2, parallelism="data 2 x tensor 2")]
    (board,) = scaling.boards(runs)
    assert board.name == "scaling/jax-maxtext cpu host-here pretrain seq128 tensor_2 weak batch2_a_device"


@pytest.mark.parametrize(
    "changes",
    [
        {"backend": "nemo"},
        {"hardware": "h100"},
        {"sequence_length": 256},
        {"site": "lumi"},
        {"host": "there"},
        {"suite": "smoke"},
        {"window": "last"},
        {"parallelism": "tensor 4"},
        {"global_batch_size": 12},
    ],
)
def test_scales_of_different_series_make_no_line(changes: dict[str, object]) -> None:
    assert scaling.boards([at(2, 200.0), at(4, 400.0, 1, **changes)]) == []
