"""A Benchmark -> the program that compiles its training step on this machine, without its hardware.

For a GPU, XLA's compiler for CUDA takes the plan's own settings and flags, and what gpu_targets.yml says of the
device. For a CPU it compiles for as many virtual devices as are asked for.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.backend import SideProgram
from benchmarks.configs import parse_yaml
from benchmarks.errors import RequestError
from benchmarks.request.framework import program as inside
from benchmarks.values import Benchmark, Hardware, Scalar
from jax_backend import layout, planning

NEEDS_A_DRIVER, STANDS_IN = "cudnn_flash_te", "cudnn_flash_jax"
FP8_NOTE = "XLA:CPU multiplies fp8 in bfloat16: counted is what the program asks for, before the compiler does that"

# JAX itself sees the CPU alone; for CUDA there is a compiler, and no client that would look for a driver.
ENVIRONMENT = {
    "DECOUPLE_GCLOUD": "TRUE",
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}

TARGETS = Path(__file__).with_name("gpu_targets.yml")
EVERY_GPU = "every_gpu"  # what its rows have in common
ENUMS = ("feature_extension",)


def program(benchmark: Benchmark) -> SideProgram:
    if benchmark.lora:
        raise RequestError(
            "a compiled step of adapters is held against no formula here",
            where=f"--task={benchmark.task}",
            why="the formulas are those of training every weight",
            next_command="python launch/verify.py --equivalence --task=lora counts its FLOPs",
        )
    on_cpu, changed = benchmark.hardware.kind == "cpu", settings(benchmark)
    why = f"{STANDS_IN} for {NEEDS_A_DRIVER}: Transformer Engine cannot be imported without a driver"
    return SideProgram(
        command=[
            *inside("jax_backend/inside/compile_program.py", "--folder={phase_dir}"),
            f"--devices={benchmark.gpus}",
            # Nodes as slices: to XLA all GPUs of a slice are of one NVLink domain.
            *([] if on_cpu else [f"--target={target(benchmark.hardware)}", f"--nodes={benchmark.nodes}"]),
            f"--replaced={json.dumps(dict.fromkeys(changed, why))}",
            *([f"--note={FP8_NOTE}"] if on_cpu and benchmark.dtype == "fp8" else []),
            *(f"--word={axis}={word}" for axis, word in {**layout.AXIS_WORDS, "stage": "pipeline"}.items()),
            "--",
            *planning.maxtext_argv(benchmark, changed),
        ],
        environment={**ENVIRONMENT, "XLA_FLAGS": planning.xla_flags_text(benchmark.xla_flags)},
        platform=benchmark.hardware.platform,
    )


def settings(benchmark: Benchmark) -> dict[str, Scalar]:
    """What is compiled otherwise than it is run, for want of the hardware."""
    return {"attention": STANDS_IN} if benchmark.knobs.get("attention") == NEEDS_A_DRIVER else {}


# --- a GPU that is not here -----------------------------------------------------------------------


@cache
def targets() -> dict[str, dict[str, Any]]:
    """The facts of each device that can be compiled for, by its name in configs/hardware."""
    table: dict[str, Any] = parse_yaml(TARGETS)
    common = table.pop(EVERY_GPU)
    return {name: {**common, **facts} for name, facts in sorted(table.items()) if isinstance(facts, dict)}


def target(hardware: Hardware) -> str:
    """What XLA's compiler is told of it: GpuTargetConfigProto, as text."""
    if hardware.name not in targets():
        raise RequestError(
            f"{hardware.title} is not among the GPUs that a program can be compiled for",
            where=f"--hardware={hardware.name}",
            why=f"these can be: {', '.join(targets())}; and a CPU",
            next_command=f"--hardware={next(iter(targets()))}, or its facts in {TARGETS.name}",
        )
    device = {**targets()[hardware.name], "name": hardware.device_names[0]}
    version = dict(zip(("major", "minor", "patch"), map(int, device["dnn_version"].split(".")), strict=True))
    return "\n".join(
        _lines(
            {
                "gpu_device_info": device,
                "platform_name": "CUDA",
                "dnn_version_info": version,
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
