"""Nights of a suite as lines: values, levels, changes."""

from benchmarks.dashboard.charts import boards_of_nights
from benchmarks.dashboard.points import Board
from benchmarks.nightly.values import NightReport
from tests.benchmarks.dashboard.made import judgement, report

TAG = "2 nights of smoke: seconds_per_step/tiny"
VALUES = {"2026-11-01": 1.0, "2026-11-02": 1.2, "2026-11-03": 2.0, "2026-11-04": 2.4}
CHANGE = "2026-11-03"


def line(board: Board, tag: str) -> dict[int, float]:
    return {point.step: point.scalars[tag] for point in board.points if tag in point.scalars}


def lines(*reports: NightReport) -> dict[str, dict[int, float]]:
    return {board.name: line(board, TAG) for board in boards_of_nights(reports)}


def test_nights_their_level_and_each_change_share_a_chart_as_runs_of_their_own() -> None:
    """TensorBoard gives colours to runs, not to tags."""
    assert lines(report("2026-11-04", {"tiny": [judgement(VALUES, CHANGE)]})) == {
        "nights/smoke": {0: 1.0, 1: 1.2, 2: 2.0, 3: 2.4},
        "nights/smoke level": {0: 1.1, 1: 1.1, 2: 2.2, 3: 2.2},
        "nights/smoke change 2026-11-03": {2: 2.0},
    }


def test_what_the_newest_report_says_of_a_night_counts() -> None:
    older = report("2026-11-02", {"tiny": [judgement({"2026-11-01": 5.0, "2026-11-02": 6.0}, "2026-11-02")]})
    found = lines(report("2026-11-04", {"tiny": [judgement(VALUES)]}), older)
    assert found.keys() == {"nights/smoke", "nights/smoke level"}
    assert found["nights/smoke"] == {0: 1.0, 1: 1.2, 2: 2.0, 3: 2.4}


def test_suites_and_cells_have_lines_of_their_own() -> None:
    one = {"tiny": [judgement(VALUES)], "small": [judgement(VALUES)]}
    found = boards_of_nights([report("2026-11-04", one), report("2026-11-04", one, suite="large")])
    assert [board.name for board in found] == [
        "nights/large", "nights/large level", "nights/smoke", "nights/smoke level",
    ]  # fmt: skip
    assert set(found[2].points[0].scalars) == {TAG, TAG.replace("tiny", "small")}
