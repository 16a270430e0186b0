"""The 5th and the 95th percentile of a run's counted steps, from its steps.jsonl; read once, then kept in `.state/`.

What is kept is of a result: where a run's result is made anew, its steps are read again.
"""

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.dashboards.series import Band, band_of
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import STEPS
from benchmarks.values import Step

FILE = "bands.sqlite"
BATCH = 2000
_SCHEMA = "CREATE TABLE IF NOT EXISTS bands (path TEXT PRIMARY KEY, result TEXT, p05 REAL, p95 REAL) WITHOUT ROWID"
_DECODER = msgspec.json.Decoder(Step)


def bands(
    output_dir: Path, state: Path, entries: Sequence[FinishedRun], progress: Callable[[int, int], None] | None = None
) -> tuple[dict[str, Band], dict[str, str]]:
    """By the path of each run; and why some have none."""
    with _opened(state / FILE) as kept:
        known = {path: (result, Band(p05=p05, p95=p95)) for path, result, p05, p95 in _rows(kept)}
        found: dict[str, Band] = {}
        missing: dict[str, str] = {}
        new: list[tuple[str, str, float, float]] = []
        unread = [entry for entry in entries if known.get(entry.path, ("",))[0] != _result_of(entry)]
        for entry in entries:
            if (row := known.get(entry.path)) and row[0] == _result_of(entry):
                found[entry.path] = row[1]
        for number, entry in enumerate(unread, start=1):
            band = _band_of(output_dir / entry.path / STEPS)
            if isinstance(band, str):
                missing[entry.path] = band
            else:
                found[entry.path] = band
                new.append((entry.path, _result_of(entry), band.p05, band.p95))
            if len(new) >= BATCH or number == len(unread):
                _keep(kept, new)
                new.clear()
                if progress is not None:
                    progress(number, len(unread))
    return found, missing


def _result_of(entry: FinishedRun) -> str:
    """What tells one result of a run from another: its figures."""
    figures = (entry.run_id, entry.counted, entry.seconds_per_step, entry.seconds_mean)
    return hashlib.sha256(repr(figures).encode()).hexdigest()[:16]


def _band_of(path: Path) -> Band | str:
    """Or why there is none."""
    if path.exists() and not path.is_file():
        return f"{STEPS} is no file"  # a pipe would be waited for
    try:
        steps = [_DECODER.decode(line) for line in path.read_bytes().splitlines()]
    except OSError as error:
        return f"{STEPS}: {error.strerror}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"{STEPS} cannot be read: {error}"
    return band_of(steps) or f"{STEPS} has no counted step"


# --- the file -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A file that is damaged is made anew: all of it can be read again."""
    try:
        connection = sqlite3.connect(path)
        connection.execute(_SCHEMA)
        connection.execute("SELECT count(*) FROM bands").fetchall()
    except sqlite3.DatabaseError:
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        connection.execute(_SCHEMA)
    try:
        yield connection
    finally:
        connection.close()


def _rows(kept: sqlite3.Connection) -> list[tuple[str, str, float, float]]:
    return kept.execute("SELECT path, result, p05, p95 FROM bands").fetchall()


def _keep(kept: sqlite3.Connection, rows: Sequence[tuple[str, str, float, float]]) -> None:
    with kept:
        kept.executemany("INSERT OR REPLACE INTO bands VALUES (?, ?, ?, ?)", rows)
