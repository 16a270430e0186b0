"""Who is asked in a preflight, and what: nodes, the folder with asked.json, the job, and what answers are held to.

Everything that can be refused is refused here, before the job is submitted.
"""

import secrets
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.preflight.report import node_list
from benchmarks.preflight.values import Asked, Wanted
from benchmarks.rendering.columns import plural
from benchmarks.runs.runfolder import write_atomically
from benchmarks.values import Hardware, JobOptions, Site, json_text
from launch.command_line import places
from launch.environments import venvs
from launch.preflight import job
from launch.slurm.client import Slurm
from launch.slurm.commands import PATIENCE_SECONDS, Commands
from launch.slurm.options import named
from launch.slurm.parsing import Node

ASKED, ANSWERS, SCRIPT = "asked.json", "answers", "preflight.sbatch"
CLOCK_SECONDS = 30
NCCL_MINUTES = 15


@dataclass(frozen=True)
class Preflight:
    """One preflight, ready to be submitted."""

    site: Site
    partition: str
    folder: Path
    job: job.PreflightJob
    wanted: Wanted
    down: dict[str, str]  # nodes that are not asked -> why


@dataclass(frozen=True)
class Choice:
    """Which nodes are asked, and which are not because they are down."""

    options: JobOptions
    nodes: int
    down: dict[str, str]


def prepare(
    site: Site, options: JobOptions, nodes: int | None, output_dir: Path, limit_seconds: float, configs: Configs
) -> Preflight:
    """Everything but the submission. Writes nothing."""
    slurm = Slurm(site)
    planned = sketch(site, options, nodes, output_dir, limit_seconds, configs)
    folder = planned.folder
    refuse_unseen(site, folder)
    partition = slurm.partition(options.partition)
    choice = choose(slurm.nodes(partition.name), options, nodes)
    facts = node_facts(site, partition.name)
    image = present_image(site)
    measured = None if site.runtime == "container" and image is None else planned.hardware
    minutes = _minutes(limit_seconds, measured)
    if partition.max_seconds:
        minutes = max(1, min(minutes, partition.max_seconds // 60))
    versions = {name: fact.version for name, fact in facts.items()}
    return Preflight(
        site=site,
        partition=partition.name,
        folder=folder,
        job=msgspec.structs.replace(
            planned,
            options=choice.options,
            nodes=choice.nodes,
            minutes=minutes,
            hardware=measured,
            image=str(image) if image else None,
        ),
        wanted=_wanted(site, _hardware(site, configs), slurm, versions, folder.parent),
        down={
            name: f"{why}: {facts[name].reason}" if name in facts and facts[name].reason else why
            for name, why in choice.down.items()
        },
    )


def sketch(
    site: Site, options: JobOptions, nodes: int | None, output_dir: Path, limit_seconds: float, configs: Configs
) -> job.PreflightJob:
    """The job as the site's file and the flags say it: Slurm, the images and the shared folders are not asked.

    Without a number or names of nodes it has one node, because only Slurm knows how many are up.
    """
    measured = job.gpus_to_measure(_hardware(site, configs))
    named_nodes = set(named(options.nodelist)) - set(named(options.exclude))
    return job.PreflightJob(
        site=site,
        options=options,
        folder=_folder(site, output_dir),
        nodes=nodes or len(named_nodes) or 1,
        minutes=_minutes(limit_seconds, measured),
        hardware=measured,
        image=next((str(path) for path in _image_files(site)), None),
    )


def _folder(site: Site, output_dir: Path) -> Path:
    return output_dir.absolute() / f"preflight-{site.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"


def _hardware(site: Site, configs: Configs) -> list[Hardware]:
    return [configs.hardware(name) for name in site.slurm.hardware] if site.slurm else []


def _minutes(limit_seconds: float, measured: Hardware | None) -> int:
    return 2 + int(2 * limit_seconds / 60) + (NCCL_MINUTES if measured else 0)


def write(preflight: Preflight) -> Path:
    """The folder with all that the job reads; the script's path."""
    text = job.render_preflight(preflight.job)
    script = preflight.folder / SCRIPT
    try:
        (preflight.folder / ANSWERS).mkdir(parents=True)
    except OSError as error:
        raise RequestError(
            f"the output folder cannot be written: {error.strerror}",
            where=str(preflight.folder.parent),
            why="the nodes' answers and the report are kept there",
            next_command="--output_dir=DIR with a folder that this user and the nodes can write",
        ) from None
    write_atomically(preflight.folder / ASKED, json_text(preflight.wanted.asked).encode())
    write_atomically(script, text.encode())
    return script


def refuse_unseen(site: Site, folder: Path) -> None:
    """The nodes must see the folder and the checkout under the same path."""
    shared = [Path(path).resolve() for path in site.slurm.shared_folders] if site.slurm else []
    for path, what in ((folder, "--output_dir"), (job.REPOSITORY, "the checkout")):
        if not any(path.resolve().is_relative_to(parent) for parent in shared):
            raise RequestError(
                f"the nodes of {site.name} do not see {what}",
                where=str(path),
                why=f"the site shares {', '.join(str(parent) for parent in shared) or 'no folder'}",
                next_command="--output_dir=<a folder inside one of them>, and a checkout there",
            )


# --- which nodes ------------------------------------------------------------------------------------


def choose(found: Sequence[Node], options: JobOptions, count: int | None) -> Choice:
    """All nodes that are up, or those that were named, or so many."""
    names = [node.name for node in found]
    asked = named(options.nodelist) if options.nodelist else names
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise RequestError(
            f"the partition has no {node_list(unknown)}",
            where="--nodelist",
            why=f"it has {node_list(names)}",
            next_command="sinfo -N",
        )
    excluded = set(named(options.exclude))
    wanted = [node for node in found if node.name in asked and node.name not in excluded]
    up = [node.name for node in wanted if node.up]
    down = {node.name: f"Slurm says it is {node.state}, so it was not asked" for node in wanted if not node.up}
    if not up or (count is not None and count > len(up)):
        raise RequestError(
            f"{plural(len(up), 'node is', 'nodes are')} up, {count or 'at least 1'} wanted",
            where="--nodes" if count else "the partition",
            why=f"down: {node_list(down)}" if down else f"it has {len(names)} nodes, {len(excluded)} excluded",
            next_command="sinfo -R says why nodes are down",
        )
    if options.nodelist:
        options = msgspec.structs.replace(options, nodelist=node_list(up))
    return Choice(options=options, nodes=count or len(up), down={} if count else down)


# --- what they are held against ---------------------------------------------------------------------


def _wanted(
    site: Site, hardware: list[Hardware], slurm: Slurm, slurm_versions: dict[str, str], output_dir: Path
) -> Wanted:
    container = site.runtime == "container"
    asked = Asked(
        token=secrets.token_hex(8),
        shared_folders=list(site.slurm.shared_folders) if site.slurm else [],
        environments=[] if container else [str(path) for path in _pythons_of(site)],
        gpus=any(device.kind == "gpu" and device.platform == "cuda" for device in hardware),
        container=container,
        clock_seconds=CLOCK_SECONDS,
        written_folders=written_folders(site, output_dir),
    )
    program = (job.HERE.parent / "inside" / "node_check.py").read_bytes()
    return Wanted(
        asked=asked,
        hardware=hardware,
        program=f"{zlib.crc32(program):08x}",
        slurm_versions=slurm_versions,
        pyxis=slurm.has_pyxis() if container else None,
    )


def _pythons_of(site: Site) -> list[Path]:
    """What every node must be able to start: the site's own Pythons, or those of Stepmark's venvs."""
    if site.python is None:
        return made_environments()
    return [Path(path) for path in ([site.python] if isinstance(site.python, str) else site.python.values())]


def made_environments() -> list[Path]:
    """The Pythons of the environments that are whole."""
    from benchmarks.backend import backends

    specs = [
        backend.environment(engine, platform)
        for backend in backends().values()
        for engine in backend.engines
        for platform in ("cpu", "cuda")
    ]
    found = [venvs.python_of(spec) for spec in specs if spec.locks]
    return list(dict.fromkeys(path for path in found if path is not None))


def present_image(site: Site) -> Path | None:
    """An image that nccl-tests can be looked for in."""
    return next((path for path in _image_files(site) if path.is_file()), None)


def _image_files(site: Site) -> list[Path]:
    """Where the images of the engines are, or will be."""
    if site.runtime != "container":
        return []
    from launch.sites.wanted import wanted_images

    return [image.path for image in wanted_images(site)]


def written_folders(site: Site, output_dir: Path) -> list[str]:
    """Where jobs write: the results, and beside them the images or the environments once setup.py has made those."""
    images = site.container.images if site.runtime == "container" and site.container else None
    more = Path(images) if images else places.stepmark_home()
    return [str(path) for path in (output_dir, more) if path == output_dir or path.is_dir()]


class NodeFact(NamedTuple):
    """What sinfo says of a node."""

    version: str  # of its slurmd; of a node that is down it may be unknown
    reason: str  # why it is drained or down, in the administrator's words


def node_facts(site: Site, partition: str) -> dict[str, NodeFact]:
    words = ["sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N|%v|%E"]
    return read_node_facts(commands_of(site).ask(words))


def read_node_facts(text: str) -> dict[str, NodeFact]:
    rows = (line.strip().split("|", 2) for line in text.splitlines())
    return {row[0]: NodeFact(row[1], "" if row[2] == "none" else row[2]) for row in rows if len(row) == 3}


def commands_of(site: Site) -> Commands:
    """For what the client has no method for."""
    return Commands(site, PATIENCE_SECONDS, lambda _text: None)
