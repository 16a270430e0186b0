"""A GPU that is not here -> what XLA's compiler is told of it: the facts of gpu_targets.yml as a text proto. Pure."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.configs import parse_yaml
from benchmarks.errors import RequestError
from benchmarks.values import Hardware

TABLE = Path(__file__).with_name("gpu_targets.yml")
EVERY_GPU = "every_gpu"
CUDNN = "dnn_version"
ENUMS = ("feature_extension",)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = parse_yaml(TABLE)
    return table


def known() -> list[str]:
    """The devices that can be compiled for, by their names in configs/hardware."""
    return sorted(name for name, facts in _table().items() if isinstance(facts, dict) and name != EVERY_GPU)


def text(hardware: Hardware) -> str:
    """GpuTargetConfigProto, as text."""
    if hardware.name not in known():
        raise RequestError(
            f"{hardware.title} is not among the GPUs that a program can be compiled for",
            where=f"--hardware={hardware.name}",
            why=f"these can be: {', '.join(known())}; and a CPU",
            next_command=f"--hardware={known()[0]}, or its facts in {TABLE.name}",
        )
    device = {**_table()[EVERY_GPU], **_table()[hardware.name], "name": hardware.device_names[0]}
    major, minor, patch = (int(part) for part in device[CUDNN].split("."))
    return "\n".join(
        _lines(
            {
                "gpu_device_info": device,
                "platform_name": "CUDA",
                "dnn_version_info": {"major": major, "minor": minor, "patch": patch},
                "device_description_str": hardware.device_names[0],
            }
        )
    )


def _lines(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield f"{name} {{ {' '.join(_lines(value))} }}"
        elif isinstance(value, str) and name not in ENUMS:
            yield f'{name}: "{value}"'
        else:
            yield f"{name}: {value}"
