"""What the screen says to do next: of a failed run, which log to read first."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.job_record import AttemptEnd
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import RunFolder
from launch.running.screen import next_command


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


ROWS = [
    ([end(1, 1), end(2, 2)], "tail -n 40 'RUN'/attempt-2/*/rank-2.log"),
    ([end(1, 1)], "tail -n 40 'RUN'/attempt-1/*/rank-1.log"),
    ([end(2, 1)], "tail -n 40 'RUN'/attempt-2/*/rank-0.log"),  # rank 1 left no log
    ([], "tail -n 40 'RUN'/attempt-2/*/rank-0.log"),  # a result of before there were attempts
    ([end(0)], "tail -n 40 'RUN'/slurm-*.out"),
]


@pytest.mark.parametrize(("attempts", "said"), ROWS)
def test_the_log_of_a_failed_run_is_that_of_the_rank_that_its_last_attempt_names(
    folder: RunFolder, attempts: list[AttemptEnd], said: str
) -> None:
    (folder.path / "slurm-7.out").touch()
    assert next_of(folder, *attempts) == said


def test_a_run_that_went_through_is_verified_and_a_profiled_one_looked_at_first(folder: RunFolder) -> None:
    verified = next_of(folder, end(2, 2), status="valid")
    assert verified.startswith("python launch/verify.py 'RUN'\n")
    profiled = next_of(folder, end(2, 2), status="valid", profiled=True)
    assert profiled == f"python launch/report.py trace 'RUN'\n{verified}"
