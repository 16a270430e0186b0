"""Drafts the file of a new site from what Slurm, a node and a person said; each value has its source. Pure."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from benchmarks.values import Hardware, Value
from launch.slurm.parsing import clock_text

# File systems that are mounted from elsewhere: under the same path, they are the same folder everywhere.
NETWORK = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "wekafs", "ceph", "panfs", "pvfs2", "orangefs", "daos", "cifs", "smb3",
    "glusterfs", "fuse.glusterfs", "quobyte", "fuse.quobyte", "virtiofs", "9p", "fuse.juicefs", "vastnfs",
}  # fmt: skip
USUAL_SECONDS = 3600  # the time limit of a job


class PartitionFacts(Value, frozen=True):
    """A partition that takes jobs, as sinfo and scontrol show it."""

    name: str
    default: bool
    nodes: int
    nodes_up: int
    gpus: int  # of the node that has most
    gpu_types: list[str]  # as Slurm calls them
    max_seconds: int | None = None
    accounts: list[str] | None = None  # that may use it; None: all

    @property
    def text(self) -> str:
        gpus = f", {self.gpus} {', '.join(self.gpu_types) or 'GPUs'} a node" if self.gpus else ""
        return f"{self.nodes_up} of {self.nodes} nodes up{gpus}{', the default' if self.default else ''}"


class SlurmFacts(Value, frozen=True):
    """What Slurm's commands say on this machine."""

    cluster: str
    version: str
    partitions: list[PartitionFacts]
    accounts: list[str] = []  # of this user, by sacctmgr
    account_is_needed: bool = False  # AccountingStorageEnforce
    mpi: list[str] = []
    no_pmix: str = ""  # why srun cannot load it
    pyxis: bool = False
    blocks: bool = False  # TopologyPlugin=topology/block, which --segment needs
    configuration: str | None = None  # SLURM_CONF of the shell


class Mount(Value, frozen=True):
    source: str
    folder: str
    kind: str


class NodeFacts(Value, frozen=True):
    """What one node says of itself."""

    name: str
    gpus: list[str] = []  # as nvidia-smi calls them
    mounts: list[Mount] = []
    seen: list[str] = []  # folders in which it sees what was written here


class Fact(NamedTuple):
    """One value of the site, and where it came from."""

    value: Any
    source: str


# --- what follows -------------------------------------------------------------------------------------


def accounts_for(slurm: SlurmFacts, partition: PartitionFacts) -> list[str] | None:
    """Return the accounts to choose from; None if Slurm takes jobs without an account."""
    allowed = partition.accounts
    if not slurm.account_is_needed and allowed is None:
        return None
    mine = slurm.accounts or allowed or []
    return sorted(name for name in mine if allowed is None or name in allowed)


def shared_folders(here: Sequence[Mount], node: NodeFacts) -> dict[str, str]:
    """Folder -> why every node is believed to see it: a node saw a file there, or has the same network mount."""
    found: dict[str, str] = {}
    for folder in node.seen:
        around = [mount for mount in (*here, *node.mounts) if PurePosixPath(folder).is_relative_to(mount.folder)]
        deepest = max(around, key=lambda mount: len(mount.folder), default=Mount(source="", folder="/", kind=""))
        words = f"{node.name} sees what was written here in {folder}"
        found[deepest.folder] = f"{found[deepest.folder]}, {folder}" if deepest.folder in found else words
    for mount in here:
        if mount.kind in NETWORK and mount in node.mounts:
            found.setdefault(mount.folder, f"the same {mount.kind} is mounted here and on {node.name}")
    inside = {one for one in found for other in found if one != other and PurePosixPath(one).is_relative_to(other)}
    return {folder: why for folder, why in found.items() if folder not in inside}


def hardware(partition: PartitionFacts, node: NodeFacts, rows: Sequence[Hardware]) -> Fact:
    """Names of configs/hardware by what the node's nvidia-smi or Slurm calls the GPUs; empty: they are not known."""
    names = list(dict.fromkeys(node.gpus))
    if not names and not partition.gpus:
        return Fact(["cpu"], f"sinfo shows no GPUs, and nvidia-smi none on {node.name}")
    source = f"nvidia-smi on {node.name}: {len(node.gpus)} x {', '.join(names)}" if names else _gres_text(partition)
    shown = names if names and len(partition.gpu_types) < 2 else [*names, *partition.gpu_types]
    found = list(dict.fromkeys(row.name for one in shown for row in rows if _same(one, row)))
    if len(found) > 1:  # Slurm gives a job any of the nodes, and a run is for one kind of GPU
        source += "; the nodes differ: keep one kind, and add its constraint or nodelist to the options"
    return Fact(found, source)


def _same(text: str, row: Hardware) -> bool:
    names = {row.name, *row.device_names}
    return row.kind != "cpu" and _plain(text) in {_plain(name) for name in names}


def _plain(text: str) -> str:
    """Slurm's AutoDetect=nvml writes "NVIDIA H100 80GB HBM3" as nvidia_h100_80gb_hbm3."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower())


def options(slurm: SlurmFacts, partition: PartitionFacts, devices: Sequence[Hardware]) -> dict[str, Fact]:
    """The options of every job of the site, less those that a person decides."""
    found, limit = {}, partition.max_seconds
    if limit is not None and limit < USUAL_SECONDS:
        found["time"] = Fact(clock_text(limit), "the partition gives a job no more")
    else:
        most = f"gives a job {clock_text(limit)} at most" if limit else "has no limit"
        found["time"] = Fact(clock_text(USUAL_SECONDS), f"enough for most runs; the partition {most}")
    if any(device.kind != "cpu" for device in devices):
        none = "sinfo shows no GPUs as a resource (gres)"
        found["gpus"] = Fact("gres", _gres_text(partition)) if partition.gpus else Fact("none", none)
    usable = "pmix" in slurm.mpi and not slurm.no_pmix
    why_not = f"; of pmix, srun says: {slurm.no_pmix}" if slurm.no_pmix else ""
    found["mpi"] = Fact("pmix" if usable else None, f"srun --mpi=list: {', '.join(slurm.mpi) or 'none'}{why_not}")
    if any(device.nvlink_domain for device in devices) and not slurm.blocks:
        found["segment"] = Fact("none", "scontrol show config: no topology/block, so --segment would be refused")
    return found


def _gres_text(partition: PartitionFacts) -> str:
    kinds = [f"gpu:{kind}:{partition.gpus}" for kind in partition.gpu_types] or [f"gpu:{partition.gpus}"]
    return f"sinfo: {', '.join(kinds)}"


def text(row: Mapping[str, Any], sources: Mapping[str, str], heading: str) -> str:
    """The file of the site: first where each value came from, or why there is none."""
    comments = [f"# {heading}", *(f"#   {name}: {why}" for name, why in sources.items())]
    dumped: str = yaml.safe_dump(dict(row), sort_keys=False, width=10**6)
    return "\n".join([*comments, dumped])
