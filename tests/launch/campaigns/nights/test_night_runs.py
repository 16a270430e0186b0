"""What run folders tell the launcher of a night."""

from pathlib import Path

from benchmarks.runs.runfolder import RunFolder
from launch.campaigns.nights import night_runs
from tests.benchmarks.nightly.nights_made import CELL, report


def test_cells_that_came_or_went_are_named(tmp_path: Path) -> None:
    left = report([])
    assert night_runs.another_suite(left, [], {}, tmp_path) is None
    assert night_runs.another_suite(left, [CELL], {}, tmp_path) == "tiny is new"


def test_a_folder_without_a_job_was_not_submitted(tmp_path: Path) -> None:
    assert not night_runs.was_submitted(RunFolder(tmp_path))
    (tmp_path / "job.json").write_text("{")
    assert not night_runs.was_submitted(RunFolder(tmp_path))
