"""What the log directory is to hold -> its files.

A folder that is as before is left alone; one that has become another gets a new file in place of the old one; one
that is no longer wanted goes. A file's name ends with the digest of what is in it, so nothing is read back and an
interrupted update is put right by the next one. TensorBoard can read the directory at any time.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.dashboard.points import Board, Row
from benchmarks.errors import RequestError
from benchmarks.values import Value

STATE = ".state"
LOCK = "lock"
MARK = "tfevents"  # TensorBoard reads the files that have this in their names
ROOT = "."  # the log directory itself
KINDS = ("newest", "nights", "runs", "series")
OURS = ".stepmark"
LONGEST, CUT = 200, 150  # of a folder's or a link's name
FORMAT = 7  # of what is written: another number makes all of it anew


class Changes(Value, frozen=True):
    """What an update did, in folders."""

    written: int = 0
    unchanged: int = 0
    removed: int = 0


@contextlib.contextmanager
def alone(logdir: Path) -> Iterator[None]:
    """One update at a time. Refuses a folder that holds something else: what is not wanted there is removed."""
    if logdir.exists() and not (logdir / STATE).is_dir() and (not logdir.is_dir() or any(logdir.iterdir())):
        raise RequestError(
            "this is no dashboard, and it is not empty",
            where=str(logdir),
            why="a dashboard's folder is kept as it should be, so foreign files in it could be lost",
            next_command="--dashboard_dir=DIR with a new or an empty folder",
        )
    (logdir / STATE).mkdir(parents=True, exist_ok=True)
    with (logdir / STATE / LOCK).open("wb") as stream:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def keep(logdir: Path, wanted: Sequence[Board]) -> Changes:
    """Make the directory what it is to be."""
    written = [_keep_folder(logdir / _short(board.name), board) for board in wanted]
    names = {_short(board.name) for board in wanted}
    foreign = [path for kind in KINDS for path in (logdir / kind).glob("*") if f"{kind}/{path.name}" not in names]
    for path in foreign:
        shutil.rmtree(path)
    return Changes(written=sum(written), unchanged=len(written) - sum(written), removed=len(foreign))


def _short(name: str) -> str:
    """The same where it is short; a file system takes names of at most 255 bytes."""
    parts = name.split("/")
    return "/".join(
        part if len(part) <= LONGEST else f"{part[:CUT]}~{hashlib.sha256(part.encode()).hexdigest()[:8]}"
        for part in parts
    )


def _keep_folder(path: Path, board: Board) -> bool:
    """Whether it has become another."""
    path.mkdir(parents=True, exist_ok=True)
    if board.name != ROOT:  # all other folders lie in it
        _keep_links(path, board.links)
    content = [FORMAT, board.table, board.name, board.points, board.place]
    digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]
    before = [one for one in path.glob(f"*{MARK}*{OURS}") if not one.is_symlink() and one.name not in board.links]
    same = [one for one in before if one.name.endswith(f".{digest}{OURS}")]
    if not same:
        _write_new(path, board, f"events.out.{MARK}.{time.time_ns()}.{digest}{OURS}")
    for one in before:
        if one not in same:
            one.unlink()
    return not same


def _write_new(path: Path, board: Board, name: str) -> None:
    """Under a name that TensorBoard does not read until it is whole."""
    from benchmarks.dashboard.events import event, records_of
    from benchmarks.dashboard.hparams import summary_event

    began = time.time()
    if board.points:
        began = board.points[0].unix_seconds
    elif isinstance(board.table, Row):
        began = board.table.unix_seconds
    if board.place is not None:  # TensorBoard gives its seven colours in turn, in the order of these times
        began = float(board.place)
    unfinished = path / ".unfinished"
    with unfinished.open("wb") as stream:
        records = records_of(stream, began)
        if board.table is not None:
            records.write(summary_event(board.table, began))
        for point in board.points:
            records.write(event(point.step, point.unix_seconds, point.scalars, {}))
    unfinished.replace(path / name)


def _keep_links(path: Path, links: Mapping[str, str]) -> None:
    """Relative, so that a folder of runs can be moved with its dashboard; a copy where there are no links."""
    links = {_short(name): target for name, target in links.items()}
    for one in path.rglob("*"):
        if one.is_symlink() and str(one.relative_to(path)) not in links:
            one.unlink()
    for name, target in links.items():
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        wanted = os.path.relpath(Path(target).resolve(), place.parent.resolve())
        if place.is_symlink() and str(place.readlink()) == wanted:
            continue
        place.unlink(missing_ok=True)
        try:
            place.symlink_to(wanted)
        except OSError:
            shutil.copyfile(target, place)
