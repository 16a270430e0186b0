"""Many runs in one SQLite file, so that a question about a hundred thousand of them takes less than a second.

The folders are the truth. The file is derived: it may be deleted at any time, and is made anew where it is missing,
damaged, or of another version. Opening it looks for what is new, changed or gone: one stat a folder, since every file
of a run is put in place by renaming, which changes its folder's time. It lies in a folder of this user's own, and one
process at a time has it open, behind a lock: nothing here relies on what a shared file system makes of SQLite's own.
"""

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.errors import RequestError
from benchmarks.history.filters import COLUMNS, KEYS, SEPARATOR, Condition, sql_of
from benchmarks.history.folders import Candidate, Looked, look, scan
from benchmarks.runs.finished_run import READING, FinishedRun
from benchmarks.values import Value
from benchmarks.version import VERSION

Progress = Callable[[int, int], None]
Waiting = Callable[[Path], None]
Spread = Callable[[Callable[[Candidate], Looked], Sequence[Candidate]], Iterable[Looked]]
Answer = TypeVar("Answer")

LONGEST_WAIT_SECONDS = 300.0  # for another process that makes the same index
SHORTEST_WAIT_SECONDS = 0.02
SAID_AFTER_SECONDS = 1.0
BATCH = 2000

_COLUMNS = ", ".join(f'"{name}"' for name in COLUMNS)
_MARKS = ", ".join("?" * (len(COLUMNS) + 2))
_SCHEMA = (
    "CREATE TABLE folders (path TEXT PRIMARY KEY, stamp INTEGER NOT NULL, reason TEXT, holds_runs INTEGER NOT NULL) "
    "WITHOUT ROWID",
    f"CREATE TABLE runs (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, copy_of TEXT, {_COLUMNS})",
    "CREATE INDEX problems ON folders (path) WHERE reason IS NOT NULL",
    "CREATE INDEX groups ON folders (path) WHERE holds_runs",
    "CREATE INDEX by_run_id ON runs (run_id)",
    "CREATE INDEX copies ON runs (path) WHERE copy_of IS NOT NULL",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, entry BLOB NOT NULL)",
)
_FIELDS = [(field.name, str(field.type)) for field in msgspec.structs.fields(FinishedRun)]
_FINGERPRINT = hashlib.sha256(repr((VERSION, READING, _SCHEMA, _FIELDS)).encode()).digest()
# SQLite keeps one number of 32 bits, with a sign, for those who use it.
SCHEMA_VERSION = (int.from_bytes(_FINGERPRINT[:4], "big") >> 1) or 1

# No fault of the file's: another one would fare no better.
_OF_THE_PLACE = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PERM,
}  # fmt: skip

_DECODER = msgspec.msgpack.Decoder(FinishedRun)


class Problem(Value, frozen=True):
    """A folder that is no row, and why."""

    folder: str  # relative to the folder with the runs
    reason: str


class Index:
    """The runs of one folder as they were when it was opened."""

    def __init__(
        self,
        output_dir: Path,
        database: Path | None,
        progress: Progress | None,
        spread: Spread,
        waiting: Waiting | None = None,
    ) -> None:
        self.output_dir = output_dir
        self.notes: list[str] = []  # what a person should know of the index itself
        self.read_anew = 0  # folders that were looked into when it was opened
        self._database = database
        self._progress = progress
        self._spread = spread
        self._waiting = waiting
        self._memory: sqlite3.Connection | None = None  # where it cannot be kept

    @property
    def _place(self) -> str:
        return str(self._database.parent) if self._database else "memory"

    @classmethod
    def open(
        cls,
        output_dir: Path,
        database: Path | None,
        progress: Progress | None = None,
        *,
        spread: Spread = map,
        rebuild: bool = False,
        waiting: Waiting | None = None,
    ) -> "Index":
        """Makes it, or brings it up to date. Without a file it is kept in memory.

        `spread` looks into many folders: map, or that of a pool of processes. `waiting` is told once of the lock that
        another process holds for longer than a second.
        """
        if not output_dir.is_dir():
            raise RequestError(
                "there is no such folder of runs",
                where=str(output_dir),
                next_command="name the folder that was given to run.py as --output_dir",
            )
        index = cls(output_dir, database, progress, spread, waiting)
        with os.scandir(output_dir):  # a folder that may not be read is no fault of the index's
            pass
        try:
            index._bring_up_to_date(rebuild)
        except (sqlite3.Error, OSError) as error:
            index._take_to_memory(error)
        return index

    # --- asking ---

    def select(self, where: Sequence[Condition] = (), newest: int | None = None) -> list[FinishedRun]:
        """The runs that fit all conditions, the oldest first; of more than `newest` these."""
        hit, parameters = sql_of(where)
        limit = "" if newest is None else f" LIMIT {max(0, int(newest))}"
        sql = (
            f"SELECT entry FROM (SELECT id FROM runs WHERE copy_of IS NULL AND {hit} "
            f"ORDER BY started DESC, run_id DESC, path DESC{limit}) JOIN entries USING (id)"
        )
        entries = self._asked(lambda rows: [_DECODER.decode(row[0]) for row in rows.execute(sql, parameters)])
        return sorted(entries, key=lambda entry: (entry.started, entry.run_id, entry.path))

    def count(self, where: Sequence[Condition] = ()) -> int:
        hit, parameters = sql_of(where)
        sql = f"SELECT count(*) FROM runs WHERE copy_of IS NULL AND {hit}"
        return self._asked(lambda rows: int(rows.execute(sql, parameters).fetchone()[0]))

    def values(self, key: str, most: int = 20) -> list[str]:
        """What runs have of something that they can be looked for by; the most frequent first, of dates both ends."""
        column, kind = KEYS[key]
        if kind == "any":
            return self._parts(column, most)
        if kind == "date":
            ends = f'SELECT min("{column}"), max("{column}") FROM runs WHERE copy_of IS NULL'
            row = self._asked(lambda rows: rows.execute(ends).fetchone())
            return list(dict.fromkeys(str(one) for one in row if one is not None))
        sql = (
            f'SELECT "{column}" FROM runs WHERE copy_of IS NULL AND "{column}" IS NOT NULL '
            f"GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {int(most)}"
        )
        return self._asked(lambda rows: [str(row[0]) for row in rows.execute(sql)])

    def _parts(self, column: str, most: int) -> list[str]:
        sql = f'SELECT "{column}", count(*) FROM runs WHERE copy_of IS NULL GROUP BY 1'
        counts = Counter[str]()
        for text, count in self._asked(lambda rows: rows.execute(sql).fetchall()):
            counts.update(dict.fromkeys(filter(None, str(text).split(SEPARATOR)), count))
        return [name for name, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:most]]

    def problems(self) -> list[Problem]:
        """The folders that are no row, each with the reason."""

        def ask(rows: sqlite3.Connection) -> list[tuple[str, str]]:
            found = list(rows.execute("SELECT path, reason FROM folders WHERE reason IS NOT NULL"))
            copies = rows.execute("SELECT path, copy_of FROM runs WHERE copy_of IS NOT NULL")
            return found + [(path, f"the same run as {first}: a copy counts once") for path, first in copies]

        return [Problem(folder=path, reason=reason) for path, reason in sorted(self._asked(ask))]

    def _asked(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Files that were deleted or spoilt since the index was opened are made anew, and asked again."""
        try:
            return self._ask(question)
        except (sqlite3.Error, msgspec.DecodeError, OSError) as error:
            self._mend(error)
        try:
            return self._ask(question)
        except (sqlite3.Error, msgspec.DecodeError, OSError) as error:
            self._take_to_memory(error)
        return self._ask(question)

    def _ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        if self._memory is not None or self._database is None:
            assert self._memory is not None
            return question(self._memory)
        with _locked(self._database, fcntl.LOCK_SH, self._waiting), _opened(self._database) as connection:
            if _version(connection) != SCHEMA_VERSION:
                raise sqlite3.DatabaseError("it was deleted, or replaced by one of another version")
            return question(connection)

    def _mend(self, error: Exception) -> None:
        if isinstance(error, OSError) or _of_the_place(error):
            return self._take_to_memory(error)
        self.notes.append(f"the index was damaged ({error}) and has been made anew")
        try:
            self._bring_up_to_date(rebuild=True)
        except (sqlite3.Error, OSError) as again:
            self._take_to_memory(again)
        return None

    # --- bringing it up to date ---

    def _bring_up_to_date(self, rebuild: bool) -> None:
        if self._database is None:
            return self._keep_in_memory()
        with _locked(self._database, fcntl.LOCK_EX, self._waiting):
            if rebuild:
                _remove(self._database)
            try:
                self._refresh_file(self._database)
            except sqlite3.Error as error:
                if _of_the_place(error):
                    raise
                _remove(self._database)
                self.notes.append(f"the index was damaged ({error}) and has been made anew")
                self._refresh_file(self._database)
        return None

    def _refresh_file(self, database: Path) -> None:
        with _opened(database) as connection:
            is_ours = _version(connection) == SCHEMA_VERSION
        if not is_ours:
            _remove(database)
        with _opened(database) as connection:
            self._refresh(connection)

    def _take_to_memory(self, error: Exception) -> None:
        self.notes.append(f"the index cannot be kept in {self._place} ({error}): it is made for this once")
        self._keep_in_memory()

    def _keep_in_memory(self) -> None:
        self._memory = sqlite3.connect(":memory:", isolation_level=None)
        self._refresh(self._memory)

    def _refresh(self, connection: sqlite3.Connection) -> None:
        """One transaction: whoever is killed meanwhile leaves what was there before."""
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection) != SCHEMA_VERSION:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # What was wrong may have been mended in place, and then no time tells of it.
        known = dict(connection.execute("SELECT path, iif(reason IS NULL, stamp, NULL) FROM folders"))
        root, unread = str(self.output_dir.absolute()), dict[str, str]()
        changed = self._look_into(connection, scan(root, "", known, unread))
        below = list[Candidate]()
        for (group,) in connection.execute("SELECT path FROM folders WHERE holds_runs ORDER BY path").fetchall():
            try:
                below += scan(root, group, known, unread)
            except (FileNotFoundError, NotADirectoryError):  # it was removed meanwhile
                continue
            except OSError as error:
                unread[group] = str(error.strerror)
        changed |= self._look_into(connection, below)
        self._keep_unread(known, unread)
        _delete(connection, known)
        if known or changed:
            _find_copies(connection)
        connection.execute("COMMIT")

    def _keep_unread(self, known: dict[str, int | None], unread: dict[str, str]) -> None:
        """A fault of the file system's that may pass is no reason to forget runs."""
        for path, reason in unread.items():
            for one in [one for one in known if one == path or one.startswith(f"{path}/")]:
                del known[one]
            note = f"{path} cannot be read now ({reason}): what was known of it is shown"
            if note not in self.notes:
                self.notes.append(note)

    def _look_into(self, connection: sqlite3.Connection, candidates: Sequence[Candidate]) -> bool:
        """Whether a run was among them, or is no more."""
        total, batch, before = len(candidates), list[Looked](), _runs_in(connection)
        runs = 0
        for done, one in enumerate(self._spread(look, candidates), start=1):
            batch.append(one)
            runs += one.entry is not None
            if len(batch) == BATCH or done == total:
                _store(connection, batch)
                batch.clear()
                if self._progress is not None:
                    self._progress(done, total)
        self.read_anew += total
        return bool(runs) or _runs_in(connection) != before


def _runs_in(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])


def _store(connection: sqlite3.Connection, batch: Sequence[Looked]) -> None:
    _delete(connection, [one.path for one in batch])
    kept = [(one.path, one.stamp, one.reason, one.holds_runs) for one in batch if one.kept]
    connection.executemany("INSERT INTO folders VALUES (?, ?, ?, ?)", kept)
    for one in batch:
        if one.entry is not None:
            insert = f"INSERT INTO runs (path, copy_of, {_COLUMNS}) VALUES ({_MARKS})"
            made = connection.execute(insert, (one.path, None, *one.columns))
            connection.execute("INSERT INTO entries VALUES (?, ?)", (made.lastrowid, one.entry))


def _delete(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    rows = [(path,) for path in paths]
    connection.executemany("DELETE FROM entries WHERE id = (SELECT id FROM runs WHERE path = ?)", rows)
    connection.executemany("DELETE FROM runs WHERE path = ?", rows)
    connection.executemany("DELETE FROM folders WHERE path = ?", rows)


def _find_copies(connection: sqlite3.Connection) -> None:
    """A run that was copied is no second measurement. The first is the one whose folder has the run's own name."""
    connection.execute("UPDATE runs SET copy_of = NULL WHERE copy_of IS NOT NULL")
    twice = connection.execute("SELECT run_id FROM runs GROUP BY run_id HAVING count(*) > 1").fetchall()
    for (run_id,) in twice:
        paths = [row[0] for row in connection.execute("SELECT path FROM runs WHERE run_id = ?", (run_id,))]
        first, *copies = sorted(paths, key=lambda path: (path.rpartition("/")[2] != run_id, path))
        connection.executemany("UPDATE runs SET copy_of = ? WHERE path = ?", [(first, path) for path in copies])


# --- the file -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute("PRAGMA cache_size = -65536")
        yield connection
    finally:
        connection.close()


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _remove(database: Path) -> None:
    for path in (database, database.with_name(f"{database.name}-journal")):
        path.unlink(missing_ok=True)


def _of_the_place(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in _OF_THE_PLACE


@contextlib.contextmanager
def _locked(database: Path, how: int, waiting: Waiting | None = None) -> Iterator[None]:
    """Nobody has the file open but behind this lock: so it may be replaced at any time."""
    database.parent.mkdir(parents=True, exist_ok=True)
    lock = database.with_suffix(".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for(descriptor, how, lambda: waiting(lock) if waiting else None)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, how: int, say: Callable[[], None]) -> None:
    began, pause, said = time.monotonic(), SHORTEST_WAIT_SECONDS, False
    while True:
        try:
            return fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
            if waited > LONGEST_WAIT_SECONDS:
                raise
            if waited > SAID_AFTER_SECONDS and not said:
                said = True
                say()
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
