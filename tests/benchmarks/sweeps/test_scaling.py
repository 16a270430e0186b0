"""Figures of several scales: their spread over runs, efficiency, and what the table says of them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from benchmarks.runs.finished_run import FinishedRun
from benchmarks.sweeps.scaling import CellRuns, Scale, Series, scaling, scaling_kind, table_text
from benchmarks.values import BenchmarkName
from tests.benchmarks.history.made_runs import an_entry

TOKENS_A_SEQUENCE = 100


def scale(gpus: int, batch: int | None = None, **changes: Any) -> Scale:
    words: dict[str, Any] = {
        "backend": "jax", "engine": "maxtext", "model": "llama2_tiny", "task": "pretrain", "dtype": "bf16",
        "hardware": "h100", "sequence_length": TOKENS_A_SEQUENCE, "nodes": 1, "layout": f"DP{gpus}",
        "virtual_devices": False,
    }  # fmt: skip
    return Scale(**{**words, **changes}, gpus=gpus, global_batch_size=batch or gpus)


def result(where: Scale, seconds: float | None, mfu: float | None = None) -> FinishedRun:
    """A valid run; without seconds, one whose speed is not claimed."""
    tokens = where.global_batch_size * TOKENS_A_SEQUENCE
    speed = tokens / seconds if seconds else None
    return an_entry(
        run_id="run",
        **{name: getattr(where, name) for name in BenchmarkName.__struct_fields__},
        settled=True,
        first_step=2,
        seconds_per_step=seconds,
        tokens_per_second=speed,
        tokens_per_second_per_gpu=speed / where.gpus if speed else None,
        mfu_percent=mfu,
        mfu_convention="dense",
        mfu_precision="bf16",
        null_because={} if mfu and seconds else {"mfu": "no peak is known", "seconds_per_step": "it is emulated"},
    )


def measured(where: Scale, *runs: float | FinishedRun | None, others: Sequence[tuple[int, str]] = ()) -> CellRuns:
    """Return the cell of runs, or of their seconds."""
    found = [one if isinstance(one, FinishedRun) else result(where, one) for one in runs]
    return CellRuns(f"--gpus={where.gpus}", where, 3, dict(enumerate(found, 1)), others)


def only(*cells: CellRuns) -> Series:
    (series,) = scaling(cells)
    return series


def test_a_figure_is_the_median_over_the_runs_with_their_range() -> None:
    (point,) = only(measured(scale(1), 0.5, 0.1, 0.2)).points
    assert point.seconds_per_step is not None
    assert point.tokens_per_second is not None
    assert msgspec.to_builtins(point.seconds_per_step) == {"n": 3, "median": 0.2, "lowest": 0.1, "highest": 0.5}
    assert msgspec.to_builtins(point.tokens_per_second) == {"n": 3, "median": 500, "lowest": 200, "highest": 1000}
    assert (point.runs, point.valid) == (3, 3)


def test_efficiency_is_speed_a_device_over_that_of_the_smallest_scale() -> None:
    one, four = only(measured(scale(4), 0.25), measured(scale(1), 0.2)).points  # in whichever order they came
    assert (one.gpus, four.gpus) == (1, 4)
    assert (one.efficiency, four.efficiency) == (1.0, pytest.approx(0.8))


@pytest.mark.parametrize(
    ("batches", "kind"),
    [
        ({1: 4, 2: 8, 4: 16}, "weak"),
        ({1: 16, 2: 16, 4: 16}, "strong"),
        ({1: 4, 2: 8, 4: 8}, "mixed"),
        ({4: 8}, "one scale"),
    ],
)
def test_which_kind_of_scaling(batches: dict[int, int], kind: str) -> None:
    assert scaling_kind([scale(gpus, batch) for gpus, batch in batches.items()]) == kind


@pytest.mark.parametrize(
    "change", ["backend", "engine", "model", "task", "dtype", "hardware", "sequence_length", "pgle"]
)
def test_what_cannot_be_compared_is_another_series(change: str) -> None:
    other = scale(2, **{change: 7 if change == "sequence_length" else "other"})
    found = scaling([measured(scale(1), 0.1), measured(other, 0.1), measured(scale(2), 0.1)])
    assert [len(series.points) for series in found] == [2, 1]
    assert found[1].points[0].efficiency is not None  # its own smallest scale


def test_a_smallest_scale_that_failed_leaves_the_efficiency_unknown() -> None:
    failed, larger = only(measured(scale(1), others=[(1, "run-1 failed")]), measured(scale(2), 0.1)).points
    assert (failed.seconds_per_step, failed.efficiency, larger.efficiency) == (None, None, None)
    assert failed.null_because["seconds_per_step"] == "the scale has no valid, comparable run"
    assert "1 x h100" in larger.null_because["efficiency"]
    assert larger.seconds_per_step is not None


# --- the table ----------------------------------------------------------------------------------


def test_the_table_has_figures_and_names_what_is_left_out_and_unknown() -> None:
    text = table_text([only(measured(scale(8), 0.1, 0.11, 0.12), measured(scale(16), 0.2, 0.21, 0.22))])
    title, heading, first, second, *_ = text.splitlines()
    assert "weak scaling" in title
    assert len(heading) == len(first) == len(second)
    assert first.split()[:6] == ["8", "1", "8", "3", "of", "3"]
    assert "110 ms (100 ms to 120 ms)" in first
    assert second.endswith("52.4%")
    assert text.count("no peak is known") == 1
    failed = measured(scale(1), others=[(2, "run-9 failed: rank 0 was killed by signal 9")])
    text = table_text([only(failed, measured(scale(2), 0.1))])
    assert "left out  --gpus=1, repeat 2: run-9 failed: rank 0 was killed by signal 9" in text
    assert "0 of 3" in text
    assert "efficiency on 1, 2 devices" in text
