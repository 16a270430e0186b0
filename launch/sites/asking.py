"""Collect facts about a cluster that has no site file yet, from Slurm's commands and from a small job on one node."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.errors import RequestError, nearest
from benchmarks.values import JobOptions, Value
from launch.machine.this_machine import name_of
from launch.slurm.client import Slurm
from launch.slurm.options import parse_node_list
from launch.slurm.parsing import Node, Partition

NODE_PROGRAM = Path(__file__).with_name("ask_node.sh")
NODE_MINUTES = 5
QUEUE_SECONDS = 600.0
OWN_MOUNTS = Path("/proc/self/mounts")
WHAT_THERE_IS = "sinfo -s; scontrol show partition; sacctmgr show associations user=$USER"


class PartitionFacts(Value, frozen=True):
    """A partition that accepts jobs, as sinfo and scontrol show it."""

    name: str
    default: bool
    nodes: int
    nodes_up: int
    gpus: int  # the largest number of GPUs in a node
    gpu_types: list[str]  # the types, as Slurm names them
    max_seconds: int | None = None
    accounts: list[str] | None = None  # the accounts that may use the partition; None: all

    @property
    def text(self) -> str:
        gpus = f", {self.gpus} {', '.join(self.gpu_types) or 'GPUs'} per node" if self.gpus else ""
        return f"{self.nodes_up} of {self.nodes} nodes up{gpus}{', the default' if self.default else ''}"


class SlurmFacts(Value, frozen=True):
    """The facts from Slurm's commands on this machine."""

    cluster: str
    version: str
    partitions: list[PartitionFacts]
    accounts: list[str] = []  # this user's accounts in sacctmgr
    account_is_needed: bool = False  # from AccountingStorageEnforce
    mpi: list[str] = []
    no_pmix: str = ""  # why srun cannot load pmix; empty if it can
    pyxis: bool = False
    blocks: bool = False  # TopologyPlugin=topology/block, which --segment needs
    configuration: str | None = None  # SLURM_CONF of the shell


class Mount(Value, frozen=True):
    source: str
    folder: str
    kind: str


class NodeFacts(Value, frozen=True):
    """The facts that one node reports."""

    name: str
    gpus: list[str] = []  # the GPUs' names in nvidia-smi
    mounts: list[Mount] = []
    seen: list[str] = []  # folders in which the node sees test files that this machine wrote


class Fact(NamedTuple):
    """One value for the site's file, and its source."""

    value: Any
    source: str


# --- Slurm's commands -------------------------------------------------------------------------------


def slurm_facts(slurm: Slurm, configuration: str | None) -> SlurmFacts:
    settings, nodes = slurm.settings(), slurm.all_nodes()
    cluster, enforced = settings.get("ClusterName", ""), settings.get("AccountingStorageEnforce", "")
    plugins = slurm.mpi_plugins()
    accounts = slurm.accounts(name_of(os.geteuid()), cluster)
    partitions = [
        _partition_facts(one, nodes.get(one.name, []))
        for one in slurm.partitions()
        if one.state == "UP"
        and not (accounts and one.accounts is not None and set(accounts).isdisjoint(one.accounts))
    ]
    if not any(one.nodes_up for one in partitions):
        raise RequestError(
            "no partition of this cluster accepts your jobs now",
            where=f"cluster {cluster}",
            next_command=WHAT_THERE_IS,
        )
    return SlurmFacts(
        cluster=cluster,
        version=settings.get("SLURM_VERSION", ""),
        partitions=[one for one in partitions if one.nodes_up],
        accounts=accounts,
        account_is_needed=bool({"associations", "limits", "qos", "safe", "all"} & set(enforced.lower().split(","))),
        mpi=plugins,
        no_pmix=slurm.why_no_mpi("pmix") if "pmix" in plugins else "",
        pyxis=slurm.has_pyxis(),
        blocks="topology/block" in settings.get("TopologyPlugin", ""),
        configuration=configuration,
    )


def _partition_facts(partition: Partition, nodes: Sequence[Node]) -> PartitionFacts:
    return PartitionFacts(
        name=partition.name,
        default=partition.default,
        nodes=len(nodes),
        nodes_up=sum(node.up for node in nodes),
        gpus=max((node.gpus for node in nodes), default=0),
        gpu_types=sorted({node.gpu_type for node in nodes if node.gpu_type}),
        max_seconds=partition.max_seconds,
        accounts=partition.accounts,
    )


# --- partition and account --------------------------------------------------------------------------


def resolve_answers(slurm: SlurmFacts, typed: Mapping[str, Any]) -> tuple[PartitionFacts, dict[str, Fact]]:
    """Return the partition, and the options that the user must choose. Raise RequestError for a wrong choice."""
    usual_first = sorted(slurm.partitions, key=lambda one: not one.default)
    partitions = {one.name: one for one in usual_first}
    chosen = _resolve_answer("partition", {one.name: one.text for one in usual_first}, typed)
    partition = partitions[chosen.value.partition(",")[0]]
    accounts = accounts_for(slurm, partition)
    if accounts is None:
        return partition, {"partition": chosen}
    return partition, {"partition": chosen, "account": _resolve_answer("account", dict.fromkeys(accounts, ""), typed)}


def _resolve_answer(flag: str, choices: Mapping[str, str], typed: Mapping[str, Any]) -> Fact:
    """Return the value of the flag, or the only choice. `choices` is name -> description, the usual choice first."""
    shown = [f"{name} ({more})" if more else name for name, more in choices.items()]
    why = f"--{flag}: {', '.join(shown) or f'Slurm lists no {flag} for you'}"
    if flag in typed:
        fact = Fact(typed[flag], f"--{flag}")
    elif len(choices) == 1:
        fact = Fact(next(iter(choices)), f"the only {flag} that accepts your jobs now")
    else:
        usual = next(iter(choices), "NAME")
        raise RequestError(f"a new site needs --{flag}", why=why, next_command=f"--{flag}={usual}")
    unknown = [name for name in fact.value.split(",") if choices and name not in choices]
    if unknown:
        raise RequestError(
            f"{flag} '{unknown[0]}' does not accept your jobs: {nearest(unknown[0], choices)}",
            where=fact.source,
            why=why,
            next_command=WHAT_THERE_IS,
        )
    return fact


def accounts_for(slurm: SlurmFacts, partition: PartitionFacts) -> list[str] | None:
    """Return the accounts to choose from; None if Slurm accepts jobs without an account."""
    allowed = partition.accounts
    if not slurm.account_is_needed and allowed is None:
        return None
    mine = slurm.accounts or allowed or []
    return sorted(name for name in mine if allowed is None or name in allowed)


# --- one node ---------------------------------------------------------------------------------------


def node_facts(slurm: Slurm, options: JobOptions, gpus: bool, folders: Sequence[Path]) -> NodeFacts:
    """Return the facts of a node. They come from a small job, which also looks for test files in `folders`."""
    with _files_in(folders) as left:
        program = ["sh", "-c", NODE_PROGRAM.read_text(), "sh", *left]
        text = slurm.on_a_node(node_arguments(options, gpus), program, QUEUE_SECONDS)
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        kind, _, words = line.strip().partition(" ")
        found.setdefault(kind, []).append(words)
    return NodeFacts(
        name=found.get("node", [""])[0],
        gpus=found.get("gpu", []),
        mounts=mounts("\n".join(found.get("mount", []))),
        seen=[left[path] for path in found.get("seen", []) if path in left],
    )


def node_arguments(options: JobOptions, gpus: bool) -> list[str]:
    """Return the arguments of the srun that inspects a node: a minimal job, which starts soon."""
    kept = {
        name: getattr(options, name) for name in ("partition", "account", "qos", "reservation", "constraint", "mpi")
    }
    kept |= {"exclude": options.exclude, "nodelist": next(iter(parse_node_list(options.nodelist)), None)}
    words = [f"--{name}={value}" for name, value in kept.items() if value]
    one_gpu = ["--gpus-per-node=1" if options.gpus == "gpus_per_node" else "--gres=gpu:1"] if gpus else []
    return [f"--time={NODE_MINUTES}", *words, *one_gpu, *options.arguments]


def mounts(text: str) -> list[Mount]:
    """Parse /proc/self/mounts, in which spaces are octal escapes."""
    rows = (line.split(" ") for line in text.splitlines())
    return [
        Mount(source=row[0], folder=re.sub(r"\\([0-7]{3})", lambda one: chr(int(one[1], 8)), row[1]), kind=row[2])
        for row in rows
        if len(row) >= 4
    ]


@contextlib.contextmanager
def _files_in(folders: Sequence[Path]) -> Iterator[dict[str, str]]:
    """Make a test file in each folder. Yield file -> folder, or folder -> folder if this user cannot write there."""
    with contextlib.ExitStack() as stack:
        left = {}
        for folder in folders:
            try:
                file = stack.enter_context(tempfile.NamedTemporaryFile(prefix=".stepmark-", dir=folder))
                left[file.name] = str(folder)
            except OSError:
                left[str(folder)] = str(folder)
        yield left
