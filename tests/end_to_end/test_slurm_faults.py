"""Each way a job goes wrong, on a real Slurm: the run is classified, attempts are kept apart, and no step is lost."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.clusters import SMALL_DISK, TOY, ClusterOfTests, mount, until
from tests.end_to_end.runs import Run, finish, first_cause, wait_for_steps

pytestmark = pytest.mark.slow

LONG = ("--steps=100000", "--set=nap_seconds=0.05", "--nosingleton", "--nocheck")
SHORT = ("--steps=12", "--nosingleton", "--nocheck")


@pytest.fixture(scope="module", autouse=True)
def over_time(cluster: ClusterOfTests, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run that Slurm ends at its time limit, a minute at least: it runs during the other tests, on node1."""
    output_dir = tmp_path_factory.mktemp("over_time")
    process = cluster.begin(output_dir, *TOY, *LONG, "--time=1", "--nodelist=node1", "--nowait")
    yield finish(process, output_dir)


def outcome_of(run: Run) -> str:
    return str(run.result["attempts"][-1]["outcome"])


def reasons_of(run: Run) -> str:
    return "\n".join(run.result["reasons"])


def seen_steps(folder: Path, attempt: int = 1, rank: int = 0) -> list[int]:
    """The steps in a rank's own raw file."""
    path = folder / f"attempt-{attempt}/perf/events-rank{rank}.jsonl"
    events = [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    return [event["step"] for event in events if event["event"] == "step"]


def kept_steps(run: Run, attempt: int = 1, rank: int = 0) -> list[int]:
    return [step["step"] for step in run.steps if (step["attempt"], step["rank"]) == (attempt, rank)]


def assert_failed_with_every_step(cluster: ClusterOfTests, run: Run, outcome: str) -> None:
    assert run.code == 1, run.out + run.err
    assert run.result["status"] == "failed"
    assert outcome_of(run) == outcome, run.result
    assert run.result["seconds_per_step"]["median"] is None
    steps = kept_steps(run)
    assert steps == seen_steps(run.folder)
    assert steps == list(range(len(steps)))
    assert run.result["attempts"][-1]["steps"] == len(steps) > 0
    assert_agrees(cluster, run)


def assert_agrees(cluster: ClusterOfTests, run: Run) -> None:
    agreed = cluster.call("verify.py", str(run.folder))
    assert agreed.returncode == 0, agreed.stdout


def followed(cluster: ClusterOfTests, output_dir: Path, folder: Path, code: int = 0) -> Run:
    """A run that no launcher follows any more, followed to its end by status.py."""
    done = cluster.status(output_dir, "--follow", folder.name)
    assert done.returncode == code, done.stderr
    return Run(code, done.stdout, done.stderr, output_dir)


def test_a_rank_that_segfaults_is_named(cluster: ClusterOfTests, tmp_path: Path) -> None:
    flags = ("--nodes=3", "--gpus=3", "--set=replicas=3", "--set=fault=segfault@5", "--set=fault_rank=1")
    run = cluster.toy(tmp_path, *LONG, *flags)
    assert_failed_with_every_step(cluster, run, "failed")
    assert "rank 1 on node" in reasons_of(run)
    assert "SIGSEGV" in reasons_of(run)
    found = first_cause(run)
    assert (found["id"], found["first"]["rank"]) == ("segmentation_fault", 1)
    assert kept_steps(run, rank=1) == list(range(5))
    assert len(run.result["reasons"]) <= 3


def test_the_exit_code_of_a_rank_is_the_jobs(cluster: ClusterOfTests, tmp_path: Path) -> None:
    run = cluster.toy(tmp_path, *LONG, "--nodes=2", "--gpus=2", "--set=fault=exit7@3", "--set=fault_rank=1")
    assert_failed_with_every_step(cluster, run, "failed")
    assert "exit code 7" in reasons_of(run)
    assert (
        cluster.slurm("sacct", "-X", "-n", "-P", "-j", cluster.job_of(run.folder), "-o", "ExitCode").strip() == "7:0"
    )


def test_a_job_out_of_memory(cluster: ClusterOfTests, tmp_path: Path) -> None:
    run = cluster.toy(tmp_path, *LONG, "--mem=300M", "--noexclusive", "--set=fault=memory@4")
    assert_failed_with_every_step(cluster, run, "out_of_memory")
    assert first_cause(run)["id"] == "host_memory"


def test_a_run_that_still_trains_is_not_judged_and_can_be_cancelled(cluster: ClusterOfTests, tmp_path: Path) -> None:
    left = cluster.toy(tmp_path, *LONG, "--nowait")
    assert left.code == 0, left.err
    assert left.folder.name in left.out
    until((left.folder / "attempt-1/perf/events-rank0.jsonl").exists, "the job has begun")
    until(lambda: len(seen_steps(left.folder)) > 3, "it trains")
    listed = cluster.status(tmp_path)
    assert listed.stdout.splitlines()[1].startswith(left.folder.name[-4:])
    assert "running" in listed.stdout
    for flags in ((), ("--repair",)):
        judged = cluster.call("verify.py", *flags, str(left.folder))
        assert judged.returncode == 2, judged.stdout
        assert "status.py --follow" in judged.stderr
    assert not (left.folder / "result.json").exists()
    again = cluster.status(tmp_path, "--collect", left.folder.name)
    assert again.returncode == 2
    assert "has not ended" in again.stderr
    assert cluster.status(tmp_path, "--cancel", left.folder.name).returncode == 0
    assert_failed_with_every_step(cluster, followed(cluster, tmp_path, left.folder, code=1), "cancelled")


def test_a_job_submitted_by_hand_once_more_is_another_attempt(cluster: ClusterOfTests, tmp_path: Path) -> None:
    first = cluster.toy(tmp_path, *SHORT)
    assert first.code == 0, first.err
    again = cluster.slurm("sbatch", "--parsable", str(first.folder / "job.sbatch")).strip()
    until((first.folder / "attempt-2").exists, "the second attempt has begun")
    run = followed(cluster, tmp_path, first.folder)
    assert [attempt["outcome"] for attempt in run.result["attempts"]] == ["completed", "completed"]
    assert again in run.result["attempts"][1]["text"]
    assert kept_steps(run, 1) == kept_steps(run, 2) == list(range(12))
    assert_agrees(cluster, run)


def test_a_run_that_nobody_followed_has_all_its_files(cluster: ClusterOfTests, tmp_path: Path) -> None:
    left = cluster.toy(tmp_path, *SHORT, "--nowait")
    until(lambda: "valid" in cluster.status(tmp_path).stdout, "it is collected by being listed")
    for name in ("result.json", "steps.jsonl", "job.sbatch", "job.json", "attempt-1/scheduler.json"):
        assert (left.folder / name).stat().st_size > 0
    assert list((left.folder / "tensorboard").glob("events.out.tfevents.*"))
    assert_agrees(cluster, left)


def test_a_dependency_that_can_never_be_met(cluster: ClusterOfTests, tmp_path: Path) -> None:
    failed = cluster.toy(tmp_path / "failed", *SHORT, "--set=fault=exit3@2")
    number = cluster.job_of(failed.folder)
    run = cluster.toy(tmp_path / "after", *SHORT, f"--slurm_arg=dependency=afterok:{number}")
    assert run.code == 1
    assert run.result["status"] == "failed"
    assert outcome_of(run) == "never_started"
    assert "depend" in reasons_of(run).lower()
    assert run.steps == []
    assert cluster.job_of(run.folder) not in cluster.slurm("squeue", "-h", "-o", "%i").split()
    assert_agrees(cluster, run)


def test_the_controller_restarts_while_a_job_runs(cluster: ClusterOfTests, tmp_path: Path) -> None:
    process = cluster.begin(tmp_path, *TOY, "--steps=120", "--set=nap_seconds=0.05", "--nosingleton")
    wait_for_steps(tmp_path, 5)
    assert cluster.call("cluster.py", "restart_controller").returncode == 0
    run = finish(process, tmp_path)
    assert run.code == 0, run.out + run.err
    assert outcome_of(run) == "completed"
    assert kept_steps(run) == list(range(120))


def test_a_launcher_that_is_killed_before_it_wrote_the_jobs_number_loses_nothing(
    cluster: ClusterOfTests, tmp_path: Path
) -> None:
    process = cluster.begin(tmp_path, *TOY, "--steps=100", "--set=nap_seconds=0.05", "--nosingleton")
    folder = wait_for_steps(tmp_path, 5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    record = folder / "job.json"
    submitted: dict[str, Any] = json.loads(record.read_text())
    record.write_text(json.dumps({**submitted, "job_id": None}))
    followed = cluster.status(tmp_path, "--follow", folder.name)
    assert followed.returncode == 0, followed.stderr
    assert cluster.job_of(folder) == submitted["job_id"]
    run = Run(0, followed.stdout, followed.stderr, tmp_path)
    assert run.result["status"] == "valid"
    assert kept_steps(run) == list(range(100))
    again = cluster.status(tmp_path, "--collect", folder.name)
    assert again.returncode == 0, again.stderr
    assert_agrees(cluster, run)


def test_ctrl_c_leaves_the_job_and_says_how_to_go_on(cluster: ClusterOfTests, tmp_path: Path) -> None:
    process = cluster.begin(tmp_path, *TOY, "--steps=60", "--set=nap_seconds=0.05", "--nosingleton")
    folder = wait_for_steps(tmp_path, 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "status.py --follow" in err
    followed(cluster, tmp_path, folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted, which takes root")
def test_a_full_output_disk(cluster: ClusterOfTests) -> None:
    place = cluster.folder / SMALL_DISK
    process = cluster.begin(place / "runs", *TOY, "--steps=20000", "--set=nap_seconds=0.001", "--nosingleton")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, out + err
    assert "Traceback" not in err
    assert "No space left on device" in err
    (folder,) = (place / "runs").iterdir()
    seen = seen_steps(folder)
    assert len(seen) > 50
    cluster.wait_until_idle()  # the launcher may have met the full disk before the job did
    mount("-o", "remount,size=40m", str(place))
    collected = cluster.status(place / "runs", "--collect", folder.name)
    assert collected.returncode == 1, collected.stderr
    run = Run(1, collected.stdout, collected.stderr, place / "runs")
    assert run.result["status"] == "failed"
    assert "No space left on device" in reasons_of(run)
    assert kept_steps(run) == seen
    assert_agrees(cluster, run)


def test_a_job_that_hangs_is_ended_and_its_stacks_are_kept(cluster: ClusterOfTests, tmp_path: Path) -> None:
    flags = ("--nodes=2", "--gpus=2", "--set=fault=hang@6", "--set=fault_rank=0", "--hang_timeout=5")
    run = cluster.toy(tmp_path, "--steps=8", "--nosingleton", *flags)
    assert_failed_with_every_step(cluster, run, "hung")
    log = (run.folder / "attempt-1/perf/rank-0.log").read_text()
    assert "most recent call first" in log
    assert "in fail" in log
    assert "no step" in reasons_of(run)


def test_a_dead_node_ends_the_run(cluster: ClusterOfTests, tmp_path: Path) -> None:
    flags = ("--nodes=2", "--gpus=2", "--nodelist=node[3-4]")
    process = cluster.begin(tmp_path, *TOY, *LONG, *flags)
    wait_for_steps(tmp_path, 10)
    assert cluster.call("cluster.py", "kill", "--node=node4").returncode == 0
    try:
        run = finish(process, tmp_path)
        assert_failed_with_every_step(cluster, run, "node_failure")
        assert "node4" in reasons_of(run)
    finally:
        assert cluster.call("cluster.py", "revive", "--node=node4").returncode == 0


def test_a_dead_node_and_a_second_attempt_on_the_others(cluster: ClusterOfTests, tmp_path: Path) -> None:
    """The batch host stays alive; the job is requeued onto nodes that are. All ranks hang, as when one dies."""
    flags = ("--nodes=2", "--gpus=2", "--requeue", "--exclude=node1", "--steps=60", "--set=nap_seconds=0.05")
    process = cluster.begin(tmp_path, *TOY, *flags, "--nosingleton", "--set=fault=hang@20", "--set=fault_rank=-1")
    folder = wait_for_steps(tmp_path, 20)
    nodes = cluster.slurm("squeue", "-h", "-j", cluster.job_of(folder), "-o", "%N").strip()
    victim = cluster.slurm("scontrol", "show", "hostnames", nodes).split()[-1]
    assert cluster.call("cluster.py", "kill", f"--node={victim}").returncode == 0
    try:
        run = finish(process, tmp_path)
        assert run.code == 0, run.out + run.err
        first, second = run.result["attempts"]
        assert (first["outcome"], first["steps"]) == ("requeued", 20)
        assert (second["outcome"], second["steps"]) == ("completed", 60)
        assert kept_steps(run, 2) == list(range(60))
        assert kept_steps(run, 1) == seen_steps(run.folder, 1) == list(range(20))
        assert {step["excluded_because"] for step in run.steps if step["attempt"] == 1} == {"earlier_attempt"}
        assert run.result["window"]["counted"] <= 59
        assert_agrees(cluster, run)
    finally:
        assert cluster.call("cluster.py", "revive", f"--node={victim}").returncode == 0


def test_the_time_limit(cluster: ClusterOfTests, over_time: Run) -> None:
    run = followed(cluster, over_time.output_dir, over_time.folder, code=1)
    assert_failed_with_every_step(cluster, run, "timeout")
    assert "time limit" in reasons_of(run)
    assert first_cause(run)["id"] == "time_limit"
    assert len(kept_steps(run)) > 100
