"""What an earlier launcher has left of a night: may it be gone on with, and which runs were cut off with it."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.backend import find_backend
from benchmarks.errors import StepmarkError
from benchmarks.gate.suites import Cell
from benchmarks.gate.values import NightReport
from benchmarks.history.identity import of_benchmark
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Benchmark


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
        return not folder.is_whole() or _phases_cut_off(folder)
    except (StepmarkError, OSError):
        return True


def _phases_cut_off(folder: RunFolder) -> bool:
    attempt = max(folder.attempts(), default=1)
    for phase in folder.plan().phases:
        ended = folder.ended(phase.name, attempt)
        if any(process.interrupted for process in ended):
            return True
        if not ended:
            return not _said_to_have_failed(folder, phase.name, attempt)
        if any(process.exit_code != 0 for process in ended):
            return False
    return False


def _said_to_have_failed(folder: RunFolder, phase: str, attempt: int) -> bool:
    benchmark = folder.benchmark()
    ends = find_backend(benchmark.backend).read_phase(benchmark, folder.phase_dir(phase, attempt), attempt).ends
    return any(end.status == "error" for end in ends)
