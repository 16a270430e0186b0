"""The parts of XLA's trace format that are read, as message classes made here, so that no TensorFlow is needed.

Field numbers after openxla/xla: third_party/tsl/tsl/profiler/protobuf/xplane.proto and xla/service/hlo.proto, read in
November 2026; a field number is never given to another meaning. Fields that are not listed are skipped in a file.
Planes, lines and programs are declared as bytes, which look the same in a file: each is parsed by itself, and only
where it is needed, so that a trace of hundreds of MB is never in memory as objects all at once.
"""

from functools import cache
from typing import Any

# Fields as `number type name`; * is repeated. A type that is no scalar names another message.
_FIELDS = {
    "XSpace": "1 bytes* planes, 2 string* errors, 3 string* warnings, 4 string* hostnames",
    "XPlane": "2 string name, 3 bytes* lines, 4 EventMetadataEntry* event_metadata, "
    "5 StatMetadataEntry* stat_metadata, 6 XStat* stats",
    "EventMetadataEntry": "1 int64 key, 2 XEventMetadata value",
    "StatMetadataEntry": "1 int64 key, 2 XStatMetadata value",
    "XLine": "2 string name, 3 int64 timestamp_ns, 4 XEvent* events",
    "XEvent": "1 int64 metadata_id, 2 int64 offset_ps, 3 int64 duration_ps, 4 XStat* stats",
    # str_value is said to be a string, but kernels' names are what they are
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
    """Every message class by its name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
