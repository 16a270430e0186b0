"""What cannot run on a site's Slurm is refused before a job is submitted: Slurm itself would let most of it wait.

A job that asks for more nodes than there are is accepted by Slurm, and waits for ever.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from benchmarks.backend import find_backend
from benchmarks.errors import RequestError, StepmarkError, raised
from benchmarks.machine import images
from benchmarks.values import Benchmark, JobOptions
from launch.environments import venvs
from launch.running.local import REPOSITORY
from launch.slurm.client import Node, Partition
from launch.slurm.options import named, seconds_of

SHOWN = 8


class SlurmAnswers(Protocol):
    """What a Slurm says of itself (launch.slurm.client.Slurm)."""

    def partition(self, name: str | None) -> Partition: ...
    def all_nodes(self) -> dict[str, list[Node]]: ...
    def has_pyxis(self) -> bool: ...


def refuse(
    benchmark: Benchmark,
    options: JobOptions,
    slurm: SlurmAnswers,
    run_parent: Path,
    image: Path | None,
) -> list[str]:
    """RequestError where the job could never run; else what is worth saying of it (it will have to wait)."""
    notes: list[str] = []
    for refusal in of_the_cluster(benchmark, options, slurm, run_parent, image, notes):
        raise refusal
    return notes


def of_the_cluster(
    benchmark: Benchmark,
    options: JobOptions,
    slurm: SlurmAnswers,
    run_parent: Path,
    image: Path | None,
    notes: list[str],
) -> Iterator[StepmarkError]:
    """All because of which the job could never run; what else is worth saying of it goes to `notes`."""
    yield from refused_places(benchmark, run_parent, image)
    yield from raised(lambda: refuse_lists(options))
    # Three questions at once: from typing to submitted takes as long as the slowest.
    with ThreadPoolExecutor(max_workers=3) as pool:
        asked_partitions = [pool.submit(slurm.partition, name) for name in _partitions(options)]
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
        yield _without_pyxis(benchmark)
    # Slurm takes the first of several partitions that can run the job.
    refused = [[*refused_by(benchmark, options, one, nodes.get(one.name, []))] for one in partitions]
    if all(refused):
        yield from refused[0]
    else:
        fit = partitions[refused.index([])]
        notes += _waits_for(benchmark, options, fit, nodes.get(fit.name, []))


def _partitions(options: JobOptions) -> Sequence[str | None]:
    return options.partition.split(",") if options.partition else [None]


# --- folders --------------------------------------------------------------------------------------


def refused_places(benchmark: Benchmark, run_parent: Path, image: Path | None) -> Iterator[RequestError]:
    """What the nodes must see under the same path as this machine, and do not."""
    needed = [
        ("the output folder", run_parent, "--output_dir=DIR in a folder that every node sees"),
        ("the checkout of Stepmark", REPOSITORY, "copy the checkout to a folder that every node sees"),
    ]
    if image is not None and images.is_file(benchmark.image):
        needed.insert(0, ("the container image", image, "--image=FILE in a folder that every node sees"))
    if benchmark.site.runtime == "venv":
        further = "export STEPMARK_HOME=<a folder that every node sees>"
        needed.append(("the environments' folder", venvs.environments_root(), further))
    if benchmark.data.startswith("/"):
        needed.append(("the dataset", Path(benchmark.data), "--data=DIR in a folder that every node sees"))
    shared = benchmark.site.slurm.shared_folders if benchmark.site.slurm else []
    for what, path, further in needed:
        real = path.absolute().resolve()
        if not any(real.is_relative_to(Path(folder).resolve()) for folder in shared):
            yield RequestError(
                f"{what} cannot be seen by the nodes of site '{benchmark.site.name}'",
                where=str(real),
                why=f"what every node sees: {', '.join(shared) or 'nothing is named'} (shared_folders of the site)",
                next_command=further,
            )


def _without_pyxis(benchmark: Benchmark) -> RequestError:
    return RequestError(
        f"the Slurm of site '{benchmark.site.name}' starts no containers: its srun has no --container-image",
        where=f"runtime: container of site '{benchmark.site.name}'",
        why="pyxis is not installed there, or not in its plugstack.conf",
        next_command=_without_containers(benchmark),
    )


def _without_containers(benchmark: Benchmark) -> str:
    """Where the engine can run without its image, how; else what is missing."""
    if not find_backend(benchmark.backend).environment(benchmark.engine).locks:
        return f"--site with a cluster that has pyxis and enroot: '{benchmark.engine}' exists only in its image"
    return (
        "install pyxis; or in the site's file runtime: python, with an interpreter that has the framework, "
        "or runtime: venv, a virtual environment without Transformer Engine"
    )


# --- the cluster ------------------------------------------------------------------------------------


def refused_by(
    benchmark: Benchmark, options: JobOptions, partition: Partition, nodes: Sequence[Node]
) -> Iterator[StepmarkError]:
    """Why a partition could never run the job, by what it is. Pure."""
    where = f"partition '{partition.name}' of site '{benchmark.site.name}'"
    if partition.state != "UP":
        yield RequestError(f"the partition is {partition.state}", where=where, next_command="sinfo -s")
    yield from raised(lambda: _check_time(options, partition, where))
    usable = _usable(options, nodes)
    too_few = list(raised(lambda: _check_count(benchmark, options, partition, len(usable), where)))
    yield from too_few or raised(lambda: _with_gpus(benchmark, options, usable, where))


def _waits_for(benchmark: Benchmark, options: JobOptions, partition: Partition, nodes: Sequence[Node]) -> list[str]:
    """What must come up first, where the partition can run the job."""
    where = f"partition '{partition.name}' of site '{benchmark.site.name}'"
    fitting = _with_gpus(benchmark, options, _usable(options, nodes), where)
    up = [node for node in fitting if node.up]
    if len(up) >= benchmark.nodes:
        return []
    down = [f"{node.name} is {node.state}" for node in fitting if not node.up]
    return [
        f"{len(up)} of the {_nodes(benchmark.nodes)} it needs are up, so it will wait: "
        f"{', '.join(down[:SHOWN])}{f' and {len(down) - SHOWN} more' if len(down) > SHOWN else ''}"
    ]


def _check_time(options: JobOptions, partition: Partition, where: str) -> None:
    if partition.max_seconds is not None and seconds_of(options.time) > partition.max_seconds:
        raise RequestError(
            f"the job asks for {options.time}, the partition gives a job {_duration(partition.max_seconds)} at most",
            where=where,
            why="Slurm would take the job and never start it",
            next_command=f"--time={_duration(partition.max_seconds)}",
        )


def refuse_lists(options: JobOptions) -> None:
    """RequestError where --nodelist and --exclude contradict each other, whatever the cluster."""
    excluded = set(named(options.exclude))
    both = [name for name in named(options.nodelist) if name in excluded]
    if both:
        more = f" and {len(both) - SHOWN} more" if len(both) > SHOWN else ""
        raise RequestError(
            f"{', '.join(both[:SHOWN])}{more} {'is' if len(both) == 1 else 'are'} asked for and excluded",
            where="--nodelist and --exclude",
            why="a job gets every node of --nodelist, and none of --exclude: Slurm would refuse it",
            next_command="take the nodes out of one of the two",
        )


def _usable(options: JobOptions, nodes: Sequence[Node]) -> list[Node]:
    """The partition's nodes, less those excluded and those without the feature that is asked for."""
    excluded = set(named(options.exclude))
    feature = options.constraint if options.constraint and options.constraint.replace("_", "").isalnum() else None
    return [node for node in nodes if node.name not in excluded and (feature is None or feature in node.features)]


def _check_count(benchmark: Benchmark, options: JobOptions, partition: Partition, usable: int, where: str) -> None:
    wanted = benchmark.nodes
    if partition.max_nodes is not None and wanted > partition.max_nodes:
        has = f"the partition gives a job {partition.max_nodes} at most"
    elif wanted > partition.nodes or (wanted > usable and not options.exclude and not options.constraint):
        has = f"the partition has {min(partition.nodes, usable)}"
    elif wanted > usable:
        has = f"{usable} of the partition's {partition.nodes} are left by --exclude and --constraint"
    else:
        listed = len(named(options.nodelist))
        if listed <= wanted:
            return
        has = f"--nodelist names {listed}, all of which a job would get"
    raise RequestError(
        f"{_asked(wanted)}, {has}",
        where=where,
        why="Slurm would take the job and never start it",
        next_command=f"sinfo -p {partition.name}",
    )


def _with_gpus(benchmark: Benchmark, options: JobOptions, nodes: list[Node], where: str) -> list[Node]:
    """The nodes with as many GPUs as the job asks of each; all where it asks for none."""
    if benchmark.hardware.kind == "cpu" or options.gpus == "none":
        return nodes
    needed = math.ceil(benchmark.gpus / benchmark.nodes)
    enough = [node for node in nodes if node.gpus >= needed]
    if len(enough) >= benchmark.nodes:
        return enough
    with_gpus = f" with {_gpus(needed)}{' each' if benchmark.nodes > 1 else ''}"
    there = f"{len(enough)} of them are there" if benchmark.nodes > 1 else "none is there"
    most = max((node.gpus for node in nodes), default=0)
    raise RequestError(
        f"{_asked(benchmark.nodes, with_gpus)}, {there}",
        where=where,
        why=f"of {len(nodes)} nodes the largest has {_gpus(most)}",
        next_command='sinfo -o "%P %D %G", or --nodes=N with fewer GPUs a node',
    )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _asked(count: int, what: str = "") -> str:
    return f"{_nodes(count)}{what} {'is' if count == 1 else 'are'} asked for"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock
