"""Where re-runs run: on other nodes than the run they are to confirm, as far as the cluster has some to spare."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.errors import StepmarkError
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Benchmark


def nodes_of(folder: RunFolder) -> list[str]:
    """The nodes of a job's last attempt; none where it was no job, or never started."""
    from launch.slurm.node_lists import named

    with contextlib.suppress(StepmarkError, OSError):
        attempts = folder.stored_result().attempts
        return named(attempts[-1].nodes) if attempts else []
    return []


def without(benchmark: Benchmark, nodes: list[str], typed: Mapping[str, Any], output_dir: Path) -> str | None:
    """What --exclude must say for these nodes to be left out; None where the job would then wait, or never run."""
    from benchmarks.backend import find_backend
    from launch.running import runtimes
    from launch.slurm import options, refusals
    from launch.slurm.asking import slurm_at

    if benchmark.site.slurm is None or not nodes:
        return None
    given = options.choose(benchmark.site, typed, os.environ).exclude or ""
    if "/" in given:  # a file of names: that one stays as it is
        return None
    exclude = ",".join([*([given] if given else []), *nodes])
    try:
        wanted = options.choose(benchmark.site, {**typed, "exclude": exclude}, os.environ)
        spec = find_backend(benchmark.backend).environment(benchmark.engine, benchmark.hardware.platform)
        image = runtimes.image_of(benchmark, spec)
        waits_for = refusals.refuse(benchmark, wanted, slurm_at(benchmark.site), output_dir.absolute(), image)
    except StepmarkError:
        return None
    return None if waits_for else exclude


def note(first: list[str], reruns: list[list[str]]) -> list[str]:
    """On which nodes it all ran, for a report."""
    again = [node for nodes in reruns for node in nodes]
    if not first or not again:
        return []
    shared = sorted(set(first) & set(again))
    said = f"ran on {_some(first)}, its re-runs on {_some(sorted(set(again)))}"
    if not shared:
        return [f"{said}: fresh nodes"]
    return [f"{said}: {len(shared)} of the same nodes, so what is wrong with these is no proof against the software"]


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
