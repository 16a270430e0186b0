"""Makes the two files beside it from a clone of github.com/mlcommons/training_results_v5.1.

.venv/bin/python tests/public_runs/make.py CLONE

mlperf_v51_runs.csv: one row for each set (one submitter, system and benchmark) of the language and image generation
results; runs without times and sets of fewer than 5 runs are left out. A run's seconds/step is the median of the
times that its log gives (`median_of`, and how many in `times`): of steps as they were printed; where it prints none,
of steps by the log's own clock; or of the throughputs that were printed for each block, the first block left out.

mlperf_v51_steps.csv.gz: of each set the first run that yields 60 values or more, and its first 1,000. A value is a
step's own time where each step's is logged (`train_step_time`; the clock says whether a step lies between two lines);
else the mean of the steps between two step lines by their clock, which ticks in milliseconds, and never across an
evaluation. Logged times keep their nine significant digits (they were float32).
"""

import csv
import gzip
import io
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.mlperf.log_format import MLLOG
from benchmarks.mlperf.run_log import LOSS_KEYS, LoggedRun, Record, read_records, read_runs
from tests.public_runs import FILE as STEPS
from tests.public_runs.histories import FILE as SETS

RESULT = re.compile(r"(.*)/result_(\d+)\.txt")
OF_SETS = ["submitter", "system", "benchmark", "median_of", "runs", "started", "seconds_per_step", "times"]
OF_STEPS = ["path", "steps_per_value", "resolution_seconds", "seconds", "ends_ms"]
BENCHMARKS = ("llama2_70b_lora", "llama31_8b", "llama31_405b", "flux1")
FEWEST_RUNS, FEWEST_TIMES = 5, 10
FEWEST_VALUES, MOST_VALUES = 60, 1000
PAUSES = ("block_stop", "eval_start", "run_stop")
CLOCK_SECONDS = 0.001
MOST_CLOCK_PER_STEP = 1.5  # logged step times, from a line to the next

Cells = list[str]


class Result(NamedTuple):
    """A log of a run."""

    path: str
    set: str  # its folder
    number: int


def main() -> None:
    clone = sys.argv[1]
    results = _results(clone)
    rows = [row for result in results if result.set.split("/")[3] in BENCHMARKS for row in _run(clone, result)]
    sets = [[*key, *map(" ".join, zip(*(row[4:] for row in runs), strict=True))] for key, runs in _sets(rows)]
    SETS.write_bytes(_written([OF_SETS, *sets]))
    lines = []
    for _, of_set in groupby(results, key=lambda result: result.set):
        lines += next(filter(None, (_steps(clone, result) for result in of_set)), [])
    with STEPS.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(_written([OF_STEPS, *lines]))
    print(f"{len(sets)} sets; steps of {len(lines)} runs")


def _results(clone: str) -> list[Result]:
    paths = _git(clone, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()
    found = [Result(path, match[1], int(match[2])) for path in paths if (match := RESULT.fullmatch(path))]
    return sorted((one for one in found if one.set.split("/")[1:2] == ["results"]), key=lambda one: one[1:])


def _log(clone: str, result: Result) -> io.BytesIO:
    try:
        return io.BytesIO(_git(clone, "show", f"HEAD:{result.path}"))
    except subprocess.CalledProcessError:
        print(f"left out, the clone lacks it: {result.path}")  # a partial clone lacks its largest files
        return io.BytesIO()


def _git(clone: str, *words: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *words], check=True, capture_output=True).stdout


def _written(rows: Sequence[Cells]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


# --- one figure a run -------------------------------------------------------------------------------


def _run(clone: str, result: Result) -> list[Cells]:
    log = _log(clone, result)
    run = next((one for one in read_runs(read_records(log)) if one.start_ms and one.stop_ms), None)
    times, of = _seconds_per_step(run, log) if run else ([], "")
    if run is None or not times:
        print(f"left out, it has no times: {result.path}")
        return []
    started = datetime.fromtimestamp((run.start_ms or 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    submitter, _, system, benchmark = result.set.split("/")
    figures = [str(result.number), started, f"{median(times):.6g}", str(len(times))]
    return [[submitter, system, benchmark, of, *figures]]


def _sets(rows: Sequence[Cells]) -> Iterator[tuple[Cells, list[Cells]]]:
    for key, of_set in groupby(rows, key=lambda row: row[:4]):
        runs = list(of_set)
        if len(runs) >= FEWEST_RUNS:
            yield key, runs


def _seconds_per_step(run: LoggedRun, log: io.BytesIO) -> tuple[list[float], str]:
    log.seek(0)
    steps = [event.step for event in MLLOG.read(log) if event.step is not None]
    printed = [step.framework_seconds for step in steps if step.framework_seconds]
    timed = [step.seconds for step in steps if step.seconds]
    for times, of in ((printed, "steps printed"), (timed, "steps by clock")):
        if len(times) >= FEWEST_TIMES:
            return times, of
    blocks = [run.batch / rate for rate in run.throughputs[1:] if rate > 0] if run.batch else []
    return blocks, "throughput of blocks"


# --- all steps of a run -----------------------------------------------------------------------------


class Value(NamedTuple):
    steps: int
    seconds: str  # as printed
    end_ms: float


def _steps(clone: str, result: Result) -> list[Cells]:
    records = [one for one in read_records(_log(clone, result)) if isinstance(one, Record)]
    start = next((one.time_ms for one in records if one.key == "run_start"), None)
    lines = [one if _is_step(one) else None for one in records if _is_step(one) or one.key in PAUSES]
    values = _logged(lines) or _by_clock(lines)
    if start is None or len(values) < FEWEST_VALUES:
        return []
    values, each = values[:MOST_VALUES], values[0].steps
    resolution = 0.0 if each == 1 else CLOCK_SECONDS / each
    ends = " ".join(f"{value.end_ms - start:.0f}" for value in values)
    return [[result.path, str(each), f"{resolution:g}", " ".join(value.seconds for value in values), ends]]


def _is_step(one: Record) -> bool:
    return one.key == "tracked_stats" and {*LOSS_KEYS} & {*one.value} != set() and "step" in one.metadata


def _neighbours(lines: Sequence[Record | None]) -> list[tuple[Record, Record]]:
    """Of the lines of steps; None is a pause."""
    return [(early, late) for early, late in pairwise(lines) if early and late]


def _logged(lines: Sequence[Record | None]) -> list[Value]:
    """Each step's own time, where the clock says that no other step lies between two lines."""
    gaps = [
        (late.time_ms - early.time_ms) / 1000 / late.value["train_step_time"]
        for early, late in _neighbours(lines)
        if late.value.get("train_step_time")
    ]
    if not gaps or median(gaps) > MOST_CLOCK_PER_STEP:
        return []
    logged = [line for line in lines if line and "train_step_time" in line.value]
    return [Value(1, f"{line.value['train_step_time']:.9g}", line.time_ms) for line in logged]


def _by_clock(lines: Sequence[Record | None]) -> list[Value]:
    """The mean of the steps between two lines of one block."""
    pairs = [
        (int(late.metadata["step"] - early.metadata["step"]), late.time_ms - early.time_ms, late.time_ms)
        for early, late in _neighbours(lines)
    ]
    usual = round(median(steps for steps, _, _ in pairs)) if pairs else 0
    return [Value(usual, f"{took / 1000 / usual:.7g}", end) for steps, took, end in pairs if steps == usual]


if __name__ == "__main__":
    main()
