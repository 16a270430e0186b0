"""A night on the screen and as Markdown."""

import pytest
from msgspec.structs import replace

from benchmarks.nightly.night import unjudged
from benchmarks.nightly.report_text import headline, markdown, next_commands, screen_text, value_text
from benchmarks.nightly.suites import METRICS
from benchmarks.verdict import Verdict
from tests.benchmarks.nightly.nights_made import CELL, entry, history, judged, night_name, report

SLOW, _ = judged(1.5, history(), [1.5, 1.51, 1.49])


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("seconds_per_step", 0.0125, "12.5 ms"),
        ("excess", 1.021, "+2.10%"),
        ("memory_bytes", 3.2e9, "3.20 GB"),
        ("last_loss", 5.25, "5.25 nats"),
        ("tokens_per_second_per_gpu", 12345.0, "12,345 tokens/s"),
        ("seconds_per_step", None, "-"),
    ],
)
def test_values_have_their_units(name: str, value: float | None, text: str) -> None:
    assert value_text(METRICS[name], value) == text


def test_a_regression_names_cell_effect_interval_re_runs_and_code() -> None:
    text = screen_text(report([SLOW], slowed_by=0.5))
    row = next(line for line in text.splitlines() if line.startswith("  tiny"))
    assert "+50.00% (+49.18 to +50.82)" in row
    assert row.endswith("worse (regression)")
    assert "first run: 1.5 s; re-runs: 1.5 s, 1.51 s, 1.49 s" in text
    assert f"since night {night_name(20)}" in text
    assert "exit code      3: " in text
    assert text.splitlines()[1].startswith("slowed on purpose by 50%")


def test_the_figure_beside_a_change_is_what_the_change_is_of() -> None:
    cell, _ = judged(1.5, history(), [1.6, 1.61, 1.59])
    row = next(line for line in screen_text(report([cell])).splitlines() if line.startswith("  tiny"))
    assert "  1.6 s  " in row and "+60.00%" in row


def test_a_regression_and_a_failed_run_name_the_command_to_run_next() -> None:
    failed = replace(SLOW, cell="other", status="failed", verdict=Verdict.NOT_TESTED, run_id="run-9", judgements=[])
    compared, logs = next_commands(report([SLOW, failed], history=["/data/runs"]))
    assert "night<20261120T023000Z' suite=" in compared
    assert compared.endswith("--output_dir=/data/runs --explain")
    assert logs == "python launch/doctor.py logs /data/runs/run-9"


def test_cells_with_too_few_nights_are_one_line_with_what_is_missing_and_when() -> None:
    short, _ = judged(1.0, history()[:3])
    text = screen_text(report([short, replace(short, cell="other")]))
    heading, line, *_ = text.splitlines()
    assert heading.endswith("night 20261120T023000Z: no verdict yet")
    assert line == "4 of the 10 nights that a baseline needs; the first verdict comes 7 nights from now"
    assert "not tested" not in text
    assert text.count("a baseline needs") == 1
    slowed = screen_text(replace(report([short]), slowed_by=0.5))  # itself it counts toward no baseline
    assert "first verdict comes 8 nights" in slowed


def test_a_new_cell_beside_judged_ones_is_named_with_what_it_lacks() -> None:
    new, _ = judged(1.0, [])
    text = screen_text(report([SLOW, replace(new, cell="other")]))
    assert text.splitlines()[0].endswith("worse (of 2 cells: 1 worse (regression), 1 no verdict yet)")
    assert "no verdict yet on other: 1 of" in text
    assert "which confirms the suspicion" in text


def test_what_is_left_out_is_named_the_newest_last() -> None:
    past = [entry(day, slowed_by=0.5) for day in range(1, 8)]
    found, _ = judged(1.0, past)
    text = screen_text(report([found]))
    assert "3 earlier ones" in text
    assert f"{night_name(7)}: slowed on purpose by 50%" in text
    assert night_name(3) not in text


def test_markdown_is_the_same_text_whatever_the_logs_hold() -> None:
    broken = unjudged(CELL, "run-1", "failed", ["out of <memory> | ``` here"])
    made = report([SLOW, broken])
    heading, _, fence, *lines, end = markdown(made).splitlines()
    assert heading == f"## {headline(made)}"
    assert (fence, end) == ("````text", "````")
    assert lines == screen_text(made).splitlines()[2:]
    assert "- out of <memory> | ``` here" in "\n".join(lines)
