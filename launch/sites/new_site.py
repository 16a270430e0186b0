"""Writes the file of a new site: asks Slurm and a node, then has two nodes checked."""

import datetime
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, RunError
from benchmarks.preflight.report import report_text
from benchmarks.runs.runfolder import write_atomically
from benchmarks.secret_rules import refuse_secrets
from benchmarks.text import plural
from benchmarks.values import Container, Hardware, JobOptions, Site
from benchmarks.values import Slurm as SlurmOfSite
from launch.machine.processes import REPOSITORY, interrupted_once
from launch.preflight import nodes as preflights
from launch.sites import asking, site_draft
from launch.sites.site_draft import Draft, Fact, NodeFacts, PartitionFacts, SlurmFacts
from launch.sites.site_setup import ANSWER_SECONDS
from launch.slurm import options as job_options
from launch.slurm.client import Slurm
from launch.slurm.waiting import Limits
from launch.terminal import documents, places
from launch.terminal.output import answer, document
from launch.terminal.progress import say, shown

NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
COMMANDS = ("sinfo", "scontrol", "srun", "sbatch", "squeue")
RESULTS = Path("results")
NODES_CHECKED = 2
SILENT_SECONDS = 120.0  # without a further answer, the silent nodes fail, as in doctor.py nodes
FIRST_MODEL = "llama2_tiny"  # has a recipe for all devices


@dataclass(frozen=True)
class NewSite:
    """What a person asked for."""

    name: str
    typed: Mapping[str, Any]  # flags of a job
    hardware: str | None
    out: Path  # the folder of the results
    replace: bool
    dry_run: bool
    command: str = "python launch/setup.py"  # as it was typed, without --force, --dry_run and --json


def make(wanted: NewSite, configs: Configs) -> int:
    path = places.sites_folder() / f"{wanted.name}.yml"
    _refuse_name(wanted, configs, path)
    _refuse_without_slurm()
    if wanted.hardware:
        configs.hardware(wanted.hardware)
    if not wanted.dry_run:
        _refuse_unwritable(path.parent, "STEPMARK_HOME=DIR before the command")
        _refuse_unwritable(wanted.out, "--out=DIR")
    slurm = Slurm(_unwritten(wanted.name), ANSWER_SECONDS)
    facts = _facts(slurm)
    partition, answers = asking.resolve_answers(facts, wanted.typed)
    if path.exists() and not wanted.replace:
        raise RequestError(
            f"there is a site '{wanted.name}' already",
            where=str(path),
            why="--force writes it anew and keeps the old file beside it",
            next_command="--force",
        )
    draft = _draft(wanted, configs, slurm, facts, partition, answers)
    heading = f"Written by: {wanted.command}. Change what you like."
    text = site_draft.text(draft, heading)
    refuse_secrets(text, path.name)
    planned = documents.NewSite(
        site=wanted.name, path=str(path), lines=site_draft.lines(draft), preflight=None, next=[wanted.command]
    )
    if wanted.dry_run:
        answer(planned, text)
        return EXIT_VALID
    _write(path, text)
    print(f"{text}\nwritten: {path}\n", flush=True)
    return check_nodes(wanted, draft.site, configs, partition, planned)


# --- its name and its file --------------------------------------------------------------------------


def _refuse_name(wanted: NewSite, configs: Configs, path: Path) -> None:
    if not NAME.fullmatch(wanted.name):
        raise RequestError(
            f"'{wanted.name}' cannot be the name of a site",
            where=f"--new_site={wanted.name}",
            why="a lower case letter, then at most 30 of a-z, 0-9, _ and -",
            next_command="--new_site=NAME",
        )
    if not path.exists() and wanted.name in configs.names("sites"):
        raise RequestError(
            f"Stepmark has a site '{wanted.name}' of its own",
            where=str(configs.path("sites", wanted.name)),
            next_command="--new_site with another name",
        )


def _refuse_without_slurm() -> None:
    absent = [program for program in COMMANDS if shutil.which(program) is None]
    if absent:
        raise RequestError(
            "there is no Slurm on this machine to be asked",
            where=f"PATH: {', '.join(absent)}",
            next_command="the same command on a login node, perhaps after `module load slurm`; "
            "python launch/cluster.py up makes a cluster to try it on",
        )
    configuration = os.environ.get("SLURM_CONF")
    if configuration and not Path(configuration).is_file():
        raise RequestError(
            "the slurm.conf that this shell names is not there",
            where=f"SLURM_CONF={configuration}",
            next_command="unset SLURM_CONF, or export it with the path of your cluster's slurm.conf",
        )


def _facts(slurm: Slurm) -> SlurmFacts:
    try:
        return asking.slurm_facts(slurm, os.environ.get("SLURM_CONF"))
    except RunError as error:
        raise RequestError(
            "Slurm does not answer on this machine",
            where=error.next_command,  # as a person would ask it
            why=error.why.splitlines()[-1],
            next_command="the same command on a login node; or export SLURM_CONF with the path of its slurm.conf",
        ) from None


def _refuse_unwritable(folder: Path, elsewhere: str) -> None:
    """Asked before a node is: what it said would be lost."""
    try:
        tempfile.TemporaryFile(dir=_existing(folder)).close()
    except OSError as error:
        raise RequestError(
            f"no file can be written in {folder}: {error.strerror}",
            where=str(_existing(folder)),
            next_command=f"{elsewhere}, a folder that you can write and every node sees",
        ) from None


def _unwritten(name: str) -> Site:
    """Enough of a site for its Slurm to be asked."""
    where = SlurmOfSite(shared_folders=[], hardware=[], configuration=os.environ.get("SLURM_CONF"))
    return Site(name=name, kind="slurm", title=name, runtime="venv", source="", date="", slurm=where)


def _write(path: Path, text: str) -> None:
    """What was there is kept beside it, under a name that is no site's."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.exists():
        aside = path.with_name(f"{path.name}.before")
        path.replace(aside)
        say(f"the old file is kept as {aside}")
    write_atomically(path, text.encode())


# --- the draft --------------------------------------------------------------------------------------


def _draft(
    wanted: NewSite,
    configs: Configs,
    slurm: Slurm,
    facts: SlurmFacts,
    partition: PartitionFacts,
    answers: dict[str, Fact],
) -> Draft:
    node = None
    if not wanted.dry_run:
        options, _ = _options(wanted, facts, partition, answers, [])
        node = _node(wanted, slurm, options, partition)
    runtime = Fact("venv", "srun --help has no --container-image: no pyxis")
    if facts.pyxis:
        runtime = Fact("container", "srun --help has --container-image (pyxis)")
    shared = site_draft.shared_folders(asking.mounts(asking.OWN_MOUNTS.read_text(errors="replace")), node)
    if node is not None:
        _refuse_unseen(_needed(wanted, runtime.value), node, shared)
    shared = shared or {"/": "no node was asked: a dry run"}
    devices = _devices(wanted, configs, partition, node)
    rows = [configs.hardware(name) for name in devices.value]
    options, sources = _options(wanted, facts, partition, answers, rows)
    images = _images_folder() if runtime.value == "container" else None
    site = Site(
        name=wanted.name,
        kind="slurm",
        title=f"cluster {facts.cluster}, {plural(partition.nodes, 'node', 'nodes')} of partition {partition.name}",
        runtime=runtime.value,
        source=f"launch/setup.py --new_site, with Slurm {facts.version}",
        date=datetime.date.today().isoformat(),
        slurm=SlurmOfSite(
            shared_folders=list(shared), hardware=devices.value, options=options, configuration=facts.configuration
        ),
        container=Container(images=str(images.value)) if images else None,
    )
    return Draft(
        site,
        {
            "name": f"--new_site={wanted.name}",
            "kind": "sinfo answers",
            "title": "scontrol show config, and sinfo",
            "runtime": runtime.source,
            "source": "scontrol show config",
            "date": "when it was written",
            **{f"slurm.shared_folders.{at}": why for at, why in enumerate(shared.values())},
            "slurm.hardware": devices.source,
            **{f"slurm.options.{name}": why for name, why in sources.items()},
            **({"slurm.configuration": "SLURM_CONF of the shell"} if facts.configuration else {}),
            **({"container.images": images.source} if images else {}),
        },
    )


def _options(
    wanted: NewSite,
    facts: SlurmFacts,
    partition: PartitionFacts,
    answers: Mapping[str, Fact],
    devices: Sequence[Hardware],
) -> tuple[JobOptions, dict[str, str]]:
    """What a person typed comes last, and is said to be theirs."""
    found = {**site_draft.options(facts, partition, devices), **answers}
    base = JobOptions(**{name: fact.value for name, fact in found.items()})
    unwritten = _unwritten(wanted.name)
    assert unwritten.slurm is not None
    site = msgspec.structs.replace(unwritten, slurm=msgspec.structs.replace(unwritten.slurm, options=base))
    sources = {name: fact.source for name, fact in found.items()}
    for name, value in wanted.typed.items():
        no = "no" if value is False else ""
        sources["arguments" if name == "slurm_arg" else name] = f"--{no}{job_options.flag_of(name)}"
    return job_options.choose(site, wanted.typed, {}), sources


def _devices(wanted: NewSite, configs: Configs, partition: PartitionFacts, node: NodeFacts | None) -> Fact:
    if wanted.hardware:
        return Fact([wanted.hardware], f"--hardware={wanted.hardware}")
    rows = [configs.hardware(name) for name in configs.names("hardware")]
    found = site_draft.hardware(partition, node, rows)
    if not found.value:
        raise RequestError(
            "the GPUs of the nodes are not known",
            where=found.source,
            why=f"configs/hardware has {', '.join(row.name for row in rows)}",
            next_command="--hardware=NAME",
        )
    return found


def _node(wanted: NewSite, slurm: Slurm, options: JobOptions, partition: PartitionFacts) -> NodeFacts:
    folders = dict.fromkeys(_needed(wanted, "venv").values())
    # An interrupt takes its job out of the queue, and leaves no file of ours.
    with interrupted_once(), shown() as show:
        show(f"a node of partition {partition.name} is asked what it sees", 0, 0, "by srun; Ctrl-C gives up")
        return asking.node_facts(slurm, options, partition.gpus > 0, list(folders))


def _needed(wanted: NewSite, runtime: str) -> dict[str, Path]:
    """What every node must see."""
    found = {"the checkout of Stepmark": REPOSITORY.resolve(), "the folder of the results": _existing(wanted.out)}
    environments = {"the environments' folder (STEPMARK_HOME)": _existing(places.stepmark_home())}
    return found | (environments if runtime == "venv" else {})


def _existing(folder: Path) -> Path:
    """The folder, or what is there of the folders above it."""
    path = folder.absolute().resolve()
    return next(one for one in (path, *path.parents) if one.is_dir())


def _refuse_unseen(needed: Mapping[str, Path], node: NodeFacts, shared: Mapping[str, str]) -> None:
    unseen = {what: path for what, path in needed.items() if str(path) not in node.seen}
    if unseen:
        raise RequestError(
            f"{node.name} does not see {' and '.join(unseen)}",
            where=", ".join(str(path) for path in dict.fromkeys(unseen.values())),
            why=f"it shares with this machine: {', '.join(shared) or 'no folder that was tried'}",
            next_command="a checkout, --out=DIR and STEPMARK_HOME=DIR in a folder that every node sees",
        )


def _images_folder() -> Fact:
    """Beside the checkout, which its owner put where there is room; else in STEPMARK_HOME."""
    beside = REPOSITORY.resolve().parent
    fits = (REPOSITORY / ".git").exists() and os.access(beside, os.W_OK)
    folder = beside / "stepmark_images" if fits else places.stepmark_home() / "images"
    return Fact(folder, "an image takes 10 to 30 GB, so move it where there is room")


# --- afterwards -------------------------------------------------------------------------------------


def check_nodes(
    wanted: NewSite, site: Site, configs: Configs, partition: PartitionFacts, planned: documents.NewSite
) -> int:
    """The preflight of two nodes, and what to type next."""
    nodes = min(NODES_CHECKED, partition.nodes_up)
    options = job_options.choose(site, {}, os.environ)
    preflight = preflights.prepare(site, options, nodes, wanted.out, SILENT_SECONDS, configs)
    later = f"the site is written; python launch/doctor.py nodes --site={site.name} --nodes={nodes} checks it later"
    limits = Limits(queue_seconds=asking.QUEUE_SECONDS, quiet_seconds=SILENT_SECONDS, way_on=later)
    report = preflights.run(preflight, Slurm(site), limits)
    print(f"{report_text(report)}\n{preflights.next_steps(report, preflight.folder)}")
    commands = next_commands(site, configs, nodes, partition.gpus, wanted.out) if report.passed else []
    if commands:
        print("\nnext\n" + "\n".join(f"  {line}" for line in commands))
    document(msgspec.structs.replace(planned, preflight=report, next=commands))
    return EXIT_VALID if report.passed else EXIT_INVALID


def next_commands(site: Site, configs: Configs, nodes: int, gpus_there: int, out: Path) -> list[str]:
    """What makes the site ready for a first run, and that run; `gpus_there` of a node, 0: Slurm does not say."""
    assert site.slurm is not None
    device = configs.hardware(site.slurm.hardware[0])
    gpus = min(device.devices_per_node, gpus_there or device.devices_per_node)
    size = f"--hardware={device.name} --gpus={gpus}" if device.kind == "gpu" else f"--nodes={nodes}"
    there = "" if out == RESULTS else shlex.quote(str(out))
    return [
        f"python launch/setup.py --site={site.name} --backend=jax --model={FIRST_MODEL}{there and f' --out={there}'}",
        f"python launch/run.py --backend=jax --model={FIRST_MODEL} {size} --site={site.name}"
        f"{there and f' --output_dir={there}'}",
        "python launch/run.py --list     # what else there is",
    ]
