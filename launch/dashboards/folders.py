"""What the log directory is to hold -> its files, with as little writing as will do.

A folder whose points were only added to is appended to; one that has become another gets a new file in place of the
old one; one that is no longer wanted goes. `.state/` says what was written, so nothing is read back. It is saved
last: what an interrupted update has left is put right by the next one, and TensorBoard can read the directory at any
time.
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

from benchmarks.dashboards.points import Board, Charts, Point, Row, Table
from benchmarks.errors import RequestError
from benchmarks.values import Value

STATE = ".state"
WRITTEN = "written.json"
LOCK = "lock"
MARK = "tfevents"  # TensorBoard reads the files that have this in their names
ROOT = "."  # the log directory itself
KINDS = ("nights", "runs", "scaling", "series")
FORMAT = 1  # of what is written: another number makes all of it anew


class Folder(Value, frozen=True):
    """One run of TensorBoard's as it is to be."""

    board: Board
    told: list[Charts | Table | Row] = []  # before the points
    links: dict[str, str] = {}  # name in the folder -> file elsewhere


class Written(Value, frozen=True):
    """What lies in a folder: its file, how long it is, of how many points, and their digest."""

    file: str
    size: int
    header: str
    points: int
    digest: str
    links: list[str] = []


class State(Value, frozen=True):
    format: int = FORMAT
    folders: dict[str, Written] = {}


class Changes(Value, frozen=True):
    """What an update did, in folders."""

    written: int = 0
    appended: int = 0
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


def forget(logdir: Path) -> None:
    """All that was ever written here goes."""
    for kind in KINDS:
        shutil.rmtree(logdir / kind, ignore_errors=True)
    for path in logdir.glob(f"*{MARK}*"):
        path.unlink()
    for path in (logdir / STATE).iterdir():
        if path.name != LOCK:
            path.unlink()


def keep(logdir: Path, wanted: Sequence[Folder]) -> Changes:
    """Make the directory what it is to be."""
    before = _read_state(logdir)
    state: dict[str, Written] = {}
    counts = {"written": 0, "appended": 0, "unchanged": 0}
    for folder in wanted:
        name = folder.board.name
        state[name], how = _keep_folder(logdir / name, folder, before.folders.get(name))
        counts[how] += 1
    removed = _remove_others(logdir, {folder.board.name for folder in wanted})
    write_whole(logdir / STATE / WRITTEN, msgspec.json.encode(State(folders=state)))
    return Changes(**counts, removed=removed)


def _keep_folder(path: Path, folder: Folder, before: Written | None) -> tuple[Written, str]:
    path.mkdir(parents=True, exist_ok=True)
    points = folder.board.points
    header = _digest_of([folder.told, folder.board.descriptions])
    links = _keep_links(path, folder.links, before.links if before else [])
    old = before if before and before.header == header and before.points <= len(points) else None
    if old and _digest_of(points[: old.points]) == old.digest and _is_as_long(path / old.file, old.size):
        new = points[old.points :]
        size = _append(path / old.file, old.size, folder, new) if new else old.size
        _remove_files(path, {old.file, *links})
        written = msgspec.structs.replace(old, size=size, points=len(points), digest=_digest_of(points), links=links)
        return written, "appended" if new else "unchanged"
    name, size = _write_new(path, folder)
    _remove_files(path, {name, *links})
    written = Written(file=name, size=size, header=header, points=len(points), digest=_digest_of(points), links=links)
    return written, "written"


def _is_as_long(path: Path, size: int) -> bool:
    """More than was noted is the rest of an update that was interrupted: what it added may be gone by now."""
    with contextlib.suppress(OSError):
        return path.stat().st_size == size
    return False


def _append(path: Path, size: int, folder: Folder, points: Sequence[Point]) -> int:
    from tensorboard.summary.writer.record_writer import RecordWriter

    with path.open("r+b") as stream:
        stream.seek(size)
        _write_points(RecordWriter(stream), folder.board.descriptions, points, set())
        return stream.tell()


def _write_new(path: Path, folder: Folder) -> tuple[str, int]:
    """Under a name that TensorBoard does not read until it is whole."""
    from launch.dashboards.summaries import summary_event
    from launch.running.tensorboard_events import records_of

    began = folder.board.points[0].unix_seconds if folder.board.points else time.time()
    name = f"events.out.{MARK}.{time.time_ns()}.stepmark"
    unfinished = path / ".unfinished"
    with unfinished.open("wb") as stream:
        records = records_of(stream, began)
        for one in folder.told:
            records.write(summary_event(one, began))
        _write_points(records, folder.board.descriptions, folder.board.points, set(folder.board.descriptions))
        size = stream.tell()
    unfinished.replace(path / name)
    return name, size


def _write_points(records: object, descriptions: Mapping[str, str], points: Sequence[Point], new: set[str]) -> None:
    from launch.running.tensorboard_events import event

    for point in points:
        first = new & point.scalars.keys()
        records.write(  # type: ignore[attr-defined]  # TensorBoard ships no types
            event(point.step, point.unix_seconds, point.scalars, descriptions, first)
        )
        new -= first


# --- links ----------------------------------------------------------------------------------------


def _keep_links(path: Path, links: Mapping[str, str], before: Sequence[str]) -> list[str]:
    for name in set(before) - links.keys():
        (path / name).unlink(missing_ok=True)
    for name, target in links.items():
        _link(path / name, Path(target))
    return sorted(links)


def _link(place: Path, target: Path) -> None:
    """Relative, so that a folder of runs can be moved with its dashboard; a copy where there are no links."""
    place.parent.mkdir(parents=True, exist_ok=True)
    wanted = os.path.relpath(target.resolve(), place.parent.resolve())
    if place.is_symlink() and str(place.readlink()) == wanted:
        return
    place.unlink(missing_ok=True)
    try:
        place.symlink_to(wanted)
    except OSError:
        shutil.copyfile(target, place)


# --- what is not wanted ---------------------------------------------------------------------------


def _remove_files(path: Path, wanted: set[str]) -> None:
    for one in list(path.iterdir()):
        if MARK in one.name and one.name not in wanted:
            one.unlink()


def _remove_others(logdir: Path, wanted: set[str]) -> int:
    removed = 0
    for kind in KINDS:
        with contextlib.suppress(FileNotFoundError):
            for one in list((logdir / kind).iterdir()):
                if f"{kind}/{one.name}" not in wanted:
                    shutil.rmtree(one)
                    removed += 1
    return removed


# --- what was written -----------------------------------------------------------------------------


def _digest_of(values: Sequence[object]) -> str:
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()


def _read_state(logdir: Path) -> State:
    """One that is missing, cut or of another format is none: then everything is written anew."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        state = msgspec.json.decode((logdir / STATE / WRITTEN).read_bytes(), type=State)
        if state.format == FORMAT:
            return state
    return State()


def write_whole(path: Path, data: bytes) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(data)
    unfinished.replace(path)
