"""Nights of a suite as lines."""

from benchmarks.dashboard.charts import boards_of_nights
from benchmarks.dashboard.folders import Board
from benchmarks.nightly.values import NightReport
from tests.benchmarks.dashboard.made import judgement, report

TAG = "2 nights of smoke: seconds_per_step/tiny"
VALUES = {"2026-11-01": 1.0, "2026-11-02": 1.2, "2026-11-03": 2.0, "2026-11-04": 2.4}


def line(board: Board, tag: str) -> dict[int, float]:
    return {point.step: point.scalars[tag] for point in board.points if tag in point.scalars}


def lines(*reports: NightReport) -> dict[str, dict[int, float]]:
    return {board.name: line(board, TAG) for board in boards_of_nights(reports)}


def test_what_the_newest_report_says_of_a_night_counts() -> None:
    older = report("2026-11-02", {"tiny": [judgement({"2026-11-01": 5.0, "2026-11-02": 6.0})]})
    found = lines(report("2026-11-04", {"tiny": [judgement(VALUES)]}), older)
    assert found == {"nights/smoke": {0: 1.0, 1: 1.2, 2: 2.0, 3: 2.4}}


def test_suites_and_cells_have_lines_of_their_own() -> None:
    one = {"tiny": [judgement(VALUES)], "small": [judgement(VALUES)]}
    found = boards_of_nights([report("2026-11-04", one), report("2026-11-04", one, suite="large")])
    assert [board.name for board in found] == ["nights/large", "nights/smoke"]
    assert set(found[1].points[0].scalars) == {TAG, TAG.replace("tiny", "small")}
