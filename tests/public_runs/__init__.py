"""Step times of public MLPerf Training v5.1 result logs, one run of each system and benchmark: real noise to test on.

mlperf_v51_steps.csv.gz has, of each submitter, system and benchmark of github.com/mlcommons/training_results_v5.1,
the first run with 60 values or more, and its first 1,000. A value is a step's own time (`train_step_time`, nine
digits) if each step's is logged. Otherwise it is the mean of the steps between two step lines by their clock of
milliseconds, and never across an evaluation.

mlperf_v51_runs.csv has one row for each set of five runs or more of the language and image generation results. A
run's seconds/step is the median of the times in its log (`median_of`; how many: `times`): of steps as they were
printed, of steps by the log's clock, or of the throughputs of its blocks without the first.
"""

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("mlperf_v51_steps.csv.gz")


class PublicRun(NamedTuple):
    """The times of one run, in the order they were logged."""

    path: str  # of its log, in mlcommons/training_results_v5.1
    steps_per_value: (
        int  # 1: each step's own time as logged; otherwise the mean of this many steps, by the log's clock
    )
    resolution_seconds: float  # value of the last digit
    seconds: list[float]  # of a step
    ends: list[float]  # seconds from the log's run_start to the end of each value; evaluations lie between some


def public_runs() -> list[PublicRun]:
    """All of the file."""
    with gzip.open(FILE, "rt", newline="") as lines:
        return [
            PublicRun(
                path=row["path"],
                steps_per_value=int(row["steps_per_value"]),
                resolution_seconds=float(row["resolution_seconds"]),
                seconds=[float(value) for value in row["seconds"].split()],
                ends=[int(value) / 1000 for value in row["ends_ms"].split()],
            )
            for row in csv.DictReader(lines)
        ]
