"""An index of many runs in one SQLite file, so that a query over a hundred thousand runs takes about a second.

The run folders are the source of truth. You can delete the index at any time. Stepmark recreates it if it is missing,
damaged or from another version. Opening the index finds new, changed and deleted folders with one stat per folder.
One stat suffices, because every file of a run is moved into place, which changes the time of its folder. If the index
cannot be stored (no space, no locks on the file system), Stepmark keeps it in memory.

A run is in the folder itself or one level deeper (results/team/RUN). Files, hidden folders and folders that Stepmark
uses for other purposes are ignored. All remaining folders are listed, each as a run or as a problem with a reason.
"""

import contextlib
import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks import VERSION
from benchmarks.errors import RequestError
from benchmarks.history.filters import COLUMNS, Condition, columns_of, sql_of
from benchmarks.runs.finished_run import READING, FinishedRun, read_finished_run
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RESULT, STEPS, RunFolder
from benchmarks.text import printable
from benchmarks.values import Value

Tracked = Callable[[Sequence["_Candidate"]], Iterable["_Candidate"]]  # yields them one by one; may show progress

# Folders without runs that Stepmark makes in the folder of runs.
NO_RUNS = re.compile(r"dashboard|nights|pgle-profiles|(preflight|setup|preparing)(-.+)?-\d{8}T\d{6}Z(-\d+)?")
OF_A_RUN = (RESULT, PLAN, PROVENANCE, STEPS, "attempt-1")
NOTHING_YET = "nothing yet"
FOREIGN = f"not a run: neither the folder nor a subfolder has {BENCHMARK}"
# If a folder changed this recently, it may change again with the same time stamp, because clocks are coarse.
YOUNG_NS = 120 * 10**9
LONGEST_WAIT_SECONDS = 60.0  # how long to wait for another process that updates the same index

_COLUMNS = ", ".join(f'"{name}"' for name in COLUMNS)
_SCHEMA = (
    "CREATE TABLE folders (path TEXT PRIMARY KEY, stamp INTEGER, reason TEXT, holds_runs INTEGER) WITHOUT ROWID",
    f"CREATE TABLE runs (path TEXT PRIMARY KEY, copy_of TEXT, {_COLUMNS}, entry BLOB)",
    "CREATE INDEX by_run_id ON runs (run_id)",
)
_INSERT = f"INSERT INTO runs VALUES ({', '.join('?' * (len(COLUMNS) + 3))})"
_FIELDS = [(field.name, str(field.type)) for field in msgspec.structs.fields(FinishedRun)]
_FINGERPRINT = hashlib.sha256(repr((VERSION, READING, _SCHEMA, _FIELDS)).encode()).digest()
# SQLite's user_version is a signed 32-bit number.
SCHEMA_VERSION = (int.from_bytes(_FINGERPRINT[:4], "big") >> 1) or 1

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(FinishedRun)


class Problem(Value, frozen=True):
    """A folder that did not become a row of the index, and the reason."""

    folder: str  # relative to the folder with the runs
    reason: str


class Index:
    """The runs that one folder contained when the index was opened."""

    def __init__(self, output_dir: Path, database: Path | None, tracked: Tracked = iter) -> None:
        """Create or update the index. If `database` is None, keep it in memory."""
        if not output_dir.is_dir():
            raise RequestError(
                "the folder of runs does not exist",
                where=str(output_dir),
                why="pass the --output_dir that you passed to run.py",
            )
        self.output_dir = output_dir
        self.notes: list[str] = []  # remarks about the index that the user should see
        self.read_anew = 0  # the number of folders that were read
        self._tracked = tracked
        self._rows = self._open(database)

    def _open(self, database: Path | None) -> sqlite3.Connection:
        if database is not None:
            try:
                database.parent.mkdir(parents=True, exist_ok=True)
                return self._up_to_date(database)
            except (sqlite3.Error, OSError) as error:
                with contextlib.suppress(OSError):  # the next command recreates it
                    database.unlink(missing_ok=True)
                self.notes.append(f"the index cannot be stored ({error}), so it is built for this command only")
        return self._up_to_date(":memory:")

    # --- queries ---

    def select(self, where: Sequence[Condition] = (), newest: int | None = None) -> list[FinishedRun]:
        """Return the runs that match every condition, oldest first. `newest` limits them to this many newest runs."""
        hit, parameters = sql_of(where)
        limit = -1 if newest is None else newest
        order = "ORDER BY started DESC, run_id DESC, path DESC LIMIT ?"
        sql = f"SELECT entry FROM runs WHERE copy_of IS NULL AND {hit} {order}"
        found = self._rows.execute(sql, [*parameters, limit]).fetchall()
        return [_DECODER.decode(entry) for (entry,) in reversed(found)]

    def paths(self) -> list[str]:
        """Return the paths of all runs."""
        return [path for (path,) in self._rows.execute("SELECT path FROM runs")]

    def problems(self) -> list[Problem]:
        """Return the folders that did not become rows, each with the reason."""
        found = self._rows.execute("SELECT path, reason FROM folders WHERE reason IS NOT NULL").fetchall()
        copies = self._rows.execute("SELECT path, copy_of FROM runs WHERE copy_of IS NOT NULL")
        found += [(path, f"a copy of {first}; Stepmark counts this run only once") for path, first in copies]
        return [Problem(folder=path, reason=reason) for path, reason in sorted(found)]

    # --- updating the index ---

    def _up_to_date(self, database: Path | str) -> sqlite3.Connection:
        """Update the index in one transaction, so that it keeps its previous state if the process is killed."""
        rows = sqlite3.connect(database, isolation_level=None, timeout=LONGEST_WAIT_SECONDS)
        rows.execute("BEGIN IMMEDIATE")
        if rows.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
            for (table,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                rows.execute(f'DROP TABLE "{table}"')
            for statement in _SCHEMA:
                rows.execute(statement)
            rows.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # Read damaged runs again, because a repair in place does not change the time of the folder.
        known = dict(rows.execute("SELECT path, iif(reason IS NULL, stamp, NULL) FROM folders"))
        read_before = self.read_anew
        self._look_into(rows, list(self._scan("", known)))
        below = rows.execute("SELECT path FROM folders WHERE holds_runs ORDER BY path").fetchall()
        self._look_into(rows, [one for (group,) in below for one in self._scan(group, known)])
        for table in ("runs", "folders"):  # only deleted folders remain in `known`
            rows.executemany(f"DELETE FROM {table} WHERE path = ?", [(path,) for path in known])
        if known or self.read_anew != read_before:
            _find_copies(rows)
        rows.execute("COMMIT")
        return rows

    def _scan(self, below: str, known: dict[str, int | None]) -> Iterator["_Candidate"]:
        """Yield the folders that are new, or that have changed or may have changed, with one stat per folder.

        `known` contains the previous stamp of each folder (None: always read the folder). The function removes
        existing folders from `known`, so that only deleted folders remain.
        """
        youngest = time.time_ns() - YOUNG_NS
        try:
            entries = list(os.scandir(self.output_dir / below))
        except OSError as error:
            place = self.output_dir / below
            self.notes.append(f"{place} cannot be read now ({error.strerror}), so its runs are excluded")
            return
        for entry in entries:
            if entry.name.startswith(".") or NO_RUNS.fullmatch(entry.name):
                continue
            try:
                about = entry.stat()
            except OSError as error:
                self.notes.append(f"{entry.path} cannot be read now ({error.strerror}) and is excluded")
                continue
            path = f"{below}/{entry.name}" if below else entry.name
            path = printable(path)
            stamp = (about.st_mtime_ns + about.st_ctime_ns) & ((1 << 63) - 1)
            young = about.st_mtime_ns >= youngest
            if (known.pop(path, None) != stamp or young) and entry.is_dir():
                yield _Candidate(path, Path(entry.path), stamp, young)

    def _look_into(self, rows: sqlite3.Connection, candidates: Sequence["_Candidate"]) -> None:
        for candidate in self._tracked(candidates):
            rows.execute("DELETE FROM runs WHERE path = ?", (candidate.path,))
            reason, holds_runs = None, False
            try:
                if candidate.folder.name not in candidate.path:
                    raise ValueError("the name is not printable text (UTF-8)")
                run = read_finished_run(RunFolder(candidate.folder), candidate.path)
                rows.execute(_INSERT, (candidate.path, None, *columns_of(run), _ENCODER.encode(run)))
            except RequestError as error:
                wrong = "; ".join(filter(None, (error.what, error.next_command)))
                reason, holds_runs = _no_run(candidate, wrong)
            except sqlite3.Error:
                raise
            except Exception as error:  # one bad folder must not stop the others
                reason = f"cannot be read: {type(error).__name__}: {error}"
            if reason == NOTHING_YET:
                rows.execute("DELETE FROM folders WHERE path = ?", (candidate.path,))
            else:
                values = (candidate.path, candidate.stamp, reason, holds_runs)
                rows.execute("INSERT OR REPLACE INTO folders VALUES (?, ?, ?, ?)", values)
        self.read_anew += len(candidates)


class _Candidate(NamedTuple):
    """A folder that may contain a run and must be read."""

    path: str  # relative to the folder of runs
    folder: Path
    stamp: int  # changes if a file in the folder is created, renamed or removed
    young: bool


def _no_run(candidate: _Candidate, wrong: str) -> tuple[str | None, bool]:
    """Return why a folder is not a row of the index, and whether it contains runs."""
    try:
        inside = [path.name for path in candidate.folder.iterdir()]
    except FileNotFoundError:
        return NOTHING_YET, False
    except OSError as error:
        return f"cannot be read: {error.strerror}", False
    if any(name in inside for name in (BENCHMARK, *OF_A_RUN)):
        return f"a damaged run: {wrong}", False
    if candidate.young and all(name.startswith(".") for name in inside):
        return NOTHING_YET, False  # a launcher is creating this run
    if "/" not in candidate.path and any((candidate.folder / name / BENCHMARK).is_file() for name in inside):
        return None, True
    return FOREIGN, False


def _find_copies(rows: sqlite3.Connection) -> None:
    """Mark copies of a run, because they are not separate measurements. The original's folder has the run's name."""
    rows.execute("UPDATE runs SET copy_of = NULL WHERE copy_of IS NOT NULL")
    twice = rows.execute("SELECT run_id FROM runs GROUP BY run_id HAVING count(*) > 1").fetchall()
    for (run_id,) in twice:
        paths = [row[0] for row in rows.execute("SELECT path FROM runs WHERE run_id = ?", (run_id,))]
        first, *copies = sorted(paths, key=lambda path: (path.rpartition("/")[2] != run_id, path))
        rows.executemany("UPDATE runs SET copy_of = ? WHERE path = ?", [(first, path) for path in copies])
