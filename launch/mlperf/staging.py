"""Find the MLPerf logs below a folder, and write each of their runs to a separate file.

Every run is copied to result_N.txt in a temporary folder. So the judged folders do not change. If a job ran several
experiments, the checkers judge each of them separately.
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
RESULT_NAMES = re.compile(r"result_.*\.txt(?:\.gz)?", re.DOTALL)  # the names of results in a submission


class StagedRun(NamedTuple):
    """A run, and the file that contains only the run's lines."""

    name: str
    log: LoggedRun
    staged: Path


class StagedSet(NamedTuple):
    """The runs of one benchmark in one folder."""

    name: str
    is_own: bool  # whether Stepmark started the runs
    runs: list[StagedRun]

    @property
    def is_open(self) -> bool:
        return any(run.log.is_open for run in self.runs)


def staged_runs(place: Path, scratch: Path) -> tuple[list[StagedSet], list[str]]:
    """Return the runs of a log or below a folder, and the names of result files without a readable run."""
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
    """Return a key that sorts result_10 after result_9."""
    numbers = re.findall(r"\d+", path.name)
    return str(path.parent), int(numbers[-1]) if numbers else -1, path.name


def _stage(path: Path, place: Path, scratch: Path, sets: dict[tuple[str, str | None], StagedSet]) -> bool:
    """Copy each run in a log to the set that the run belongs to. Return whether the log has runs."""
    if not path.is_file():
        return False
    # For RUN/attempt-N/PHASE/result_0.txt, the run is RUN. Stepmark's runs in the same folder form a set.
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
                # Blank out the lines that are not MLLOG, so that the other lines keep their numbers.
                target.writelines(line if TOKEN in line else b"\n" for line in islice(stream, *lines))
            known.runs.append(StagedRun(name if len(runs) == 1 else f"{name}, run {number}", run, staged))
    return bool(runs)
