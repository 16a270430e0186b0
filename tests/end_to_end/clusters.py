"""A private Slurm cluster for tests, with its own home, and runs on it by the real scripts."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.backend import Backend
from launch.environments import venvs
from launch.private_cluster.cluster import Cluster
from tests import toy_backend
from tests.end_to_end.runs import LIMIT_SECONDS, REPOSITORY, TOKEN, Run, finish
from tests.launch.private_cluster_fixture import RunningCluster

STAND_INS = REPOSITORY / "tests/stand_ins/pyxis"
MEND_SECONDS = 60  # for the steps of the last test to end
SMALL_DISK = "small_disk"  # a separate file system in the cluster's folder, which only root can mount
TOY = ("--backend=toy", "--model=llama2_tiny", "--site=dev")


@dataclass
class ClusterOfTests:
    """The cluster `dev` of a private home."""

    folder: Path
    variables: dict[str, str]

    @property
    def home(self) -> Path:
        return Path(self.variables["STEPMARK_HOME"])

    @property
    def running(self) -> RunningCluster:
        record = self.home / "clusters/dev/cluster.json"
        return RunningCluster(msgspec.json.decode(record.read_bytes(), type=Cluster), self.home)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables, "HF_TOKEN": TOKEN}

    def start(self, script: str, *words: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(REPOSITORY / "launch" / script), *words],
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )

    def call(self, script: str, *words: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(script, *words)
        try:
            out, err = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{script} {words} did not end: {process.communicate()}") from None
        assert "Traceback" not in out + err, err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def begin(self, output_dir: Path, *words: str) -> "subprocess.Popen[str]":
        """launch/run.py on this cluster."""
        return self.start("run.py", "--site=dev", f"--output_dir={output_dir}", *words)

    def run(self, output_dir: Path, *words: str) -> Run:
        return finish(self.begin(output_dir, *words), output_dir)

    def toy(self, output_dir: Path, *words: str) -> Run:
        return self.run(output_dir, *TOY, *words)

    def status(self, output_dir: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.call("status.py", f"--output_dir={output_dir}", *words)

    def slurm(self, *command: str) -> str:
        configuration = self.folder / "home/clusters/dev/etc/slurm.conf"
        return subprocess.run(
            command,
            env={**os.environ, "SLURM_CONF": str(configuration)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def job_of(self, run: Path) -> str:
        return str(json.loads((run / "job.json").read_text())["job_id"])

    def have(self, *backends: Backend, engine: str = "") -> None:
        """The environments of these backends, or of an engine; they are made here on a fresh machine."""
        for backend in backends:
            made = venvs.ensure(backend.environment(engine or backend.engines[0])).parents[1]
            place = self.home / "environments" / made.name
            if not place.is_symlink():
                place.symlink_to(made)

    def mend(self) -> None:
        """Empty the queue, and start nodes again whose steps Slurm cannot end: they would fail all later tests."""
        self.slurm("scancel", "--user", pwd.getpwuid(os.geteuid()).pw_name)
        if not holds_within(lambda: not self.occupied_nodes() and not self.queued(), MEND_SECONDS):
            for node in self.occupied_nodes():
                warnings.warn(f"{node} is started again: {self.evidence(node)}", stacklevel=2)
                assert self.call("cluster.py", "kill", f"--node={node}").returncode == 0
                if "drain" in self.slurm("sinfo", "-h", "-n", node, "-o", "%T"):
                    self.slurm("scontrol", "update", f"nodename={node}", "state=resume")
                assert self.call("cluster.py", "revive", f"--node={node}").returncode == 0
        self.wait_until_idle()
        until(lambda: not self.occupied_nodes(), "all nodes are idle")

    def occupied_nodes(self) -> list[str]:
        states = [line.split() for line in self.slurm("sinfo", "-h", "-N", "-p", "batch", "-o", "%N %T").splitlines()]
        return [name for name, state in states if state != "idle"]

    def queued(self) -> str:
        return self.slurm("squeue", "-h", "-a", "-o", "%i %T %N %r").strip()

    def evidence(self, node: str) -> str:
        """Return what Slurm and the log of a node show about it."""
        log = self.running.cluster.files.log(node).read_text(errors="replace").splitlines()[-20:]
        return "\n".join([self.queued(), self.slurm("scontrol", "show", "node", node), *log])

    def wait_until_idle(self) -> None:
        until(lambda: not self.queued(), "the queue is empty")


@contextmanager
def cluster_of_tests(folder: Path, nodes: int) -> Iterator[ClusterOfTests]:
    """Brought up and down around a block; it has the environment of the toy backend."""
    cluster = ClusterOfTests(folder, toy_backend.install(folder))
    (cluster.home / "environments").mkdir(parents=True)
    toy_backend.make_environment_in(folder)
    disk = folder / SMALL_DISK
    disk.mkdir()
    if os.geteuid() == 0:  # before the nodes are up: they see no file system that is mounted after them
        mount("-t", "tmpfs", "-o", "size=600k", "stepmark-test", str(disk))
    up = cluster.call("cluster.py", "up", f"--nodes={nodes}")
    assert up.returncode == 0, up.stderr
    try:
        yield cluster
    finally:
        cluster.call("cluster.py", "down")
        if os.geteuid() == 0:
            subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=60)


def can_enter() -> bool:
    """Return whether this machine lets a task have its own root."""
    if os.geteuid() != 0 or shutil.which("slurmctld") is None or shutil.which("unshare") is None:
        return False
    script = (
        "mount -t tmpfs t /mnt && mkdir /mnt/a /mnt/b /mnt/c"
        " && mount -t overlay o -o lowerdir=/,upperdir=/mnt/a,workdir=/mnt/b /mnt/c"
    )
    return (
        subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, check=False).returncode == 0
    )


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=60)


def until(holds: Callable[[], object], what: str, seconds: float = 300) -> None:
    assert holds_within(holds, seconds), f"not within {seconds:.0f} s: {what}"


def holds_within(holds: Callable[[], object], seconds: float) -> bool:
    """Wait until something holds; return False if it does not within this time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
