"""Which MLPerf logs there are below a place, and each of their runs as a file of its own.

Nothing is written into what is judged: every run is copied first, as result_N.txt, so that a job's output with
several experiments in it is judged run by run. A line that no log has is refused before a checker reads it.
"""

import re
from collections.abc import Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.errors import RequestError
from benchmarks.files import read_json
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.mlperf.records import TOKEN
from benchmarks.mlperf.run_log import LoggedRun
from benchmarks.runs.runfolder import BENCHMARK
from launch.mlperf.own_log import FOLDER as OWN_FOLDER
from launch.mlperf.reading import runs_in

LOG_NAMES = re.compile(r".*\.(?:txt|out|log|mllog)")
RESULT_NAMES = "result_*.txt"  # of a submission
LONGEST_LINE = 1 << 16  # of MLLOG


class Judged(NamedTuple):
    """A run, where it is from, and the file with its lines alone."""

    name: str
    log: LoggedRun
    source: Path
    staged: Path


def staged_runs(place: Path, scratch: Path) -> list[tuple[str, list[Judged]]]:
    """The runs below a place, by folder and benchmark, each copied to a file of its own."""
    found = [
        (name, judged)
        for number, (name, files) in enumerate(_groups(place).items())
        for judged in _staged(files, scratch / f"set-{number}")
    ]
    if not found:
        why = "no line with :::MLLOG can be read; launch/ingest.py says why of each"
        raise RequestError("no run of MLPerf in it", where=str(place), why=why)
    return found


def without_a_line(place: Path) -> list[str]:
    """The results below a place that hold no line of MLLOG, and so no run."""
    found = [path for path in place.rglob(RESULT_NAMES) if path.is_file() and not _is_log(path)]
    return [str(path.relative_to(place)) for path in sorted(found, key=_by_number)]


def _groups(place: Path) -> dict[str, list[Path]]:
    """Folder -> its logs; of a single log, itself."""
    if not place.exists():
        raise RequestError("no such folder or file", where=str(place))
    named = (path for path in place.rglob("*") if LOG_NAMES.fullmatch(path.name))
    files = sorted((path for path in ([place] if place.is_file() else named) if _is_log(path)), key=_by_number)
    if not files:
        why = "a log of MLPerf has lines with :::MLLOG; files named *.txt, *.out, *.log and *.mllog are looked at"
        raise RequestError("no MLLOG line in it", where=str(place), why=why)
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(_group_of(path, place), []).append(path)
    return groups


def _group_of(path: Path, place: Path) -> str:
    """The folder of a log. Runs of Stepmark's own each have a folder: those of one backend side by side are a set."""
    run = _own_run(path)
    folder = path.parent if run is None else run.parent
    name = folder.resolve().name if folder == place or not folder.is_relative_to(place) else folder.relative_to(place)
    if run is None:
        return str(name)
    try:
        backend = read_json(run / BENCHMARK, dict[str, Any])["backend"]
    except (OSError, ValueError, KeyError):
        backend = "backend unknown"
    return f"{name}, {backend}"


def _own_run(path: Path) -> Path | None:
    run = path.parent.parent
    return run if path.parent.name == OWN_FOLDER and (run / BENCHMARK).is_file() else None


def _is_log(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:  # what a job printed before its first line of MLLOG may be long
        return any(
            TOKEN in line and MLLOG.recognises(line) for line in iter(partial(stream.readline, LONGEST_LINE), b"")
        )


def _by_number(path: Path) -> tuple[str, int, str]:
    """result_10 comes after result_9."""
    numbers = re.findall(r"\d+", path.name)
    return str(path.parent), int(numbers[-1]) if numbers else -1, path.name


def _staged(files: Sequence[Path], folder: Path) -> list[list[Judged]]:
    """The runs of one folder, those of each benchmark in a folder of their own."""
    found: dict[str | None, list[Judged]] = {}
    for path in files:
        _refuse_long_lines(path)
        runs, name = runs_in(path), (_own_run(path) or path).name
        bounds = [0, *(run.records[0].line - 1 for run in runs[1:]), None]
        for place, (run, lines) in enumerate(zip(runs, pairwise(bounds), strict=False), start=1):
            own = found.setdefault(run.benchmark, [])
            staged = folder / (run.benchmark or "unknown") / f"result_{len(own)}.txt"
            staged.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as stream:
                staged.write_bytes(b"".join(islice(stream, *lines)))
            own.append(Judged(name if len(runs) == 1 else f"{name}, run {place}", run, path, staged))
    return list(found.values())


def _refuse_long_lines(path: Path) -> None:
    """A line of MLLOG is some hundred bytes long, 373 at most in the results of v4.0 to v5.1."""
    with path.open("rb") as stream:
        number, length, marked = 1, 0, False
        while piece := stream.readline(LONGEST_LINE):
            length, marked = length + len(piece), marked or TOKEN in piece
            if marked and length >= LONGEST_LINE:
                raise RequestError(
                    f"an MLLOG line of more than {LONGEST_LINE} bytes",
                    where=f"{path}:{number}",
                    why="the longest of a published log has 373: that one is damaged",
                    next_command=f"sed -n {number}p {path} | cut -c 1-300",
                )
            if piece.endswith(b"\n"):
                number, length, marked = number + 1, 0, False
