"""What run folders tell a launcher: what a queue had taken, and which nodes ran it."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.backend import find_backend
from benchmarks.errors import StepmarkError
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Benchmark

REPLACED = 2  # times that re-runs which failed are made again, as far as the budget goes


def was_submitted(folder: RunFolder) -> bool:
    """Whether a queue had taken it: then it did not end with its launcher."""
    with contextlib.suppress(StepmarkError, OSError):
        return folder.is_queued() and bool(folder.job_ids())
    return False


# --- nodes: re-runs get others than the run they are to confirm, where the cluster has some to spare ---


def nodes_of(folder: RunFolder) -> list[str]:
    """The nodes of a job's last attempt; none where it was no job, or never started."""
    from launch.slurm.options import named

    with contextlib.suppress(StepmarkError, OSError):
        attempts = folder.stored_result().attempts
        return named(attempts[-1].nodes) if attempts else []
    return []


def excluding(benchmark: Benchmark, nodes: list[str], typed: Mapping[str, Any], output_dir: Path) -> dict[str, str]:
    """The job options that leave these nodes out; none where the job would then wait, or never run."""
    from launch.slurm import options

    if benchmark.site.slurm is None or not nodes:
        return {}
    given = options.choose(benchmark.site, typed, os.environ).exclude or ""
    if "/" in given:  # a file of names: that one stays as it is
        return {}
    exclude = {"exclude": ",".join([*([given] if given else []), *nodes])}
    return exclude if _would_run(benchmark, {**typed, **exclude}, output_dir) else {}


def _would_run(benchmark: Benchmark, typed: Mapping[str, Any], output_dir: Path) -> bool:
    """Whether a job with these options would neither be refused nor wait for nodes that are down."""
    from launch.environments.selection import runtime_of
    from launch.slurm import options, refusals
    from launch.slurm.client import Slurm

    try:
        wanted = options.choose(benchmark.site, typed, os.environ)
        image = runtime_of(benchmark, find_backend(benchmark.backend)).image_file()
        slurm, waits_for = Slurm(benchmark.site), list[str]()
        refused = [*refusals.of_the_cluster(benchmark, wanted, slurm, output_dir.absolute(), image, waits_for)]
    except StepmarkError:
        return False
    return not (refused or waits_for)
