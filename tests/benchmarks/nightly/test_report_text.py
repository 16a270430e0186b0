"""A night on the screen and as Markdown."""

import pytest
from msgspec.structs import replace

from benchmarks.nightly.judging import report_of
from benchmarks.nightly.night import unjudged
from benchmarks.nightly.report_text import end, headline, markdown, next_commands, screen_text
from benchmarks.nightly.values import CellReport
from benchmarks.verdict import Verdict
from tests.benchmarks.nightly.nights_made import CELL, history, judged, report

SLOW, _ = judged(1.5, history(), [1.5, 1.51, 1.49])


def test_a_regression_and_a_failed_run_name_the_command_to_run_next() -> None:
    failed = replace(SLOW, cell="other", status="failed", verdict=Verdict.NOT_TESTED, run_id="run-9", judgements=[])
    compared, logs = next_commands(report([SLOW, failed], history=["/data/runs"]))
    assert "night<20261120T023000Z' suite=" in compared
    assert compared.endswith("--output_dir=/data/runs --explain")
    assert logs == "python launch/doctor.py logs /data/runs/run-9"
    earlier = replace(SLOW, judgements=[replace(SLOW.judgements[0], since="20261118T023000Z"), *SLOW.judgements[1:]])
    (compared,) = next_commands(report([earlier]))
    assert "night<20261118T023000Z' suite=" in compared, "a night of the same regression is no baseline"
    assert "night=20261120T023000Z" in compared


def test_cells_with_too_few_nights_are_one_line_with_what_is_missing_and_when() -> None:
    short, _ = judged(1.0, history()[:3])
    text = screen_text(report([short, replace(short, cell="other")]))
    heading, line, *_ = text.splitlines()
    assert heading.endswith("night 20261120T023000Z: no verdict yet, baseline 4 of 10 nights")
    assert line == "4 of the 10 nights that a baseline needs; the first verdict comes 7 nights from now"
    assert "not tested" not in text
    assert text.count("a baseline needs") == 1
    slowed = screen_text(replace(report([short]), slowed_by=0.5))  # itself it counts toward no baseline
    assert "first verdict comes 8 nights" in slowed
    assert slowed.startswith("TRIAL, slowed by 50% · suite smoke")
    mixed = [line for line in screen_text(report([short, SLOW])).splitlines() if "seconds/step" in line]
    assert [line.endswith("no verdict yet") for line in mixed[:2]] == [True, False]


NOISY = [1.0, 1.2, 0.85, 1.15, 0.9, 1.1, 0.8, 1.25, 0.95, 1.05]


@pytest.mark.parametrize(
    ("past", "must_detect", "blind", "code"),
    [
        (NOISY, None, True, 0),
        (NOISY, 5.0, True, 3),
        (NOISY, 900.0, False, 0),
        (NOISY[:4], 5.0, False, 0),  # without a baseline no change is judged yet
        ([1.0] * 10, None, False, 0),
        ([1.0] * 10, 0.1, True, 3),
    ],
)
def test_a_night_that_cannot_see_says_so_first(
    past: list[float], must_detect: float | None, blind: bool, code: int
) -> None:
    cell, _ = judged(1.0, history(past))
    empty = replace(report([]), must_detect=must_detect)
    made = report_of(empty, [cell], empty.budget, empty.finished)
    heading, *lines = screen_text(made).splitlines()
    assert (heading.startswith("BLIND: changes below "), made.exit_code) == (blind, code)
    assert ((made.blind_below_percent or 0.0) > (must_detect or 10.0)) == blind
    assert [line.split()[0] for line in lines if line.startswith(("  reason", "  helps", "  next"))] == (
        ["reason", "helps", "next"] if blind else []
    )


@pytest.mark.parametrize(
    ("cell", "must_detect", "line"),
    [
        (SLOW, None, "3: regression (tiny)"),
        (unjudged(CELL, "run-1", "failed", []), None, "1: a run failed (tiny)"),
        (unjudged(CELL, None, "missing", []), None, "1: a run did not end (tiny)"),
        (unjudged(CELL, "run-1", "invalid", []), None, "3: no comparable result (tiny)"),
        (judged(1.0, history(NOISY))[0], None, "0: no regression was seen"),
        (judged(1.0, history(NOISY))[0], 2.0, "3: blind, but the suite must detect a change of 2%"),
    ],
)
def test_the_exit_code_of_a_night_has_one_reason(cell: CellReport, must_detect: float | None, line: str) -> None:
    made = report_of(report([], must_detect=must_detect), [cell], report([]).budget, None)
    shown = dict(end(made))
    assert shown["exit code"] == line
    assert ("figures" in shown) == ("compare.py" in shown.get("next", ""))


def test_markdown_is_the_same_text_whatever_the_logs_hold() -> None:
    broken = unjudged(CELL, "run-1", "failed", ["out of <memory> | ``` here"])
    made = report([SLOW, broken])
    heading, _, fence, *lines, end = markdown(made).splitlines()
    assert heading == f"## `{headline(made)}`"
    assert (fence, end) == ("````text", "````")
    assert lines == screen_text(made).splitlines()[2:]
    assert "- out of <memory> | ``` here" in "\n".join(lines)
