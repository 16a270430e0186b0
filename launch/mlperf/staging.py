"""Which MLPerf logs there are below a place, and each of their runs as a file of its own.

Nothing is written into what is judged: every run is copied first, as result_N.txt, so that a job's output with
several experiments in it is judged run by run. A line that no log has is refused before a checker reads it.
"""

import bz2
import gzip
import lzma
import re
import shlex
import zlib
from collections.abc import Sequence
from functools import partial
from io import BufferedReader
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.backend import SkippedLine
from benchmarks.errors import RequestError
from benchmarks.files import opened, read_json
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.mlperf.run_log import TOKEN, LoggedRun, runs_in
from benchmarks.reading.log_files import HEAD_BYTES, UNPACKERS
from benchmarks.reading.shown_lines import printable
from benchmarks.runs.runfolder import BENCHMARK

LOG_NAMES = re.compile(r".*\.(?:txt|out|log|mllog)(?:\.(?:gz|bz2|xz))?", re.DOTALL)
RESULT_NAMES = re.compile(r"result_.*\.txt(?:\.(?:gz|bz2|xz))?", re.DOTALL)  # of a submission, also packed
Unpacking = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
CHUNK_BYTES = 1 << 20
MOST_UNPACKED_BYTES = 1 << 30
LONGEST_LINE = 1 << 16  # of MLLOG


class Judged(NamedTuple):
    """A run, where it is from, and the file with its lines alone."""

    name: str
    log: LoggedRun
    source: Path
    staged: Path


class Staged(NamedTuple):
    """What there is to judge: the runs by folder and benchmark, and the files that should hold one and do not."""

    sets: list[tuple[str, list[Judged]]]
    not_counted: list[str]


def staged_runs(place: Path, scratch: Path) -> Staged:
    """The runs below a place, each copied to a file of its own."""
    groups = _groups(place)
    named = [path for path in place.rglob("*") if RESULT_NAMES.fullmatch(path.name) and not path.is_dir()]
    found = [
        (name, judged)
        for number, (name, files) in enumerate(groups.items())
        for judged in _staged(files, scratch / f"set-{number}")
    ]
    if not found:
        raise RequestError(
            "no run of MLPerf in it",
            where=str(place),
            why="no line with :::MLLOG can be read",
            next_command=f"python launch/ingest.py --log={shlex.quote(str(next(iter(groups.values()))[0]))}",
        )
    logs = [path for files in groups.values() for path in files]
    counted = {run.source for _, judged in found for run in judged}
    lost = {*named, *logs} - counted
    return Staged(found, [printable(str(path.relative_to(place))) for path in sorted(lost, key=_by_number)])


def _groups(place: Path) -> dict[str, list[Path]]:
    """Folder -> its logs; of a single log, itself."""
    if not place.is_dir() and not place.is_file():
        what = "it is no folder and no plain file" if place.exists() else "no such folder or file"
        raise RequestError(what, where=str(place), next_command="the folder with the logs, or one log")
    named = (path for path in place.rglob("*") if LOG_NAMES.fullmatch(path.name))
    files = sorted((path for path in ([place] if place.is_file() else named) if _is_log(path)), key=_by_number)
    if not files:
        why = (
            "a log of MLPerf has :::MLLOG lines; *.txt, *.out, *.log and *.mllog are looked at,"
            " also with .gz, .bz2 or .xz"
        )
        command = f"python launch/report.py timing {shlex.quote(str(place))}     (the steps of logs of other kinds)"
        raise RequestError("no MLLOG line in it", where=str(place), why=why, next_command=command)
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(printable(_group_of(path, place)), []).append(path)
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
    """The run folder of RUN/attempt-N/PHASE/result_0.txt."""
    return next((run for run in path.parents[2:3] if (run / BENCHMARK).is_file()), None)


def _is_log(path: Path) -> bool:
    if not path.is_file():
        return False
    with opened(path) as stream:
        try:  # what a job printed before its first line of MLLOG may be long
            source = _unpacking(stream) or stream
            lines = iter(partial(source.readline, LONGEST_LINE), b"")
            return any(TOKEN in line and MLLOG.recognises(line) for line in lines)
        except DAMAGED:
            return False


def _unpacking(stream: BufferedReader) -> Unpacking | None:
    """None of a plain file."""
    head = stream.peek(HEAD_BYTES)
    return next((unpack(stream) for magic, unpack in UNPACKERS if head.startswith(magic)), None)


def _unpacked(path: Path, folder: Path) -> tuple[Path, str]:
    """A log as a plain file, and what is wrong with a packed one: what can be read of it is judged."""
    with opened(path) as stream:
        source = _unpacking(stream)
        if source is None:
            return path, ""
        folder.mkdir(parents=True, exist_ok=True)
        plain = folder / "unpacked"
        with plain.open("wb") as target:
            while True:
                try:
                    data = source.read1(CHUNK_BYTES)
                except DAMAGED as error:
                    return plain, str(error)
                if not data:
                    return plain, ""
                if target.tell() + len(data) > MOST_UNPACKED_BYTES:
                    return plain, "it unpacks to more than 1 GiB"
                target.write(data)


def _by_number(path: Path) -> tuple[str, int, str]:
    """result_10 comes after result_9."""
    numbers = re.findall(r"\d+", path.name)
    return str(path.parent), int(numbers[-1]) if numbers else -1, path.name


def _staged(files: Sequence[Path], folder: Path) -> list[list[Judged]]:
    """The runs of one folder, those of each benchmark in a folder of their own."""
    found: dict[str | None, list[Judged]] = {}
    for path in files:
        plain, damage = _unpacked(path, folder)
        _refuse_long_lines(plain, path)
        runs, name = _runs_in(plain, damage), printable((_own_run(path) or path).name)
        bounds = [0, *(run.records[0].line - 1 for run in runs[1:]), None]
        for place, (run, lines) in enumerate(zip(runs, pairwise(bounds), strict=False), start=1):
            own = found.setdefault(run.benchmark, [])
            staged = folder / (run.benchmark or "unknown") / f"result_{len(own)}.txt"
            staged.parent.mkdir(parents=True, exist_ok=True)
            with plain.open("rb") as stream, staged.open("wb") as target:
                # A job may print much more than MLLOG. Lines keep their numbers.
                target.writelines(line if TOKEN in line else b"\n" for line in islice(stream, *lines))
            own.append(Judged(name if len(runs) == 1 else f"{name}, run {place}", run, path, staged))
    return list(found.values())


def _runs_in(plain: Path, damage: str) -> list[LoggedRun]:
    """The runs; the last of a damaged log says so."""
    runs = runs_in(plain)
    if damage and runs:
        last = runs[-1]
        cut = SkippedLine(line=last.records[-1].line, reason=f"the packed log could be read no further: {damage}")
        runs[-1] = msgspec.structs.replace(last, skipped=[*last.skipped, cut])
    return runs


def _refuse_long_lines(plain: Path, path: Path) -> None:
    """A line of MLLOG is some hundred bytes long, 373 at most in the results of v4.0 to v5.1."""
    with plain.open("rb") as stream:
        number, length, marked = 1, 0, False
        while piece := stream.readline(LONGEST_LINE):
            length, marked = length + len(piece), marked or TOKEN in piece
            if marked and length >= LONGEST_LINE:
                raise RequestError(
                    f"an MLLOG line of more than {LONGEST_LINE} bytes",
                    where=f"{path}:{number}",
                    why="the longest of a published log has 373: that one is damaged",
                    next_command=f"{'' if plain is path else 'unpack it, then: '}sed -n {number}p"
                    f" {shlex.quote(str(path))} | cut -c 1-300",
                )
            if piece.endswith(b"\n"):
                number, length, marked = number + 1, 0, False
