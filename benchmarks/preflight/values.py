"""The request to the nodes of a preflight, the nodes' answers, and the findings of the checks. No I/O.

Each check has one finding per node: `ok`, `failed` with the actual and the expected value, `warning`, or
`not_checked` with the reason. A check is never `ok` if the node lacks the hardware. A node passes if no check failed.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from benchmarks.values import Hardware, Value

Status = Literal["ok", "failed", "warning", "not_checked"]
Problem = tuple[Status, str]  # a status other than `ok`, and the reason


class Command(Value, frozen=True):
    """The result of a program on a node."""

    exit_code: int | None  # None: the program could not be started, or did not finish
    output: str


class Call(Value, frozen=True):
    """An attempt to connect from a node to the first node by TCP."""

    first_node: str | None  # None: this is the only node
    offered: bool = False  # whether the first node offered a port
    error: str | None = None


class Limits(Value, frozen=True):
    """The limits of a process in a job. None means unlimited."""

    memlock_bytes: int | None
    open_files: int | None


class Answer(Value, frozen=True):
    """What a node reported: answers/NODE.json, written by launch/inside/node_check.py."""

    node: str
    token: str
    versions: dict[str, str]
    cores: int
    memory_bytes: int
    load: float
    limits: Limits
    shm_bytes: int | None
    free_bytes: int
    folders: dict[str, Literal["writable", "readable", "visible", "missing"]]
    program: str
    environments: dict[str, bool]
    infiniband: dict[str, str]
    commands: dict[str, Command]
    call: Call


class ProbeSpec(Value, frozen=True):
    """The request to the nodes (asked.json): which facts each node collects."""

    token: str  # proves that a node reads this folder, and not another folder with the same name
    shared_folders: list[str]  # must be visible, but need not be writable
    environments: list[str]
    gpus: bool
    container: bool
    call_seconds: int  # how long a node waits until the first node offers a port
    written_folders: list[str] = []  # must be writable


class Expectations(Value, frozen=True):
    """The values with which the nodes' answers are compared."""

    asked: ProbeSpec
    hardware: list[Hardware]  # the hardware in the site's file
    program: str  # the checksum of node_check.py in the launcher's checkout
    pyxis: bool | None  # whether srun has pyxis; None: the site does not use containers


class Finding(Value, frozen=True):
    check: str
    status: Status
    node: str
    text: str = ""


def finding(check: str, answer: Answer, problem: Problem | None = None) -> Finding:
    status, text = problem or ("ok", "")
    return Finding(check=check, status=status, node=answer.node, text=text[:300])


def outliers(seen: Mapping[str, str]) -> dict[str, str]:
    """Return node -> text for each node whose value differs from the majority; without a majority, for all nodes."""
    counts = Counter(seen.values())
    if len(counts) < 2:
        return {}
    value, count = counts.most_common(1)[0]
    if 2 * count > len(seen):
        return {n: f"{own}, but {count} of {len(seen)} nodes have {value}" for n, own in seen.items() if own != value}
    return {node: f"{own}; no majority among {len(counts)} different values" for node, own in seen.items()}
