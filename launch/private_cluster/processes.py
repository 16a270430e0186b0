"""The processes of one private cluster: found by a mark that only its daemons carry, and ended.

A process id in a file proves nothing, because ids are used again. The mark is two entries in the environment of
each daemon. Tasks of jobs do not carry it. They are started by Slurm's step daemons, or their environment names
both the configuration of this cluster's daemons and a node.
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
DAEMON_MARK = "STEPMARK_DAEMON"  # which daemon: slurmctld, or for all that runs on a node its name
# Slurm writes what a daemon is doing over the beginning of its environment; this is there to be written over.
PADDING = {"STEPMARK_PADDING": "x" * 1000}

STOP_SECONDS = 3.0  # between being asked to end and being killed
GONE_SECONDS = 20.0  # until a killed process must have gone
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
    owner: str  # the daemon, or the node


def environment(folder: Path, daemon: str) -> dict[str, str]:
    """Return the variables that mark a daemon as this cluster's; the padding must come first."""
    return PADDING | {CLUSTER_MARK: str(folder), DAEMON_MARK: daemon}


def running(folder: Path, daemons_conf: Path) -> list[Process]:
    """Every process of the cluster: its daemons, the step daemons of its jobs, and their tasks."""
    seen = [process for entry in PROC.iterdir() if (process := _read(entry, folder, daemons_conf))]
    found = {process.pid: process for process in seen if process.owner}
    unclaimed = [process for process in seen if not process.owner]
    while True:  # children of a step daemon or of a task are tasks, with any environment
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
    except OSError:  # it has just ended, or belongs to another user
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
        owner = variables.get("SLURMD_NODENAME", "")  # only on a node, not in the user's shell
    return Process(int(entry.name), int(fields[1]), program, kind, owner)


# --- ending them ---------------------------------------------------------------------------------


def end(find: Callable[[], list[Process]], stop_seconds: float = STOP_SECONDS) -> list[Process]:
    """Ask all at once, then kill what is left, until nothing is found; returns what would not go."""
    begun = time.monotonic()
    asked: set[int] = set()
    # Twice, because one look can miss a process that forks while /proc is read.
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
