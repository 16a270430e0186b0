"""Drafts the file of a new site from what Slurm, a node and a person said; each line has its source. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from benchmarks.values import Hardware, Site, Value, to_builtins
from launch.slurm.parsing import clock_text
from launch.terminal.documents import SiteLine

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
    mixed: bool = False  # its nodes have other numbers or types of GPUs
    max_seconds: int | None = None
    accounts: list[str] | None = None  # that may use it; None: all

    @property
    def text(self) -> str:
        kinds = ", ".join(self.gpu_types)
        gpus = f", {'up to ' if self.mixed else ''}{self.gpus} {kinds or 'GPUs'} a node" if self.gpus else ""
        return f"{self.nodes_up} of {self.nodes} nodes up{gpus}{', the default' if self.default else ''}"


class SlurmFacts(Value, frozen=True):
    """What Slurm's commands say on this machine."""

    cluster: str
    version: str
    partitions: list[PartitionFacts]
    accounts: list[str] = []  # of this user, by sacctmgr
    default_account: str = ""
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
    no_gpus: str = ""  # what it said instead
    mounts: list[Mount] = []
    seen: list[str] = []  # folders in which it sees what was written here


class Fact(NamedTuple):
    """One value of the site, and where it came from."""

    value: Any
    source: str


# --- what follows -------------------------------------------------------------------------------------


def accounts_for(slurm: SlurmFacts, partition: PartitionFacts) -> list[str] | None:
    """Return the accounts to choose from, the user's default first; None if Slurm takes jobs without an account."""
    allowed = partition.accounts
    if not slurm.account_is_needed and allowed is None:
        return None
    mine = slurm.accounts or allowed or []
    usable = [name for name in mine if allowed is None or name in allowed]
    return sorted(usable, key=lambda name: (name != slurm.default_account, name))


def shared_folders(here: Sequence[Mount], node: NodeFacts | None) -> dict[str, str]:
    """Folder -> why every node is believed to see it: a node saw a file there, or has the same network mount."""
    name, there = (node.name, node.mounts) if node else ("", [])
    found: dict[str, str] = {}
    for folder in node.seen if node else []:
        around = [mount for mount in (*here, *there) if PurePosixPath(folder).is_relative_to(mount.folder)]
        deepest = max(around, key=lambda mount: len(mount.folder), default=Mount(source="", folder="/", kind=""))
        words = f"{name} sees what was written here in {folder}"
        found[deepest.folder] = f"{found[deepest.folder]}, {folder}" if deepest.folder in found else words
    of_node = {(mount.source, mount.folder, mount.kind) for mount in node.mounts} if node else None
    for mount in here:
        key = (mount.source, mount.folder, mount.kind)
        if mount.kind in NETWORK and (of_node is None or key in of_node):
            where = f"here and on {name}" if node else "here; no node was asked"
            found.setdefault(mount.folder, f"the same {mount.kind} is mounted {where}")
    inside = {one for one in found for other in found if one != other and PurePosixPath(one).is_relative_to(other)}
    return {folder: why for folder, why in found.items() if folder not in inside}


def hardware(partition: PartitionFacts, node: NodeFacts | None, rows: Sequence[Hardware]) -> Fact:
    """Names of configs/hardware by what the node's nvidia-smi or Slurm calls the GPUs; empty: they are not known."""
    names = list(dict.fromkeys(node.gpus)) if node else []
    if not names and not partition.gpus:
        what = f" and nvidia-smi shows none on {node.name}" if node else ""
        return Fact(["cpu"], f"sinfo shows no GPUs{what}")
    if node and names:
        source = f"nvidia-smi on {node.name}: {len(node.gpus)} x {', '.join(names)}"
    else:
        source = _gres_text(partition) + (f"; on {node.name} {node.no_gpus}" if node and node.no_gpus else "")
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


# --- the file -----------------------------------------------------------------------------------------


class Draft(NamedTuple):
    """A site, and where its values came from: dotted name of a field -> words. Other fields have their defaults.

    A value of None is not in the file, and its words are: why not.
    """

    site: Site
    sources: dict[str, str]


def lines(draft: Draft) -> list[SiteLine]:
    values = to_builtins(draft.site)
    return [SiteLine(field=name, value=_at(values, name), source=why) for name, why in draft.sources.items()]


def _at(values: Any, field: str) -> Any:
    for name in field.split("."):
        values = values[int(name) if isinstance(values, list) else name]
    return values


def text(draft: Draft, heading: str) -> str:
    """The file of the site."""
    return "\n".join([f"# {heading}", *_lines(to_builtins(draft.site), draft.sources), ""])


def _lines(values: Mapping[str, Any], sources: Mapping[str, str], path: str = "", pad: str = "") -> Iterator[str]:
    for name, value in values.items():
        here = f"{path}{name}"
        if isinstance(value, dict):
            inside = list(_lines(value, sources, f"{here}.", f"{pad}  "))
            yield from [f"{pad}{name}:", *inside] if inside else []
        elif isinstance(value, list) and f"{here}.0" in sources:
            yield f"{pad}{name}:"
            yield from (f"{pad}  - {_scalar(one)}  # {sources[f'{here}.{at}']}" for at, one in enumerate(value))
        elif here in sources:
            yield (
                f"{pad}# no {name}: {sources[here]}"
                if value is None
                else f"{pad}{name}: {_scalar(value)}  # {sources[here]}"
            )


def _scalar(value: Any) -> str:
    dumped: str = yaml.safe_dump([value], default_flow_style=True, width=10**6)
    return dumped.strip()[1:-1]
