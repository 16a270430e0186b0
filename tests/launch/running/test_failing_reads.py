"""A run on this machine whose folder fails for a moment: its workers continue, and its result is the same."""

import errno
import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path

import msgspec
import pytest

from benchmarks import files
from benchmarks.runs.runfolder import RunFolder, is_followed
from jax_backend import BACKEND
from launch.running import local
from launch.running.execute import StepSink, finish
from launch.running.screen import Screen
from launch.slurm.run_states import states
from tests.benchmarks.conftest import events_of
from tests.failing_reads import EVERY, each_failure
from tests.launch.dashboards.made_runs import begun, train

STEPS = 12


def worker(place: Path) -> list[str]:
    """What writes the events of a rank in three pieces, one of them in the middle of a line."""
    text = "".join(json.dumps(event) + "\n" for event in events_of(steps=STEPS))
    pieces = [text[:300], text[300:700], text[700:]]
    for number, piece in enumerate(pieces):
        (place / f"piece-{number}").write_text(piece)
    cats = "; sleep 0.03; ".join(f"cat {place}/piece-{number} >> events-rank0.jsonl" for number in range(len(pieces)))
    return ["/bin/sh", "-c", cats]


def run(folder: RunFolder, command: list[str]) -> None:
    """As execute.py runs a phase."""
    benchmark = folder.benchmark()
    phase = msgspec.structs.replace(folder.measured_phase(), command=command, environment={})
    phase_dir = folder.phase_dir(phase.name)
    with StepSink(folder, benchmark) as sink, Screen(benchmark.steps, "") as screen:
        follow = BACKEND.follow(benchmark, phase_dir, 1)
        ended = local.run_phase(
            phase, phase_dir, Path(sys.executable), follow, lambda steps: screen.show(sink.take(steps))
        )
        assert [one.exit_code for one in ended] == [0]
        assert len(folder.stored_steps()) == STEPS  # also before finish reads them again


@pytest.mark.slow
@pytest.mark.parametrize("every", EVERY)
def test_no_single_failed_read_stops_a_worker_or_costs_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(local, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(files, "PAUSES_SECONDS", (0.0, 0.0))
    command = worker(tmp_path)
    tried = []
    whole = begun(tmp_path / "runs", "run-1", steps=STEPS)
    shutil.rmtree(whole.attempt_dir(1))  # which run_phase makes
    for reads in each_failure(whole.path, monkeypatch, every):
        run(whole, command)
        result = finish(whole, BACKEND)
        assert (result.status, result.reasons, result.window.counted) == ("valid", [], STEPS - 1), reads.failed
        tried.append(reads.failed)
    assert len(tried) > 50


@pytest.mark.parametrize(("age_seconds", "state"), [(0, "running"), (300, "running"), (3600, "cut off")])
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_the_age_of_its_files_says_whether_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, age_seconds: float, state: str
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    run_folder = begun(tmp_path, "run-1", steps=STEPS)
    train(run_folder, [0.5] * 4)
    then = time.time() - age_seconds
    with StepSink(run_folder, run_folder.benchmark()):
        for path in run_folder.path.rglob("*"):
            os.utime(path, (then, then))
        (row,) = states([run_folder])
    assert row.state == state
    assert is_followed(run_folder) == (state == "running")
