"""Many runs as lines: which run is a point of which line, and which is none."""

import pytest

from benchmarks.dashboard import charts
from benchmarks.dashboard.runs import (
    FIRST_COLUMNS,
    newest,
    parsed_time,
    row_of,
    run_names,
    trial_names,
)
from benchmarks.runs.finished_run import FinishedRun, changed
from tests.benchmarks.dashboard.made import entry


def boards_of(entries: list[FinishedRun]) -> dict[str, list[dict[str, float]]]:
    return {board.name: [point.scalars for point in board.points] for board in charts.boards_of_runs(entries)}


def test_the_runs_of_a_series_are_numbered_in_the_order_of_time() -> None:
    found, left_out = charts.drawn([entry(2), entry(0), entry(1)])
    (board,) = charts.boards_of_runs(found)
    assert [point.step for point in board.points] == [0, 1, 2]
    assert [point.unix_seconds for point in board.points] == [1793491200.0 + day * 86400 for day in range(3)]
    assert left_out == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": 2},
        {"hardware": "h100"},
        {"backend": "nemo"},
        {"engine": "bridge"},
        {"task": "lora"},
        {"sequence_length": 256},
        {"global_batch_size": 4},
        {"parallelism": "fsdp 2"},
        {"pgle": "nsys"},
        {"suite": "smoke"},
        {"site": "lumi"},
        {"host": "there"},
        {"window": "last"},
        {"identity": {"benchmark": "other", "machine": "m"}},
        {"identity": {"benchmark": "b", "machine": "other"}},
    ],
)
def test_what_is_another_benchmark_is_another_line(changes: dict[str, object]) -> None:
    first = entry(0, identity={"benchmark": "b", "machine": "m"})
    assert len(boards_of([first, changed(first, path="other", **changes)])) == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"status": "failed"}, "failed"),
        ({"status": "running", "seconds_per_step": None}, "running"),
        ({"slowed_by": 0.5}, "slowed on purpose"),
        ({"not_comparable": ["profiled"]}, "profiled"),
        ({"seconds_per_step": None}, "without a speed"),
        ({"tokens_per_second": float("inf")}, "without a speed"),
    ],
)
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


def test_each_measured_peak_has_a_line_of_its_own() -> None:
    """Percentages of 1 and of 2 TFLOP/s say nothing beside each other; measurements differ by little."""
    measured = {"mfu_percent": 50.0, "mfu_convention": "recipe", "mfu_precision": "measured bf16"}
    entries = [entry(n, mfu_peak_tflops=peak, **measured) for n, peak in enumerate((1.0, 2.0, 0.10312, 0.10314))]
    tags = [tag for point in boards_of(entries).popitem()[1] for tag in point if "MFU" in tag]
    assert len(set(tags)) == 4
    assert tags[1] == "4 MFU percent/llama2_tiny bf16 recipe_measured_bf16_2_TFLOP_s"


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unix"),
    [
        ("2026-11-01T00:00:00Z", 1793491200.0),
        ("2026-11-01", 1793491200.0),
        ("20261101T000000Z", 1793491200.0),
        ("", None),
        ("yesterday", None),
    ],
)
def test_times_are_utc(text: str, unix: float | None) -> None:
    assert parsed_time(text) == unix


def test_the_name_of_a_series_is_one_folder() -> None:
    run = entry(0, suite="a/b", host="a/host", parallelism="data 2", window="last")
    other = entry(1, suite="a/b", model="b/c", host="there", task="lora", sequence_length=4, global_batch_size=8)
    assert charts.lines_of([run, other]) == [
        "series/llama2_tiny bf16 a_b jax-maxtext 1xcpu host-a_host pretrain seq128 batch2 data_2 window-last",
        "series/b_c bf16 a_b jax-maxtext 1xcpu host-there lora seq4 batch8 one_device",
    ]


def test_the_lines_of_a_chart_stand_together_so_their_colours_differ() -> None:
    """TensorBoard gives its seven colours in turn."""
    runs = [entry(n, gpus=2 ** (n % 3), model=("b", "a")[n % 2]) for n in range(6)]
    works = [board.name.split()[0] for board in charts.boards_of_runs(charts.drawn(runs)[0])]
    assert works == ["series/a"] * 3 + ["series/b"] * 3


def of(benchmark: str, machine: str, number: int = 0, **changes: object) -> FinishedRun:
    return entry(number, identity={"benchmark": f"{benchmark}_in_full", "machine": f"{machine}_in_full"}, **changes)


NAME = "series/llama2_tiny bf16 jax-maxtext 1xcpu"  # all else is the same for all lines


@pytest.mark.parametrize(
    ("runs", "ends"),
    [
        ([of("aaaaaaa", "m"), of("aaaaaaa", "m", 1)], ["", ""]),
        ([of("aaaaaaa", "m"), of("bbbbbbb", "m", 1)], [" benchmark-aaaaaaa", " benchmark-bbbbbbb"]),
        ([of("aaaaaaa", "ccccccc"), of("aaaaaaa", "ddddddd", 1)], [" machine-ccccccc", " machine-ddddddd"]),
    ],
)
def test_a_line_is_named_by_digests_only_where_words_are_not_enough(runs: list[FinishedRun], ends: list[str]) -> None:
    assert charts.lines_of(runs) == [NAME + end for end in ends]


# --- the rows of the table of runs ----------------------------------------------------------------


def test_every_figure_is_a_column_and_one_that_is_not_known_has_no_cell() -> None:
    first = {name: value for name, value in row_of(entry()).items() if name in FIRST_COLUMNS}
    assert first == {"model": "llama2_tiny", "on": "1xcpu bf16 jax", "s/step": 0.01, "tokens/s/GPU": 25600.0}
    peak = {"mfu_percent": 40.0, "mfu_convention": "recipe", "mfu_precision": "fp8", "mfu_peak_tflops": 1979}
    full = entry(memory_bytes=2e9, **peak)
    assert (row_of(full)["excess %"], row_of(full)["memory GB"]) == (1.0, 2.0)
    assert row_of(full)["MFU %"] == 40.0
    assert row_of(full)["mfu_of"] == "recipe, fp8 1979 TFLOP/s"


def test_a_row_says_what_a_run_was() -> None:
    row = row_of(entry(gpus=4, slowed_by=0.5, profile="nccl", suite="smoke", night="2026-11-02"))
    assert row["status"] == "valid, slowed on purpose, profiled"
    assert (row["suite"], row["night"], row["commit"]) == ("smoke", "2026-11-02", "0123456789ab")
    assert row["gpus"] == "4"  # TensorBoard would show the number as 4.0000


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


def test_names_of_runs_are_short_and_their_own() -> None:
    runs = [entry(0), entry(1, status="failed", role="rerun"), entry(2), entry(2)]
    assert run_names(runs[:2]) == [
        "2026-11-01 00.00 llama2_tiny bf16 jax 1xcpu 0000",
        "2026-11-02 00.00 llama2_tiny bf16 jax 1xcpu 0001 rerun",
    ]
    assert run_names(runs)[2:] == [runs[2].run_id] * 2
    assert trial_names(runs[:3], {runs[2].run_id}) == ["11-01 0000", "11-02 0001 failed", "(newest) 0002"]
