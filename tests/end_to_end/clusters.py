"""A private Slurm cluster for tests, with a home of its own, and runs on it by the real scripts."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.backend import Backend
from launch import environments
from tests import toy_backend
from tests.end_to_end.runs import LIMIT_SECONDS, REPOSITORY, TOKEN, Run, finish

SMALL_DISK = "small_disk"  # a file system of its own in the cluster's folder, where there is root to mount one
SMALL_DISK_SIZE = "600k"
TOY = ("--backend=toy", "--model=llama2_tiny", "--site=dev")


@dataclass
class ClusterOfTests:
    """The cluster `dev` of a private home."""

    folder: Path
    variables: dict[str, str]

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

    def wait_until_idle(self) -> None:
        until(lambda: not self.slurm("squeue", "-h", "-o", "%i").strip(), "the queue is empty")


@contextmanager
def cluster_of_tests(folder: Path, nodes: int, *backends: Backend) -> Iterator[ClusterOfTests]:
    """Brought up and down around a block; it has the environments of these backends, and the toy one."""
    variables = toy_backend.install(folder)
    home = Path(variables["STEPMARK_HOME"])
    (home / "environments").mkdir(parents=True)
    for backend in backends:
        python = environments.ensure(backend.environment(backend.engines[0]), bar=False)
        made = python.parents[1]
        (home / "environments" / made.name).symlink_to(made)
    toy_backend.make_environment_in(folder)
    (folder / SMALL_DISK).mkdir()
    if os.geteuid() == 0:  # before the nodes are up: they see no file system that is mounted after them
        mount("-t", "tmpfs", "-o", f"size={SMALL_DISK_SIZE}", "stepmark-test", str(folder / SMALL_DISK))
    cluster = ClusterOfTests(folder, variables)
    up = cluster.call("cluster.py", "up", f"--nodes={nodes}")
    assert up.returncode == 0, up.stderr
    try:
        yield cluster
    finally:
        cluster.call("cluster.py", "down")
        if os.geteuid() == 0:
            subprocess.run(["umount", "--lazy", str(folder / SMALL_DISK)], check=True, timeout=10)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=10)


def until(holds: Callable[[], object], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)
