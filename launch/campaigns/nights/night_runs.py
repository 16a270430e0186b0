"""What run folders tell a launcher: whether a night can be resumed, what was cut off, which nodes ran it."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.backend import find_backend
from benchmarks.errors import StepmarkError
from benchmarks.gate.suites import Cell
from benchmarks.gate.values import NightReport
from benchmarks.runs.identity import of_benchmark
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Benchmark

REPLACED = 2  # times that re-runs which failed are made again, as far as the budget goes


def another_suite(
    left: NightReport, cells: Sequence[Cell], benchmarks: Mapping[str, Benchmark], output_dir: Path
) -> str | None:
    """What of a suite's cells is no more as it was when the night began; None: all is."""
    before, now = {cell.cell: cell.run_id for cell in left.cells}, {cell.name for cell in cells}
    if set(before) != now:
        added = [f"{name} is new" for name in sorted(now - set(before))]
        return ", ".join([*added, *(f"{name} is gone" for name in sorted(set(before) - now))])
    for name, run_id in before.items():
        if run_id is None or name not in benchmarks:
            continue
        with contextlib.suppress(StepmarkError, OSError):  # what left no file is run again in any case
            if _digest(RunFolder(output_dir / run_id).benchmark()) != _digest(benchmarks[name]):
                return f"{name} is another benchmark than run {run_id}"
    return None


def _digest(benchmark: Benchmark) -> str:
    return of_benchmark(msgspec.to_builtins(benchmark))[0]


def was_cut_off(folder: RunFolder) -> bool:
    """Whether a run that has ended ended with its launcher. One that failed by itself did not, nor does a job."""
    try:
        if folder.is_queued() and folder.job_ids():
            return False
        if not folder.is_whole():
            return True
        attempt = max(folder.attempts(), default=1)
        for phase in folder.plan().phases:
            ended = folder.ended(phase.name, attempt)
            if not ended or any(process.interrupted for process in ended):
                return bool(ended) or not _said_to_have_failed(folder, phase.name, attempt)
            if any(process.exit_code != 0 for process in ended):
                return False
    except (StepmarkError, OSError):
        return True
    return False


def _said_to_have_failed(folder: RunFolder, phase: str, attempt: int) -> bool:
    benchmark = folder.benchmark()
    ends = find_backend(benchmark.backend).read_phase(benchmark, folder.phase_dir(phase, attempt), attempt).ends
    return any(end.status == "error" for end in ends)


# --- nodes: re-runs get others than the run they are to confirm, where the cluster has some to spare ---


def nodes_of(folder: RunFolder) -> list[str]:
    """The nodes of a job's last attempt; none where it was no job, or never started."""
    from launch.slurm.options import named

    with contextlib.suppress(StepmarkError, OSError):
        attempts = folder.stored_result().attempts
        return named(attempts[-1].nodes) if attempts else []
    return []


def excluding(benchmark: Benchmark, nodes: list[str], typed: Mapping[str, Any], output_dir: Path) -> str | None:
    """What --exclude must say for these nodes to be left out; None where the job would then wait, or never run."""
    from launch.running import runtimes
    from launch.slurm import options, refusals
    from launch.slurm.client import Slurm

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
        slurm, waits_for = Slurm(benchmark.site), list[str]()
        refused = [*refusals.of_the_cluster(benchmark, wanted, slurm, output_dir.absolute(), image, waits_for)]
    except StepmarkError:
        return None
    return None if refused or waits_for else exclude
