"""Read an SQLite export of Nsight Systems as a Trace.

The tables and columns are described in NVIDIA's "SQLite Schema Reference" (Nsight Systems user guide, 2022 to 2025).
A table exists only if it has rows. Times are nanoseconds since the start of the session. The names of kernels and the
texts of NVTX ranges are ids in StringIds. XLA puts each launch of a program into an NVTX range
`TSL:XlaModule:#hlo_module=jit_train_step,program_id=N#`; each launch of the longest program is a step. PyTorch does
not mark programs, so the whole trace is used.
"""

import re
import shlex
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from benchmarks.errors import RequestError
from benchmarks.trace.kinds import Operation
from benchmarks.trace.trace import Collector, Trace

KERNELS = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"  # whole CUDA graphs, recorded instead of their kernels
RANGES = "NVTX_EVENTS"
STRINGS = "StringIds"
HOST = "TARGET_INFO_SYSTEM_ENV"
PLACE = ("start", "end", "deviceId")
MODULE = re.compile(r"(?:TSL:)?XlaModule:#(?:[^#]*,)?hlo_module=([^,#]+)")
PICOSECONDS = 1000  # per nanosecond

Row = tuple[object, ...]


def read_nsys(path: Path) -> Trace:
    """Return the trace of the process that Nsight Systems profiled."""
    try:
        uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"  # opens without a lock or a journal file
        with closing(sqlite3.connect(uri, uri=True)) as database:
            return _trace(database, path)
    except (sqlite3.DatabaseError, OverflowError) as error:  # a time in a damaged file may overflow
        raise RequestError(
            f"{path.name} cannot be read as an export of Nsight Systems: {error}",
            where=str(path),
            why="the file is incomplete or of a different kind; export the report again",
            next_command="nsys export --type=sqlite --force-overwrite=true "
            + shlex.quote(str(path.with_suffix(".nsys-rep"))),
        ) from None


def _trace(database: sqlite3.Connection, path: Path) -> Trace:
    if not any(_columns(database, table) for table in (STRINGS, RANGES, MEMCPY, *KERNELS)):
        raise sqlite3.DatabaseError("it does not have any of the tables")
    strings = {_whole(number): str(value) for number, value in _rows(database, STRINGS, "id", "value")}
    ranges = _rows(database, RANGES, "start", "end", "text", "textId", "globalTid")
    module, launches = _training_module(ranges, strings)
    found, notes = Collector(), []
    for table in KERNELS:
        for start, end, device, *names in _rows(database, table, *PLACE, "demangledName", "shortName"):
            name = next(filter(None, (strings.get(_whole(number)) for number in names)), "unnamed kernel")
            _add(found, (start, end, device), Operation(name, module=module))
    graph = Operation("CUDA graph", module=module)
    for table, operation in (
        (MEMCPY, Operation("[CUDA memcpy]")),
        (MEMSET, Operation("[CUDA memset]")),
        (GRAPHS, graph),
    ):
        for place in _rows(database, table, *PLACE):
            _add(found, place, operation)
    if graphs := len(list(_rows(database, GRAPHS, *PLACE))):
        notes.append(
            f"{graphs} CUDA graphs are listed as 'other' compute, because their kernels are not recorded "
            "(nsys --cuda-graph-trace=node records them)"
        )
    if not found.has_rows:
        notes.append("the trace has no GPU activity")
    hosts = (str(value) for name, value in _rows(database, HOST, "name", "value") if name == "Hostname")
    return found.trace(next(hosts, path.stem), notes, launches=launches)


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table; an empty set if the table does not exist."""
    return {str(row[1]) for row in database.execute(f'PRAGMA table_info("{table}")')}


def _rows(database: sqlite3.Connection, table: str, *columns: str) -> Iterator[Row]:
    """Return the rows of a table, with None for missing columns; no rows if the table does not exist."""
    there = _columns(database, table)
    if not there:
        return iter(())
    chosen = ", ".join(f'"{column}"' if column in there else "NULL" for column in columns)
    return database.execute(f'SELECT {chosen} FROM "{table}"')


def _training_module(ranges: Iterable[Row], strings: dict[int, str]) -> tuple[str, int]:
    """Return the program with the longest launches, and how often one thread launched it; "" and 0 without XLA."""
    seconds: Counter[str] = Counter()
    launches: Counter[tuple[str, object]] = Counter()
    for start, end, text, number, thread in ranges:
        match = MODULE.search(str(text) if text is not None else strings.get(_whole(number), ""))
        if match and end is not None:
            seconds[match[1]] += _whole(end) - _whole(start)
            launches[match[1], thread] += 1
    if not seconds:
        return "", 0
    module = seconds.most_common(1)[0][0]
    return module, max(count for (name, _), count in launches.items() if name == module)


def _add(found: Collector, place: Row, operation: Operation) -> None:
    start, end, device = map(_whole, place)
    found.add(f"GPU {device}", start * PICOSECONDS, end * PICOSECONDS, operation)


def _whole(value: object) -> int:
    """Return a value as a whole number, or 0 if it is not a number, because SQLite does not check types."""
    return int(value) if isinstance(value, int | float | str) and str(value).lstrip("-").isdecimal() else 0
