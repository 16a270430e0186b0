"""The MLLOG of a run that trained towards a target: RUN/mlperf/result_0.txt, beside its result.

The launcher writes it, once, from what rank 0 has written down, with the times at which it happened.
"""

import os
import tempfile
from itertools import zip_longest
from pathlib import Path

from benchmarks.backend import Backend
from benchmarks.convergence.goals import goal_of
from benchmarks.mlperf.writing import RESULT_FILE, WrittenRun, written
from benchmarks.runs.runfolder import RunFolder
from launch.command_line import places
from launch.mlperf import emit
from launch.mlperf.reading import runs_in

FOLDER = "mlperf"
ORG_VARIABLE = "STEPMARK_ORG"  # who submits, as the rules want it said in the log


def write(folder: RunFolder, backend: Backend) -> Path | None:
    """None where the run had no target, or never began."""
    run = _told(folder, backend)
    return None if run is None else emit.write(run, folder.path / FOLDER / RESULT_FILE)


def differs(folder: RunFolder, backend: Backend) -> list[str]:
    """Whether the MLLOG that lies there is another than the raw files give."""
    run, path = _told(folder, backend), folder.path / FOLDER / RESULT_FILE
    if run is None or not path.is_file():
        return []
    with tempfile.TemporaryDirectory() as place:
        stored, told = path.read_text(encoding="utf-8", errors="replace"), emit.write(run, Path(place) / path.name)
        lines = zip_longest(stored.splitlines(), told.read_text(encoding="utf-8").splitlines())
        changed = [number for number, (one, other) in enumerate(lines, start=1) if one != other]
    return [f"{FOLDER}/{path.name}:{changed[0]}: not what the raw files give"] if changed else []


def _told(folder: RunFolder, backend: Backend) -> WrittenRun | None:
    """What the run's MLLOG says; the submitter as the log that lies there has it."""
    benchmark = folder.benchmark()
    goal, towards = goal_of(benchmark), benchmark.convergence
    attempts = folder.attempts()
    if goal is None or towards is None or not attempts:
        return None
    record = backend.read_phase(benchmark, folder.phase_dir(folder.measured_phase().name, attempts[-1]), attempts[-1])
    steps = [step for step in record.steps if step.rank == 0]
    rules = places.configs().mlperf(towards.benchmark)
    return written(rules, benchmark, towards, goal, record, steps, _org(folder))


def _org(folder: RunFolder) -> str:
    path = folder.path / FOLDER / RESULT_FILE
    found = [run.settings.get("submission_org") for run in (runs_in(path) if path.is_file() else [])]
    return str(found[0]) if found and found[0] else os.environ.get(ORG_VARIABLE, "unnamed")
