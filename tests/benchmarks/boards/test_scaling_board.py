"""Throughput over devices, beside the ideal."""

import pytest

from benchmarks.boards import scaling
from benchmarks.history.entry import Entry
from tests.benchmarks.boards.made import entry

WORK = "scaling/llama2_tiny/bf16"


def at(gpus: int, tokens: float, number: int = 0, **changes: object) -> Entry:
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


def test_runs_of_another_batch_or_layout_than_the_newest_are_not_of_its_scale() -> None:
    runs = [at(2, 1.0, 0, global_batch_size=64), at(2, 2.0, 1, parallelism="fsdp 2"), at(2, 200.0, 2)]
    (board,) = scaling.boards([*runs, at(4, 400.0, 3)])
    assert board.points[0].scalars[f"{WORK}/tokens_per_second"] == 200.0


@pytest.mark.parametrize("changes", [{"backend": "nemo"}, {"hardware": "h100"}, {"sequence_length": 256}])
def test_scales_of_different_series_make_no_line(changes: dict[str, object]) -> None:
    assert scaling.boards([at(2, 200.0), at(4, 400.0, 1, **changes)]) == []
