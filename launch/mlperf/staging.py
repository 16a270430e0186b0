"""Find the MLPerf logs below a place, and write each of their runs to a separate file.

The judged folders are not changed: every run is copied first, as result_N.txt, so that the output of a job with
several experiments is judged run by run.
"""

import re
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError
from benchmarks.mlperf.run_log import TOKEN, LoggedRun, runs_of
from benchmarks.reading.log_files import UNREADABLE_ERRORS, open_log
from benchmarks.runs.runfolder import BENCHMARK
from benchmarks.text import printable

LOG_NAMES = re.compile(r".*\.(?:txt|out|log|mllog)(?:\.gz)?", re.DOTALL)
RESULT_NAMES = re.compile(r"result_.*\.txt(?:\.gz)?", re.DOTALL)  # of a submission


class StagedRun(NamedTuple):
    """A run, and the file with its lines only."""

    name: str
    log: LoggedRun
    staged: Path


class StagedSet(NamedTuple):
    """The runs of one benchmark in one folder."""

    name: str
    is_own: bool  # runs of Stepmark
    runs: list[StagedRun]

    @property
    def is_open(self) -> bool:
        return any(run.log.is_open for run in self.runs)


def staged_runs(place: Path, scratch: Path) -> tuple[list[StagedSet], list[str]]:
    """The runs below a place, and the results in which no run can be read."""
    if not place.exists():
        raise RequestError("the folder or log does not exist", where=str(place))
    files = [place]
    if place.is_dir():
        named = (path for path in place.rglob("*") if LOG_NAMES.fullmatch(path.name) and not path.is_dir())
        files = sorted(named, key=_by_number)
    sets: dict[tuple[str, str | None], StagedSet] = {}
    not_counted = []
    for path in files:
        if not _stage(path, place, scratch, sets) and RESULT_NAMES.fullmatch(path.name):
            not_counted.append(printable(str(path.relative_to(place))))
    if not sets:
        raise RequestError(
            "found no MLPerf run",
            where=str(place),
            why="*.txt, *.out, *.log and *.mllog have no readable line with :::MLLOG; pass one log or a folder of "
            "logs",
        )
    return list(sets.values()), not_counted


def _by_number(path: Path) -> tuple[str, int, str]:
    """result_10 comes after result_9."""
    numbers = re.findall(r"\d+", path.name)
    return str(path.parent), int(numbers[-1]) if numbers else -1, path.name


def _stage(path: Path, place: Path, scratch: Path, sets: dict[tuple[str, str | None], StagedSet]) -> bool:
    """Copy the runs of a log to the sets that they belong to; False if it has no runs."""
    if not path.is_file():
        return False
    # The run of RUN/attempt-N/PHASE/result_0.txt: Stepmark runs in the same folder form a set.
    own = next((run for run in path.parents[2:3] if (run / BENCHMARK).is_file()), None)
    folder = own.parent if own else path.parent
    is_inside = folder != place and folder.is_relative_to(place)
    group = printable(str(folder.relative_to(place)) if is_inside else folder.resolve().name)
    try:
        stream = open_log(path)
    except UNREADABLE_ERRORS:
        return False
    with stream:
        runs = runs_of(stream)
        starts = [0, *(run.records[0].line - 1 for run in runs[1:]), None]
        name = printable((own or path).name)
        for number, (run, lines) in enumerate(zip(runs, pairwise(starts), strict=False), start=1):
            known = sets.setdefault((group, run.benchmark), StagedSet(group, own is not None, []))
            place_of_set = scratch / f"set-{[*sets].index((group, run.benchmark))}" / (run.benchmark or "unknown")
            staged = place_of_set / f"result_{len(known.runs)}.txt"
            staged.parent.mkdir(parents=True, exist_ok=True)
            stream.seek(0)
            with staged.open("wb") as target:
                # A job may print much more than MLLOG. Lines keep their numbers.
                target.writelines(line if TOKEN in line else b"\n" for line in islice(stream, *lines))
            known.runs.append(StagedRun(name if len(runs) == 1 else f"{name}, run {number}", run, staged))
    return bool(runs)
