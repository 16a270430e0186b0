"""Following a run: what is said of a job that waits, can never start, falls silent or cannot be asked for."""

import errno
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import files
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError
from benchmarks.job_record import SchedulerEnd
from benchmarks.runs.find_runs import find_runs, place_of
from benchmarks.runs.runfolder import RunFolder
from jax_backend import BACKEND
from launch.running.runners import Job
from launch.slurm import run_states, submit, watch
from launch.slurm.parsing import QueueState
from tests.failing_reads import EVERY, FailingReads, each_failure

RUNNING = QueueState(job_id="7", state="RUNNING")


class FakeSlurm:
    """Give scripted answers about job 7, one per question; then the job has left the queue."""

    def __init__(self, answers: Sequence[QueueState | Exception]) -> None:
        self.answers = list(answers)
        self.cancelled: list[str] = []
        self.reason: str | None = None  # of an end

    def queue(self, job_ids: Sequence[str]) -> dict[str, QueueState]:
        if not self.answers:
            return {}
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(job_ids, answer)

    def ends(self, job_ids: Sequence[str]) -> dict[str, list[SchedulerEnd]]:
        state = "CANCELLED" if self.cancelled else "COMPLETED"
        end = SchedulerEnd(job_id="", state=state, source="sacct", reason=self.reason)
        return {job: [msgspec.structs.replace(end, job_id=job)] for job in job_ids}

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)

    def find(self, _run_id: str) -> str | None:
        return None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(watch, "FIRST_ASK_SECONDS", 0.05)
    monkeypatch.setattr(watch, "GROWTH", 1.0)
    monkeypatch.setattr(watch, "ACCOUNTING_SECONDS", 1.0)
    yield


def follow(run: RunFolder, slurm: Any) -> Any:
    return watch.watch(run, BACKEND, slurm)


def train(run: RunFolder, steps: int, ranks: int = 1) -> None:
    place = run.phase_dir("perf")
    place.mkdir(parents=True, exist_ok=True)
    lines = [
        {"event": "step", "step": step, "seconds": 0.01, "elapsed_seconds": 0.01 * (step + 1), "loss": 6.0}
        for step in range(steps)
    ]
    for rank in range(ranks):
        (place / f"events-rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(("steps", "words"), [(5, "(a step takes 0.01 s)"), (0, "since the start: the run")])
def test_a_silence_is_reported_once(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], steps: int, words: str
) -> None:
    monkeypatch.setattr(run_states, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(run_states, "FIRST_STEP_SECONDS", 0.2)
    train(run, steps)
    follow(run, FakeSlurm([RUNNING] * 12))
    printed = capsys.readouterr().err
    assert printed.count("the run may hang") == printed.count(words) == 1
    assert f"status.py --cancel {run.path}" in printed


def test_a_run_that_nobody_can_look_at_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a folder whose server has forgotten it."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "benchmark.json").touch()
    stat = Path.stat

    def stale(path: Path, **more: bool) -> os.stat_result:
        if path.is_relative_to(tmp_path / "a"):
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return stat(path, **more)

    monkeypatch.setattr(Path, "stat", stale)
    assert [found.run_id for found in find_runs(tmp_path)] == ["a", "b"]
    assert place_of(str(tmp_path / "a"), tmp_path) == tmp_path / "a"


def test_a_run_that_goes_on_is_not_called_silent_and_a_second_follower_writes_no_step_twice(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    train(run, 5)
    result = follow(run, FakeSlurm([RUNNING] * 4))
    assert "hang" not in capsys.readouterr().err
    assert [attempt.steps for attempt in result.attempts] == [5]
    before = (run.path / "steps.jsonl").read_text()
    follow(run, FakeSlurm([RUNNING] * 2))
    assert (run.path / "steps.jsonl").read_text() == before
    assert len(run.stored_steps()) == 5


@pytest.mark.parametrize(
    ("steps", "reason", "state"),
    [(5, None, "cancelled"), (0, "Dependency", "cancelled"), (0, "PartitionNodeLimit", "failed")],
)
def test_a_cancelled_run_is_listed_as_cancelled(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, steps: int, reason: str | None, state: str
) -> None:
    slurm = FakeSlurm([])
    slurm.reason = reason
    slurm.cancel("7")
    monkeypatch.setattr(run_states, "slurm_of", lambda _folder: slurm)
    if steps:
        train(run, steps)
    for _ in range(2):  # collected just now, and before
        (row,) = run_states.states([run])
        assert (row.state, row.ended) == (state, True), row
    assert run.stored_result().status == "failed"


def test_a_requeued_run_shows_no_step_of_the_attempt_before(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = msgspec.structs.replace(RUNNING, state="PENDING", reason="BeginTime")
    monkeypatch.setattr(run_states, "slurm_of", lambda _folder: FakeSlurm([waits]))
    train(run, 5)
    (row,) = run_states.states([run])
    assert (row.state, row.step, row.seconds_per_step) == ("pending", None, None)
    assert row.detail.endswith("attempt 1 ended after step 4")


def test_what_can_never_start_is_taken_out_of_the_queue(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    never = msgspec.structs.replace(RUNNING, state="PENDING", reason="PartitionNodeLimit")
    slurm = FakeSlurm([never, never])
    result = follow(run, slurm)
    assert slurm.cancelled == ["7"]
    assert "can never start" in capsys.readouterr().err
    assert result.status == "failed"
    assert [attempt.outcome for attempt in result.attempts] == ["never_started"]


def test_a_sweep_does_not_wait_for_what_can_never_start(
    run: RunFolder, site_configs: Configs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    never = msgspec.structs.replace(RUNNING, state="PENDING", reason="PartitionTimeLimit")
    slurm = FakeSlurm([never])
    for module in (run_states, submit):
        monkeypatch.setattr(module, "slurm_of", lambda _folder: slurm)
    runner = submit.SlurmRunner(run.benchmark().site, site_configs, run.path.parent, Job(typed={}), lambda *_: None)
    assert runner.ended(["run-1"]) == set()
    assert slurm.cancelled == ["7"]
    assert "can never start: PartitionTimeLimit" in capsys.readouterr().err
    assert runner.ended(["run-1"]) == {"run-1"}
    assert run.stored_result().status == "failed"


def test_a_controller_that_is_gone_ends_no_following(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    gone = RunError("Slurm does not answer")
    train(run, 5)
    result = follow(run, FakeSlurm([RUNNING, gone, gone, gone, RUNNING]))
    printed = capsys.readouterr().err
    assert printed.count("Slurm does not answer; the run continues") == 1
    assert printed.count("Slurm answers again") == 1
    assert [attempt.outcome for attempt in result.attempts] == ["completed"]


def test_a_job_that_has_ended_is_collected_though_slurm_is_gone_for_good(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "UNANSWERED_SECONDS", 0.1)
    train(run, 5)
    lines = [{"event": "start", "time": 1.0, "job_id": "7", "restarts": 0, "nodes": "node1"}]
    lines.append({"event": "end", "time": 9.0, "exit_code": 3})
    (run.attempt_dir(1) / "job.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    gone = RequestError("the slurm.conf is not there")
    slurm = FakeSlurm([gone] * 50)
    monkeypatch.setattr(slurm, "ends", slurm.queue)
    (attempt,) = follow(run, slurm).attempts
    assert (attempt.outcome, attempt.steps) == ("failed", 5)
    assert "Slurm does not answer" in attempt.text


def test_a_cluster_that_is_gone_with_the_run_is_given_up(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "GIVE_UP_SECONDS", 0.2)
    train(run, 5)
    with pytest.raises(RunError, match="neither Slurm nor the run") as given_up:
        follow(run, FakeSlurm([RequestError("the slurm.conf is not there")] * 200))
    assert "status.py --collect" in given_up.value.next_command


def test_a_job_submitted_by_hand_once_more_is_asked_for_too(run: RunFolder) -> None:
    train(run, 5)
    for attempt, job_id in ((1, "7"), (2, "9")):
        run.attempt_dir(attempt).mkdir(exist_ok=True)
        line = {"event": "start", "time": 1.0, "job_id": job_id, "restarts": 0, "nodes": "node1"}
        (run.attempt_dir(attempt) / "job.jsonl").write_text(json.dumps(line) + "\n")
    assert run.job_ids() == ["7", "9"]
    result = follow(run, FakeSlurm([RUNNING]))
    assert [attempt.outcome for attempt in result.attempts] == ["completed", "completed"]


@pytest.mark.slow
@pytest.mark.parametrize("every", EVERY)
def test_no_single_failed_read_ends_the_following_of_a_job(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(files, "PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(watch, "FIRST_ASK_SECONDS", 0.0)
    train(run, 5)
    tried = []
    for reads in each_failure(run.path, monkeypatch, every):
        result = follow(run, FakeSlurm([RUNNING] * 2))
        assert [(one.outcome, one.steps) for one in result.attempts] == [("completed", 5)], reads.failed
        tried.append(reads.failed)
    assert len(tried) > 50


def test_a_look_opens_as_many_files_for_many_ranks_as_for_one(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for ranks in (1, 50):
        train(run, 5, ranks)
        look = BACKEND.follow(run.benchmark(), run.phase_dir("perf"), 1)
        with monkeypatch.context() as now:
            reads = FailingReads(run.path, at=0)
            reads.patch(now)
            assert [step.step for step in look()] == list(range(5))
            assert look() == []
            run_states.states([run])
        counts.append(reads.count)
    assert counts[0] == counts[1]
