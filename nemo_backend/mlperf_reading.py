"""Reads what a submission's job left: how its checks ended, and what result_0.txt says of the run. Pure but for files.
"""

from collections.abc import Callable
from pathlib import Path

from benchmarks import worker_events
from benchmarks.values import Benchmark, RunRecord, Step
from nemo_backend.mlperf_planning import TRAIN


def read_phase(benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:  # noqa: ARG001
    if phase_dir.name != TRAIN:
        return worker_events.read_phase(phase_dir, attempt)
    return RunRecord(attempt=attempt, facts=[], steps=[], ends=[], unreadable=[])


def follow(benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:  # noqa: ARG001
    return list
