"""One row for each log: its status, its figures, what is said of steps that lack; and the shapes of the table."""

import math
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.logs.timing_table import Row, Status, as_data, as_table, find_logs, row_of_log
from benchmarks.reading.read_log import ReadLog
from benchmarks.values import Step

SECONDS = [4.07, 4.08, 4.06, 4.09, 4.05, 4.07, 4.08, 4.06, 4.07, 4.10]


def step(number: int, seconds: float | None = 1.0, attempt: int = 1, **fields: Any) -> LogEvent:
    made = Step(**{"step": number, "seconds": seconds, "loss": None, "tokens": None, "attempt": attempt} | fields)
    return LogEvent(attempt=attempt, step=made)


def run(numbers: Iterable[int]) -> list[LogEvent]:
    return [step(number, 1.0 + number / 100) for number in numbers]


def row(events: Iterable[LogEvent], rule: str = "35-44") -> Row:
    return row_of_log("logs/log-a.out", "fake", ReadLog(events), rule)


def test_mean_and_sample_deviation_of_the_windows_steps_alone() -> None:
    events = [step(n, 99.0) for n in range(35)]
    events += [step(35 + i, s, framework_tflops_per_device=700.0 + i) for i, s in enumerate(SECONDS)]
    made = row([*events, step(45, 99.0)])
    assert (made.status, made.reason, made.steps_counted, made.reached_step) == (Status.SUCCESS, None, 10, 45)
    assert made.seconds_mean == pytest.approx(statistics.mean(SECONDS))
    assert made.seconds_stdev == pytest.approx(statistics.stdev(SECONDS))
    assert made.seconds_median == pytest.approx(4.07)
    assert made.tflops_per_gpu_mean == pytest.approx(704.5)
    assert made.tflops_per_gpu_stdev == pytest.approx(statistics.stdev(range(10)))


NAN = [step(n, loss=math.nan) for n in range(50)]
SOME_NAN = [step(n, loss=math.nan if n in (36, 37) else math.inf if n == 40 else 5.0) for n in range(50)]


@pytest.mark.parametrize(
    ("events", "rule", "status", "reason", "counted"),
    [
        (run(range(38)), "35-44", Status.INCOMPLETE, "reached step 37; missing in the window: 7 steps", 3),
        (SOME_NAN, "35-44", Status.SUCCESS, "loss not finite in 3 of 10 steps", 10),
        (NAN, "35-44", Status.FAILED, "loss not finite in 10 of 10 steps", 10),
        (NAN, "last", Status.FAILED, "loss not finite in 1 of 1 steps", 1),
        ([LogEvent(attempt=1)], "35-44", Status.INCOMPLETE, "the log has no step", 0),
        ([], "last", Status.INCOMPLETE, "the log has no step", 0),
        (run(range(50)), "last", Status.SUCCESS, None, 1),
        (
            [step(0)],
            "steady",
            Status.INCOMPLETE,
            "reached step 0, but no step of the window counts",
            0,
        ),  # only the compile step
        # The last attempt counts.
        (
            [*[step(n, 9.0) for n in range(50)], *[step(n, 1.0, 2) for n in range(50)]],
            "35-44",
            Status.SUCCESS,
            "attempt 2 of 2",
            10,
        ),
    ],
)
def test_the_status_of_a_log_and_its_reason(
    events: list[LogEvent], rule: str, status: Status, reason: str | None, counted: int
) -> None:
    made = row(events, rule)
    assert (made.status, made.reason, made.steps_counted) == (status, reason, counted)
    assert (made.seconds_mean is None) == (counted == 0)


def test_excluded_steps_and_unreadable_lines_are_named_and_do_not_count() -> None:
    events = [step(n, 9.0 if n in (36, 40, 41) else 1.0) for n in range(50)]
    for at, why in ((36, "skipped iteration"), (40, "nan"), (41, "nan")):
        events[at] = step(at, 9.0, excluded_because=why)
    skipped = LogEvent(attempt=1, skipped=SkippedLine(line=3, reason="cut"))
    made = row([*events, skipped, skipped])
    assert (made.status, made.steps_counted, made.seconds_mean) == (Status.SUCCESS, 7, 1.0)
    assert (made.excluded, made.skipped_lines) == ({"skipped iteration": "36", "nan": "40-41"}, 2)
    text = as_table(as_data([made], "35-44"))
    assert "skipped iteration: 36; nan: 40-41" in text
    assert "2 lines of steps" in text


def test_a_folder_that_can_not_be_listed_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    log = tmp_path / "a.log"
    log.touch()
    scandir = os.scandir

    def refusing(place: Any) -> Any:
        if Path(place).name == "shut":
            raise PermissionError(13, "Permission denied", str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refusing)
    paths, unlisted = find_logs([tmp_path])
    assert paths == [log]
    assert [(one.path, one.status) for one in unlisted] == [(str(tmp_path / "shut"), Status.UNREADABLE)]
