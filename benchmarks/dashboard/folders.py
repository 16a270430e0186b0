"""Update the log directory of TensorBoard so that it has the requested contents.

An update keeps unchanged folders, replaces the file in changed folders, and removes folders that are not needed. A
file name ends with the digest of the contents, so an update need not read files, and completes an interrupted earlier
update. TensorBoard can read the directory at any time.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.dashboard.events import event, records_of
from benchmarks.dashboard.runs import FIRST_COLUMNS
from benchmarks.errors import RequestError
from benchmarks.values import Value

STATE = ".state"
LOCK = "lock"
MARK = "tfevents"  # TensorBoard reads only files with this text in their names
ROOT = "."  # the log directory itself
KINDS = ("newest", "nights", "runs", "series")
OURS = ".stepmark"
FORMAT = 8  # the version of the files' format; a new number recreates all files


class Point(Value, frozen=True):
    step: int
    unix_seconds: float
    scalars: dict[str, float]  # tag -> value


class Table(Value, frozen=True, tag=True):
    """The columns of the tab HParams. TensorBoard offers the values in all rows as filters."""

    rows: list[dict[str, str | float]]


class Row(Value, frozen=True, tag=True):
    """One row of the tab HParams."""

    name: str
    unix_seconds: float
    cells: dict[str, str | float]


class Board(Value, frozen=True):
    """The requested contents of one TensorBoard run."""

    name: str  # KIND/NAME, the folder in the log directory
    points: list[Point] = []
    table: Table | Row | None = None  # written to the file before the points
    links: dict[str, str] = {}  # path of a link in the folder -> file to which it points
    place: int | None = None  # the order of boards that get different colours; None: coloured later, by time


@contextlib.contextmanager
def exclusive_update(logdir: Path) -> Iterator[None]:
    """Lock a log directory for one update. Raise RequestError for other folders, because updates remove files."""
    if logdir.exists():
        status = logdir.stat()
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
            raise RequestError(
                "another user made this dashboard or can write to it",
                where=str(logdir),
                why="a link in this folder could redirect an update to your own files; choose another folder",
                next_command="--dashboard_dir=",
            )
    if logdir.exists() and not (logdir / STATE).is_dir() and (not logdir.is_dir() or any(logdir.iterdir())):
        raise RequestError(
            "the folder is not empty and not a dashboard",
            where=str(logdir),
            why="an update could remove its files; pass --dashboard_dir=DIR with a new or empty folder",
            next_command="--dashboard_dir=",
        )
    before = os.umask(0o022)
    os.umask(before | 0o022)
    try:
        logdir.mkdir(parents=True, exist_ok=True)
        logdir = logdir.resolve()
        _keep_out_the_group(logdir, 0)
        with contextlib.suppress(FileNotFoundError):
            _keep_out_the_group(logdir / STATE, 1)
        (logdir / STATE).mkdir(exist_ok=True)
        (logdir / STATE).chmod(0o700)
        with (logdir / STATE / LOCK).open("ab") as stream:
            with contextlib.suppress(OSError):  # the file system may have no locks
                fcntl.flock(stream, fcntl.LOCK_EX)
            _keep_out_the_group(logdir, 2)
            yield
    finally:
        os.umask(before)


def _keep_out_the_group(path: Path, levels: int) -> None:
    """Remove links and folders of other users that an update could follow, and the group's write permission."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        path.unlink()
    elif stat.S_ISDIR(status.st_mode) and status.st_uid not in (os.geteuid(), 0):
        shutil.rmtree(path)
    elif stat.S_ISDIR(status.st_mode):
        if status.st_mode & 0o022:
            path.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
        for below in path.iterdir() if levels else ():
            _keep_out_the_group(below, levels - 1)


def keep(logdir: Path, wanted: Sequence[Board]) -> int:
    """Update the directory so that it contains exactly the boards in `wanted`. Return how many files were written."""
    written = sum(_keep_folder(logdir / board.name, board) for board in wanted)
    names = {board.name for board in wanted}
    for path in [path for kind in KINDS for path in (logdir / kind).glob("*") if f"{kind}/{path.name}" not in names]:
        shutil.rmtree(path)
    return written


def _keep_folder(path: Path, board: Board) -> bool:
    """Update the folder of a board, and return whether a new file was written."""
    path.mkdir(parents=True, exist_ok=True)
    if board.name != ROOT:  # the root contains the folders of all boards
        _keep_links(path, board.links)
    content = [FORMAT, board.table, board.name, board.points, board.place]
    digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]
    before = [one for one in path.glob(f"*{MARK}*{OURS}") if not one.is_symlink()]
    same = [one for one in before if one.name.endswith(f".{digest}{OURS}")]
    if not same:
        _write_new(path, board, f"events.out.{MARK}.{time.time_ns()}.{digest}{OURS}")
    for one in before:
        if one not in same:
            one.unlink()
    return not same


def _write_new(path: Path, board: Board, name: str) -> None:
    """Write a file under a name that TensorBoard does not read, and rename the file when it is complete."""
    began = board.table.unix_seconds if isinstance(board.table, Row) else time.time()
    if board.place is not None:  # TensorBoard assigns its seven colours in the order of these times
        began = float(board.place)
    unfinished = path / ".unfinished"
    unfinished.unlink(missing_ok=True)
    with unfinished.open("xb") as stream:  # "x": never follow a link
        records = records_of(stream, began)
        if board.table is not None:
            records.write(summary_event(board.table, began))
        for point in board.points:
            records.write(event(point.step, point.unix_seconds, point.scalars))
    unfinished.replace(path / name)


def _keep_links(path: Path, links: Mapping[str, str]) -> None:
    """Update the links of a folder. Links are relative, so that runs and their dashboard can be moved together."""
    for one in path.rglob("*"):
        if one.is_symlink() and str(one.relative_to(path)) not in links:
            one.unlink()
    for name, target in links.items():
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        wanted = os.path.relpath(Path(target).resolve(), place.parent.resolve())
        if not place.is_symlink() or str(place.readlink()) != wanted:
            place.unlink(missing_ok=True)
            place.symlink_to(wanted)


# --- the messages of TensorBoard's tab HParams ---------------------------------------------------
# TensorBoard has functions for these messages, but their modules import TensorFlow. The message classes do not.


def summary_event(table: Table | Row, when: float) -> bytes:
    """Return a table or a row as a record of an event file."""
    from tensorboard.compat.proto.event_pb2 import Event

    summary = _table(table.rows) if isinstance(table, Table) else _row(table)
    data: bytes = Event(wall_time=when, step=0, summary=summary).SerializeToString()
    return data


def _table(rows: Sequence[Mapping[str, str | float]]) -> object:
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    names = dict.fromkeys([*FIRST_COLUMNS, *(name for row in rows for name in row)])
    columns = [_column(name, [row[name] for row in rows if name in row]) for name in names]
    made = api_pb2.Experiment(hparam_infos=columns if rows else [])
    return _of_hparams(metadata.EXPERIMENT_TAG, plugin_data_pb2.HParamsPluginData(experiment=made))


def _key(name: str) -> str:
    """Return the key of a column. TensorBoard sorts columns by key, but shows the name."""
    return f"{FIRST_COLUMNS.index(name)} {name}" if name in FIRST_COLUMNS else name


def _column(name: str, values: Sequence[str | float]) -> object:
    from tensorboard.plugins.hparams import api_pb2

    numbers = [value for value in values if isinstance(value, float)]
    shown = name in FIRST_COLUMNS  # shown without a click if `differs` is true
    info = api_pb2.HParamInfo(name=_key(name), display_name=name, differs=shown)
    if numbers or not values:
        info.type = api_pb2.DATA_TYPE_FLOAT64
        info.domain_interval.min_value = min(numbers, default=0.0)
        info.domain_interval.max_value = max(numbers, default=0.0)
    else:
        info.type = api_pb2.DATA_TYPE_STRING
        info.domain_discrete.extend(sorted({str(value) for value in values}))
    return info


def _row(row: Row) -> object:
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    info = plugin_data_pb2.SessionStartInfo(group_name=row.name, start_time_secs=row.unix_seconds)
    for key, value in row.cells.items():
        if isinstance(value, float):
            info.hparams[_key(key)].number_value = value
        else:
            info.hparams[_key(key)].string_value = value
    return _of_hparams(metadata.SESSION_START_INFO_TAG, plugin_data_pb2.HParamsPluginData(session_start_info=info))


def _of_hparams(tag: str, content: object) -> object:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata

    value = Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(content), tensor=metadata.NULL_TENSOR)
    return Summary(value=[value])
