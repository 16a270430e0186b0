"""Many runs as lines: which run is a point of which line, and which is excluded."""

from pathlib import Path

import pytest
import yaml

from benchmarks.dashboard import charts
from benchmarks.dashboard.runs import (
    newest,
)
from benchmarks.runs.finished_run import FinishedRun, changed
from tests.benchmarks.dashboard.made import entry

TABLES = yaml.safe_load(Path(__file__).with_name("series.yml").read_text())


def boards_of(entries: list[FinishedRun]) -> dict[str, list[dict[str, float]]]:
    return {board.name: [point.scalars for point in board.points] for board in charts.boards_of_runs(entries)}


@pytest.mark.parametrize("changes", TABLES["another_line"])
def test_what_is_another_benchmark_is_another_line(changes: dict[str, object]) -> None:
    first = entry(0, identity={"benchmark": "b", "machine": "m"})
    assert len(boards_of([first, changed(first, path="other", **changes)])) == 2


@pytest.mark.parametrize(("changes", "why"), TABLES["no_point"])
def test_what_is_comparable_with_nothing_is_no_point_and_is_counted(changes: dict[str, object], why: str) -> None:
    found, left_out = charts.drawn([entry(0), entry(1, **changes)])
    assert ([one.run_id for one in found], left_out) == ([entry(0).run_id], {why: 1})


def test_every_scalar_is_drawn() -> None:
    full = entry(0, memory_bytes=2e9, mfu_percent=40.0, mfu_convention="recipe, measured", mfu_precision="bf16",
                 mfu_peak_tflops=989.4)  # fmt: skip
    (board,) = charts.boards_of_runs([full])
    (point,) = board.points
    assert point.scalars == {
        "1 seconds per step/llama2_tiny bf16": 0.01,
        "3 tokens per second of one device/llama2_tiny bf16": 25600.0,
        "6 excess percent/llama2_tiny bf16": 1.0,
        "5 memory GB/llama2_tiny bf16": 2.0,
        "4 MFU percent/llama2_tiny bf16 recipe_measured_bf16_989.4_TFLOP_s": 40.0,
    }
    assert min(point.scalars) == "1 seconds per step/llama2_tiny bf16"  # what the tab Time Series shows first


# --- names ----------------------------------------------------------------------------------------


def of(benchmark: str, machine: str, number: int = 0, **changes: object) -> FinishedRun:
    return entry(number, identity={"benchmark": f"{benchmark}_in_full", "machine": f"{machine}_in_full"}, **changes)


def test_lines_that_differ_in_a_setting_are_named_by_it_and_not_by_a_digest() -> None:
    plain, tuned = of("one", "m"), of("two", "m", 1, settings="xla.xla_gpu_enable_latency_hiding_scheduler=false")
    names = sorted(boards_of([plain, tuned]))
    assert names[1] == f"{names[0]} xla.xla_gpu_enable_latency_hiding_scheduler=false"
    assert not {"one_in_f", "two_in_f"} & {name.split()[-1] for name in names}


# --- the newest -----------------------------------------------------------------------------------


def test_the_newest_are_the_last_run_and_those_of_each_suites_last_night() -> None:
    runs = [
        entry(0, suite="smoke", night="1"),
        entry(1, suite="large", night="1"),
        entry(2, suite="smoke", night="2"),
        entry(3, suite="smoke", night="2", status="failed"),
        entry(4),
        entry(5),
    ]
    assert newest(runs) == [runs[1], runs[2], runs[3], runs[5]]
    assert newest([]) == []
