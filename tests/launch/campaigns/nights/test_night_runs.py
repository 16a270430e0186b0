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


def test_which_runs_ended_with_their_launcher(folder: Folder, tmp_path: Path) -> None:
    assert was_cut_off(Folder(tmp_path / "nothing"))
    assert was_cut_off(folder)  # no phase has ended
    (folder.path / "error").touch()
    assert not was_cut_off(folder)  # its worker said why it failed
    ended(folder, "first", 0)
    ended(folder, "train", 0)
    assert not was_cut_off(folder)


@pytest.mark.parametrize(("code", "interrupted"), [(1, False), (-11, False), (1, True)])
def test_a_crash_is_told_from_an_interruption(folder: Folder, code: int, interrupted: bool) -> None:
    ended(folder, "first", 0)
    ended(folder, "train", code, interrupted=interrupted)
    assert was_cut_off(folder) == interrupted


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
