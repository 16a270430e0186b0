"""launch/cluster.py: the texts of its configuration, what it refuses, and real clusters."""

import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.errors import RequestError, RunError, UnknownName
from benchmarks.values import json_text
from launch.private_cluster import configuration, daemons, lifecycle, machine, processes
from launch.private_cluster.cluster import Cluster, Ports, folder_of, read_cluster, site_file
from tests.end_to_end.clusters import cluster_of_tests, until
from tests.launch.private_cluster_fixture import RunningCluster, private_cluster

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = str(REPOSITORY / "launch" / "cluster.py")
NOBODY = 65534


def silent(_text: str) -> None:
    pass


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path))


# --- choices --------------------------------------------------------------------------------------


def test_ports_that_are_taken_are_passed_over() -> None:
    chosen = machine.free_ports(4, free=lambda port: port % 100 < 50)
    used = [chosen.controller, chosen.accounting, *range(chosen.first_node, chosen.first_node + 4)]
    assert len(set(used)) == 6
    assert all(port % 100 < 50 for port in used)


# --- processes ------------------------------------------------------------------------------------


def sleeper(**environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "60"], env=environment)


def test_only_processes_of_the_cluster_are_found_and_ended(tmp_path: Path) -> None:
    conf = tmp_path / "etc" / "slurm.conf"
    ours = sleeper(STEPMARK_CLUSTER=str(tmp_path), STEPMARK_DAEMON="slurmctld")
    task = sleeper(SLURM_CONF=str(conf), SLURMD_NODENAME="node2")
    # A person's shell that uses the cluster, and a daemon of another cluster.
    others = [sleeper(SLURM_CONF=str(conf)), sleeper(STEPMARK_CLUSTER=f"{tmp_path}x", STEPMARK_DAEMON="slurmctld")]
    try:
        found = {process.pid: process for process in processes.running(tmp_path, conf)}
        assert {pid: (process.kind, process.owner) for pid, process in found.items()} == {
            ours.pid: ("daemon", "slurmctld"),
            task.pid: ("task", "node2"),
        }
        assert processes.end(lambda: processes.running(tmp_path, conf)) == []
        assert (ours.wait(60), task.wait(60)) == (-signal.SIGTERM, -signal.SIGTERM)
        assert [other.poll() for other in others] == [None, None]
    finally:
        for process in (ours, task, *others):
            process.kill()
            process.wait()


def test_what_does_not_listen_is_killed(tmp_path: Path) -> None:
    marks = {"STEPMARK_CLUSTER": str(tmp_path), "STEPMARK_DAEMON": "x", "PATH": os.environ["PATH"]}
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; sleep 60"], env=marks, stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()
    assert processes.end(lambda: processes.running(tmp_path, tmp_path / "conf"), stop_seconds=0.2) == []
    assert deaf.wait(60) == -signal.SIGKILL
    deaf.stdout.close()


# --- refusals -------------------------------------------------------------------------------------


def script(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, SCRIPT, *words]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.usefixtures("home")
def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(machine, "DAEMON_FOLDERS", ())
    monkeypatch.setattr(machine, "SYSTEM_TABLES", (Path("/nowhere/tables.sql"),))
    with pytest.raises(RequestError) as refused:
        lifecycle.up(lifecycle.ClusterRequest(), silent)
    assert refused.value.exit_code == 2
    assert refused.value.next_command.startswith("sudo apt-get install")
    assert "slurmd, " in refused.value.what
    assert not folder_of("dev").exists()


@pytest.mark.usefixtures("home")
def test_a_site_of_the_users_own_is_not_overwritten() -> None:
    site_file("mine").parent.mkdir(parents=True)
    site_file("mine").write_text("name: mine\n")
    for command in (
        lambda: lifecycle.up(lifecycle.ClusterRequest("mine"), silent),
        lambda: lifecycle.down("mine", silent),
        lambda: lifecycle.status("mine"),
    ):
        with pytest.raises(RequestError, match="'mine' is a site, not a private cluster"):
            command()
    assert site_file("mine").exists()


@pytest.mark.usefixtures("home")
def test_without_its_name_the_clusters_that_run_are_named() -> None:
    folder = folder_of("second")
    folder.mkdir(parents=True)
    cluster = Cluster(
        name="second", nodes=1, gpus_per_node=0, accounting=False, user="", host="", naming="namespaces",
        memory_limit="kernel", cpus_per_node=1, memory_mb_per_node=1, first_job_id=1,
        ports=Ports(controller=1, accounting=1, first_node=1), folder=str(folder), sockets=str(folder),
    )  # fmt: skip
    (folder / "cluster.json").write_text(json_text(cluster))
    for command in ("status", "down"):
        assert f"next:     python launch/cluster.py {command} --name=second" in script(command).stdout
    done = script("kill", "--node=node1")
    assert "why:   running: second" in done.stderr
    assert "kill --node=node1 --name=second" in done.stderr


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: folder.chmod(0o750),
        lambda folder: folder.parent.chmod(0o777),
        lambda folder: os.chown(folder.parent, NOBODY, NOBODY),
        lambda folder: (folder.rmdir(), folder.symlink_to("/tmp")),
        lambda folder: os.chown(folder, NOBODY, NOBODY),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_folder_that_others_can_get_at_is_refused(spoil: Callable[[Path], object]) -> None:
    folder = folder_of("dev")
    lifecycle.make_own(folder)
    try:
        spoil(folder)
    except PermissionError:
        pytest.skip("only root can give a folder away")
    with pytest.raises(RequestError, match="chang"):
        lifecycle.up(lifecycle.ClusterRequest(accounting=False), silent)


@pytest.mark.parametrize("mask", [0, 0o077])
def test_folders_are_this_users_alone_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    folder = tmp_path / "home" / "clusters" / "dev"
    before = os.umask(mask)
    try:
        lifecycle.make_own(folder)
        lifecycle.make_own(folder)  # an existing folder is accepted
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o755 & ~mask]


# --- real clusters --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """As root with names, as anybody else as it comes out; its folder is too long for sockets."""
    with private_cluster(tmp_path_factory.mktemp("home" + "x" * 60), nodes=2) as cluster:
        yield cluster


@pytest.mark.slow
def test_jobs_run_on_nodes_of_their_own(two_nodes: RunningCluster) -> None:
    done = two_nodes.slurm("srun", "-N2", "sh", "-c", "echo $SLURMD_NODENAME $(hostname)")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{name} {name}" for name in two_nodes.cluster.node_names]
    found = two_nodes.slurm("srun", "-N1", "getent", "hosts", "node2")
    assert found.stdout.split() == ["127.0.0.1", "node2"]


@pytest.mark.slow
def test_gpus_are_handed_out(two_nodes: RunningCluster) -> None:
    done = two_nodes.slurm("srun", "-N2", "--gres=gpu:3", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert done.stdout.split() == ["0,1,2", "0,1,2"], done.stderr
    too_many = two_nodes.slurm("sbatch", "--gres=gpu:9", "--wrap=true")
    assert too_many.returncode != 0


@pytest.mark.slow
def test_a_second_up_changes_nothing(two_nodes: RunningCluster) -> None:
    again = script("up", "--nodes=2", **two_nodes.environment)
    assert (again.returncode, "is running: 2 nodes" in again.stdout) == (0, True), again.stderr
    assert f"export SLURM_CONF={two_nodes.cluster.files.slurm_conf}" in again.stdout
    larger = script("up", "--nodes=3", **two_nodes.environment)
    assert (larger.returncode, "cluster.py down" in larger.stderr) == (2, True), larger.stderr
    assert read_cluster("dev") == two_nodes.cluster


# Tries what a folder holds, and the database; prints what it got.
INTRUDER = """
import os, socket, sys
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
for path in sys.argv[1:]:
    try:
        print("listed:", path, os.listdir(path))
    except PermissionError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1] + "/database")
    print("connected")
except PermissionError:
    pass
"""


@pytest.mark.slow
def test_another_user_gets_nothing_of_it(two_nodes: RunningCluster) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    files = two_nodes.cluster.files
    # By its name in the folder above: what lies over that is closed to others too, by pytest.
    places = [str(files.sockets), files.folder.name, f"{files.folder.name}/etc"]
    command = [sys.executable, "-c", INTRUDER.format(nobody=NOBODY), *places]
    done = subprocess.run(command, cwd=files.folder.parent, capture_output=True, text=True, check=True)
    assert done.stdout == ""


@pytest.mark.slow
def test_nothing_of_it_listens_on_the_network(two_nodes: RunningCluster) -> None:
    """Neither its daemons nor the srun within a job."""
    cluster = two_nodes.cluster
    job = two_nodes.slurm("sbatch", "--parsable", "--output=/dev/null", "-N2", "--wrap=srun -N2 sleep 60").stdout
    until(lambda: tasks_of(two_nodes, cluster.node_names[1]) > 0, "a task runs")
    listening = {(process.program, address) for process, address in listeners(cluster)}
    two_nodes.slurm("scancel", job.strip())
    programs = ("slurmctld", "slurmd", "slurmdbd", "srun")
    assert listening == {(program, "127.0.0.1") for program in programs}


def listeners(cluster: Cluster) -> Iterator[tuple[processes.Process, str]]:
    """Each process of the cluster that waits for TCP connections, and at which address."""
    addresses = {}
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # it listens
                raw = bytes.fromhex(fields[1].partition(":")[0])
                words = [raw[at : at + 4][::-1] for at in range(0, len(raw), 4)]
                addresses[f"socket:[{fields[9]}]"] = socket.inet_ntop(family, b"".join(words))
    for process in daemons.running(cluster):
        for opened in Path(f"/proc/{process.pid}/fd").iterdir():
            target = str(opened.readlink())
            if target in addresses:
                yield process, addresses[target]


@pytest.mark.slow
def test_a_node_dies_with_its_tasks_and_comes_back(two_nodes: RunningCluster) -> None:
    last = two_nodes.cluster.node_names[1]
    two_nodes.slurm("sbatch", "--output=/dev/null", f"--nodelist={last}", "--wrap=sleep 600")
    until(lambda: tasks_of(two_nodes, last) > 1, "a task runs")  # the step daemon comes before its task
    assert lifecycle.kill_node("dev", last) >= 3  # slurmd, the step daemon, a task or more
    found = lifecycle.status("dev")
    assert found is not None
    assert (found.missing, found.tasks) == ([last], 0)
    lifecycle.revive_node("dev", last)
    assert last in daemons.ready_nodes(two_nodes.cluster)
    two_nodes.slurm("scancel", "--user", pwd.getpwuid(os.geteuid()).pw_name)
    with pytest.raises(UnknownName, match="no node 'node9': did you mean 'node2'"):
        lifecycle.kill_node("dev", "node9")


def tasks_of(running: RunningCluster, node: str) -> int:
    return sum(process.kind == "task" and process.owner == node for process in daemons.running(running.cluster))


@pytest.mark.slow
def test_down_leaves_no_process_and_no_site_whatever_was_left(tmp_path: Path) -> None:
    with private_cluster(tmp_path, nodes=2, accounting=False) as running:
        cluster = running.cluster
        running.slurm("sbatch", "--output=/dev/null", "-N2", "--wrap=srun -N2 sleep 600")
        until(lambda: tasks_of(running, cluster.node_names[1]) > 0, "a task runs")
        # A crash: no controller, a node's slurmd gone but its tasks not, and the record lost too.
        for process in daemons.running(cluster):
            if process.owner in ("slurmctld", cluster.node_names[0]) and process.kind == "daemon":
                processes.send(process, signal.SIGKILL)
        (folder_of("dev") / "cluster.json").unlink()
        assert script("down", **running.environment).stdout == "the private cluster 'dev' is down\n"
        assert daemons.running(cluster) == []
        assert not running.site_file.exists()
        assert not cluster.files.spool.exists()
        assert list(cluster.files.logs.iterdir()) != []


@pytest.mark.slow
def test_the_jobs_of_a_stopped_cluster_are_named_and_their_runs_cancelled(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with cluster_of_tests(tmp_path / "own", nodes=1) as cluster:
        words = ("--steps=100000", "--set=nap_seconds=0.05", "--nocheck", "--nowait")
        left = cluster.toy(results, *words)
        until((left.folder / "attempt-1/perf/events-rank0.jsonl").exists, "the job has begun")
        job = cluster.job_of(left.folder)
        down = cluster.call("cluster.py", "down")
        assert f"job {job} was cancelled, because the cluster stops: {left.folder}" in down.stderr
        listed = cluster.status(results)
        assert (listed.returncode, "cancelled" in listed.stdout) == (0, True), listed.stderr
        assert f"CANCELLED: job {job} was cancelled" in listed.stdout


@pytest.mark.slow
def test_after_a_crash_up_starts_anew(tmp_path: Path) -> None:
    with private_cluster(tmp_path, nodes=1, accounting=False) as running:
        for process in daemons.running(running.cluster):
            processes.send(process, signal.SIGKILL)
        until(lambda: daemons.running(running.cluster) == [], "they are gone")
        assert list(running.cluster.files.pids.iterdir()) != []  # stale
        anew = script("up", "--nodes=2", "--noaccounting", **running.environment)
        assert (anew.returncode, "is running: 2 nodes" in anew.stdout) == (0, True), anew.stderr
        assert script("status", **running.environment).returncode == 0


@pytest.mark.slow
def test_ctrl_c_while_it_comes_up_leaves_nothing(tmp_path: Path) -> None:
    if machine.missing(accounting=True):
        pytest.skip("Slurm is not installed")
    starting = subprocess.Popen(
        [sys.executable, SCRIPT, "up"],
        env=os.environ | {"STEPMARK_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert starting.stderr is not None
    assert "munge is up" in starting.stderr.readline()
    starting.send_signal(signal.SIGINT)
    rest = starting.stderr.read()
    assert starting.wait(120) == 130, rest
    folder = tmp_path / "clusters" / "dev"
    assert processes.running(folder, folder / "etc" / "slurm.conf") == []
    assert not (folder / "cluster.json").exists()
    assert not (tmp_path / "sites" / "dev.yml").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_a_daemon_that_fails_is_named_with_the_end_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    if machine.missing(accounting=False):
        pytest.skip("Slurm is not installed")
    broken = configuration.slurm_conf
    monkeypatch.setattr(
        configuration, "slurm_conf", lambda cluster: broken(cluster).replace("select/cons_tres", "select/nothing")
    )
    with pytest.raises(RunError) as failed:
        lifecycle.up(lifecycle.ClusterRequest(nodes=1, accounting=False), silent)
    assert "slurmctld" in failed.value.what
    assert str(folder_of("dev") / "log" / "slurmctld.log") in failed.value.where
    assert "select/nothing" in failed.value.why
    assert processes.running(folder_of("dev"), folder_of("dev") / "etc" / "slurm.conf") == []
    assert not site_file("dev").exists()


AS_NOBODY = """
import os, sys
sys.path.insert(0, {repository!r})
import jinja2  # this Python may be readable to root alone
from launch.private_cluster import daemons, lifecycle
b"x".decode("unicode-escape")  # jinja2 asks for it
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
cluster, _ = lifecycle.up(lifecycle.ClusterRequest(nodes=2), print)
print(daemons.ask(cluster, "srun", "-N2", "sh", "-c", "echo $SLURMD_NODENAME uid=$(id -u)"))
lifecycle.down("dev", print)
print("left:", daemons.running(cluster))
"""


@pytest.mark.slow
def test_it_needs_no_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("all the other tests here run without root")
    if machine.missing(accounting=True):
        pytest.skip("Slurm is not installed")
    # Not tmp_path, which other users cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    code = AS_NOBODY.format(repository=str(REPOSITORY), nobody=NOBODY)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"STEPMARK_HOME": str(folder), "HOME": str(folder)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        names = re.findall(rf"(\S+) uid={NOBODY}", done.stdout)
        assert len(set(names)) == 2
        assert "left: []" in done.stdout
    finally:
        shutil.rmtree(folder)
