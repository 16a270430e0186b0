"""launch/doctor.py: its refusals, its job, its patience, and preflights on a real Slurm of four nodes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError
from benchmarks.job_record import SchedulerEnd
from benchmarks.values import Container, JobOptions, Site
from benchmarks.values import Slurm as SlurmSite
from launch.preflight import nodes
from launch.slurm import waiting
from launch.slurm.client import Slurm
from launch.slurm.parsing import Node, QueueState
from launch.slurm.waiting import Limits
from tests import forked
from tests.end_to_end.clusters import ClusterOfTests, until
from tests.launch.private_cluster_fixture import RunningCluster
from tests.launch.slurm.test_client import site_of

REPOSITORY = Path(__file__).resolve().parents[2]
DOCTOR = REPOSITORY / "launch/doctor.py"
SECONDS = 90

SITE = Site(
    name="big",
    kind="slurm",
    title="a cluster",
    runtime="venv",
    source="test",
    date="2026-11-21",
    slurm=SlurmSite(shared_folders=["/"], hardware=["h100"]),
    environment={"NCCL_IB_SL": "1", "NCCL_NOTE": "it's"},
)


def doctor(*flags: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    done = forked.run(DOCTOR, *flags, env={**os.environ, **variables}, timeout=SECONDS, cwd=cwd)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


# --- without a cluster ------------------------------------------------------------------------------


def test_this_machine(tmp_path: Path) -> None:
    done = doctor(cwd=tmp_path, STEPMARK_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert "launcher" in done.stdout
    assert "not checked: not created yet" in done.stdout
    checks = json.loads(doctor("--json", cwd=tmp_path, STEPMARK_HOME=str(tmp_path / "home")).stdout)
    assert {check["status"] for check in checks} <= {"ok", "warning", "not_checked"}
    assert not (tmp_path / "home").exists()


def in_state(**states: str) -> list[Node]:
    return [Node(name=name, state=state, gpus=0) for name, state in states.items()]


def test_nodes_that_are_down_are_not_in_the_job() -> None:
    found = in_state(node1="idle", node2="down", node3="allocated", node4="drained")
    site = site_of("/etc/dev.conf")
    _, count, down = nodes.choose(site, found, JobOptions(), None)
    assert count == 2
    assert set(down) == {"node2", "node4"}
    assert "Slurm reports down" in down["node2"]
    assert nodes.choose(site, found, JobOptions(), 1) == (JobOptions(), 1, {})
    with pytest.raises(RequestError, match="2 nodes are up, but the check needs 3") as refused:
        nodes.choose(site, found, JobOptions(), 3)
    assert refused.value.next_command == "SLURM_CONF=/etc/dev.conf sinfo -R"


# --- without Slurm -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "printed_on", "words"),
    [
        (("--site=example_venv",), "#SBATCH --nodes=1", "this dry run shows 1 node"),
        (("--site=example_venv", "--nodes=3"), "#SBATCH --nodes=3", ""),
        (("--site=example_venv", "--nodelist=n[1-4]", "--exclude=n2"), "#SBATCH --nodes=3", ""),
        (("--site=example_pyxis", "--nodes=2"), "--container-image=/lustre/stepmark/images/", ""),
    ],
)
def test_a_dry_run_needs_no_slurm_no_image_and_no_shared_folder(
    flags: tuple[str, ...], printed_on: str, words: str, tmp_path: Path
) -> None:
    bare = {"PATH": str(tmp_path), "STEPMARK_HOME": str(tmp_path / "home")}
    done = doctor("nodes", "--dry_run", *flags, cwd=tmp_path, **bare)
    assert done.returncode == 0, done.stderr
    assert printed_on in done.stdout
    assert words in done.stderr if words else done.stderr == ""
    checked_by_bash(done.stdout)
    assert list(tmp_path.iterdir()) == []


# --- the job ----------------------------------------------------------------------------------------


def script(folder: Path, **changes: Any) -> str:
    made = nodes.PreflightJob(
        site=SITE,
        options=JobOptions(partition="batch", comment="a b", mpi="pmix"),
        folder=folder,
        nodes=4,
        minutes=20,
        hardware=Configs().hardware("h100"),
    )
    return nodes.render_preflight(msgspec.structs.replace(made, **changes))


def checked_by_bash(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=60)


def test_the_script_says_all_of_the_job() -> None:
    text = script(Path("/shared/it's here"))
    checked_by_bash(text)
    for line in (
        "#SBATCH --nodes=4",
        "#SBATCH --partition=batch",
        '#SBATCH --comment="a b"',
        "#SBATCH --gres=gpu:8",
        '#SBATCH --output="/shared/it\'s here/slurm-%j.out"',
        "#SBATCH --no-kill",
        "folder='/shared/it'\"'\"'s here'",
        "export NCCL_IB_SL=1",
        "export NCCL_NOTE='it'\"'\"'s'",
        "  --mpi=pmix \\",
        '  --no-kill --kill-on-bad-exit=0 --wait=0 --label "${check[@]}"',
    ):
        assert line in text.splitlines()
    assert "SLURM_JOB_NUM_NODES * 8" in text
    assert "singleton" not in text  # it does not wait for a run to end that shares no node


def test_nccl_runs_in_the_container_of_the_site() -> None:
    container = Container(images="/images", mounts=["/data:/data"], mount_home=False)
    site = msgspec.structs.replace(SITE, runtime="container", container=container)
    text = script(Path("/shared"), site=site, image=Path("/images/a b.sqsh"))
    checked_by_bash(text)
    assert "  --container-image='/images/a b.sqsh' \\" in text.splitlines()
    assert "  --no-container-mount-home \\" in text.splitlines()
    assert text.index("unset NVIDIA_VISIBLE_DEVICES ") < text.index("--container-image")  # the image says which GPUs
    assert "  --container-mounts=/data:/data \\" in text.splitlines()


# --- the patience -----------------------------------------------------------------------------------


class PlayedSlurm:
    """A queue with one job."""

    def __init__(self, state: str | None, reason: str | None = None, end: str = "COMPLETED") -> None:
        self.state, self.reason, self.end, self.cancelled = state, reason, end, False
        self.site = site_of()

    def queue(self, job_ids: list[str]) -> dict[str, QueueState]:
        return {job_ids[0]: QueueState(job_id="7", state=self.state, reason=self.reason)} if self.state else {}

    def cancel(self, _job_id: str) -> None:
        self.cancelled = True

    def ends(self, job_ids: list[str]) -> dict[str, list[SchedulerEnd]]:
        return {job_ids[0]: [SchedulerEnd(job_id="7", state=self.end, source="sacct")]}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(waiting, "FIRST_ASK_SECONDS", 0.02)
    monkeypatch.setattr(waiting, "FILES_SECONDS", 0.05)


def wait(slurm: PlayedSlurm, came: int = 0, queue: float = 5.0, quiet: float = 0.3, done: bool = False) -> Any:
    return waiting.wait(
        cast(Slurm, slurm), "7", lambda: waiting.Progress(came, "news"), lambda: done, Limits(queue, quiet)
    )


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("reason", "seconds"), [("Resources", 0.3), ("PartitionNodeLimit", 60)])
def test_a_job_that_waits_too_long_or_for_ever_is_cancelled(reason: str, seconds: float) -> None:
    slurm = PlayedSlurm("PENDING", reason)
    with pytest.raises(RunError, match="did not start"):
        wait(slurm, queue=seconds)
    assert slurm.cancelled


@pytest.mark.usefixtures("quick")
def test_a_job_that_runs_in_silence_is_cancelled_and_its_end_is_an_end() -> None:
    silent, ended = PlayedSlurm("RUNNING"), PlayedSlurm(None, end="FAILED")
    assert (wait(silent), silent.cancelled) == (None, True)
    assert (wait(ended).state, ended.cancelled) == ("FAILED", False)
    assert wait(PlayedSlurm("RUNNING"), done=True) is None


# --- on a real Slurm --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(cluster: ClusterOfTests) -> RunningCluster:
    return cluster.running


def on(cluster: RunningCluster, folder: Path, *flags: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    site = "" if any(flag.startswith("--site=") for flag in flags) else f"--site={cluster.name}"
    every = [word for word in (site, f"--output_dir={folder}", *flags) if word]
    return doctor("nodes", *every, cwd=folder, STEPMARK_HOME=str(cluster.home), **variables)


def only(folder: Path) -> Path:
    (found,) = folder.glob("preflight-*")
    return found


def listed(folder: Path, name: str) -> list[str]:
    return (only(folder) / name).read_text().split()


def path_with(folder: Path, **programs: str) -> str:
    """A PATH on which these programs come first, on every node too: sbatch takes it along."""
    place = folder / "bin"
    place.mkdir()
    for name, text in programs.items():
        (place / name.replace("_", "-", 1 if name == "nvidia_smi" else 0)).write_text(f"#!/bin/bash\n{text}\n")
    for program in place.iterdir():
        program.chmod(0o755)
    return f"{place}:{os.environ['PATH']}"


@pytest.mark.slow
def test_four_good_nodes(cluster: RunningCluster, tmp_path: Path) -> None:
    folder = tmp_path / "it's a \u00e9 folder"
    folder.mkdir()
    done = on(cluster, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 nodes pass, 0 fail" in done.stdout
    assert "NCCL: not checked: the site's hardware is cpu" in done.stdout
    assert "--exclude" not in done.stdout
    assert listed(folder, "nodes-pass.txt") == cluster.cluster.node_names
    assert listed(folder, "nodes-fail.txt") == []
    report = json.loads((only(folder) / "report.json").read_text())
    by_check = {count["check"]: count for count in report["checks"]}
    for check in ("answers", "same versions", "ports", "shared folder", "checkout"):
        assert by_check[check]["ok"] == 4, check
    for check in ("GPUs", "NVLink", "GPU throttling", "container runtime"):
        assert by_check[check]["not_checked"] == 4, check
    until_idle(cluster)  # nothing is left behind


@pytest.mark.slow
def test_a_node_that_is_down_fails_and_its_list_works_with_exclude(cluster: RunningCluster, tmp_path: Path) -> None:
    down = cluster.cluster.node_names[2]
    cluster.slurm("scontrol", "update", f"NodeName={down}", "State=DRAIN", "Reason=bad fan")
    try:
        done = on(cluster, tmp_path)
    finally:
        cluster.slurm("scontrol", "update", f"NodeName={down}", "State=RESUME")
        until(lambda: cluster.slurm("sinfo", "-h", "-n", down, "-o", "%T").stdout.strip() == "idle", "it is back")
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"answers: {down}: Slurm reports" in done.stdout
    assert listed(tmp_path, "nodes-fail.txt") == [down]
    exclude = f"--exclude={only(tmp_path) / 'nodes-fail.txt'}"
    assert exclude in done.stdout
    ran = cluster.slurm("srun", "--nodes=3", exclude, "bash", "-c", "echo $SLURMD_NODENAME")
    assert sorted(ran.stdout.split()) == sorted(set(cluster.cluster.node_names) - {down})
    refused = cluster.slurm("sbatch", "--test-only", "--nodes=4", exclude, "--wrap=true")
    assert refused.returncode != 0


@pytest.mark.slow
def test_a_node_that_cannot_start_the_check_fails_alone(cluster: RunningCluster, tmp_path: Path) -> None:
    bad = cluster.cluster.node_names[2]
    fails = f'[ "$SLURMD_NODENAME" != {bad} ] || {{ echo no disk >&2; exit 7; }}'
    path = path_with(tmp_path, bash=f'{fails}\nexec /bin/bash "$@"')
    done = on(cluster, tmp_path, PATH=path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert listed(tmp_path, "nodes-fail.txt") == [bad]
    assert "no disk" in done.stdout  # in the node's own words
    assert len(listed(tmp_path, "nodes-pass.txt")) == 3


@pytest.mark.slow
def test_a_node_that_hangs_fails_in_good_time(cluster: RunningCluster, tmp_path: Path) -> None:
    bad = cluster.cluster.node_names[3]
    path = path_with(tmp_path, bash=f'[ "$SLURMD_NODENAME" != {bad} ] || sleep 600\nexec /bin/bash "$@"')
    started = time.monotonic()
    done = on(cluster, tmp_path, "--limit=4", PATH=path)
    assert time.monotonic() - started < 300  # the node sleeps for 600
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"answers: {bad}: " in done.stdout
    print(done.stdout)
    assert listed(tmp_path, "nodes-fail.txt") == [bad]


NVIDIA_SMI = """
case "$*" in
*compute-apps*) echo "gpu_uuid, pid, process_name, used_gpu_memory [MiB]";;
*query-gpu*)
  echo "index, name, uuid, memory.used [MiB], utilization.gpu [%], ecc.errors.uncorrected.volatile.total"
  for i in 0 1 2 3 4 5 6 7; do
    echo "$i, NVIDIA H100 80GB HBM3, GPU-$i, 4 MiB, 0 %, $([ "$SLURMD_NODENAME" = BAD ] && echo 2 || echo 0)"
  done;;
esac"""
ALL_REDUCE = """
[ "$SLURM_PROCID" = 0 ] || exit 0
for i in $(seq 0 31); do echo "#  Rank $i Group  0 Pid 1 on h device $i [0x1b] NVIDIA H100"; done
echo "# Out of bounds values : 0 OK"
echo "# Avg bus bandwidth    : 334.536" """


@pytest.mark.slow
@pytest.mark.parametrize(("expected", "status"), [(300, "ok"), (340, "failed")])
def test_nodes_with_gpus_and_nccl(cluster: RunningCluster, tmp_path: Path, expected: int, status: str) -> None:
    """With stand-ins for nvidia-smi and nccl-tests: a node with ECC errors is named, the bandwidth is judged."""
    bad = cluster.cluster.node_names[1]
    row = cluster.site_file.read_text().replace(
        "- cpu", f"- h100\n  bus_bandwidth_gb_s: {expected}.0\n  bus_bandwidth_source: a test", 1
    )
    assert "h100" in row
    (cluster.home / "sites/gpus.yml").write_text(row.replace(f"name: {cluster.name}", "name: gpus", 1))
    path = path_with(tmp_path, nvidia_smi=NVIDIA_SMI.replace("BAD", bad), all_reduce_perf=ALL_REDUCE)
    done = on(cluster, tmp_path, "--site=gpus", PATH=path)
    assert done.returncode == 3, done.stdout + done.stderr
    print(done.stdout)
    assert listed(tmp_path, "nodes-fail.txt") == [bad]
    assert f"GPU memory errors: {bad}: GPU 0, 1, 2, 3, 4, 5, 6, 7: 2 uncorrected ECC errors" in done.stdout
    found = json.loads((only(tmp_path) / "report.json").read_text())["nccl"]
    assert (found["status"], found["measured"]["average_gb_s"]) == (status, 334.536)


@pytest.mark.slow
@pytest.mark.parametrize(("by", "code", "words"), [("scancel", 1, "CANCELLED"), ("Ctrl-C", 130, "")])
def test_a_preflight_that_somebody_ends(
    cluster: RunningCluster, tmp_path: Path, by: str, code: int, words: str
) -> None:
    path = path_with(tmp_path, bash='[ -z "$SLURM_PROCID" ] || sleep 600\nexec /bin/bash "$@"')
    process = begin(cluster, tmp_path, path)
    job_id = running_job(cluster)
    if by == "scancel":
        cluster.slurm("scancel", job_id)
    else:
        process.send_signal(signal.SIGINT)  # takes the job along
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, words in err, "Traceback" in err) == (code, True, False), err
    until_idle(cluster)


def begin(cluster: RunningCluster, folder: Path, path: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(DOCTOR), "nodes", f"--site={cluster.name}", f"--output_dir={folder}"],
        env={**os.environ, "STEPMARK_HOME": str(cluster.home), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


def running_job(cluster: RunningCluster) -> str:
    """The number of the job whose nodes are being asked."""
    found: list[str] = []

    def look() -> bool:
        steps = cluster.slurm("squeue", "-h", "-s", "-o", "%i").stdout.split()
        found.extend(step.partition(".")[0] for step in steps if step.endswith(".0"))
        return bool(found)

    until(look, "the nodes are asked")
    return found[0]


def until_idle(cluster: RunningCluster) -> None:
    until(lambda: cluster.slurm("squeue", "-h").stdout == "", "the queue is empty")
