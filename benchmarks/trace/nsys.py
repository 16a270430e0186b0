"""Nsight Systems' export to SQLite -> a Trace. Only reads.

Tables and columns after NVIDIA's "SQLite Schema Reference" (Nsight Systems user guide, 2022 to 2025): tables exist
only where something was recorded, so none is taken for granted. Times are nanoseconds since the session's start. A
kernel's name and an NVTX range's text are numbers in StringIds. XLA wraps each launch of a program in an NVTX range
`TSL:XlaModule:#hlo_module=jit_train_step,program_id=N#`: as many steps as there are of the commonest. PyTorch marks
none by itself, and then the whole capture is taken.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from benchmarks.errors import RequestError
from benchmarks.trace.kinds import Operation
from benchmarks.trace.trace import Collected, Trace, dropped_notes

KERNELS = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"  # a whole CUDA graph, where its kernels were not recorded one by one
RANGES = "NVTX_EVENTS"
STRINGS = "StringIds"
HOST = "TARGET_INFO_SYSTEM_ENV"
MODULE = re.compile(r"(?:TSL:)?XlaModule:#(?:[^#]*,)?hlo_module=([^,#]+)")
PICOSECONDS = 1000  # in a nanosecond


def read_nsys(path: Path) -> Trace:
    """The trace of one process, as Nsight Systems wrapped it."""
    try:
        uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"  # no lock, no journal beside it
        with closing(sqlite3.connect(uri, uri=True)) as database:
            return _Reading(database, path).trace()
    except (sqlite3.DatabaseError, OverflowError) as error:  # a damaged number may be no time
        raise RequestError(
            f"{path.name} cannot be read as an export of Nsight Systems: {error}",
            where=str(path),
            why="it was cut off while it was written, or is another kind of file",
            next_command="nsys export --type=sqlite --force-overwrite=true FILE.nsys-rep makes another",
        ) from None


class _Reading:
    """One database while it is read."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path
        tables = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self._tables = {str(name) for (name,) in tables}
        self._strings: dict[int, str] = {}
        self._operations: dict[Operation, int] = {}
        self._devices: dict[str, Collected] = {}
        self.notes: list[str] = []

    def trace(self) -> Trace:
        if not self._tables & {STRINGS, RANGES, MEMCPY, *KERNELS}:
            raise sqlite3.DatabaseError("it has none of its tables")
        self._strings = {_whole(number): str(value) for number, value in self._rows(STRINGS, ("id", "value"))}
        module, launches = self._training_module()
        self._read_devices(module)
        if not any(device.begins for device in self._devices.values()):
            self.notes.append("nothing was recorded on a GPU")
        host = {str(name): str(value) for name, value in self._rows(HOST, ("name", "value"))}
        return Trace(
            host=host.get("Hostname", self._path.stem),
            operations=list(self._operations),
            instructions=[None] * len(self._operations),
            devices=[
                self._devices[name].device(name) for name in sorted(self._devices) if self._devices[name].begins
            ],
            marks=[],
            notes=[*self.notes, *dropped_notes(self._devices.values())],
            launches=launches,
        )

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
        """The rows of a table; None for a column it does not have, nothing where there is no such table."""
        if table not in self._tables:
            return iter(())
        there = {str(row[1]) for row in self._database.execute(f'PRAGMA table_info("{table}")')}
        chosen = ", ".join(f'"{column}"' if column in there else "NULL" for column in columns)
        return self._database.execute(f'SELECT {chosen} FROM "{table}"')

    def _training_module(self) -> tuple[str, int]:
        """The program whose launches take longest, and how often one thread launched it; without XLA, none."""
        seconds: Counter[str] = Counter()
        launches: Counter[tuple[str, object]] = Counter()
        for start, end, text, number, thread in self._rows(RANGES, ("start", "end", "text", "textId", "globalTid")):
            match = MODULE.search(str(text) if text is not None else self._strings.get(_whole(number), ""))
            if match and end is not None:
                seconds[match[1]] += _whole(end) - _whole(start)
                launches[match[1], thread] += 1
        if not seconds:
            return "", 0
        module = seconds.most_common(1)[0][0]
        return module, max(count for (name, _), count in launches.items() if name == module)

    def _read_devices(self, module: str) -> None:
        columns = ("start", "end", "deviceId", "demangledName", "shortName")
        for table in KERNELS:
            for start, end, device, long_name, short_name in self._rows(table, columns):
                name = self._strings.get(_whole(long_name)) or self._strings.get(_whole(short_name), "unnamed kernel")
                self._add(start, end, device, Operation(kernel=name, module=module))
        for start, end, device in self._rows(MEMCPY, ("start", "end", "deviceId")):
            self._add(start, end, device, Operation("[CUDA memcpy]"))
        for start, end, device in self._rows(MEMSET, ("start", "end", "deviceId")):
            self._add(start, end, device, Operation("[CUDA memset]"))
        graphs = list(self._rows(GRAPHS, ("start", "end", "deviceId")))
        for start, end, device in graphs:
            self._add(start, end, device, Operation(kernel="CUDA graph", module=module))
        if graphs:
            self.notes.append(
                f"{len(graphs)} CUDA graphs are known as a whole only, and count as other compute "
                "(nsys --cuda-graph-trace=node records their kernels)"
            )

    def _add(self, start: object, end: object, device: object, operation: Operation) -> None:
        number = self._operations.setdefault(operation, len(self._operations))
        row = self._devices.setdefault(f"GPU {_whole(device)}", Collected())
        row.add(_whole(start) * PICOSECONDS, _whole(end) * PICOSECONDS, number)


def _whole(value: object) -> int:
    """A number of a database, which keeps none apart from text."""
    return int(value) if isinstance(value, int | float | str) and str(value).lstrip("-").isdecimal() else 0
