"""Whether the kernel can hold a job to its memory here, and what its control groups leave behind."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from launch.private_cluster.cluster import Cluster, MemoryLimit

CGROUP_V1 = Path("/sys/fs/cgroup/memory")
JOBS_OF_A_CLUSTER = 1000  # ids that no other cluster gets: see lifecycle


def best() -> MemoryLimit:
    """Slurm's cgroup/v1 needs the memory controller and the right to make groups in it; its v2 needs systemd."""
    usable = (CGROUP_V1 / "release_agent").exists() and os.access(CGROUP_V1, os.W_OK)
    return "kernel" if usable and os.geteuid() == 0 else "sampling"


def remove_groups(cluster: Cluster, root: Path = CGROUP_V1) -> None:
    """Remove the empty groups of this cluster's jobs; Slurm's own are called the same in every cluster."""
    if cluster.memory_limit != "kernel":
        return
    with _locked(root):
        for name in cluster.node_names:
            node = root / f"slurm_{name}"
            for job in node.glob("uid_*/job_*"):
                if 0 <= int(job.name.removeprefix("job_")) - cluster.first_job_id < JOBS_OF_A_CLUSTER:
                    _remove_empty(job)
            for folder in (*node.glob("uid_*"), node):
                with contextlib.suppress(OSError):  # another cluster uses it
                    folder.rmdir()


def _remove_empty(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """The lock Slurm itself takes while it makes a group, so that none is removed in between."""
    handle = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
