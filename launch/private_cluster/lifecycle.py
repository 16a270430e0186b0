"""Start a private cluster, show its state, break parts of it on purpose, and stop it."""

import contextlib
import datetime
import os
import random
import re
import secrets
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError, UnknownName
from benchmarks.text import plural
from benchmarks.values import json_text
from launch.machine.processes import interrupted_once
from launch.machine.this_machine import host_memory_bytes, name_of
from launch.private_cluster import configuration, daemons, machine, processes
from launch.private_cluster.cluster import (
    Cluster,
    Files,
    folder_of,
    read_cluster,
    record_of,
    site_file,
    started_cluster,
)
from launch.terminal.places import exposed_parents, remedy

Say = Callable[[str], None]

CPUS_PER_NODE = 16  # configured for any machine; more if a node has more GPUs
NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
SOCKETS = "run"  # a link in the cluster's folder to the folder of the sockets, whose path is short
MACHINE_HOSTS = Path("/etc/hosts")
CONTROLLER_STOP_SECONDS = 30.0  # enough for the controller to save its jobs
JOBS_STOP_SECONDS = 15.0  # longer than KillWait in slurm.conf; limited, because jobs on a dead node do not end


@dataclass(frozen=True)
class ClusterRequest:
    """The cluster that the user requested."""

    name: str = "dev"
    nodes: int = 4
    gpus_per_node: int = 8
    accounting: bool = True


@dataclass(frozen=True)
class Status:
    """The running parts of a cluster."""

    cluster: Cluster
    missing: list[str]  # daemons that should run but do not
    tasks: int


# --- up ------------------------------------------------------------------------------------------


def up(wanted: ClusterRequest, say: Say) -> tuple[Cluster, bool]:
    """Start a cluster unless it runs. Return it, and whether it was started. After a failure, stop its processes."""
    _refuse_other_site(wanted.name)
    machine.refuse_missing(wanted.accounting)
    make_own(folder_of(wanted.name))
    existing = _still_up(wanted)
    if existing:
        return existing, False
    with interrupted_once():
        _stop(wanted.name, say)
        cluster = _choose(wanted)
        try:
            _start(cluster, say)
        except BaseException:
            _stop(wanted.name, say)
            raise
    return cluster, True


def _refuse_other_site(name: str) -> None:
    """Raise RequestError if the name is invalid, or belongs to a site that is not a private cluster."""
    if not NAME.fullmatch(name):
        raise RequestError(
            f"'{name}' is not a valid name of a cluster",
            where=f"--name={name}",
            why="use a lower case letter, then at most 30 of a-z, 0-9, _ and -",
        )
    own = site_file(name)
    ours = not own.exists() or configuration.SOURCE.format(name) in own.read_text(encoding="utf-8", errors="replace")
    if name in Configs().names("sites") or not ours:
        raise RequestError(
            f"'{name}' is a site, not a private cluster of this machine",
            where=f"--name={name}",
            next_command=f"--name={name}_2",
        )


def make_own(folder: Path) -> None:
    """Make a folder that only this user can enter, with any umask. Raise RequestError if other users can enter it.

    All users can access the sockets of mariadbd and munged, so their folder must keep others out.
    """
    for parent in reversed(folder.parents):
        parent.mkdir(mode=0o755, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    is_own = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o077
    if places := [*exposed_parents(folder), *([] if is_own else [folder])]:
        raise RequestError(
            "other users could change a private cluster in this folder",
            where=str(places[0]),
            why="it must belong to you with mode 0700, and no other user may own or write to a folder above it",
            next_command=remedy(places[0], "go-w" if places[0] != folder else "go-rwx"),
        )


def _still_up(wanted: ClusterRequest) -> Cluster | None:
    """Return the cluster of this name if its controller runs. Refuse if it differs from the request."""
    cluster = read_cluster(wanted.name)
    if cluster is None or daemons.CONTROLLER not in daemons.owners(cluster):
        return None
    is_there = ClusterRequest(cluster.name, cluster.nodes, cluster.gpus_per_node, cluster.accounting)
    if is_there != wanted:
        raise RequestError(
            f"the private cluster '{wanted.name}' is already running, with {described(is_there)}",
            where=f"the request: {described(wanted)}",
            next_command=f"python launch/cluster.py down --name={wanted.name}",
        )
    return cluster


def described(cluster: ClusterRequest | Cluster) -> str:
    accounting = "accounting" if cluster.accounting else "no accounting"
    gpus = plural(cluster.gpus_per_node, "simulated GPU")
    return f"{plural(cluster.nodes, 'node')} with {gpus} each, {accounting}"


def _choose(wanted: ClusterRequest) -> Cluster:
    """Return the settings of a new cluster: the request, values from this machine, and random ids and ports."""
    return Cluster(
        name=wanted.name,
        nodes=wanted.nodes,
        gpus_per_node=wanted.gpus_per_node,
        accounting=wanted.accounting,
        user=name_of(os.geteuid()),
        host=socket.gethostname().partition(".")[0],
        naming=machine.best_naming(),
        memory_limit=machine.best_memory_limit(),
        cpus_per_node=max(CPUS_PER_NODE, wanted.gpus_per_node),
        memory_mb_per_node=host_memory_bytes() // 2**20,
        # Random ids distinguish the jobs of this cluster from those of an earlier one, also in the control groups,
        # which Slurm names only by node and job.
        first_job_id=1 + 1000 * random.randrange(1, 10_000),
        ports=machine.free_ports(wanted.nodes),
        folder=str(folder_of(wanted.name)),
        # A Unix socket's path may have 107 bytes, and TMPDIR or STEPMARK_HOME may take most of them.
        sockets=tempfile.mkdtemp(prefix="stepmark-", dir="/tmp"),
    )


def _start(cluster: Cluster, say: Say) -> None:
    _write_files(cluster)
    daemons.start_munge(cluster)
    say("munge is up")
    if cluster.accounting:
        daemons.start_database(cluster)
        say("database is up")
        daemons.start_accounting(cluster)
        say("accounting is up")
    daemons.start_controller(cluster)
    say("controller is up")
    daemons.start_nodes(cluster, cluster.node_names)
    say("the node is up" if cluster.nodes == 1 else f"all {cluster.nodes} nodes are up")
    path = site_file(cluster.name)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _write(path, configuration.site(cluster, datetime.date.today().isoformat()).encode())


def _write_files(cluster: Cluster) -> None:
    files = cluster.files
    shutil.rmtree(files.logs, ignore_errors=True)  # the logs of an earlier cluster of this name
    for folder in (files.settings, files.logs, files.state, files.devices, files.pids, files.database, files.spool):
        make_own(folder)
    record_of(cluster.name).write_text(json_text(cluster), encoding="utf-8")
    (files.folder / SOCKETS).symlink_to(files.sockets)  # `_stop` finds the sockets by this link if the record is lost
    for name in cluster.node_names:
        (files.spool / name).mkdir()
        (files.temporary / name).mkdir(parents=True)
    for number in range(cluster.gpus_per_node):
        # The file of a GPU must be a character device or a link to one.
        (files.devices / f"nvidia{number}").symlink_to(os.devnull)
    machine_hosts = MACHINE_HOSTS.read_text(errors="replace") if MACHINE_HOSTS.exists() else ""
    password = secrets.token_hex()
    for path, text in configuration.texts(cluster, machine_hosts, password).items():
        _write(path, text.encode())
    _write(files.database_password, password.encode())
    _write(files.munge_key, secrets.token_bytes(1024))


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)  # required by munged and slurmdbd, for any umask
    path.chmod(0o600)
    path.write_bytes(content)


# --- down ----------------------------------------------------------------------------------------


def down(name: str, say: Say) -> int:
    """Stop a cluster in any state, and return the number of processes that it had."""
    _refuse_other_site(name)
    if not folder_of(name).exists():
        return 0
    with interrupted_once():
        return _stop(name, say)


def cancel_jobs(name: str) -> dict[str, Path]:
    """Cancel all jobs of a cluster, wait until they have ended, and return their working folders."""
    _refuse_other_site(name)
    cluster = read_cluster(name)
    if cluster is None or daemons.CONTROLLER not in daemons.owners(cluster):
        return {}
    found = daemons.jobs(cluster)
    if found:
        daemons.ask(cluster, "scancel", *found)
    deadline = time.monotonic() + JOBS_STOP_SECONDS
    while found and daemons.jobs(cluster) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _stop(name: str, say: Say) -> int:
    """End every process of a cluster, then remove its files except the logs. This also works without a record."""
    cluster = read_cluster(name)
    files = cluster.files if cluster else Files(folder_of(name), (folder_of(name) / SOCKETS).resolve())
    found = processes.running(files.folder, files.daemons_conf)
    if found:
        say(f"stopping {len(found)} processes")
    left = processes.end(lambda: processes.running(files.folder, files.daemons_conf))
    if left:
        raise RunError(
            f"{len(left)} processes of the private cluster '{name}' did not end",
            where=", ".join(f"{process.program} {process.pid}" for process in left[:5]),
            why="the processes were killed, but the kernel still lists them; try again later",
            next_command=f"python launch/cluster.py down --name={name}",
        )
    site_file(name).unlink(missing_ok=True)
    gone = (files.settings, files.state, files.database, files.devices, files.pids, files.temporary, files.sockets)
    for folder in gone:
        shutil.rmtree(folder, ignore_errors=True)
    (files.folder / SOCKETS).unlink(missing_ok=True)
    record_of(name).unlink(missing_ok=True)
    return len(found)


# --- status --------------------------------------------------------------------------------------


def status(name: str) -> Status | None:
    """Return the state of a cluster; None if it was not started, or was stopped."""
    _refuse_other_site(name)
    cluster = read_cluster(name)
    if cluster is None:
        return None
    found = daemons.running(cluster)
    alive = {process.owner for process in found if process.kind == "daemon"}
    missing = [daemon for daemon in daemons.expected(cluster) if daemon not in alive]
    return Status(cluster=cluster, missing=missing, tasks=sum(process.kind == "task" for process in found))


# --- breaking it on purpose ------------------------------------------------------------------------


def kill_node(name: str, node: str) -> int:
    """Kill a node's slurmd, step daemons and tasks, as if its power failed. Return the number of processes."""
    cluster = _with_node(name, node)
    killed: set[int] = set()
    while left := [process for process in daemons.running(cluster) if process.owner == node]:
        for process in left:
            processes.send(process, signal.SIGKILL)
            killed.add(process.pid)
    return len(killed)


def revive_node(name: str, node: str) -> None:
    """Start a killed node again, and wait until the controller can start jobs on it."""
    cluster = _with_node(name, node)
    if node not in daemons.owners(cluster):
        daemons.start_nodes(cluster, [node])


def restart_controller(name: str) -> None:
    """Stop slurmctld, which saves its state, and start it again. Running jobs continue."""
    cluster = started_cluster(name)
    processes.end(
        lambda: [process for process in daemons.running(cluster) if process.owner == daemons.CONTROLLER],
        stop_seconds=CONTROLLER_STOP_SECONDS,
    )
    daemons.start_controller(cluster)


def _with_node(name: str, node: str) -> Cluster:
    cluster = started_cluster(name)
    if node not in cluster.node_names:
        what = f"the private cluster '{name}' has no node '{node}'"
        raise UnknownName(what, node, cluster.node_names, where=f"--node={node}")
    return cluster
