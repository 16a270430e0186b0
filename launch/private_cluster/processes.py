"""Find and end the processes of one private cluster, whose daemons have two variables in their environment.

Process ids in files are not safe, because the kernel reuses them. Tasks of jobs do not have the two variables:
they are children of Slurm's step daemons, or their environment names both a node and the configuration of this
cluster's daemons.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

CLUSTER_MARK = "STEPMARK_CLUSTER"  # the cluster's folder
DAEMON_MARK = "STEPMARK_DAEMON"  # the daemon, such as slurmctld; for slurmd and its children, the node's name
# Slurm overwrites the start of a daemon's environment with a title. The padding protects the variables after it.
PADDING = {"STEPMARK_PADDING": "x" * 1000}

STOP_SECONDS = 3.0  # between SIGTERM and SIGKILL
GONE_SECONDS = 20.0  # how long killed processes may remain
LOOK_SECONDS = 0.05

PROC = Path("/proc")
STEP_DAEMON = "slurmstepd"


@dataclass(frozen=True)
class Process:
    """One running process."""

    pid: int
    parent: int
    program: str
    kind: Literal["daemon", "step", "task"]
    owner: str  # the name of the daemon, or of the node


def environment(folder: Path, daemon: str) -> dict[str, str]:
    """Return the variables that mark a daemon of this cluster; the padding must come first."""
    return PADDING | {CLUSTER_MARK: str(folder), DAEMON_MARK: daemon}


def running(folder: Path, daemons_conf: Path) -> list[Process]:
    """Return every process of the cluster: its daemons, the step daemons of its jobs, and their tasks."""
    seen = [process for entry in PROC.iterdir() if (process := _read(entry, folder, daemons_conf))]
    found = {process.pid: process for process in seen if process.owner}
    unclaimed = [process for process in seen if not process.owner]
    while True:  # children of a step daemon or of a task are tasks, even with another environment
        parents = {pid: process.owner for pid, process in found.items() if process.kind != "daemon"}
        claimed = [replace(one, kind="task", owner=parents[one.parent]) for one in unclaimed if one.parent in parents]
        if not claimed:
            break
        found |= {process.pid: process for process in claimed}
        unclaimed = [process for process in unclaimed if process.pid not in found]
    found.pop(os.getpid(), None)
    return list(found.values())


def _read(entry: Path, folder: Path, daemons_conf: Path) -> Process | None:
    if not entry.name.isdigit():
        return None
    try:
        stat = (entry / "stat").read_text(errors="replace")
        text = (entry / "environ").read_bytes().decode(errors="replace")
    except OSError:  # the process has just ended, or belongs to another user
        return None
    variables = {name: value for name, _, value in (item.partition("=") for item in text.split("\0"))}
    program, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] == "Z":
        return None
    owner = ""
    kind: Literal["daemon", "step", "task"] = "task"
    if variables.get(CLUSTER_MARK) == str(folder):
        owner = variables.get(DAEMON_MARK, "")
        kind = "step" if program == STEP_DAEMON else "daemon"
    elif variables.get("SLURM_CONF") == str(daemons_conf):
        owner = variables.get("SLURMD_NODENAME", "")  # Slurm sets this variable only on a node
    return Process(int(entry.name), int(fields[1]), program, kind, owner)


# --- ending processes ----------------------------------------------------------------------------


def end(find: Callable[[], list[Process]], stop_seconds: float = STOP_SECONDS) -> list[Process]:
    """Terminate all processes that `find` returns, then kill those that remain. Return those that did not end."""
    begun = time.monotonic()
    asked: set[int] = set()
    # Call `find` twice, because one call can miss a process that forks while /proc is read.
    while left := find() or find():
        waited = time.monotonic() - begun
        if waited > stop_seconds + GONE_SECONDS:
            return left
        for process in left:
            if waited >= stop_seconds:
                send(process, signal.SIGKILL)
            elif process.pid not in asked:
                send(process, signal.SIGTERM)
                asked.add(process.pid)
        time.sleep(LOOK_SECONDS)
    return []


def send(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(process.pid, number)
