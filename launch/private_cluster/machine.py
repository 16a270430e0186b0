"""The requirements of a private cluster on this machine: Slurm's programs, ports, namespaces, control groups."""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.errors import RequestError, RunError
from launch.private_cluster.cluster import MemoryLimit, Naming, Ports

# --- programs ---------------------------------------------------------------------------------------

SLURM = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "squeue", "srun")
ACCOUNTING = ("slurmdbd", "mariadbd", "sacct")
DEBIAN_PACKAGES = "munge slurmctld slurmd slurm-client slurmdbd mariadb-server-core"
# Use the first file that exists; newer packages have renamed this file.
SYSTEM_TABLES = (
    Path("/usr/share/mysql/mysql_system_tables.sql"),
    Path("/usr/share/mariadb/mariadb_system_tables.sql"),
)
DAEMON_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # may be missing in the user's PATH


def refuse_missing(accounting: bool) -> None:
    absent = missing(accounting)
    if not absent:
        return
    raise RequestError(
        f"Slurm is not installed: found no {', '.join(absent)}",
        where="PATH and " + ", ".join(DAEMON_FOLDERS),
        why="a private cluster runs Slurm's daemons; with --noaccounting, it runs no slurmdbd and no database",
        next_command=f"sudo apt-get install --no-install-recommends {DEBIAN_PACKAGES}",
    )


def missing(accounting: bool) -> list[str]:
    """Return the programs and files that this machine does not have."""
    needed = SLURM + (ACCOUNTING if accounting else ())
    absent = [name for name in needed if shutil.which(name, path=search_path()) is None]
    no_tables = accounting and system_tables() is None
    return [*absent, SYSTEM_TABLES[0].name] if no_tables else absent


def system_tables() -> Path | None:
    return next((path for path in SYSTEM_TABLES if path.is_file()), None)


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), *DAEMON_FOLDERS])


# --- ports ------------------------------------------------------------------------------------------

FIRST_PORT, LAST_PORT = 12_000, 32_000  # below the ports that Linux assigns automatically (32768 and above)
TRIES = 200


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Like the daemons, count a port in TIME_WAIT as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_ports(nodes: int, free: Callable[[int], bool] = is_free) -> Ports:
    """Return a block of free ports at a random place, so that clusters that start at the same time rarely collide."""
    needed = nodes + 2
    for _ in range(TRIES):
        first = random.randrange(FIRST_PORT, LAST_PORT - needed)
        if all(free(port) for port in range(first, first + needed)):
            return Ports(controller=first, accounting=first + 1, first_node=first + 2)
    raise RunError(
        f"found no {needed} consecutive free ports",
        where=f"ports {FIRST_PORT} to {LAST_PORT} of this machine",
        next_command="ss -ltn",
    )


# --- a host name for each node ------------------------------------------------------------------------

UNSHARE: dict[Naming, list[str]] = {
    # slave: nodes also see file systems that are mounted on the machine later, if its mounts are shared, as
    # with systemd.
    "namespaces": ["unshare", "--mount", "--uts", "--propagation", "slave"],
    "user_namespaces": ["unshare", "--map-current-user", "--keep-caps", "--mount", "--uts", "--propagation", "slave"],
}
ENTER = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'
PROBE_SECONDS = 10


def best_naming() -> Naming:
    """Return the first kind of namespaces that this user can create here. Raise RequestError if no kind works."""
    with tempfile.NamedTemporaryFile() as hosts:
        for naming in UNSHARE:
            command = in_node(naming, "node1", Path(hosts.name), ["true"])
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(command, capture_output=True, check=True, timeout=PROBE_SECONDS)
                return naming
    raise RequestError(
        "this user cannot create namespaces, which give each node its own name",
        where="unshare --mount --uts",
        why="the machine allows namespaces only to root, or forbids them in containers; run the command as root",
    )


def in_node(naming: Naming, node: str, hosts: Path, command: list[str]) -> list[str]:
    """Return the command that runs `command` on a node."""
    return [*UNSHARE[naming], "sh", "-c", ENTER, "sh", node, str(hosts), *command]


# --- a job's memory -----------------------------------------------------------------------------------

CGROUP_V1 = Path("/sys/fs/cgroup/memory")


def best_memory_limit() -> MemoryLimit:
    """Return "kernel" if root can make cgroup/v1 groups of the memory controller. Slurm's cgroup/v2 needs systemd."""
    usable = (CGROUP_V1 / "release_agent").exists() and os.access(CGROUP_V1, os.W_OK)
    return "kernel" if usable and os.geteuid() == 0 else "sampling"
