"""The parts of XLA's trace format that are read, as message classes made here, so that no TensorFlow is needed.

Field numbers after openxla/xla: third_party/tsl/tsl/profiler/protobuf/xplane.proto and xla/service/hlo.proto, read in
November 2026; a field number is never given to another meaning. Fields that are not listed are skipped in a file.
Planes, lines and programs are declared as bytes, which look the same in a file: each is parsed by itself, and only
where it is needed, so that a trace of hundreds of MB is never in memory as objects all at once.
"""

from functools import cache
from typing import Any

# message -> field -> (number, type, repeated). A type that is no scalar names another message.
_FIELDS: dict[str, dict[str, tuple[int, str, bool]]] = {
    "XSpace": {
        "planes": (1, "bytes", True),
        "errors": (2, "string", True),
        "warnings": (3, "string", True),
        "hostnames": (4, "string", True),
    },
    "XPlane": {
        "name": (2, "string", False),
        "lines": (3, "bytes", True),
        "event_metadata": (4, "EventMetadataEntry", True),
        "stat_metadata": (5, "StatMetadataEntry", True),
        "stats": (6, "XStat", True),
    },
    "EventMetadataEntry": {"key": (1, "int64", False), "value": (2, "XEventMetadata", False)},
    "StatMetadataEntry": {"key": (1, "int64", False), "value": (2, "XStatMetadata", False)},
    "XLine": {
        "name": (2, "string", False),
        "timestamp_ns": (3, "int64", False),
        "events": (4, "XEvent", True),
    },
    "XEvent": {
        "metadata_id": (1, "int64", False),
        "offset_ps": (2, "int64", False),
        "duration_ps": (3, "int64", False),
        "stats": (4, "XStat", True),
    },
    "XStat": {
        "metadata_id": (1, "int64", False),
        "uint64_value": (3, "uint64", False),
        "int64_value": (4, "int64", False),
        "str_value": (5, "bytes", False),  # said to be a string, but kernels' names are what they are
        "bytes_value": (6, "bytes", False),
        "ref_value": (7, "uint64", False),
    },
    "XEventMetadata": {
        "name": (2, "bytes", False),
        "stats": (5, "XStat", True),
    },
    "XStatMetadata": {"name": (2, "bytes", False)},
    "HloProto": {"hlo_module": (1, "HloModuleProto", False)},
    "HloModuleProto": {"name": (1, "string", False), "computations": (3, "HloComputationProto", True)},
    "HloComputationProto": {"instructions": (2, "HloInstructionProto", True), "id": (5, "int64", False)},
    "HloInstructionProto": {
        "name": (1, "string", False),
        "opcode": (2, "string", False),
        "shape": (3, "ShapeProto", False),
        "metadata": (7, "OpMetadata", False),
        "custom_call_target": (28, "string", False),
        "called_computation_ids": (38, "int64", True),
    },
    "ShapeProto": {"dimensions": (3, "int64", True), "tuple_shapes": (4, "bytes", True)},
    "OpMetadata": {"op_name": (2, "string", False)},
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
        for name, (number, kind, repeated) in fields.items():
            field = described.field.add(name=name, number=number, label=_REPEATED if repeated else _OPTIONAL)
            field.type = _TYPE_NUMBERS.get(kind, _MESSAGE)
            if field.type == _MESSAGE:
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS
    }
