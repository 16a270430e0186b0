"""A sweep on a queue made of files: throttled, resumed after a kill at any point, alone; and with real local runs."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import SAME_COMMAND, RequestError, RunError, StepmarkError
from benchmarks.request.resolve import Request, requests_of, resolve
from benchmarks.runs import campaign_record
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RESULT, RunFolder
from benchmarks.sweeps import sweep as record
from benchmarks.sweeps import sweep_report
from benchmarks.sweeps.sweep import Sweep
from benchmarks.values import Benchmark, Plan, json_text, name_words, to_builtins
from jax_backend import BACKEND
from launch.campaigns import scheduler, sweeping
from tests.benchmarks.compare.made import run as made_run
from tests.end_to_end.clusters import TOY, ClusterOfTests, until
from tests.toy_backend import install, make_environment_in

REPOSITORY = Path(__file__).resolve().parents[3]
CONFIGS = Configs()
APPLIED = {"way": "auto", "seen": {"applied": True, "reason": "seen"}}
COMMAND = ["python", "launch/run.py", "--gpus=1,2"]


def requests(gpus: str = "1,2", pgle: str = "off") -> list[Request]:
    return requests_of({"backend": "jax", "model": "llama2_tiny", "gpus": gpus, "pgle": pgle}, {"steps": 12})


class Queue:
    """A Runner whose queue is a folder: a job is a file, and it ends when it was asked for `polls` times."""

    def __init__(self, output_dir: Path, polls: int = 2, point: Callable[[], None] = lambda: None) -> None:
        self.output_dir = output_dir
        self.jobs = output_dir.with_name("queue")
        self.jobs.mkdir(exist_ok=True)
        self.polls = polls
        self.point = point  # called between any two things that last
        self.endings: dict[int, str] = {}  # the number of a start -> how that run ends, if it is not valid
        self.started: list[int] = []  # the devices of each
        self.most = 0  # jobs in the queue at once
        self.ways: list[str] = []  # of PGLE

    def resolve(self, request: Request) -> Benchmark:
        return resolve(request, CONFIGS, BACKEND)

    def resolve_offline(self, request: Request) -> Benchmark:
        return resolve(request, CONFIGS, BACKEND)

    def refusals(self, _benchmark: Benchmark) -> Iterator[StepmarkError]:
        yield RequestError("no such node")

    def plan(self, benchmark: Benchmark, backend: Backend) -> Plan:
        return backend.plan(benchmark)

    def start(self, benchmark: Benchmark, run_id: str) -> None:
        self.point()
        (self.output_dir / run_id).mkdir()
        self.point()
        ending = self.endings.get(len(self.started), "valid")
        self.started.append(benchmark.gpus)
        self.ways.append(benchmark.instruments.pgle)
        if ending == "refused":
            (self.output_dir / run_id).rmdir()
            raise RequestError("sbatch said no")
        if ending == "unsubmitted":
            raise RunError("sbatch was not answered")
        self._write(
            run_id, {"ending": ending, "asked": 0, "gpus": benchmark.gpus, "pgle": benchmark.instruments.pgle}
        )
        if ending == "unanswered":
            self._write(
                run_id, {"ending": "valid", "asked": 0, "gpus": benchmark.gpus, "pgle": benchmark.instruments.pgle}
            )
            raise RunError("sbatch was not answered")
        self.most = max(self.most, len(self.open_jobs()))
        self.point()

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        assert all((self.output_dir / run_id).is_dir() for run_id in run_ids)
        return {run_id for run_id in run_ids if self._has_ended(run_id)}

    def _has_ended(self, run_id: str) -> bool:
        if not (self.jobs / run_id).exists():
            return True  # it never came so far as to be submitted
        job = json.loads((self.jobs / run_id).read_text())
        job["asked"] += 1
        self._write(run_id, job)
        if job["asked"] < self.polls:
            return False
        self.point()
        self._write_result(run_id, job)
        self.point()
        return True

    def _write(self, run_id: str, job: dict[str, Any]) -> None:
        (self.jobs / f".{run_id}").write_text(json.dumps(job))
        (self.jobs / f".{run_id}").replace(self.jobs / run_id)

    def _write_result(self, run_id: str, job: dict[str, Any]) -> None:
        benchmark, status = self.resolve(requests(str(job["gpus"]), job["pgle"])[0]), job["ending"]
        seconds = 0.1 if job["pgle"] == "off" else 0.09
        result = to_builtins(made_run(run_id, seconds).result)
        made = {
            **result, "status": status, "reasons": [] if status == "valid" else ["told to"],
            "benchmark": {**result["benchmark"], **name_words(benchmark)},
            "pgle": APPLIED if job["pgle"] != "off" else None,
        }  # fmt: skip
        folder = RunFolder(self.output_dir / run_id)
        folder.write(BENCHMARK, benchmark)
        folder.write(PLAN, BACKEND.plan(benchmark))
        folder.write(PROVENANCE, {})
        folder.write(RESULT, made)

    def open_jobs(self) -> list[str]:
        return [path.name for path in self.jobs.glob("2*") if not (self.output_dir / path.name / RESULT).exists()]


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "results")


def run(
    queue: Queue, repeats: int = 2, max_jobs: int = 2, gpus: str = "1,2", pgle: str = "off", **options: Any
) -> int:
    options = {"command": COMMAND, "sleep": lambda _: None, **options}
    return sweeping.run_sweep(requests(gpus, pgle), repeats, queue, queue.output_dir, max_jobs=max_jobs, **options)


def sweeps(queue: Queue) -> list[Sweep]:
    return [sweep_report.read_sweep(path) for path in sorted(queue.output_dir.glob("sweep-*.json"))]


def only_sweep(queue: Queue) -> Sweep:
    (found,) = sweeps(queue)
    return found


# --- from the first to the last run ----------------------------------------------------------


@pytest.mark.parametrize("max_jobs", [1, 3, 8])  # one machine; a throttled queue; one that takes all at once
def test_every_cell_runs_so_often_in_order_and_a_table_ends_it(
    queue: Queue, capsys: pytest.CaptureFixture[str], max_jobs: int
) -> None:
    assert run(queue, repeats=3, max_jobs=max_jobs, gpus="1,2,4") == 0
    assert queue.started == [1, 2, 4, 4, 2, 1, 1, 2, 4]
    assert queue.most == max_jobs
    shown = capsys.readouterr()
    assert shown.out.count("3 of 3") == 3
    assert "run 4 of 9: --gpus=4, repeat 2: 2" in shown.err
    assert str(queue.output_dir / f"{only_sweep(queue).sweep_id}.json") in shown.out


def test_an_ab_runs_in_turn_and_ends_with_the_gain_and_its_verdict(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(queue, repeats=3, max_jobs=1, gpus="1", pgle="off,auto") == 0
    assert queue.ways == ["off", "auto", "auto", "off", "off", "auto"]
    shown = capsys.readouterr()
    assert "BETTER: pgle=auto takes 90 ms" in shown.out
    path = next(queue.output_dir.glob("sweep-*.json"))
    assert sweep_report.text(sweep_report.report_of_file(path), path) in shown.out


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("failed", 1, "failed: told to"),
        ("invalid", 3, "invalid: told to"),
        ("refused", 1, "could not be started: sbatch said no"),
        ("unsubmitted", 1, "could not be started: sbatch was not answered"),
    ],
)
def test_a_run_that_is_not_valid_shows_in_the_code_and_the_table_and_is_run_again(
    queue: Queue, capsys: pytest.CaptureFixture[str], ending: str, code: int, message: str
) -> None:
    queue.endings = {1: ending}
    assert run(queue) == code
    assert queue.started == [1, 2, 2, 1]  # the others continue
    shown, before = capsys.readouterr(), only_sweep(queue)
    assert f"left out  --gpus=2, repeat 1: {before.runs[1].run_id} {message}" in shown.out
    assert "3 of 4 runs valid" in shown.err
    assert "to resume it:  python launch/run.py --gpus=1,2" in shown.err
    queue.started, queue.endings = [], {}
    assert run(queue) == 0
    assert queue.started == [2]
    shown = capsys.readouterr()
    assert "3 of 4 runs valid" in shown.err
    assert "valid, 1 left" in shown.err
    assert f"{before.runs[1].run_id} {message}" in shown.out
    assert only_sweep(queue).sweep_id == before.sweep_id


def test_a_job_submitted_without_an_answer_is_followed(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.endings = {1: "unanswered"}
    assert run(queue) == 0
    assert queue.started == [1, 2, 2, 1]
    shown = capsys.readouterr()
    assert "stepmark: sbatch was not answered" in shown.err
    assert "could not be started" not in shown.out


def test_nothing_is_started_after_two_failed_starts_in_a_row(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.endings = {1: "refused", 2: "refused"}
    assert run(queue, gpus="1,2,4") == 1
    assert queue.started == [1, 2, 4]
    assert "2 starts in a row failed" in capsys.readouterr().err


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [({"gpus": "1,3,2"}, "1 of the 3 cells"), ({"repeats": 0}, "--repeats=0"), ({"max_jobs": 0}, "--max_jobs=0")],
)
def test_what_cannot_work_starts_nothing(queue: Queue, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        run(queue, **options)
    assert not queue.output_dir.exists()
    assert queue.started == []


def test_a_dry_run_writes_nothing_and_asks_no_site(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Queue, "resolve")
    text = sweeping.plan_text(record.check(requests(), queue.resolve_offline, False), 2, queue)  # type: ignore[arg-type]
    assert "2 cells x 2 repeats = 4 runs" in text
    assert text.count("would be refused: no such node") == 1  # of both cells
    assert not queue.output_dir.exists()


# --- resuming -----------------------------------------------------------------------------------


def test_a_sweep_that_is_done_starts_a_new_one(queue: Queue) -> None:
    assert run(queue) == 0
    assert run(queue) == 0
    assert len(queue.started) == 8
    assert [len(found.runs) for found in sweeps(queue)] == [4, 4]


def test_changed_configs_are_reported_and_not_mixed(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.endings = {0: "failed"}
    run(queue)
    path = next(queue.output_dir.glob("sweep-*.json"))
    old = sweep_report.read_sweep(path)
    changed = [msgspec.structs.replace(old.cells[0], digest="other"), *old.cells[1:]]
    path.write_text(json_text(msgspec.structs.replace(old, cells=changed)))
    assert run(queue) == 0
    assert len(queue.started) == 8
    assert "change in the configs" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 1}', "\xff"])
def test_a_record_that_cannot_be_read_is_refused(queue: Queue, text: str) -> None:
    queue.endings = {0: "failed"}
    run(queue)
    next(queue.output_dir.glob("sweep-*.json")).write_text(text)
    with pytest.raises(RequestError, match="record of the sweep cannot be read") as refusal:
        run(queue)
    assert refusal.value.next_command == "--resume=false"


def test_nowait_fills_the_queue_and_leaves(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(queue, wait=False) == 0
    assert queue.started == [1, 2]
    shown = capsys.readouterr()
    assert "2 runs in the queue" in shown.err
    assert shown.out == ""
    going = {run.run_id for run in only_sweep(queue).runs}
    report = sweep_report.report_of_file(next(queue.output_dir.glob("sweep-*.json")))
    assert all(point.left_out[0].endswith("is still running") for point in report.series[0].points)
    assert run(queue) == 0
    assert len(queue.started) == 4  # those in the queue were followed, not started twice
    assert going <= {run.run_id for run in only_sweep(queue).runs}


# --- ended from outside -----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_says_what_goes_on_and_how(
    queue: Queue, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def sleep(_: float) -> None:
        os.kill(os.getpid(), number)
        time.sleep(5)

    queue.polls = 5
    assert run(queue, sleep=sleep) == 130
    shown = capsys.readouterr()
    assert "interrupted" in shown.err
    assert "0 of 4 runs valid" in shown.err
    assert f"still in the queue: {', '.join(run.run_id for run in only_sweep(queue).runs)}" in shown.err
    assert "python launch/status.py --output_dir=" in shown.err
    assert "to resume it:  python launch/run.py --gpus=1,2" in shown.err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert run(queue) == 0
    assert len(queue.started) == 4


class Mute(Queue):
    """A queue that does not answer so many questions."""

    silences = 10**9

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        self.silences -= 1
        if self.silences >= 0:
            raise RunError(f"slurmctld does not answer for {len(run_ids)} jobs")
        return super().ended(run_ids)


def test_a_queue_that_is_silent_for_a_while_is_asked_again(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    silent = Mute(queue.output_dir)
    silent.silences = 5
    assert run(silent) == 0
    assert capsys.readouterr().err.count("trying again for 10 min") == 1


def test_a_queue_that_does_not_answer_for_long_ends_it_with_the_same_words(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []
    with pytest.raises(RunError, match="does not answer"):
        run(Mute(queue.output_dir), sleep=waits.append)
    assert scheduler.LONGEST_SILENCE_SECONDS <= sum(waits) < scheduler.LONGEST_SILENCE_SECONDS + 30
    assert "still in the queue: 2" in capsys.readouterr().err
    assert run(queue) == 0
    assert len(queue.started) == 2  # and two by the first


def test_a_record_that_cannot_be_written_starts_nothing_more(
    queue: Queue, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = campaign_record.write_atomically, []

    def fill(path: Path, data: bytes) -> None:
        written.append(path)
        if len(written) > 2:
            raise RunError(f"{path.name} could not be written: No space left on device", where=str(path.parent))
        write(path, data)

    monkeypatch.setattr(campaign_record, "write_atomically", fill)
    with pytest.raises(RunError, match="No space left on device") as refusal:
        run(queue)
    assert refusal.value.next_command == SAME_COMMAND
    assert queue.started == [1]
    assert f"still in the queue: {queue.open_jobs()[0]}\n" in capsys.readouterr().err


def in_a_child(work: Callable[[], int]) -> int:
    """Its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 99
        with contextlib.suppress(BaseException), Path(os.devnull).open("w") as nowhere:
            sys.stdout = sys.stderr = nowhere
            code = work()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_at_any_point_the_same_command_finishes_with_no_run_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = campaign_record.write_atomically
    left = 0

    def point() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write_with_points(path: Path, data: bytes) -> None:
        point()
        write(path, data)
        point()

    monkeypatch.setattr(campaign_record, "write_atomically", write_with_points)
    for number in range(1, 200):
        (tmp_path / f"{number}").mkdir()
        queue = Queue(tmp_path / f"{number}" / "results")
        left, queue.point = number, point
        code = in_a_child(functools.partial(run, queue))
        assert code == -signal.SIGKILL
        if any(found.shown for found in sweeps(queue)):
            break  # killed after all was done
        left = 0
        assert in_a_child(functools.partial(run, queue)) == 0
        of = only_sweep(queue)
        slots = [(run.cell, run.repeat) for run in of.runs if (queue.jobs / run.run_id).exists()]
        assert sorted(slots) == sorted(record.slots(2, 2)), f"killed at point {number}"
        assert len(list(queue.jobs.glob("2*"))) == 4
        assert queue.open_jobs() == []
    assert number > 30  # it was killed at so many points


def test_two_launchers_are_not_let_at_one_sweep(queue: Queue, tmp_path: Path) -> None:
    ready, seen = tmp_path / "ready", tmp_path / "seen"

    def hold(_: float) -> None:
        ready.write_text("")
        while not seen.exists():
            time.sleep(0.01)

    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os._exit(run(queue, sleep=hold))
        os._exit(99)
    try:
        until(ready.exists, "the first launcher waits for its runs")
        for resume in (True, False):
            with pytest.raises(RequestError, match=f"another launcher is running this sweep: process {child} on "):
                run(queue, resume=resume)
        assert run(queue, gpus="4") == 0  # another sweep may run at the same time
    finally:
        seen.write_text("")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert only_of(queue, 2).sweep_id


def only_of(queue: Queue, cells: int) -> Sweep:
    (found,) = [found for found in sweeps(queue) if len(found.cells) == cells]
    return found


# --- with real runs on this machine -----------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_ends_the_run_and_the_sweep(tmp_path: Path) -> None:
    variables = install(tmp_path / "toy")
    make_environment_in(tmp_path / "toy")
    folder = tmp_path / "results"
    flags = ["--backend=toy", "--model=llama2_tiny", "--set=nap_seconds=0.05", "--gpus=1,2", "--repeats=2"]
    command = [sys.executable, str(REPOSITORY / "launch/run.py"), *flags, f"--output_dir={folder}"]
    options: dict[str, Any] = {"env": {**os.environ, **variables}, "text": True}
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    training = "2*/attempt-1/perf/events-rank0.jsonl"
    until(lambda: len(list(folder.glob(training))) == 2, "the second run trains")
    ended = max(folder.glob(training)).parents[2]
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=120)
    assert first.returncode == 130, err
    assert "efficiency" not in out
    assert "1 of 4 runs valid" in err
    assert "still in the queue" not in err
    assert "interrupted by the user" in (ended / RESULT).read_text()
    again = subprocess.run(command, capture_output=True, check=False, timeout=120, **options)
    assert again.returncode == 0, again.stderr
    assert "1 of 4 runs valid" in again.stderr
    assert "valid, 3 left" in again.stderr
    assert "interrupted by the user" in again.stdout


# --- on a real Slurm ----------------------------------------------------------------------------


def submitted(folder: Path) -> list[Path]:
    return [path for path in folder.glob("2*/job.json") if json.loads(path.read_text())["job_id"]]


@pytest.mark.slow
def test_a_sweep_on_a_cluster_goes_on_after_its_launcher_was_killed(cluster: ClusterOfTests, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    flags = ("--nodes=1,2,3", "--gpus=6", "--repeats=2", "--max_jobs=2")
    flags = (*TOY, "--set=replicas=6", "--set=nap_seconds=0.2", *flags)
    other = cluster.slurm("sbatch", "--parsable", "--output=/dev/null", "--wrap=true")  # the last job of another user
    first = cluster.begin(folder, *flags)
    until(lambda: len(submitted(folder)) == 3, "the third job is submitted")
    first.kill()
    first.communicate()
    (path,) = folder.glob("sweep-*.json")
    before = [run.run_id for run in sweep_report.read_sweep(path).runs]
    cluster.slurm("scancel", cluster.job_of(folder / before[2]))
    second = cluster.begin(folder, *flags)
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    assert "resuming" in err
    assert out.count("2 of 2") == 3
    assert "strong scaling" not in out  # the devices stay too
    assert f"{before[2]} failed: CANCELLED" in out
    after = [run.run_id for run in sweep_report.read_sweep(path).runs]
    assert after[:3] == before[:3]
    assert len(after) == 7
    jobs = {int(cluster.job_of(folder / run_id)) for run_id in after}
    assert len(jobs) == 7
    accounted = map(int, cluster.slurm("sacct", "-X", "-n", "-P", "-o", "JobID").split())
    assert {job for job in accounted if job > int(other)} <= jobs  # none that is not recorded
