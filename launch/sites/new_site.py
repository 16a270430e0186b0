"""Write the file of a new site from facts of Slurm and of one node, then check two nodes."""

import datetime
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import yaml

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.preflight.report import report_text
from benchmarks.runs.runfolder import write_atomically
from benchmarks.secret_rules import refuse_secrets
from benchmarks.text import plural
from benchmarks.values import Hardware, JobOptions, Site
from benchmarks.values import Slurm as SlurmOfSite
from launch.machine.processes import REPOSITORY, interrupted_once
from launch.preflight import nodes as preflights
from launch.sites import asking
from launch.sites.asking import Fact, Mount, NodeFacts, PartitionFacts, SlurmFacts
from launch.sites.site_setup import ANSWER_SECONDS
from launch.slurm import options as job_options
from launch.slurm.client import Slurm
from launch.slurm.parsing import clock_text
from launch.slurm.waiting import Limits
from launch.terminal import documents, places
from launch.terminal.output import document
from launch.terminal.progress import shown

NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
COMMANDS = ("sinfo", "scontrol", "srun", "sbatch", "squeue")
RESULTS = Path("results")
NODES_CHECKED = 2
SILENT_SECONDS = 120.0  # silent nodes fail after this long without any answer, as in doctor.py nodes
FIRST_MODEL = "llama2_tiny"  # has a recipe for all devices
# Network file systems: with the same source and path, a folder is the same on every machine.
NETWORK = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "wekafs", "ceph", "panfs", "pvfs2", "orangefs", "daos", "cifs", "smb3",
    "glusterfs", "fuse.glusterfs", "quobyte", "fuse.quobyte", "virtiofs", "9p", "fuse.juicefs", "vastnfs",
}  # fmt: skip
USUAL_SECONDS = 3600  # the time limit of a job, unless the partition's limit is shorter


@dataclass(frozen=True)
class NewSite:
    """The site that the user requested."""

    name: str
    typed: Mapping[str, Any]  # the job flags that the user passed
    hardware: str | None
    out: Path  # the folder of the results
    command: str = "python launch/setup.py"  # the user's command without --json


def make(wanted: NewSite, configs: Configs) -> int:
    path = places.sites_folder() / f"{wanted.name}.yml"
    _refuse_name(wanted.name, configs)
    _refuse_without_slurm()
    if wanted.hardware:
        configs.hardware(wanted.hardware)
    slurm = Slurm(_unwritten(wanted.name), ANSWER_SECONDS)
    facts = asking.slurm_facts(slurm, os.environ.get("SLURM_CONF"))
    partition, answers = asking.resolve_answers(facts, wanted.typed)
    row, sources = _draft(wanted, configs, slurm, facts, partition, answers)
    text = file_text(row, sources, f"Written by: {wanted.command}. Edit it as you need.")
    refuse_secrets(text, path.name)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    print(f"{text}\nwritten: {path}\n", flush=True)
    return check_nodes(wanted, msgspec.convert(row, Site), configs, partition, path)


def _refuse_name(name: str, configs: Configs) -> None:
    if not NAME.fullmatch(name):
        raise RequestError(
            f"'{name}' cannot be the name of a site",
            where=f"--new_site={name}",
            why="use a lower case letter, then at most 30 of a-z, 0-9, _ and -",
            next_command="--new_site=mycluster",
        )
    if name in configs.names("sites"):
        raise RequestError(
            f"site '{name}' already exists",
            where=str(configs.path("sites", name)),
            next_command=f"--new_site={name}_2",
        )


def _refuse_without_slurm() -> None:
    absent = [program for program in COMMANDS if shutil.which(program) is None]
    if absent:
        raise RequestError(
            "this machine has no Slurm commands",
            where=f"PATH: {', '.join(absent)}",
            why="run the command on a login node (perhaps after `module load slurm`), or start a private cluster",
            next_command="python launch/cluster.py up",
        )


def _unwritten(name: str) -> Site:
    """Return a site with only the values that are needed to run Slurm's commands."""
    where = SlurmOfSite(shared_folders=[], hardware=[], configuration=os.environ.get("SLURM_CONF"))
    return Site(name=name, kind="slurm", title=name, runtime="venv", source="", date="", slurm=where)


def _draft(
    wanted: NewSite,
    configs: Configs,
    slurm: Slurm,
    facts: SlurmFacts,
    partition: PartitionFacts,
    answers: dict[str, Fact],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the content of the site's file, and for each value its source or why it is missing."""
    options, _ = _options(wanted, facts, partition, answers, [])
    node = _node(wanted, slurm, options, partition)
    shared = shared_folders(asking.mounts(asking.OWN_MOUNTS.read_text(errors="replace")), node)
    devices = _devices(wanted, configs, partition, node)
    options, sources = _options(wanted, facts, partition, answers, [configs.hardware(name) for name in devices.value])
    chosen = {name: value for name in sources if (value := getattr(options, name)) is not None}
    row: dict[str, Any] = {
        "name": wanted.name,
        "kind": "slurm",
        "title": f"cluster {facts.cluster}, {plural(partition.nodes, 'node', 'nodes')} of partition {partition.name}",
        "runtime": "container" if facts.pyxis else "venv",
        "source": f"launch/setup.py --new_site, with Slurm {facts.version}",
        "date": datetime.date.today().isoformat(),
        "slurm": {"shared_folders": list(shared), "hardware": devices.value, "options": chosen},
    }
    why = {
        "runtime": f"srun --help has {'' if facts.pyxis else 'no '}--container-image (pyxis)",
        **{f"shared_folders, {folder}": words for folder, words in shared.items()},
        "hardware": devices.source,
        **sources,
    }
    if facts.configuration:
        row["slurm"]["configuration"] = facts.configuration
        why["configuration"] = "SLURM_CONF of the shell"
    if facts.pyxis:
        row["container"] = {"images": str(_images_folder())}
        why["images"] = "an image needs 10 to 30 GB, so choose a folder with enough space"
    return row, why


def _options(
    wanted: NewSite,
    facts: SlurmFacts,
    partition: PartitionFacts,
    answers: Mapping[str, Fact],
    devices: Sequence[Hardware],
) -> tuple[JobOptions, dict[str, str]]:
    """Return the job options of the site and their sources. The user's flags override the facts."""
    found = {**options_of(facts, partition, devices), **answers}
    base = JobOptions(**{name: fact.value for name, fact in found.items()})
    unwritten = _unwritten(wanted.name)
    assert unwritten.slurm is not None
    site = msgspec.structs.replace(unwritten, slurm=msgspec.structs.replace(unwritten.slurm, options=base))
    sources = {name: fact.source for name, fact in found.items()}
    for name, value in wanted.typed.items():
        no = "no" if value is False else ""
        sources["arguments" if name == "slurm_arg" else name] = f"--{no}{job_options.flag_of(name)}"
    return job_options.choose(site, wanted.typed, {}), sources


def _devices(wanted: NewSite, configs: Configs, partition: PartitionFacts, node: NodeFacts) -> Fact:
    if wanted.hardware:
        return Fact([wanted.hardware], f"--hardware={wanted.hardware}")
    rows = [configs.hardware(name) for name in configs.names("hardware")]
    found = hardware_of(partition, node, rows)
    if not found.value:
        raise RequestError(
            "the GPUs of the nodes are unknown",
            where=found.source,
            why=f"pass --hardware with one of {', '.join(row.name for row in rows)}",
        )
    return found


def _node(wanted: NewSite, slurm: Slurm, options: JobOptions, partition: PartitionFacts) -> NodeFacts:
    """Return the facts of a node, including the folders that every node must see."""
    needed = (REPOSITORY, wanted.out, places.stepmark_home())
    existing = [
        next(one for one in (path, *path.parents) if one.is_dir()) for path in (one.resolve() for one in needed)
    ]
    # Ctrl-C cancels the job and removes the test files.
    with interrupted_once(), shown() as show:
        show(f"inspecting a node of partition {partition.name}", 0, 0, "with srun; Ctrl-C stops it")
        return asking.node_facts(slurm, options, partition.gpus > 0, list(dict.fromkeys(existing)))


def _images_folder() -> Path:
    """Return a folder next to the checkout, which probably has space, otherwise a folder in STEPMARK_HOME."""
    parent = REPOSITORY.resolve().parent
    fits = (REPOSITORY / ".git").exists() and os.access(parent, os.W_OK)
    return parent / "stepmark_images" if fits else places.stepmark_home() / "images"


# --- conclusions from the facts ---


def shared_folders(here: Sequence[Mount], node: NodeFacts) -> dict[str, str]:
    """Return the folders that every node should see, with the evidence: a test file, or the same network mount."""
    found: dict[str, str] = {}
    for folder in node.seen:
        around = [mount for mount in (*here, *node.mounts) if PurePosixPath(folder).is_relative_to(mount.folder)]
        deepest = max(around, key=lambda mount: len(mount.folder), default=Mount(source="", folder="/", kind=""))
        words = f"{node.name} sees a file that this machine wrote to {folder}"
        found[deepest.folder] = f"{found[deepest.folder]}, {folder}" if deepest.folder in found else words
    for mount in here:
        if mount.kind in NETWORK and mount in node.mounts:
            found.setdefault(mount.folder, f"this machine and {node.name} mount the same {mount.kind}")
    inside = {one for one in found for other in found if one != other and PurePosixPath(one).is_relative_to(other)}
    return {folder: why for folder, why in found.items() if folder not in inside}


def hardware_of(partition: PartitionFacts, node: NodeFacts, rows: Sequence[Hardware]) -> Fact:
    """Return the names in configs/hardware that match the GPU names of nvidia-smi or Slurm; empty if none matches."""
    names = list(dict.fromkeys(node.gpus))
    if not names and not partition.gpus:
        return Fact(["cpu"], f"neither sinfo nor nvidia-smi on {node.name} shows a GPU")
    source = f"nvidia-smi on {node.name}: {len(node.gpus)} x {', '.join(names)}" if names else _gres_text(partition)
    shown = names if names and len(partition.gpu_types) < 2 else [*names, *partition.gpu_types]
    found = list(dict.fromkeys(row.name for one in shown for row in rows if _same(one, row)))
    if len(found) > 1:  # Slurm may give a job any of these nodes, but a run needs one type of GPU
        source += "; the nodes differ: keep one type of GPU, and add its constraint or nodelist to the options"
    return Fact(found, source)


def _same(text: str, row: Hardware) -> bool:
    names = {row.name, *row.device_names}
    return row.kind != "cpu" and _plain(text) in {_plain(name) for name in names}


def _plain(text: str) -> str:
    """Normalize a GPU name: Slurm's AutoDetect=nvml turns "NVIDIA H100 80GB HBM3" into nvidia_h100_80gb_hbm3."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower())


def options_of(slurm: SlurmFacts, partition: PartitionFacts, devices: Sequence[Hardware]) -> dict[str, Fact]:
    """Return the options for every job of the site, except those that the user must choose."""
    found, limit = {}, partition.max_seconds
    if limit is not None and limit < USUAL_SECONDS:
        found["time"] = Fact(clock_text(limit), "the limit of the partition")
    else:
        most = f"allows {clock_text(limit)}" if limit else "has no limit"
        found["time"] = Fact(clock_text(USUAL_SECONDS), f"enough for most runs; the partition {most}")
    if any(device.kind != "cpu" for device in devices):
        none = "sinfo shows no gres for GPUs"
        found["gpus"] = Fact("gres", _gres_text(partition)) if partition.gpus else Fact("none", none)
    usable = "pmix" in slurm.mpi and not slurm.no_pmix
    why_not = f"; pmix fails: {slurm.no_pmix}" if slurm.no_pmix else ""
    found["mpi"] = Fact("pmix" if usable else None, f"srun --mpi=list: {', '.join(slurm.mpi) or 'none'}{why_not}")
    if any(device.nvlink_domain for device in devices) and not slurm.blocks:
        found["segment"] = Fact("none", "scontrol show config has no topology/block, so Slurm would refuse --segment")
    return found


def _gres_text(partition: PartitionFacts) -> str:
    kinds = [f"gpu:{kind}:{partition.gpus}" for kind in partition.gpu_types] or [f"gpu:{partition.gpus}"]
    return f"sinfo: {', '.join(kinds)}"


def file_text(row: Mapping[str, Any], sources: Mapping[str, str], heading: str) -> str:
    """Return the text of the site's file. Its comments give the source of each value, or why a value is missing."""
    comments = [f"# {heading}", *(f"#   {name}: {why}" for name, why in sources.items())]
    dumped: str = yaml.safe_dump(dict(row), sort_keys=False, width=10**6)
    return "\n".join([*comments, dumped])


# --- the check of the nodes -------------------------------------------------------------------------


def check_nodes(wanted: NewSite, site: Site, configs: Configs, partition: PartitionFacts, path: Path) -> int:
    """Run the preflight on two nodes, print its report and the next commands, and return the exit code."""
    nodes = min(NODES_CHECKED, partition.nodes_up)
    options = job_options.choose(site, {}, os.environ)
    preflight = preflights.prepare(site, options, nodes, wanted.out, SILENT_SECONDS, configs)
    later = f"python launch/doctor.py nodes --site={site.name} --nodes={nodes}"
    limits = Limits(queue_seconds=asking.QUEUE_SECONDS, quiet_seconds=SILENT_SECONDS, further=later)
    report = preflights.run(preflight, Slurm(site), limits)
    print(f"{report_text(report)}\n{preflights.next_steps(report, preflight.folder)}")
    commands = next_commands(site, configs, nodes, partition.gpus, wanted.out) if report.passed else []
    if commands:
        print("\nnext\n" + "\n".join(f"  {line}" for line in commands))
    document(documents.NewSite(site=site.name, path=str(path), preflight=report, next=commands))
    return EXIT_VALID if report.passed else EXIT_INVALID


def next_commands(site: Site, configs: Configs, nodes: int, gpus_there: int, out: Path) -> list[str]:
    """Return the commands for a first run; `gpus_there` is the number of GPUs per node, 0 if Slurm shows none."""
    assert site.slurm is not None
    device = configs.hardware(site.slurm.hardware[0])
    gpus = min(device.devices_per_node, gpus_there or device.devices_per_node)
    size = f"--hardware={device.name} --gpus={gpus}" if device.kind == "gpu" else f"--nodes={nodes}"
    there = "" if out == RESULTS else shlex.quote(str(out))
    return [
        f"python launch/setup.py --site={site.name} --backend=jax --model={FIRST_MODEL}{there and f' --out={there}'}",
        f"python launch/run.py --backend=jax --model={FIRST_MODEL} {size} --site={site.name}"
        f"{there and f' --output_dir={there}'}",
        "python launch/run.py --list     # everything that can run",
    ]
