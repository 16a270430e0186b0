"""The rows of the table of runs."""

from benchmarks.dashboards.runs import FIGURES, asked, reached
from tests.benchmarks.dashboards.made import entry


def test_a_figure_that_is_not_known_has_no_cell() -> None:
    assert reached(entry()) == {
        "result/seconds_per_step": 0.01,
        "result/tokens_per_second_per_gpu": 25600.0,
        "result/excess_percent": 1.0,
        "result/counted_steps": 40.0,
    }


def test_every_figure_is_a_column() -> None:
    full = entry(
        memory_bytes=2e9, mfu_percent=40.0, mfu_convention="recipe", mfu_precision="fp8", mfu_peak_tflops=1979
    )
    assert reached(full).keys() == {f"result/{one.name}" for one in FIGURES}
    assert asked(full)["mfu_of"] == "recipe, fp8 1979 TFLOP/s"


def test_a_row_says_what_a_run_was() -> None:
    row = asked(entry(slowed_by=0.5, profile="nccl", suite="smoke", night="2026-11-02"))
    assert row["status"] == "valid, slowed on purpose, profiled"
    assert (row["suite"], row["night"], row["commit"]) == ("smoke", "2026-11-02", "0123456789ab")
    wanted = {"model", "dtype", "backend", "engine", "hardware", "gpus", "nodes", "site", "global_batch",
              "sequence_length", "parallelism", "pgle", "commit", "suite"}  # fmt: skip
    assert wanted <= row.keys()
