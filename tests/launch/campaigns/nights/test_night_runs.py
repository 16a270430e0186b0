"""Which of a killed launcher's runs were cut off with it."""

import json
from pathlib import Path

import pytest

from benchmarks.runs.runfolder import RunFolder
from launch.campaigns.nights import night_runs
from launch.campaigns.nights.night_runs import was_cut_off
from tests.benchmarks.gate.nights_made import CELL, report


class Folder(RunFolder):
    """Its files as they are, its plan made up."""

    def is_whole(self) -> bool:
        return self.path.exists()

    def attempts(self) -> list[int]:
        return [1]

    def plan(self):  # type: ignore[no-untyped-def]
        class Phase:
            def __init__(self, name: str) -> None:
                self.name = name

        class Plan:
            phases = (Phase("first"), Phase("train"))

        return Plan()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(night_runs, "_said_to_have_failed", lambda folder, *_: (folder.path / "error").exists())
    (tmp_path / "run").mkdir()
    return Folder(tmp_path / "run")


def ended(folder: Folder, phase: str, code: int, *, interrupted: bool = False) -> None:
    place = folder.phase_dir(phase)
    place.mkdir(parents=True)
    line = {"rank": 0, "exit_code": code, "interrupted": interrupted}
    (place / "exits.jsonl").write_text(json.dumps(line) + "\n")


def test_one_that_left_no_folder_or_no_end_was(folder: Folder, tmp_path: Path) -> None:
    assert was_cut_off(Folder(tmp_path / "nothing"))
    assert was_cut_off(folder)
    ended(folder, "first", 0)
    assert was_cut_off(folder)


def test_one_whose_worker_said_why_it_failed_was_not(folder: Folder) -> None:
    (folder.path / "error").touch()
    assert not was_cut_off(folder)


@pytest.mark.parametrize("code", [1, -11])
def test_one_that_crashed_by_itself_was_not(folder: Folder, code: int) -> None:
    ended(folder, "first", code)
    assert not was_cut_off(folder)


def test_one_that_ended_and_proves_nothing_was_not(folder: Folder) -> None:
    ended(folder, "first", 0)
    ended(folder, "train", 0)
    assert not was_cut_off(folder)


def test_one_that_somebody_interrupted_was(folder: Folder) -> None:
    ended(folder, "first", 0)
    ended(folder, "train", 1, interrupted=True)
    assert was_cut_off(folder)


def test_a_job_that_was_submitted_was_not(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "is_queued", lambda _self: True)
    monkeypatch.setattr(Folder, "job_ids", lambda _self: ["7"])
    assert not was_cut_off(folder)
    monkeypatch.setattr(Folder, "job_ids", lambda _self: [])
    assert was_cut_off(folder)


def test_cells_that_came_or_went_are_named(tmp_path: Path) -> None:
    left = report([])
    assert night_runs.another_suite(left, [], {}, tmp_path) is None
    assert night_runs.another_suite(left, [CELL], {}, tmp_path) == "tiny is new"
