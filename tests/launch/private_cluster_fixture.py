"""A private Slurm cluster for a test, stopped when the test ends; without Slurm the test is skipped."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.errors import RequestError
from launch.private_cluster import lifecycle, machine
from launch.private_cluster.cluster import Cluster

SECONDS = 120


@dataclass(frozen=True)
class RunningCluster:
    """A running cluster, with helpers for tests."""

    cluster: Cluster
    home: Path  # STEPMARK_HOME

    @property
    def name(self) -> str:
        return self.cluster.name

    @property
    def site_file(self) -> Path:
        return self.home / "sites" / f"{self.name}.yml"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with which Stepmark and Slurm's commands find this cluster."""
        return {"STEPMARK_HOME": str(self.home), "SLURM_CONF": str(self.cluster.files.slurm_conf)}

    def slurm(self, *command: str, seconds: float = SECONDS) -> "subprocess.CompletedProcess[str]":
        """Run a Slurm command with only the path of the slurm.conf."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        return subprocess.run(
            command,
            env=inherited | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )


@contextlib.contextmanager
def private_cluster(
    home: Path, nodes: int = 2, gpus_per_node: int = 8, accounting: bool = True, name: str = "dev"
) -> Iterator[RunningCluster]:
    """A cluster under its own STEPMARK_HOME, which is in force as long as the cluster is up."""
    missing = machine.missing(accounting)
    if missing:
        pytest.skip(f"Slurm is not installed: {', '.join(missing)} not found")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPMARK_HOME", str(home))
        try:
            wanted = lifecycle.ClusterRequest(name, nodes, gpus_per_node, accounting)
            cluster, _ = lifecycle.up(wanted, say=lambda _text: None)
            yield RunningCluster(cluster, home)
        finally:
            with contextlib.suppress(RequestError):
                lifecycle.down(name, say=lambda _text: None)
