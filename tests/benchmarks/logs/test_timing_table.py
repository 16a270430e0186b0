"""One row for each log: its status, its figures, what is said of steps that lack; and the table in three shapes."""

import csv
import io
import json
import math
import statistics
from collections.abc import Iterable
from typing import Any

import pytest

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.logs.log_endings import Ending
from benchmarks.logs.timing_table import (
    FAILED,
    INCOMPLETE,
    NOT_A_LOG,
    STATUSES,
    SUCCESS,
    UNREADABLE,
    Reading,
    Row,
    as_csv,
    as_json,
    as_table,
    by_status,
    named,
    row_of_log,
    row_of_run,
    row_without_log,
)
from benchmarks.values import Step

MEMORY = Ending(name="gpu_memory", text="GPU out of memory: Tried to allocate 2 GiB")
SECONDS = [4.07, 4.08, 4.06, 4.09, 4.05, 4.07, 4.08, 4.06, 4.07, 4.10]


def step(number: int, seconds: float | None = 1.0, attempt: int = 1, **fields: Any) -> LogEvent:
    made = Step(**{"step": number, "seconds": seconds, "loss": None, "tokens": None, "attempt": attempt} | fields)
    return LogEvent(attempt=attempt, step=made)


def run(numbers: Iterable[int], attempt: int = 1, **fields: Any) -> list[LogEvent]:
    return [step(number, 1.0 + number / 100, attempt, **fields) for number in numbers]


def row(events: Iterable[LogEvent], rule: str = "35-44", ending: Ending | None = None) -> Row:
    reading = Reading(rule)
    for event in events:
        reading.add(event)
    return row_of_log("logs/log-a.out", "fake", reading, ending)


# --- figures ----------------------------------------------------------------------------------


def test_mean_and_sample_deviation_of_the_windows_steps_alone() -> None:
    events = [step(n, 99.0) for n in range(35)]
    events += [step(35 + i, s, framework_tflops_per_device=700.0 + i) for i, s in enumerate(SECONDS)]
    made = row([*events, step(45, 99.0)])
    assert made.status == SUCCESS
    assert made.reason is None
    assert (made.steps_counted, made.steps_wanted, made.reached_step) == (10, 10, 45)
    assert made.seconds_mean == pytest.approx(statistics.mean(SECONDS))
    assert made.seconds_stdev == pytest.approx(statistics.stdev(SECONDS))
    assert made.seconds_stdev != pytest.approx(statistics.pstdev(SECONDS), rel=0.01)
    assert made.seconds_median == pytest.approx(4.07)
    assert made.tflops_per_gpu_mean == pytest.approx(704.5)
    assert made.tflops_per_gpu_stdev == pytest.approx(statistics.stdev(range(10)))


# --- status -----------------------------------------------------------------------------------


def test_incomplete_says_what_it_reached_and_what_lacks() -> None:
    made = row(run(range(38)))
    assert made.status == INCOMPLETE
    assert made.reason == "reached step 37, 3 of 10 steps of the window (lacks 38-44)"
    assert made.steps_counted == 3
    assert made.seconds_mean == pytest.approx(1.36)


def test_a_gap_in_the_window_is_incomplete() -> None:
    made = row(event for event in run(range(50)) if event.step and event.step.step not in (36, 37, 40))
    assert made.status == INCOMPLETE
    assert made.reason == "reached step 49, 7 of 10 steps of the window (lacks 36-37, 40)"


@pytest.mark.parametrize("rule", ["35-44", "steady", "last"])
def test_times_that_are_all_zero_are_no_times(rule: str) -> None:
    made = row([step(n, 0.0) for n in range(50)], rule)
    assert (made.status, made.steps_counted, made.seconds_mean) == (INCOMPLETE, 0, None)
    named = {"35-44": "35-44", "steady": "1-49", "last": "49"}
    assert made.excluded["time_not_above_zero"] == named[rule]


def test_an_attempt_of_zero_seconds_takes_nothing_away() -> None:
    assert row([*run(range(50)), *[step(n, 0.0, 2) for n in range(50)]]).attempt == 1


def test_losses_that_are_not_finite_are_said() -> None:
    made = row([step(n, loss=math.nan if n in (36, 37) else math.inf if n == 40 else 5.0) for n in range(50)])
    assert (made.status, made.reason) == (SUCCESS, "loss not finite in 3 of 10 steps")
    assert made.seconds_mean == 1.0


@pytest.mark.parametrize(("rule", "counted"), [("35-44", 10), ("steady", 19), ("last", 1)])
def test_a_run_without_a_finite_loss_has_failed(rule: str, counted: int) -> None:
    made = row([step(n, loss=math.nan) for n in range(50)], rule)
    assert made.status == FAILED
    assert str(made.reason).startswith(f"loss not finite in {counted} of {counted} steps")
    assert made.seconds_mean == 1.0


def test_failed_before_the_first_step() -> None:
    made = row([LogEvent(attempt=1)], ending=MEMORY)
    assert made.status == FAILED
    assert made.reason == MEMORY.text + "; no step was logged"
    assert row([LogEvent(attempt=1)]).status == INCOMPLETE
    assert row([]).reason == "no step was logged"


@pytest.mark.parametrize("rule", ["steady", "last"])
def test_rules_that_ask_for_no_step_call_a_failed_run_failed(rule: str) -> None:
    assert row(run(range(50)), rule).status == SUCCESS
    assert row(run(range(50)), rule, MEMORY).status == FAILED
    assert row([], rule).status == INCOMPLETE
    assert row([step(0)], "steady").status == INCOMPLETE  # compile alone


def test_last_takes_the_last_timed_step() -> None:
    made = row([*run(range(50)), step(50, None)], "last")
    assert (made.steps_counted, made.reached_step) == (1, 50)
    assert made.seconds_mean == pytest.approx(1.49)


def test_excluded_steps_are_named_and_do_not_count() -> None:
    events = [step(n, 9.0 if n in (36, 40, 41) else 1.0) for n in range(50)]
    for at, why in ((36, "skipped iteration"), (40, "nan"), (41, "nan")):
        events[at] = step(at, 9.0, excluded_because=why)
    made = row(events)
    assert made.status == SUCCESS
    assert made.excluded == {"skipped iteration": "36", "nan": "40-41"}
    assert (made.steps_counted, made.steps_wanted) == (7, 10)
    assert made.seconds_mean == 1.0
    assert "left out: skipped iteration: 36; nan: 40-41" in as_table([made], "35-44")


# --- attempts and ranks -----------------------------------------------------------------------


def test_the_last_attempt_counts() -> None:
    first, second = [step(n, 9.0) for n in range(50)], [step(n, 1.0, 2) for n in range(50)]
    made = row([*first, *second])
    assert (made.status, made.seconds_mean, made.attempt, made.attempts) == (SUCCESS, 1.0, 2, 2)
    assert made.reason == "attempt 2 of 2"


def test_the_ranks_of_a_log_are_one_series() -> None:
    events = [step(n, rank=n % 2) for n in range(50)]
    assert row(events).steps_counted == 10
    assert row(events, "steady").excluded["compile"] == "0"


def test_unreadable_lines_are_counted() -> None:
    skipped = LogEvent(attempt=1, skipped=SkippedLine(line=3, reason="cut"))
    made = row([*run(range(50)), skipped, skipped])
    assert made.skipped_lines == 2
    assert "2 lines of steps could not be read" in as_table([made], "35-44")


# --- names ------------------------------------------------------------------------------------


def rows_of(*paths: str) -> list[Row]:
    return [row_without_log(path, NOT_A_LOG, "empty") for path in paths]


def test_names_as_in_the_seed() -> None:
    rows = rows_of("e/x/log-lora_70b_933609.out", "e/x/sbatch_a.out", "e/y.log", "e/log-packed.out.gz", "e/log-.out")
    names = [r.experiment for r in named(rows)]
    assert names == ["lora_70b_933609", "e/x/sbatch_a.out", "e/y.log", "packed", "e/log-.out"]
    assert [r.experiment for r in named(rows, full_names=True)] == [r.path for r in rows]


# --- shapes -----------------------------------------------------------------------------------


def everything() -> list[Row]:
    return named(
        [
            row([step(35 + i, s) for i, s in enumerate(SECONDS)]),
            row(run(range(38))),
            row(run(range(40)), ending=MEMORY),
            row_without_log("x/'odd\", name'.txt", NOT_A_LOG, "empty"),
            row_without_log("x/secret.log", UNREADABLE, "Permission denied"),
        ]
    )


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.parametrize("rows", [[], everything()], ids=["none", "all"])
def test_json_is_valid_and_its_counts_sum_up(rows: list[Row]) -> None:
    report = json.loads(as_json(rows, "35-44"), parse_constant=refuse)
    assert list(report) == ["window", "deviation", "files", "by_status", "rows"]
    assert report["files"] == len(rows) == sum(report["by_status"].values()) == len(report["rows"])
    assert list(report["by_status"]) == list(STATUSES)
    assert "n - 1" in report["deviation"]


def test_files_that_are_counted_together_sum_up() -> None:
    runs = [row_of_run(f"results/{n:02}", f"{n:02}", 12) for n in range(25)]
    rows = [*runs, *rows_of("y.txt", "z.txt")]
    assert runs[0].reason == "12 files of Stepmark's run 00"
    assert by_status(rows)[NOT_A_LOG] == json.loads(as_json(rows, "35-44"))["files"] == 302
    lines = [line.strip() for line in as_table(rows, "35-44").splitlines()]
    shown = lines[lines.index("Not a training log (302):") + 1 :]
    assert shown[:3] == ["y.txt: empty", "z.txt: empty", "results/00: 12 files of Stepmark's run 00"]
    assert shown[20] == "and 84 more (--format=csv has all)"  # 7 runs
    assert lines[-1] == "302 files: 302 Not a training log"


def test_csv_is_rfc_4180() -> None:
    text = as_csv(everything(), "35-44")
    assert text.count("\r\n") == text.count("\n") == 6
    header, *records = list(csv.reader(io.StringIO(text, newline="")))
    assert header[:4] == ["experiment", "path", "status", "reason"]
    assert {len(record) for record in records} == {len(header)}
    first = dict(zip(header, records[0], strict=True))
    assert float(first["seconds_mean"]) == pytest.approx(statistics.mean(SECONDS))
    assert first["tflops_per_gpu_mean"] == ""
    assert records[3][0] == "x/'odd\", name'.txt"
