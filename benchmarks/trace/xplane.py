"""Read XLA's profiler files (*.xplane.pb) as a Trace. No I/O: bytes in, values out.

The format is that of jaxlib 0.12.0.1 and openxla/xla (xla/backends/profiler). A GPU has a plane `/device:GPU:N` with
one line per stream; each event is a kernel or a copy with hlo_op and hlo_module. A TPU has a plane `/device:TPU:N`
with a line `XLA Ops`. A CPU has no plane: its operations are events in `/host:CPU` on the threads that ran them, with
hlo_op, hlo_module and device_ordinal (omitted if 0). An asynchronous CPU operation ends at the event `end: NAME`
whose _c equals the operation's _p. Step marks are host events with step_num. The programs are in `/host:metadata`.
Times are relative to profile_start_time in `Task Environment`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePath
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from benchmarks.errors import RequestError
from benchmarks.trace.files import PROFILED_RUN
from benchmarks.trace.kinds import UNCOUNTED, Instruction, Operation
from benchmarks.trace.trace import Collector, Mark, Trace

DEVICE_PLANE = re.compile(r"/device:([A-Z]+):(\d+)")
HOST_PLANE = "/host:CPU"
PROGRAMS_PLANE = "/host:metadata"
TIMES_PLANE = "Task Environment"
STREAM = "Stream #"
# The lines with the operations of a TPU or of a postprocessed GPU trace. Other lines repeat these operations.
OPERATION_LINES = ("XLA Ops", "Async XLA Ops")
ABSOLUTE_NS = (
    10**17
)  # a time of the year 1973 or later, counted from 1970; smaller times count from the profile's start
END = b"end: "
PYTHON = b"$"  # the name of a Python function call begins with this
HOST_STATS = (b"hlo_op", b"hlo_module", b"device_ordinal", b"_p", b"_c", b"step_num")

# These opcodes count as work even if the result is a scalar. Other operations with a scalar result compute an index.
REDUCING = {"dot", "reduce", "reduce-window", "all-reduce", "custom-call"}

Program = Mapping[str, Instruction]  # name of an instruction -> its properties


def read_xplane(data: bytes, path: PurePath) -> Trace:
    """Return the trace of one host. `path` is only used in messages."""
    try:
        return _Reading(messages()["XSpace"].FromString(data), path).trace()
    except (DecodeError, OverflowError):  # lines are parsed late; a time in a damaged file may overflow
        raise RequestError(
            f"{path.name} cannot be read as an xplane trace",
            where=str(path),
            why="the file is incomplete or of a different kind; profile a run again",
            next_command=PROFILED_RUN,
        ) from None


class _Plane:
    """A plane with its tables of names. Its lines are parsed one at a time."""

    def __init__(self, message: Any) -> None:
        self.name: str = message.name
        self._lines = message.lines
        self._stats = message.stats
        self.stat_names: dict[int, bytes] = {entry.key: entry.value.name for entry in message.stat_metadata}
        self.stat_ids = {name: key for key, name in self.stat_names.items()}
        self.event_names: dict[int, bytes] = {entry.key: entry.value.name for entry in message.event_metadata}
        self.event_metadata = message.event_metadata

    def lines(self) -> Iterator[Any]:
        return map(messages()["XLine"].FromString, self._lines)

    def text(self, stat: Any) -> str:
        """Return the text of a stat: its own text, or the name of the stat to which it refers."""
        return (stat.str_value or self.stat_names.get(stat.ref_value, b"")).decode(errors="replace")

    def number(self, name: bytes) -> int:
        """Return a stat of the plane itself, or 0 if the plane does not have it."""
        wanted = self.stat_ids.get(name)
        return next((_number(stat) for stat in self._stats if stat.metadata_id == wanted), 0)


def _number(stat: Any, otherwise: int = 0) -> int:
    return otherwise if stat is None else int(stat.uint64_value or stat.int64_value)


class _Reading:
    """Reads one file into a Trace."""

    def __init__(self, space: Any, path: PurePath) -> None:
        self._host = next(iter(space.hostnames), path.name.removesuffix(".xplane.pb"))
        self._notes = [f"the profiler reports: {text}" for text in (*space.errors, *space.warnings)]
        self._planes: dict[str, list[_Plane]] = {}
        while space.planes:  # removing a plane frees its bytes after parsing
            plane = _Plane(messages()["XPlane"].FromString(space.planes.pop(0)))
            if plane.name in (HOST_PLANE, PROGRAMS_PLANE, TIMES_PLANE) or DEVICE_PLANE.fullmatch(plane.name):
                self._planes.setdefault(plane.name, []).append(plane)
        if not self._planes:
            raise DecodeError("it does not have any of a profiler's planes")
        self._found = Collector()
        self._marks: dict[str, list[Mark]] = {}
        times = self._planes.get(TIMES_PLANE, [])
        self._start_ns = max((plane.number(b"profile_start_time") for plane in times), default=0)

    def trace(self) -> Trace:
        for name, planes in self._planes.items():
            if match := DEVICE_PLANE.fullmatch(name):
                for plane in planes:
                    self._read_device(plane, f"{match[1]} {match[2]}")
        on_host = not self._found.has_rows
        for plane in self._planes.get(HOST_PLANE, []):
            self._read_host(plane, on_host)
        programs = self._programs()
        marks = max(self._marks.values(), key=len, default=[])
        by_time = sorted(marks, key=lambda mark: mark.begin)
        return self._found.trace(self._host, self._notes, marks=by_time, programs=programs)

    def _line_begin(self, line: Any) -> int:
        """Return when a line starts, in picoseconds of the trace."""
        begin = int(line.timestamp_ns)
        return (begin - self._start_ns if begin >= ABSOLUTE_NS else begin) * 1000

    def _programs(self) -> dict[str, Program]:
        """Return the programs by module name. If names are equal, keep the program with the most instructions."""
        found: dict[str, Program] = {}
        for plane in self._planes.get(PROGRAMS_PLANE, []):
            wanted = plane.stat_ids.get(b"Hlo Proto", -1)
            for data in (
                s.bytes_value for e in plane.event_metadata for s in e.value.stats if s.metadata_id == wanted
            ):
                module, program = read_program(data)
                if len(program) > len(found.get(module, {})):
                    found[module] = program
        return found

    def _read_device(self, plane: _Plane, device: str) -> None:
        """Add the operations of a device that has its own plane: those of its streams, or of its OPERATION_LINES."""
        lines = list(plane.lines())
        streams = [line for line in lines if line.name.startswith(STREAM)]
        op_id, module_id = plane.stat_ids.get(b"hlo_op", -1), plane.stat_ids.get(b"hlo_module", -1)
        for line in streams or [line for line in lines if line.name in OPERATION_LINES]:
            start = self._line_begin(line)
            for event in line.events:
                kernel = plane.event_names.get(event.metadata_id, b"").decode(errors="replace")
                known = {s.metadata_id: plane.text(s) for s in event.stats if s.metadata_id in (op_id, module_id)}
                hlo_op, module = known.get(op_id, ""), known.get(module_id, "")
                if not streams:
                    hlo_op = kernel = hlo_op or kernel
                begin = start + event.offset_ps
                self._found.add(device, begin, begin + event.duration_ps, Operation(kernel, hlo_op, module))

    def _read_host(self, plane: _Plane, with_operations: bool) -> None:
        """Add the step marks. If `with_operations` is true, also add the operations of a CPU.

        A CPU operation lasts until its end event, even if the call on its thread returned earlier.
        """
        op, module, ordinal, producer, consumer, step = (plane.stat_ids.get(name, -1) for name in HOST_STATS)
        ordinary = {key for key, name in plane.event_names.items() if name.startswith(PYTHON)}
        ending = {key for key, name in plane.event_names.items() if name.startswith(END)}
        rows: list[tuple[str, int, int, Operation, int]] = []  # device, begin, end, operation, producer
        ends: dict[int, int] = {}
        for line in plane.lines():
            start = self._line_begin(line)
            for event in line.events:
                if event.metadata_id in ordinary:
                    continue
                stats = {stat.metadata_id: stat for stat in event.stats}
                begin = start + event.offset_ps
                if with_operations and event.metadata_id in ending:
                    if consumer in stats:
                        ends[_number(stats[consumer])] = begin
                elif with_operations and op in stats:
                    name, of = plane.text(stats[op]), plane.text(stats[module]) if module in stats else ""
                    device, begun_by = f"CPU {_number(stats.get(ordinal))}", _number(stats.get(producer), -1)
                    rows.append((device, begin, begin + event.duration_ps, Operation(name, name, of), begun_by))
                elif step in stats:
                    name = plane.event_names[event.metadata_id].decode(errors="replace")
                    self._marks.setdefault(name, []).append(Mark(_number(stats[step]), begin))
        for device, begin, end, operation, begun_by in rows:
            self._found.add(device, begin, max(end, ends.get(begun_by, end)), operation)


# --- the programs in a trace: the properties of HLO instructions that decide their kind ------------


def read_program(data: bytes) -> tuple[str, Program]:
    """Return the name and the instructions of the module in an HloProto."""
    module = messages()["HloProto"].FromString(data).hlo_module
    inside = _Inside(module)
    found = {
        instruction.name: Instruction(
            opcode=instruction.opcode,
            holds=inside.of(instruction),
            target=instruction.custom_call_target,
            scope=instruction.metadata.op_name,
        )
        for computation in module.computations
        for instruction in computation.instructions
    }
    return module.name, found


class _Inside:
    """Finds the opcodes in the computations that an instruction calls, at any depth."""

    def __init__(self, module: Any) -> None:
        self._instructions = {computation.id: computation.instructions for computation in module.computations}
        self._known: dict[int, frozenset[str]] = {}

    def of(self, instruction: Any) -> frozenset[str]:
        return frozenset().union(*map(self._of_computation, instruction.called_computation_ids))

    def _of_computation(self, number: int) -> frozenset[str]:
        if number not in self._known:
            self._known[number] = frozenset()  # valid HLO is not recursive; a damaged program must not hang
            found: set[str] = set()
            for one in self._instructions.get(number, []):
                scalar = not one.shape.dimensions and not one.shape.tuple_shapes
                if one.opcode not in UNCOUNTED and (not scalar or one.opcode in REDUCING):
                    found.add(one.opcode)
                found |= self.of(one)
            self._known[number] = frozenset(found)
        return self._known[number]


# --- the format -----------------------------------------------------------------------------------

# Message classes for the parts of XLA's trace format that are needed. They are made here to avoid TensorFlow.
#
# The field numbers come from openxla/xla (third_party/tsl/tsl/profiler/protobuf/xplane.proto, xla/service/hlo.proto),
# read in November 2026. XLA never reuses a field number. Fields that are not listed here are skipped. Planes, lines
# and programs are declared as bytes, which have the same encoding, and are parsed when needed to save memory.
#
# Each field is `number type name`; * marks a repeated field. A type that is not a scalar is the name of a message.
_FIELDS = {
    "XSpace": "1 bytes* planes, 2 string* errors, 3 string* warnings, 4 string* hostnames",
    "XPlane": "2 string name, 3 bytes* lines, 4 EventMetadataEntry* event_metadata, "
    "5 StatMetadataEntry* stat_metadata, 6 XStat* stats",
    "EventMetadataEntry": "1 int64 key, 2 XEventMetadata value",
    "StatMetadataEntry": "1 int64 key, 2 XStatMetadata value",
    "XLine": "2 string name, 3 int64 timestamp_ns, 4 XEvent* events",
    "XEvent": "1 int64 metadata_id, 2 int64 offset_ps, 3 int64 duration_ps, 4 XStat* stats",
    # XLA declares str_value as a string, but the names of kernels may not be UTF-8
    "XStat": "1 int64 metadata_id, 3 uint64 uint64_value, 4 int64 int64_value, 5 bytes str_value, "
    "6 bytes bytes_value, 7 uint64 ref_value",
    "XEventMetadata": "2 bytes name, 5 XStat* stats",
    "XStatMetadata": "2 bytes name",
    "HloProto": "1 HloModuleProto hlo_module",
    "HloModuleProto": "1 string name, 3 HloComputationProto* computations",
    "HloComputationProto": "2 HloInstructionProto* instructions, 5 int64 id",
    "HloInstructionProto": "1 string name, 2 string opcode, 3 ShapeProto shape, 7 OpMetadata metadata, "
    "28 string custom_call_target, 38 int64* called_computation_ids",
    "ShapeProto": "3 int64* dimensions, 4 bytes* tuple_shapes",
    "OpMetadata": "2 string op_name",
}
_TYPE_NUMBERS = {"int64": 3, "uint64": 4, "string": 9, "bytes": 12}
_MESSAGE = 11
_OPTIONAL, _REPEATED = 1, 3
_PACKAGE = "stepmark.trace"


@cache
def messages() -> dict[str, Any]:
    """Return the message classes by name."""
    file = descriptor_pb2.FileDescriptorProto(name="stepmark/trace.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for number, marked, name in map(str.split, fields.split(", ")):
            kind = marked.removesuffix("*")
            label = _OPTIONAL if kind == marked else _REPEATED
            field = described.field.add(name=name, number=int(number), label=label)
            field.type = _TYPE_NUMBERS.get(kind, _MESSAGE)
            if field.type == _MESSAGE:
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS
    }
