"""Makes mlperf_v51_steps.csv.gz from a clone of github.com/mlcommons/training_results_v5.1.

.venv/bin/python tests/public_runs/extract.py CLONE

The rule: of each submitter, system and benchmark the first result_N.txt that yields 60 values or more, and its first
1,000. A value is a step's own time where each step's is logged (`train_step_time`; the clock says whether a step lies
between two lines); else the mean of the steps between two step lines by their clock, which ticks in milliseconds,
and never across an evaluation. Logged times keep their nine significant digits (they were float32).
"""

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

FEWEST, MOST = 60, 1000
RESULT = re.compile(r"/results/[^/]+/[^/]+/result_(\d+)\.txt$")
PAUSES = ("block_stop", "eval_start", "run_stop")
LOSSES = ("train_loss", "reduced_train_loss")  # what every step line tells
CLOCK_SECONDS = 0.001
MOST_CLOCK_PER_STEP = 1.5  # logged step times, from a line to the next


class Value(NamedTuple):
    steps: int
    seconds: str  # as printed
    end_ms: int


def main() -> None:
    clone = Path(sys.argv[1])
    names = _git(clone, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()
    results = sorted(filter(RESULT.search, names), key=lambda name: (name.rsplit("/", 1)[0], _number(name)))
    target = Path(__file__).with_name("mlperf_v51_steps.csv.gz")
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        lines = [["path", "steps_per_value", "resolution_seconds", "seconds", "ends_ms"]]
        for _, runs in groupby(results, key=lambda name: name.rsplit("/", 1)[0]):
            lines += next(filter(None, (_row(clone, path) for path in runs)), [])
        text = "".join(",".join(_quoted(cell) for cell in line) + "\n" for line in lines)
        packed.write(text.encode())
    print(f"{len(lines) - 1} runs, {target.stat().st_size / 1000:.0f} kB")


def _quoted(cell: str) -> str:
    return f'"{cell}"' if "," in cell else cell


def _number(name: str) -> int:
    found = RESULT.search(name)
    return int(found[1]) if found else 0


def _row(clone: Path, path: str) -> list[list[str]]:
    try:
        text = _git(clone, "cat-file", "-p", f"HEAD:{path}").decode(errors="replace")
    except subprocess.CalledProcessError:
        return []  # a partial clone lacks it
    entries = list(_entries(text))
    start = next((entry["time_ms"] for entry in entries if entry["key"] == "run_start"), None)
    values = _logged(entries) or _by_clock(entries)
    if start is None or len(values) < FEWEST:
        return []
    values, each = values[:MOST], values[0].steps
    resolution = 0.0 if each == 1 else CLOCK_SECONDS / each
    ends = " ".join(str(value.end_ms - start) for value in values)
    return [[path, str(each), f"{resolution:g}", " ".join(value.seconds for value in values), ends]]


def _entries(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        _, mark, rest = line.partition(":::MLLOG ")
        if mark:
            try:
                yield json.loads(rest)
            except ValueError:
                continue  # lines of two ranks in one


def _step_lines(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any] | None]:
    """The entry of every line that reports a step; None at a pause."""
    for entry in entries:
        if entry["key"] in PAUSES:
            yield None
        elif entry["key"] == "tracked_stats" and {*LOSSES} & {*entry["value"]} and "step" in entry["metadata"]:
            yield entry


def _neighbours(entries: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(early, late) for early, late in pairwise(_step_lines(entries)) if early and late]


def _logged(entries: list[dict[str, Any]]) -> list[Value]:
    """Each step's own time, where the clock says that no other step lies between two lines."""
    gaps = [
        _milliseconds(early, late) / 1000 / late["value"]["train_step_time"]
        for early, late in _neighbours(entries)
        if late["value"].get("train_step_time")
    ]
    if not gaps or median(gaps) > MOST_CLOCK_PER_STEP:
        return []
    lines = [line for line in _step_lines(entries) if line and "train_step_time" in line["value"]]
    return [Value(1, f"{line['value']['train_step_time']:.9g}", line["time_ms"]) for line in lines]


def _by_clock(entries: list[dict[str, Any]]) -> list[Value]:
    """The mean of the steps between two lines of one block."""
    pairs = [
        (int(late["metadata"]["step"] - early["metadata"]["step"]), early, late)
        for early, late in _neighbours(entries)
    ]
    if not pairs:
        return []
    usual = round(median(steps for steps, _, _ in pairs))
    return [
        Value(usual, f"{_milliseconds(early, late) / 1000 / usual:.7g}", late["time_ms"])
        for steps, early, late in pairs
        if steps == usual
    ]


def _milliseconds(early: dict[str, Any], late: dict[str, Any]) -> int:
    return int(late["time_ms"]) - int(early["time_ms"])


def _git(clone: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *words], check=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
