"""The files below a folder, and what each one is: the edge of benchmarks/timing_table.py.

Every file gets a row:
- `*.out`, `*.log`, `*.txt` and `*.err`, also with `.gz`, are searched to their end for a line of a known log
  format; a file of any other name by its first MiB alone (checkpoints and profiles are large).
- `sbatch_NAME.out` beside a `log-NAME.out` that is a training log is that run's batch script: it can say how the
  run ended, and is no run of its own.
- A link to a file that is found anyway, and a second name of the same file, are named and not read again. Links to
  folders are named and not followed. Pipes, sockets and devices are named and never opened.
"""

import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from benchmarks import ingest
from benchmarks.backend import LogFormat, all_log_formats
from benchmarks.errors import RequestError
from benchmarks.log_endings import CountedStream, Ending, Endings, ending_text, printable
from benchmarks.timing_table import (
    FAILED,
    NOT_A_LOG,
    UNREADABLE,
    Reading,
    Row,
    log_name,
    row_of_log,
    row_without_log,
)
from benchmarks.values import Value

LOG_NAME = re.compile(r".*\.(?:out|log|txt|err)(?:\.gz)?", re.DOTALL)
GZIP_MAGIC = b"\x1f\x8b"
BINARY_HEAD_BYTES = 8192


# --- which files ------------------------------------------------------------------------------


class Found(Value, frozen=True):
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
                where="the folder of logs",
                why="a file or a folder of this name was not found"
                + (f" in {Path.cwd()}" if not place.startswith("/") else ""),
                next_command="python launch/report.py --window=35-44 DIR",
            )
    entries = {Path(os.path.abspath(found.path)): found for place in places for found in _entries(Path(place))}  # noqa: PTH100 - a link is not resolved
    return sorted(_known_once(entries.values()), key=lambda found: str(found.path))


def _entries(place: Path) -> Iterator[Found]:
    if not place.is_dir():
        yield Found(path=place)
        return
    unreadable: list[OSError] = []
    for folder, folders, files in os.walk(place, onerror=unreadable.append):
        yield from (Found(path=Path(folder, name)) for name in files)
        yield from (_link_to_folder(Path(folder, name)) for name in folders if Path(folder, name).is_symlink())
    for error in unreadable:
        reason = f"the folder can't be listed: {error.strerror}"
        yield Found(path=Path(str(error.filename)), status=UNREADABLE, reason=reason)


def _link_to_folder(path: Path) -> Found:
    reason = f"a link to the folder {printable(str(path.readlink()))}, not followed"
    return Found(path=path, status=NOT_A_LOG, reason=reason)


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
            link = "a link that leads nowhere: " if found.path.is_symlink() else ""
            yield Found(path=found.path, status=UNREADABLE, reason=link + (error.strerror or str(error)))
            continue
        same = first.setdefault((facts.st_dev, facts.st_ino), found.path)
        if not stat.S_ISREG(facts.st_mode):
            yield Found(path=found.path, status=NOT_A_LOG, reason="a pipe, socket or device")
        elif same != found.path:
            yield Found(path=found.path, status=NOT_A_LOG, reason=f"the same file as {printable(str(same))}")
        else:
            yield found


# --- what each one is -------------------------------------------------------------------------


class LogReader:
    """Makes the rows of files, one at a time."""

    def __init__(self, files: Sequence[Found], rule: str, endings: Endings) -> None:
        self._files = files
        self._rule = rule
        self._endings = endings
        self._formats = all_log_formats()
        self._batch_of = _batch_outputs([found.path for found in files if found.status is None])

    def rows(self) -> Iterator[Row]:
        """A row for each file; the output of a batch script comes when that of its run is known."""
        spoken_for: dict[Path, Path] = {}
        batches = set(self._batch_of.values())
        for found in sorted(self._files, key=lambda found: found.path in batches):
            if found.path in spoken_for:
                reason = f"output of the batch script of {printable(spoken_for[found.path].name)}"
                yield row_without_log(printable(str(found.path)), NOT_A_LOG, reason)
                continue
            row = self._row(found)
            if row.format is not None and found.path in self._batch_of:
                spoken_for[self._batch_of[found.path]] = found.path
            yield row

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
        log_format = self._format_of(file, head, stream) if head else None
        if log_format is None:
            return self._row_of_another_file(file, path, head, stream)
        stream.seek(0)
        reading = Reading(self._rule)
        counted = CountedStream(stream)
        last_step_near: int | None = None
        for event in log_format.read(counted.buffered()):
            if event.step is not None:
                last_step_near = counted.position
            reading.add(event)
        if last_step_near is None and not LOG_NAME.fullmatch(file.name):
            return row_without_log(path, NOT_A_LOG, f"looks like {log_format.name}, but holds no step")
        text = ending_text(stream, log_format, last_step_near)
        return row_of_log(path, log_format.name, reading, self._ending(file, text))

    def _format_of(self, file: Path, head: bytes, stream: BinaryIO) -> LogFormat | None:
        called_a_log = LOG_NAME.fullmatch(file.name)
        return ingest.detect(stream if called_a_log else io.BytesIO(head), self._formats) if head else None

    def _row_of_another_file(self, file: Path, path: str, head: bytes, stream: BinaryIO) -> Row:
        """A run that died before its first step leaves a log that no format knows; its name tells it."""
        text = ending_text(stream, None, None) if LOG_NAME.fullmatch(file.name) else b""
        ending = self._ending(file, text)
        if ending is not None and log_name(file.name) is not None:
            return row_without_log(path, FAILED, "no step was logged", ending)
        return row_without_log(path, NOT_A_LOG, _kind(head), ending)

    def _ending(self, file: Path, text: bytes) -> Ending | None:
        batch = self._batch_of.get(file)
        if batch is not None:
            with _opened(batch) as stream:
                text += b"\n" + ending_text(stream, None, None)
        return self._endings.find(text)


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
