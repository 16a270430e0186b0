"""The files below a folder, and what each one is: the edge of benchmarks/logs/timing_table.py.

Every file gets a row:
- `*.out`, `*.log`, `*.txt`, `*.err` and `log-*`, also with `.gz`, are searched to their end for a line of a known
  log format; a file of any other name by its first MiB alone (checkpoints and profiles are large).
- One that is called as a run's output is (`*.out`, `*.log`, `log-*`) and tells how it ended, but no step, is a run
  that failed.
- `sbatch_NAME.out` beside a `log-NAME.out` that is a run is that run's batch script: it can say how the run ended,
  and is no run of its own.
- A run folder of Stepmark's own is one row, of its steps.jsonl; one that may not be compared has no figures.
- A link to a file that is found anyway is not read again; links to folders are not followed. Pipes, sockets and
  devices are named and never opened.
"""

import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import BinaryIO, NamedTuple, cast

import msgspec

from benchmarks.backend import LogEvent, LogFormat
from benchmarks.diagnosis.order import ending_of
from benchmarks.diagnosis.symptoms import Symptoms
from benchmarks.errors import RequestError
from benchmarks.logs import ingest
from benchmarks.logs.log_endings import Ending, ending_text, printable
from benchmarks.logs.packed import GZIP_MAGIC
from benchmarks.logs.timing_table import (
    FAILED,
    FIGURES,
    INCOMPLETE,
    NOT_A_LOG,
    NOT_COMPARED,
    SUCCESS,
    UNREADABLE,
    Row,
    log_name,
    row_of_log,
    row_without_log,
)
from benchmarks.measuring.figures import RECORDED
from benchmarks.runs.runfolder import BENCHMARK, PROVENANCE, RESULT, STEPS, RunFolder

LOG_NAME = re.compile(r"(?:.*\.(?:out|log|txt|err)|log-.*)(?:\.gz)?", re.DOTALL)
RUN_NAME = re.compile(r"(?!.*\.err(?:\.gz)?$)(?:.*\.(?:out|log)|log-.*)(?:\.gz)?", re.DOTALL)
BINARY_HEAD_BYTES = 8192
MLLOG = "mllog"


# --- which files ------------------------------------------------------------------------------


class Found(NamedTuple):
    """One file, and where it isn't read, why."""

    path: Path
    status: str | None = None
    reason: str = ""


def find_files(places: Sequence[str]) -> list[Found]:
    """Every file at or below the places, in the order of their names; none twice, whatever links lead to it."""
    for place in places:
        if not Path(place).exists():
            raise RequestError(
                f"there is no '{printable(place)}'",
                where=f"the folder of logs, from {Path.cwd()}",
                next_command="python launch/report.py timing --window=35-44 DIR",
            )
    entries = [found for place in places for found in _entries(Path(place))]
    known: dict[str, Found] = {}
    for found in sorted(entries, key=lambda found: (found.path.is_symlink(), str(found.path))):
        known.setdefault(os.path.realpath(found.path), found)
    return sorted(known.values(), key=lambda found: str(found.path))


def _entries(place: Path) -> Iterator[Found]:
    if not place.is_dir():
        yield _looked_at(place)
        return
    unreadable: list[OSError] = []
    for folder, _, files in os.walk(place, onerror=unreadable.append):
        yield from (_looked_at(Path(folder, name)) for name in files)
    for error in unreadable:
        yield Found(Path(str(error.filename)), UNREADABLE, f"the folder can't be listed: {error.strerror}")


def _looked_at(path: Path) -> Found:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return Found(path, UNREADABLE, error.strerror or str(error))
    return Found(path) if stat.S_ISREG(mode) else Found(path, NOT_A_LOG, "a pipe, socket or device")


# --- what each one is -------------------------------------------------------------------------


class LogReader:
    """Makes the rows of files, one at a time."""

    def __init__(self, files: Sequence[Found], rule: str, symptoms: Symptoms, formats: Sequence[LogFormat]) -> None:
        run_of = _run_folders(files)
        self._runs = sorted(set(run_of.values()))
        self._files = [found for found in files if found.path not in run_of]
        self._rule = rule
        self._symptoms = symptoms
        self._formats = formats
        self._batch_of = _batch_outputs([found.path for found in self._files if found.status is None])

    @property
    def to_read(self) -> int:
        """How many rows there will be."""
        return len(self._files) + len(self._runs)

    def rows(self) -> Iterator[Row]:
        """A row for each run of Stepmark and each other file; the output of a batch script after that of its run."""
        yield from (_row_of_run(run, self._rule) for run in self._runs)
        run_of: dict[Path, Row] = {}
        batches = set(self._batch_of.values())
        for found in sorted(self._files, key=lambda found: found.path in batches):
            run = run_of.get(found.path)
            row = self._batch_row(found, run) if run else self._row(found)
            if found.path in self._batch_of and row.status in (SUCCESS, INCOMPLETE, FAILED):
                run_of[self._batch_of[found.path]] = row
            yield row

    def _batch_row(self, found: Found, run: Row) -> Row:
        """A batch script is no run beside its own, but where that never stepped it may hold the training itself."""
        row = None if run.format else self._row(found)
        if row is not None and (row.format is not None or row.status == UNREADABLE):
            return row
        reason = f"output of the batch script of {PurePath(run.path).name}"
        return row_without_log(printable(str(found.path)), NOT_A_LOG, reason)

    def _row(self, found: Found) -> Row:
        path = printable(str(found.path))
        if found.status is not None:
            return row_without_log(path, found.status, found.reason)
        try:
            with _opened(found.path) as stream:
                return self._row_of(found.path, path, stream)
        except (OSError, EOFError, zlib.error) as error:
            return row_without_log(path, UNREADABLE, getattr(error, "strerror", None) or str(error))
        except Exception as error:  # the reader may be of a package of its own: one log costs no other its row
            reason = f"its reader failed: {type(error).__name__}: {error}"
            return row_without_log(path, UNREADABLE, printable(reason))

    def _row_of(self, file: Path, path: str, stream: BinaryIO) -> Row:
        head = stream.read(ingest.HEAD_BYTES)
        log_format = ingest.detect(stream if LOG_NAME.fullmatch(file.name) else io.BytesIO(head), self._formats)
        if log_format is None:
            return self._row_of_another_file(file, path, head, stream)
        stream.seek(0)
        watched = ingest.WatchedStream(stream, log_format)
        last_step_near: int | None = None

        def events() -> Iterator[LogEvent]:
            nonlocal last_step_near
            for event in log_format.read(watched.buffered()):
                last_step_near = watched.position if event.step is not None else last_step_near
                yield event

        log = ingest.ReadLog(events())
        if last_step_near is None and not LOG_NAME.fullmatch(file.name) and log_format.name != MLLOG:
            return row_without_log(path, NOT_A_LOG, f"looks like {log_format.name}, but holds no step")
        text = ending_text(stream, log_format, last_step_near)
        row = row_of_log(path, log_format.name, log, self._rule, self._ending(file, text), log_format.no_seconds)
        if log_format.name == MLLOG:  # how its runs ended is not read off the steps: it says so itself
            from benchmarks.mlperf.story import row_of_runs
            from launch.mlperf.reading import runs_of

            row = row_of_runs(row, runs_of(stream))
        return row

    def _row_of_another_file(self, file: Path, path: str, head: bytes, stream: BinaryIO) -> Row:
        """A run that died before its first step leaves a log that no format knows; its name tells that it is one."""
        text = ending_text(stream, None, None) if LOG_NAME.fullmatch(file.name) else b""
        ending = self._ending(file, text)
        if ending is not None and RUN_NAME.fullmatch(file.name):
            return row_without_log(path, FAILED, "no step was logged", ending)
        return row_without_log(path, NOT_A_LOG, _kind(head), ending)

    def _ending(self, file: Path, text: bytes) -> Ending | None:
        batch = self._batch_of.get(file)
        if batch is not None:
            with _opened(batch) as stream:
                text += b"\n" + ending_text(stream, None, None)
        return ending_of(text, self._symptoms)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file for reading, unpacked where it is gzip."""
    with path.open("rb") as stream:
        packed = stream.read(2) == GZIP_MAGIC
        stream.seek(0)
        if not packed:
            yield stream
            return
        with gzip.open(stream) as unpacked:
            yield cast(BinaryIO, unpacked)


def _kind(head: bytes) -> str:
    if not head:
        return "empty"
    if b"\0" in head[:BINARY_HEAD_BYTES]:
        return "binary data"
    return "no line of a known log format"


def _run_folders(files: Sequence[Found]) -> dict[Path, Path]:
    """The files in run folders of Stepmark -> the run folder."""
    folders = {found.path.parent for found in files}
    runs = {folder for folder in folders if all((folder / name).is_file() for name in (BENCHMARK, PROVENANCE))}
    return {found.path: run for found in files for run in found.path.parents if run in runs}


def _row_of_run(run: Path, rule: str) -> Row:
    path, folder = printable(str(run)), RunFolder(run)
    try:
        steps = folder.stored_steps()
        result = folder.stored_result() if (run / RESULT).is_file() else None
    except (RequestError, OSError) as error:
        return row_without_log(path, UNREADABLE, str(error).partition("\n")[0])
    log = ingest.ReadLog(
        LogEvent(
            attempt=step.attempt,
            step=step if step.excluded_because in RECORDED else msgspec.structs.replace(step, excluded_because=None),
        )
        for step in steps
        if step.rank == 0
    )
    row = row_of_log(path, STEPS, log, rule, None)
    reasons = ["it has no result yet"] if result is None else [*result.reasons, *result.not_comparable]
    if not reasons:
        return row
    failed = result is not None and result.status == "failed"
    status = INCOMPLETE if result is None else FAILED if failed else NOT_COMPARED
    row = msgspec.structs.replace(row, status=status, reason="; ".join([*reasons, *filter(None, [row.reason])]))
    return msgspec.structs.replace(row, steps_counted=0, **dict.fromkeys(FIGURES)) if status == NOT_COMPARED else row


def _batch_outputs(paths: Sequence[Path]) -> dict[Path, Path]:
    """log-NAME.out -> the sbatch_NAME.out beside it. Of the logs of a job that was requeued (NAME_0, NAME_1),
    the last: how the job ended is how that one did."""
    known = set(paths)
    batches: dict[Path, Path] = {}
    for path in sorted(paths, reverse=True):
        name = log_name(path.name)
        candidates = [] if name is None else [name, re.sub(r"_\d{1,3}$", "", name)]
        found = [path.with_name(f"sbatch_{candidate}.out") for candidate in candidates]
        batch = next((b for b in found if b in known and b not in batches.values()), None)
        if batch is not None:
            batches[path] = batch
    return batches
