"""The description of a private cluster and the paths of its files. This module starts nothing."""

from pathlib import Path
from typing import Literal

from benchmarks import files
from benchmarks.errors import RequestError
from benchmarks.values import Value
from launch.terminal import places

# How a node gets its own host name: in namespaces that only root can create, or in user namespaces.
Naming = Literal["namespaces", "user_namespaces"]
# A job that uses more memory than it requested is stopped by the kernel (the job's state is then OUT_OF_MEMORY), or
# by Slurm, which checks every second (the job is then FAILED, or its step CANCELLED, by signal 9).
MemoryLimit = Literal["kernel", "sampling"]


class Ports(Value, frozen=True):
    """The ports of one cluster, all on this machine."""

    controller: int
    accounting: int
    first_node: int  # the port of node1; the ports of the other nodes follow


class Cluster(Value, frozen=True):
    """The settings with which one private cluster was started."""

    name: str
    nodes: int
    gpus_per_node: int
    accounting: bool
    user: str
    host: str
    naming: Naming
    memory_limit: MemoryLimit
    cpus_per_node: int
    memory_mb_per_node: int
    first_job_id: int
    ports: Ports
    folder: str
    sockets: str  # the folder of the sockets, whose paths must be short

    @property
    def node_names(self) -> list[str]:
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    @property
    def files(self) -> "Files":
        return Files(Path(self.folder), Path(self.sockets))


class Files:
    """The paths of a cluster's files."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        self.folder = folder
        self.settings = folder / "etc"
        self.slurm_conf = self.settings / "slurm.conf"
        # The configuration of daemons and of tasks on nodes: slurm.conf, and the addresses to listen on.
        self.daemons_conf = self.settings / "daemons.conf"
        self.hosts = self.settings / "hosts"
        self.munge_key = self.settings / "munge.key"
        self.database_password = self.settings / "database.password"
        self.logs = folder / "log"
        self.state = folder / "state"
        self.database = folder / "database"
        self.devices = folder / "devices"
        self.pids = folder / "pids"
        self.temporary = folder / "tmp"
        self.sockets = sockets
        self.munge_socket = sockets / "munge"
        self.database_socket = sockets / "database"
        self.spool = sockets / "spool"

    def log(self, daemon: str) -> Path:
        return self.logs / f"{daemon}.log"


# --- the record of a cluster that was started ----------------------------------------------------


def folder_of(name: str) -> Path:
    return places.own_place("clusters", name)


def site_file(name: str) -> Path:
    return places.own_place("sites", f"{name}.yml")


def record_of(name: str) -> Path:
    return folder_of(name) / "cluster.json"


def read_cluster(name: str) -> Cluster | None:
    """Return the cluster as it was started; None without a complete record."""
    try:
        return files.read_json(record_of(name), Cluster)
    except (FileNotFoundError, ValueError):
        return None


def started_cluster(name: str) -> Cluster:
    """Return the cluster of this name. Raise RequestError if it was not started."""
    cluster = read_cluster(name)
    if cluster is None:
        names = started_names()
        raise RequestError(
            f"the private cluster '{name}' is not running",
            where=str(folder_of(name)),
            why=f"running: {', '.join(names)}" if names else "",
            next_command=f"--name={names[0]}" if names else f"python launch/cluster.py up --name={name}",
        )
    return cluster


def started_names() -> list[str]:
    """Return the names of this user's clusters that were started and not stopped."""
    return sorted(record.parent.name for record in folder_of("").glob("*/cluster.json"))
