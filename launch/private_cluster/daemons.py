"""The daemons of a private cluster: build each command, start it, and wait until the daemon answers."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.errors import RunError
from launch.private_cluster import configuration, machine, processes
from launch.private_cluster.cluster import Cluster

ANSWER_SECONDS = 60.0  # how long one daemon may take to answer
NODE_SECONDS = 0.5  # how much longer all daemons may take for each node
LOOK_SECONDS = 0.05
# Reading /proc once can miss a daemon that forks into the background at that moment.
DEAD_SECONDS = 0.5
COMMAND_SECONDS = 30.0
LOG_LINES = 8

# The only variables that a daemon inherits. A job gets its environment from the shell that submits it.
INHERITED = ("HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "TMPDIR")

DATABASE = "mariadbd"
ACCOUNTING = "slurmdbd"
CONTROLLER = "slurmctld"
MUNGE = "munged"


# --- starting ------------------------------------------------------------------------------------


def start_munge(cluster: Cluster) -> None:
    files = cluster.files
    command = [
        MUNGE,
        "--force",  # accept a home that other users cannot enter
        f"--socket={files.munge_socket}",
        f"--key-file={files.munge_key}",
        f"--log-file={files.log(MUNGE)}",
        f"--pid-file={files.pids / MUNGE}",
        f"--seed-file={files.state / 'munge.seed'}",
    ]
    _run(cluster, MUNGE, command)
    _wait(cluster, MUNGE, lambda: _answers(files.munge_socket))


def start_database(cluster: Cluster) -> None:
    """Create the database's tables and account, then start its server, which listens on a socket and on no port."""
    files = cluster.files
    tables = machine.system_tables()
    assert tables is not None  # machine.refuse_missing has checked this
    password = files.database_password.read_text(encoding="utf-8")
    sql = configuration.database_sql(tables.read_text(encoding="utf-8"), password)
    command = [
        DATABASE,
        "--no-defaults",
        f"--user={cluster.user}",
        f"--datadir={files.database}",
        f"--tmpdir={files.temporary}",  # in a shared folder, a server that starts removes other servers' tables
        "--innodb-flush-log-at-trx-commit=0",  # the data may be lost if the machine fails
        "--innodb-log-file-size=16M",
        "--innodb-buffer-pool-size=32M",
    ]
    _run(cluster, DATABASE, [*command, "--bootstrap"], stdin=sql)
    places = [f"--socket={files.database_socket}", f"--pid-file={files.pids / DATABASE}"]
    # slurmdbd requires this lock timeout.
    _start(cluster, DATABASE, [*command, "--skip-networking", *places, "--innodb-lock-wait-timeout=900"])
    _wait(cluster, DATABASE, lambda: _answers(files.database_socket))


def start_accounting(cluster: Cluster) -> None:
    _run(cluster, ACCOUNTING, _at_home(cluster, ACCOUNTING, cluster.host, [ACCOUNTING]))
    _wait(cluster, ACCOUNTING, lambda: _answers(cluster.ports.accounting))


def start_controller(cluster: Cluster) -> None:
    _run(cluster, CONTROLLER, _at_home(cluster, CONTROLLER, cluster.host, [CONTROLLER]))
    _wait(cluster, CONTROLLER, lambda: "is UP" in ask(cluster, "scontrol", "ping"))


def start_nodes(cluster: Cluster, names: list[str]) -> None:
    """Start a slurmd for each name, and wait until the controller can use all of these nodes."""
    started = [(name, _start(cluster, name, _at_home(cluster, name, name, ["slurmd", "-N", name]))) for name in names]
    for name, process in started:
        _check(cluster, name, process.wait(ANSWER_SECONDS))
    _await(cluster, set(names), lambda: set(names) - ready_nodes(cluster))


def _at_home(cluster: Cluster, daemon: str, host: str, command: list[str]) -> list[str]:
    """Return a command that runs `command` on a host of this name, whose address is the loopback address.

    `env` sets the variables, because a shell in between would change their order.
    """
    variables = [f"{name}={value}" for name, value in _environment(cluster, daemon).items()]
    return machine.in_node(cluster.naming, host, cluster.files.hosts, ["env", "-i", *variables, *command])


def _await(cluster: Cluster, awaited: set[str], absent: Callable[[], set[str]]) -> None:
    """Wait until `absent` returns an empty set. Raise RunError after the time limit, or if a daemon does not run."""
    end = time.monotonic() + ANSWER_SECONDS + NODE_SECONDS * len(awaited)
    all_ran = time.monotonic()
    while waiting := absent():
        now = time.monotonic()
        dead = awaited - owners(cluster)
        all_ran = all_ran if dead else now
        if now - all_ran > DEAD_SECONDS or now > end:
            raise _failure(cluster, min(dead or waiting), "did not start")
        time.sleep(LOOK_SECONDS)


def _run(cluster: Cluster, daemon: str, command: list[str], stdin: str = "") -> None:
    """Run a program to its end. The program of a daemon ends when the daemon runs in the background."""
    process = _start(cluster, daemon, command, bool(stdin))
    process.communicate(stdin.encode() if stdin else None, timeout=ANSWER_SECONDS)
    _check(cluster, daemon, process.returncode)


def _start(cluster: Cluster, daemon: str, command: list[str], takes_input: bool = False) -> "subprocess.Popen[bytes]":
    with cluster.files.log(daemon).open("ab") as log:
        return subprocess.Popen(
            command,
            env=_environment(cluster, daemon),
            stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=cluster.files.logs,
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the daemons in order
        )


def _environment(cluster: Cluster, daemon: str) -> dict[str, str]:
    settings = {
        "PATH": machine.search_path(),
        "SLURM_CONF": str(cluster.files.daemons_conf),
        "MYSQL_UNIX_PORT": str(cluster.files.database_socket),
    }
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    mark = processes.environment(cluster.files.folder, daemon)
    return processes.PADDING | inherited | settings | mark


# --- asking --------------------------------------------------------------------------------------


def ask(cluster: Cluster, *command: str) -> str:
    """Return the stdout and stderr of a Slurm command; empty if it does not end in time."""
    environment = os.environ | {"SLURM_CONF": str(cluster.files.slurm_conf), "PATH": machine.search_path()}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def ready_nodes(cluster: Cluster) -> set[str]:
    """Return the nodes on which the controller would start jobs."""
    lines = [line.split() for line in ask(cluster, "sinfo", "-h", "-N", "-o", "%N %t").splitlines()]
    usable = ("idle", "mix", "alloc", "comp")  # a star after the state means that the node does not answer
    return {fields[0] for fields in lines if len(fields) == 2 and fields[1] in usable}


def jobs(cluster: Cluster) -> dict[str, Path]:
    """Return the working folder of each job in the queue."""
    lines = [line.partition("|") for line in ask(cluster, "squeue", "-h", "-a", "-o", "%A|%Z").splitlines()]
    return {job: Path(folder) for job, _, folder in lines if job.isdecimal()}


def running(cluster: Cluster) -> list[processes.Process]:
    return processes.running(cluster.files.folder, cluster.files.daemons_conf)


def owners(cluster: Cluster) -> set[str]:
    """Return the names of the daemons that run."""
    return {process.owner for process in running(cluster) if process.kind == "daemon"}


def expected(cluster: Cluster) -> list[str]:
    """Return the names of the daemons that should run, in the order of their start."""
    database = [DATABASE, ACCOUNTING] if cluster.accounting else []
    return [MUNGE, *database, CONTROLLER, *cluster.node_names]


def _wait(cluster: Cluster, daemon: str, ready: Callable[[], bool]) -> None:
    _await(cluster, {daemon}, lambda: set() if ready() else {daemon})


def _answers(place: Path | int) -> bool:
    """Return whether a server answers at a Unix socket, or a port of this machine."""
    is_port = isinstance(place, int)
    with socket.socket(socket.AF_INET if is_port else socket.AF_UNIX) as client, contextlib.suppress(OSError):
        client.connect(("127.0.0.1", place) if is_port else str(place))
        return True
    return False


# --- errors ---------------------------------------------------------------------------------------


def _check(cluster: Cluster, daemon: str, exit_code: int) -> None:
    if exit_code != 0:
        raise _failure(cluster, daemon, f"ended with exit code {exit_code}")


def _failure(cluster: Cluster, daemon: str, what: str) -> RunError:
    log = cluster.files.log(daemon)
    lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]  # _start has made it
    return RunError(
        f"the private cluster '{cluster.name}': {daemon} {what}",
        where=f"log: {log}",
        why="\n         ".join(lines) or "it ended without a message",
        next_command=f"python launch/cluster.py down --name={cluster.name}",
    )
