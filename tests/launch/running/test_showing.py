"""What the screen says to do next: of a failed run, which log to read first."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.jobs.job_record import AttemptEnd
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import RunFolder
from launch.running.showing import next_command


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two attempts of three ranks, of whom one in the second never wrote a log."""
    for name in ("attempt-1/perf/rank-0.log", "attempt-1/perf/rank-1.log", "attempt-1/perf/rank-2.log"):
        path = tmp_path / "a run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        later = tmp_path / "a run" / name.replace("attempt-1", "attempt-2")
        later.parent.mkdir(parents=True, exist_ok=True)
        if "rank-1" not in name:
            later.touch()
    return RunFolder(tmp_path / "a run")


def next_of(folder: RunFolder, *attempts: AttemptEnd, status: str = "failed", profiled: bool = False) -> str:
    against = ["profiled"] if profiled else []
    result = SimpleNamespace(status=status, attempts=list(attempts), not_comparable=against)
    said = next_command(folder, cast("Result", result))
    return said.replace(str(folder.path), "RUN")


def end(attempt: int, rank: int | None = None) -> AttemptEnd:
    return AttemptEnd(attempt=attempt, outcome="failed", text="", steps=0, rank=rank)


def test_the_log_is_that_of_the_rank_that_the_last_attempt_names(folder: RunFolder) -> None:
    assert next_of(folder, end(1, 1), end(2, 2)) == "tail -n 40 'RUN'/attempt-2/*/rank-2.log"
    assert next_of(folder, end(1, 1)) == "tail -n 40 'RUN'/attempt-1/*/rank-1.log"


def test_a_rank_that_is_not_named_or_left_no_log_gives_way_to_the_first(folder: RunFolder) -> None:
    assert next_of(folder, end(2)) == "tail -n 40 'RUN'/attempt-2/*/rank-0.log"
    assert next_of(folder, end(2, 1)) == "tail -n 40 'RUN'/attempt-2/*/rank-0.log"
    assert next_of(folder) == "tail -n 40 'RUN'/attempt-2/*/rank-0.log"  # a result of before there were attempts


def test_a_job_without_an_attempt_has_its_own_output_or_nothing(folder: RunFolder) -> None:
    assert next_of(folder, end(0)) == "python launch/verify.py 'RUN'"
    (folder.path / "slurm-7.out").touch()
    assert next_of(folder, end(0)) == "tail -n 40 'RUN'/slurm-*.out"


def test_a_run_that_went_through_is_verified(folder: RunFolder) -> None:
    assert next_of(folder, end(2, 2), status="valid").startswith("python launch/verify.py 'RUN'\n")


def test_the_trace_of_a_profiled_run_is_looked_at_first(folder: RunFolder) -> None:
    said = next_of(folder, end(2, 2), status="valid", profiled=True)
    assert said.startswith("python launch/report.py trace 'RUN'\npython launch/verify.py 'RUN'\n")
