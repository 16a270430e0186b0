"""The files below a folder, and what each one is: the edge of benchmarks/logs/timing_table.py.

Every file gets a row:
- `*.out`, `*.log`, `*.txt`, `*.err` and `log-*`, also with `.gz`, are searched to their end for a line of a known
  log format; a file of any other name by its first MiB alone (checkpoints and profiles are large).
- One that is called as a run's output is (`*.out`, `*.log`, `log-*`) and tells how it ended, but no step, is a run
  that failed.
- `sbatch_NAME.out` beside a `log-NAME.out` that is a run is that run's batch script: it can say how the run ended,
  and is no run of its own.
- In a run folder of Stepmark's own, the logs of the ranks get rows and the rest is one row. Where some ranks print
  steps and others none (Megatron prints on one), those that print none belong to the rest. Where a profiler ran, and
  in phases other than the measured one, they are logs whose figures nobody may compare (own_runs.py).
- A link to a file that is found anyway, and a second name of the same file, are named and not read again. Links to
  folders are not followed. Pipes, sockets and devices are named and never opened.
"""

import gzip
import io
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import BinaryIO, NamedTuple, cast

from benchmarks.backend import LogFormat
from benchmarks.diagnosis.order import ending_of
from benchmarks.diagnosis.symptoms import Symptoms
from benchmarks.errors import RequestError
from benchmarks.logs import ingest
from benchmarks.logs.log_endings import Ending, ending_text, printable
from benchmarks.logs.timing_table import (
    FAILED,
    INCOMPLETE,
    NOT_A_LOG,
    SUCCESS,
    UNREADABLE,
    Reading,
    Row,
    log_name,
    row_of_log,
    row_of_run,
    row_without_log,
)
from launch.reports.own_runs import OwnRun, is_run, read_run

LOG_NAME = re.compile(r"(?:.*\.(?:out|log|txt|err)|log-.*)(?:\.gz)?", re.DOTALL)
RUN_NAME = re.compile(r"(?!.*\.err(?:\.gz)?$)(?:.*\.(?:out|log)|log-.*)(?:\.gz)?", re.DOTALL)
RANK_LOG = re.compile(r"rank-\d+\.log")
SWEEP_RECORD = re.compile(r"sweep-\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{12}\.json|\.sweep-[0-9a-f]{12}\.lock")
GZIP_MAGIC = b"\x1f\x8b"
BINARY_HEAD_BYTES = 8192
MLLOG = "mllog"


# --- which files ------------------------------------------------------------------------------


class Found(NamedTuple):
    """One file, and where it isn't read, why."""

    path: Path
    status: str | None = None
    reason: str = ""


def find_files(places: Sequence[str]) -> list[Found]:
    """Every file at or below the places, in the order of their names; none twice."""
    for place in places:
        if not Path(place).exists():
            raise RequestError(
                f"there is no '{printable(place)}'",
                where=f"the folder of logs, from {Path.cwd()}",
                next_command="python launch/report.py --window=35-44 DIR",
            )
    entries = {Path(os.path.abspath(found.path)): found for place in places for found in _entries(Path(place))}  # noqa: PTH100 - a link is not resolved
    return sorted(_known_once(entries.values()), key=lambda found: str(found.path))


def _entries(place: Path) -> Iterator[Found]:
    if not place.is_dir():
        yield Found(place)
        return
    unreadable: list[OSError] = []
    for folder, _, files in os.walk(place, onerror=unreadable.append):
        yield from (Found(Path(folder, name)) for name in files)
    for error in unreadable:
        yield Found(Path(str(error.filename)), UNREADABLE, f"the folder can't be listed: {error.strerror}")


def _known_once(entries: Iterable[Found]) -> Iterator[Found]:
    """The files, each under one name: its own before that of a link to it."""
    first: dict[tuple[int, int], Path] = {}
    for found in sorted(entries, key=lambda found: (found.path.is_symlink(), str(found.path))):
        if found.status is not None:
            yield found
            continue
        try:
            facts = found.path.stat()
        except OSError as error:
            yield Found(found.path, UNREADABLE, error.strerror or str(error))
            continue
        same = first.setdefault((facts.st_dev, facts.st_ino), found.path)
        if not stat.S_ISREG(facts.st_mode):
            yield Found(found.path, NOT_A_LOG, "a pipe, socket or device")
        elif same != found.path:
            yield Found(found.path, NOT_A_LOG, f"the same file as {printable(str(same))}")
        else:
            yield found


# --- what each one is -------------------------------------------------------------------------


class LogReader:
    """Makes the rows of files, one at a time."""

    def __init__(self, files: Sequence[Found], rule: str, symptoms: Symptoms, formats: Sequence[LogFormat]) -> None:
        self._run_of = _run_folders(files)
        self._rest = Counter(run for found in files if (run := self._run_of.get(found.path)) and _is_rest(found))
        self._files = [found for found in files if found.path not in self._run_of or not _is_rest(found)]
        self._rule = rule
        self._symptoms = symptoms
        self._formats = formats
        self._own: dict[Path, OwnRun] = {}  # what was read of runs until now
        self._batch_of = _batch_outputs([found.path for found in self._files if found.status is None])

    @property
    def to_read(self) -> int:
        """How many files are looked into."""
        return len(self._files)

    def rows(self) -> Iterator[Row]:
        """A row for each file that is looked into, and for the rest of each run."""
        ranks: dict[Path, list[Row]] = {}  # those of one phase, which can be told apart when all are known
        for found, row in self._rows_of_files():
            if found.path in self._run_of:
                ranks.setdefault(found.path.parent, []).append(row)
            else:
                yield row
        silent: dict[Path, list[Row]] = {}
        for phase, rows in ranks.items():
            some_print = any(row.reached_step is not None for row in rows)
            for row in rows:
                if some_print and row.reached_step is None and row.status != UNREADABLE:
                    silent.setdefault(self._run_of[phase], []).append(row)
                else:
                    yield row
        for run, files in self._rest.items():
            yield row_of_run(printable(str(run)), printable(run.absolute().name), files, silent.get(run, []))

    def _rows_of_files(self) -> Iterator[tuple[Found, Row]]:
        """The output of a batch script comes when that of its run is known."""
        run_of: dict[Path, Row] = {}
        batches = set(self._batch_of.values())
        for found in sorted(self._files, key=lambda found: found.path in batches):
            run = run_of.get(found.path)
            row = self._batch_row(found, run) if run else self._row(found)
            if found.path in self._batch_of and row.status in (SUCCESS, INCOMPLETE, FAILED):
                run_of[self._batch_of[found.path]] = row
            yield found, row

    def _batch_row(self, found: Found, run: Row) -> Row:
        """A batch script is no run beside its own, but where that never stepped it may hold the training itself."""
        row = None if run.format else self._row(found)
        if row is not None and (row.format is not None or row.status == UNREADABLE):
            return row
        reason = f"output of the batch script of {PurePath(run.path).name}"
        return row_without_log(printable(str(found.path)), NOT_A_LOG, reason)

    def _row(self, found: Found) -> Row:
        path = printable(str(found.path))
        if SWEEP_RECORD.fullmatch(found.path.name):
            return row_without_log(path, NOT_A_LOG, "of a sweep of Stepmark's")
        if found.status is not None:
            return row_without_log(path, found.status, found.reason)
        try:
            own = self._own_run(found.path)
            with _opened(found.path) as stream:
                row = self._row_of(found.path, path, stream)
            return own.judged(row, found.path) if own else row
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
        reading = Reading(self._rule)
        counted = ingest.WatchedStream(stream, log_format)
        last_step_near: int | None = None
        own = self._own_run(file)
        for event in log_format.read(counted.buffered()):
            if event.step is not None:
                last_step_near = counted.position
            reading.add(own.marked(event) if own else event)
        if last_step_near is None and not LOG_NAME.fullmatch(file.name) and log_format.name != MLLOG:
            return row_without_log(path, NOT_A_LOG, f"looks like {log_format.name}, but holds no step")
        text = ending_text(stream, log_format, last_step_near)
        row = row_of_log(path, log_format.name, reading, self._ending(file, text))
        if log_format.name == MLLOG:  # how its runs ended is not read off the steps: it says so itself
            from benchmarks.mlperf.story import row_of_runs
            from launch.mlperf.reading import runs_of

            row = row_of_runs(row, runs_of(stream))
        return row

    def _own_run(self, file: Path) -> OwnRun | None:
        """The run of ours that a rank's log is of, also where the run's folder itself was not named."""
        run = self._run_of.get(file)
        if run is None and RANK_LOG.fullmatch(file.name):
            run = next((place for place in list(file.absolute().parents)[:3] if is_run(place)), None)
        if run is not None and run not in self._own:
            self._own[run] = read_run(run)
        return self._own[run] if run is not None else None

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
    """Run folders of Stepmark and what lies in them, files and folders -> the run folder."""
    runs = {folder for folder in {found.path.parent for found in files} if is_run(folder)}
    inside: dict[Path, Path] = {}
    for found in files:
        between = [found.path, *found.path.parents]
        run = next((folder for folder in between if folder in runs), None)
        if run is not None:
            inside |= dict.fromkeys(between[: between.index(run) + 1], run)
    return inside


def _is_rest(found: Found) -> bool:
    """Whether a file of a run folder need not be looked into."""
    return not RANK_LOG.fullmatch(found.path.name)


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
