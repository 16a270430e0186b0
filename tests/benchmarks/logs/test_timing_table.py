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
from benchmarks.logs.ingest import ReadLog
from benchmarks.logs.log_endings import Ending
from benchmarks.logs.timing_table import (
    FAILED,
    INCOMPLETE,
    NOT_A_LOG,
    STATUSES,
    SUCCESS,
    UNREADABLE,
    Row,
    as_csv,
    as_data,
    as_table,
    named,
    row_of_log,
    row_without_log,
)
from benchmarks.values import Step, json_text

MEMORY = Ending(name="gpu_memory", text="GPU out of memory: Tried to allocate 2 GiB")
SECONDS = [4.07, 4.08, 4.06, 4.09, 4.05, 4.07, 4.08, 4.06, 4.07, 4.10]


def step(number: int, seconds: float | None = 1.0, attempt: int = 1, **fields: Any) -> LogEvent:
    made = Step(**{"step": number, "seconds": seconds, "loss": None, "tokens": None, "attempt": attempt} | fields)
    return LogEvent(attempt=attempt, step=made)


def run(numbers: Iterable[int]) -> list[LogEvent]:
    return [step(number, 1.0 + number / 100) for number in numbers]


def row(events: Iterable[LogEvent], rule: str = "35-44", ending: Ending | None = None) -> Row:
    return row_of_log("logs/log-a.out", "fake", ReadLog(events), rule, ending)


# --- figures and status -----------------------------------------------------------------------


def test_mean_and_sample_deviation_of_the_windows_steps_alone() -> None:
    events = [step(n, 99.0) for n in range(35)]
    events += [step(35 + i, s, framework_tflops_per_device=700.0 + i) for i, s in enumerate(SECONDS)]
    made = row([*events, step(45, 99.0)])
    assert (made.status, made.reason) == (SUCCESS, None)
    assert (made.steps_counted, made.steps_wanted, made.reached_step) == (10, 10, 45)
    assert made.seconds_mean == pytest.approx(statistics.mean(SECONDS))
    assert made.seconds_stdev == pytest.approx(statistics.stdev(SECONDS))
    assert made.seconds_median == pytest.approx(4.07)
    assert made.tflops_per_gpu_mean == pytest.approx(704.5)
    assert made.tflops_per_gpu_stdev == pytest.approx(statistics.stdev(range(10)))


LACKS = "steps of the window (lacks"
NAN = [step(n, loss=math.nan) for n in range(50)]
SOME_NAN = [step(n, loss=math.nan if n in (36, 37) else math.inf if n == 40 else 5.0) for n in range(50)]


@pytest.mark.parametrize(
    ("events", "rule", "ending", "status", "reason", "counted"),
    [
        (run(range(38)), "35-44", None, INCOMPLETE, f"reached step 37, 3 of 10 {LACKS} 38-44)", 3),
        (
            [event for event in run(range(50)) if event.step and event.step.step not in (36, 37, 40)],
            *("35-44", None, INCOMPLETE, f"reached step 49, 7 of 10 {LACKS} 36-37, 40)", 7),
        ),
        (SOME_NAN, "35-44", None, SUCCESS, "loss not finite in 3 of 10 steps", 10),
        (NAN, "35-44", None, FAILED, "loss not finite in 10 of 10 steps; reached step 49", 10),
        (NAN, "steady", None, FAILED, "loss not finite in 19 of 19 steps; reached step 49", 19),
        (NAN, "last", None, FAILED, "loss not finite in 1 of 1 steps; reached step 49", 1),
        ([LogEvent(attempt=1)], "35-44", MEMORY, FAILED, f"{MEMORY.text}; no step was logged", 0),
        ([LogEvent(attempt=1)], "35-44", None, INCOMPLETE, "no step was logged", 0),
        ([], "last", None, INCOMPLETE, "no step was logged", 0),
        # Rules that ask for no step call a failed run failed.
        (run(range(50)), "last", None, SUCCESS, None, 1),
        (run(range(50)), "last", MEMORY, FAILED, f"{MEMORY.text}; reached step 49", 1),
        (run(range(50)), "35-44", MEMORY, SUCCESS, f"after the window: {MEMORY.text}", 10),
        ([step(0)], "steady", None, INCOMPLETE, "reached step 0; no step of the window counts", 0),  # compile alone
        # The last attempt counts.
        ([*[step(n, 9.0) for n in range(50)], *[step(n, 1.0, 2) for n in range(50)]],
         "35-44", None, SUCCESS, "attempt 2 of 2", 10),
    ],
)  # fmt: skip
def test_the_status_of_a_log_and_its_reason(
    events: list[LogEvent], rule: str, ending: Ending | None, status: str, reason: str | None, counted: int
) -> None:
    made = row(events, rule, ending)
    assert (made.status, made.reason, made.steps_counted) == (status, reason, counted)
    assert (made.seconds_mean is None) == (counted == 0)


@pytest.mark.parametrize(("rule", "zero"), [("35-44", "35-44"), ("steady", "1-49"), ("last", "49")])
def test_times_that_are_all_zero_are_no_times(rule: str, zero: str) -> None:
    made = row([step(n, 0.0) for n in range(50)], rule)
    assert (made.status, made.steps_counted, made.seconds_mean) == (INCOMPLETE, 0, None)
    assert made.excluded["time_not_above_zero"] == zero
    assert row([*run(range(50)), *[step(n, 0.0, 2) for n in range(50)]]).attempt == 1


def test_last_takes_the_last_timed_step() -> None:
    made = row([*run(range(50)), step(50, None)], "last")
    assert (made.steps_counted, made.reached_step) == (1, 50)
    assert made.seconds_mean == pytest.approx(1.49)


def test_excluded_steps_and_unreadable_lines_are_named_and_do_not_count() -> None:
    events = [step(n, 9.0 if n in (36, 40, 41) else 1.0) for n in range(50)]
    for at, why in ((36, "skipped iteration"), (40, "nan"), (41, "nan")):
        events[at] = step(at, 9.0, excluded_because=why)
    skipped = LogEvent(attempt=1, skipped=SkippedLine(line=3, reason="cut"))
    made = row([*events, skipped, skipped])
    assert (made.status, made.steps_counted, made.steps_wanted, made.seconds_mean) == (SUCCESS, 7, 10, 1.0)
    assert (made.excluded, made.skipped_lines) == ({"skipped iteration": "36", "nan": "40-41"}, 2)
    text = as_table([made], "35-44")
    assert "left out: skipped iteration: 36; nan: 40-41" in text
    assert "2 lines of steps could not be read" in text


def test_the_ranks_of_a_log_are_one_series() -> None:
    events = [step(n, rank=n % 2) for n in range(50)]
    assert row(events).steps_counted == 10
    assert row(events, "steady").excluded["compile"] == "0"


# --- names and shapes -------------------------------------------------------------------------


def rows_of(*paths: str) -> list[Row]:
    return [row_without_log(path, NOT_A_LOG, "empty") for path in paths]


def test_a_log_is_named_by_its_experiment_where_the_name_says_it() -> None:
    rows = rows_of("e/x/log-lora_70b_933609.out", "e/x/sbatch_a.out", "e/y.log", "e/log-packed.out.gz", "e/log-.out")
    names = [r.experiment for r in named(rows)]
    assert names == ["lora_70b_933609", "e/x/sbatch_a.out", "e/y.log", "packed", "e/log-.out"]
    assert [r.experiment for r in named(rows, full_names=True)] == [r.path for r in rows]


EVERYTHING = named(
    [
        row([step(35 + i, s) for i, s in enumerate(SECONDS)]),
        row(run(range(38))),
        row(run(range(40)), ending=MEMORY),
        row_without_log("x/'odd\", name'.txt", NOT_A_LOG, "empty"),
        row_without_log("x/secret.log", UNREADABLE, "Permission denied"),
    ]
)


@pytest.mark.parametrize("rows", [[], EVERYTHING], ids=["none", "all"])
def test_json_is_valid_and_its_counts_sum_up(rows: list[Row]) -> None:
    report = json.loads(json_text(as_data(rows, "35-44")))
    assert list(report) == ["window", "deviation", "files", "by_status", "rows"]
    assert report["files"] == len(rows) == sum(report["by_status"].values()) == len(report["rows"])
    assert list(report["by_status"]) == list(STATUSES)


def test_csv_is_rfc_4180() -> None:
    text = as_csv(EVERYTHING, "35-44")
    assert text.count("\r\n") == text.count("\n") == 6
    header, *records = list(csv.reader(io.StringIO(text, newline="")))
    assert header[:4] == ["experiment", "path", "status", "reason"]
    assert {len(record) for record in records} == {len(header)}
    first = dict(zip(header, records[0], strict=True))
    assert float(first["seconds_mean"]) == pytest.approx(statistics.mean(SECONDS))
    assert first["tflops_per_gpu_mean"] == ""
    assert records[3][0] == "x/'odd\", name'.txt"
