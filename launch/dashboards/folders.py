"""What the log directory is to hold -> its files.

A folder that is as before is left alone; one that has become another gets a new file in place of the old one; one
that is no longer wanted goes. `.state/` says what was written, so nothing is read back. It is saved last: what an
interrupted update has left is put right by the next one, and TensorBoard can read the directory at any time.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.dashboards.points import Board, Charts, Row, Table
from benchmarks.errors import RequestError
from benchmarks.values import Value

STATE = ".state"
WRITTEN = "written.json"
LOCK = "lock"
MARK = "tfevents"  # TensorBoard reads the files that have this in their names
ROOT = "."  # the log directory itself
KINDS = ("nights", "runs", "scaling", "series")
FORMAT = 2  # of what is written: another number makes all of it anew


class Folder(Value, frozen=True):
    """One run of TensorBoard's as it is to be."""

    board: Board
    told: list[Charts | Table | Row] = []  # before the points
    links: dict[str, str] = {}  # name in the folder -> file elsewhere


class Written(Value, frozen=True):
    """What lies in a folder."""

    file: str
    digest: str
    links: list[str] = []


class State(Value, frozen=True):
    format: int = FORMAT
    folders: dict[str, Written] = {}


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
    before = _read_state(logdir).folders
    state = {}
    for folder in wanted:
        name = folder.board.name
        state[name] = _keep_folder(logdir / name, folder, before.get(name))
    removed = _remove_others(logdir, state.keys())
    write_whole(logdir / STATE / WRITTEN, msgspec.json.encode(State(folders=state)))
    unchanged = sum(name in before and before[name].file == written.file for name, written in state.items())
    return Changes(written=len(state) - unchanged, unchanged=unchanged, removed=removed)


def _keep_folder(path: Path, folder: Folder, before: Written | None) -> Written:
    path.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(msgspec.json.encode([folder.told, folder.board])).hexdigest()
    links = _keep_links(path, folder.links, before.links if before else [])
    as_before = before and before.digest == digest and (path / before.file).is_file()
    file = before.file if before and as_before else _write_new(path, folder)
    for one in list(path.iterdir()):
        if MARK in one.name and one.name not in (file, *links):
            one.unlink()
    return Written(file=file, digest=digest, links=links)


def _write_new(path: Path, folder: Folder) -> str:
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
        _write_points(records, folder.board)
    unfinished.replace(path / name)
    return name


def _write_points(records: Any, board: Board) -> None:  # TensorBoard ships no types
    from launch.running.tensorboard_events import event

    new = set(board.descriptions)
    for point in board.points:
        first = new & point.scalars.keys()
        records.write(event(point.step, point.unix_seconds, point.scalars, board.descriptions, first))
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


def _remove_others(logdir: Path, wanted: Collection[str]) -> int:
    removed = 0
    for kind in KINDS:
        with contextlib.suppress(FileNotFoundError):
            for one in list((logdir / kind).iterdir()):
                if f"{kind}/{one.name}" not in wanted:
                    shutil.rmtree(one)
                    removed += 1
    return removed


# --- what was written -----------------------------------------------------------------------------


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
