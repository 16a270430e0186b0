"""The MLLOG of a run that trained towards a target: RUN/mlperf/result_0.txt, beside its result.

The launcher writes it, once, from what rank 0 has written down, with the times at which it happened.
"""

import os
from pathlib import Path

from benchmarks.backend import Backend
from benchmarks.convergence.goals import goal_of
from benchmarks.mlperf.own_run import written
from benchmarks.mlperf.writing import file_name
from benchmarks.runfolder import RunFolder
from launch import places
from launch.mlperf import emit

FOLDER = "mlperf"
ORG_VARIABLE = "STEPMARK_ORG"  # who submits, as the rules want it said in the log


def write(folder: RunFolder, backend: Backend) -> Path | None:
    """None where the run had no target, or never began."""
    benchmark = folder.benchmark()
    goal, towards = goal_of(benchmark), benchmark.convergence
    attempts = folder.attempts()
    if goal is None or towards is None or not attempts:
        return None
    record = backend.read_phase(benchmark, folder.phase_dir(folder.measured_phase().name, attempts[-1]), attempts[-1])
    steps = [step for step in record.steps if step.rank == 0]
    rules = places.configs().mlperf(towards.benchmark)
    run = written(rules, benchmark, towards, goal, record, steps, os.environ.get(ORG_VARIABLE, "unnamed"))
    return None if run is None else emit.write(run, folder.path / FOLDER / file_name(0))
