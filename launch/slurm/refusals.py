"""Refuse a run that a site's Slurm could never start, before its job is submitted.

Slurm itself accepts most of these runs, such as a run with too many nodes, and lets their jobs wait forever.
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.errors import RequestError, StepmarkError, capture
from benchmarks.request import images
from benchmarks.text import first_few, plural
from benchmarks.values import Benchmark, JobOptions, Site
from launch.environments import venvs
from launch.machine.processes import REPOSITORY
from launch.slurm.client import Slurm
from launch.slurm.commands import by_hand
from launch.slurm.options import parse_node_list, seconds_of
from launch.slurm.parsing import Node, Partition, clock_text

WAITS_FOR_EVER = "Slurm would accept the job and never start it"


def of_the_cluster(
    benchmark: Benchmark, options: JobOptions, slurm: Slurm, run_parent: Path, image: Path | None, notes: list[str]
) -> Iterator[StepmarkError]:
    """Yield every reason why the job could never run. Add other remarks to `notes`."""
    yield from _unseen_places(benchmark, run_parent, image)
    names = options.partition.split(",") if options.partition else [None]
    # Run the three queries in parallel, so that the user waits only for the slowest query.
    with ThreadPoolExecutor(max_workers=3) as pool:
        asked_partitions = [pool.submit(slurm.partition, name) for name in names]
        asked_nodes = pool.submit(slurm.all_nodes)
        asked_pyxis = pool.submit(slurm.has_pyxis) if benchmark.site.runtime == "container" else None
    try:
        partitions = [asked.result() for asked in asked_partitions]
        nodes = asked_nodes.result()
        without_pyxis = asked_pyxis is not None and not asked_pyxis.result()
    except StepmarkError as error:
        yield error
        return
    if without_pyxis:
        yield RequestError(
            f"the Slurm of site '{benchmark.site.name}' cannot start containers: its srun has no --container-image",
            where=f"runtime: container of site '{benchmark.site.name}'",
            why="pyxis is not installed or not in plugstack.conf; runtimes python and venv do not need it, unless "
            f"'{benchmark.engine}' exists only as an image",
        )
    # Among several partitions, Slurm uses the first that can run the job: refuse only if none can.
    refused = [[*refused_by(benchmark, options, one, nodes.get(one.name, []), notes)] for one in partitions]
    if all(refused):
        yield from refused[0]


def _unseen_places(benchmark: Benchmark, run_parent: Path, image: Path | None) -> Iterator[StepmarkError]:
    """Yield a refusal for each path of this machine that the nodes need but cannot see."""
    seen = next(iter(benchmark.site.slurm.shared_folders if benchmark.site.slurm else []), "DIR")
    needed = [
        ("the output folder", run_parent, f"--output_dir={seen}/results"),
        ("the checkout of Stepmark", REPOSITORY, f"git clone {REPOSITORY} {seen}/stepmark"),
    ]
    if image is not None and images.is_file(benchmark.settings.image):
        needed.insert(0, ("the container image", image, f"cp {shlex.quote(str(image))} {seen}"))
    if benchmark.site.runtime == "venv":
        needed.append(("the environments' folder", venvs.environments_root(), f"export STEPMARK_HOME={seen}"))
    if benchmark.data.startswith("/"):
        needed.append(("the dataset", Path(benchmark.data), f"cp -r {shlex.quote(benchmark.data)} {seen}"))
    for what, path, further in needed:
        yield from capture(partial(refuse_unseen, benchmark.site, what, path, further))


def refuse_unseen(site: Site, what: str, path: Path, further: str) -> None:
    """Raise RequestError if the nodes of a site do not see a path of this machine."""
    shared = site.slurm.shared_folders if site.slurm else []
    real = path.absolute().resolve()
    if not any(real.is_relative_to(Path(folder).resolve()) for folder in shared):
        raise RequestError(
            f"the nodes of site '{site.name}' cannot see {what}",
            where=str(real),
            why=f"shared_folders of the site: {', '.join(shared) or 'none'}",
            next_command=further,
        )


def refused_by(
    benchmark: Benchmark, options: JobOptions, partition: Partition, nodes: Sequence[Node], notes: list[str]
) -> Iterator[RequestError]:
    """Yield every reason why a partition can never run the job. If the job must wait for nodes, add a note."""
    where = f"partition '{partition.name}' of site '{benchmark.site.name}'"
    at_most = partition.max_seconds
    good = partition.state == "UP"
    if not good:
        yield RequestError(
            f"the partition is {partition.state}", where=where, next_command=by_hand(benchmark.site, "sinfo -s")
        )
    if at_most is not None and seconds_of(options.time) > at_most:
        good = False
        yield RequestError(
            f"the job requests {options.time}, but the partition allows {clock_text(at_most)} at most",
            where=where,
            why=WAITS_FOR_EVER,
            next_command=f"--time={clock_text(at_most)}",
        )
    excluded = set(parse_node_list(options.exclude))
    usable = [node for node in nodes if node.name not in excluded]
    too_many = _too_many(benchmark.nodes, options, partition, len(usable))
    if too_many:
        what = f"the run needs {plural(benchmark.nodes, 'node')}, but {too_many}"
        there = by_hand(benchmark.site, f"sinfo -p {partition.name}")
        yield RequestError(what, where=where, why=WAITS_FOR_EVER, next_command=there)
        return
    needed = math.ceil(benchmark.gpus / benchmark.nodes)
    without = benchmark.hardware.kind == "cpu" or options.gpus == "none"
    fitting = [node for node in usable if without or node.gpus >= needed]
    if len(fitting) < benchmark.nodes:
        with_gpus = f" with {plural(needed, 'GPU')} each"
        yield RequestError(
            f"the run needs {plural(benchmark.nodes, 'node')}{with_gpus}, but the partition has {len(fitting)}",
            where=where,
            why=f"the largest of {len(usable)} nodes has {plural(max(node.gpus for node in usable), 'GPU')}",
            next_command=by_hand(benchmark.site, f'sinfo -p {partition.name} -o "%P %D %G"'),
        )
        return
    down = [f"{node.name} is {node.state}" for node in fitting if not node.up]
    up = len(fitting) - len(down)
    if good and up < benchmark.nodes:
        wanted = plural(benchmark.nodes, "node")
        notes.append(f"the job will wait, because only {up} of the {wanted} are up ({first_few(down)})")


def _too_many(wanted: int, options: JobOptions, partition: Partition, usable: int) -> str:
    """Return why the partition or --nodelist does not fit the number of nodes; empty if both fit."""
    if partition.max_nodes is not None and wanted > partition.max_nodes:
        return f"the partition allows {partition.max_nodes} nodes per job"
    if wanted > min(usable, partition.nodes):
        left = " after --exclude" if options.exclude else ""
        return f"the partition has only {min(usable, partition.nodes)}{left}"
    listed = len(parse_node_list(options.nodelist))
    return f"--nodelist has {listed} nodes, and a job gets all of them" if listed > wanted else ""
