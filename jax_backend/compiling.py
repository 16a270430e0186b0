"""A Benchmark -> the program that compiles its training step on this machine, without its hardware.

For a GPU, XLA's compiler for CUDA takes the plan's own settings and flags, and what gpu_target.py says of the device.
For a CPU it compiles for as many virtual devices as are asked for.
"""

import json

from benchmarks.backend import SideProgram
from benchmarks.errors import RequestError
from benchmarks.request.framework import program as inside
from benchmarks.values import Benchmark, Scalar
from jax_backend import gpu_target, layout, planning

NEEDS_A_DRIVER, STANDS_IN = "cudnn_flash_te", "cudnn_flash_jax"
FP8_NOTE = "XLA:CPU multiplies fp8 in bfloat16: counted is what the program asks for, before the compiler does that"

# JAX itself sees the CPU alone; for CUDA there is a compiler, and no client that would look for a driver.
ENVIRONMENT = {
    "DECOUPLE_GCLOUD": "TRUE",
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}


def program(benchmark: Benchmark) -> SideProgram:
    if benchmark.lora:
        raise RequestError(
            "a compiled step of adapters is held against no formula here",
            where=f"--task={benchmark.task}",
            why="the formulas are those of training every weight",
            next_command="python launch/verify.py --equivalence --task=lora counts its FLOPs",
        )
    words = [f"--word={axis}={word}" for axis, word in {**layout.AXIS_WORDS, "stage": "pipeline"}.items()]
    return SideProgram(
        command=[
            *inside("jax_backend/inside/compile_program.py", "--folder={phase_dir}"),
            f"--devices={benchmark.gpus}",
            *_for_gpus(benchmark),
            f"--replaced={json.dumps(replaced(benchmark))}",
            *(f"--note={note}" for note in notes(benchmark)),
            *words,
            "--",
            *planning.maxtext_argv(benchmark, settings(benchmark)),
        ],
        environment={**ENVIRONMENT, "XLA_FLAGS": planning.xla_flags_text(benchmark.xla_flags)},
        platform=benchmark.hardware.platform,
    )


def _for_gpus(benchmark: Benchmark) -> list[str]:
    """Nodes as slices: to XLA all GPUs of a slice are of one NVLink domain."""
    if benchmark.hardware.kind == "cpu":
        return []
    return [f"--target={gpu_target.text(benchmark.hardware)}", f"--nodes={benchmark.nodes}"]


def settings(benchmark: Benchmark) -> dict[str, Scalar]:
    """What is compiled otherwise than it is run."""
    return {"attention": STANDS_IN} if _attention(benchmark) == NEEDS_A_DRIVER else {}


def replaced(benchmark: Benchmark) -> dict[str, str]:
    """Settings of the benchmark that cannot be compiled without its hardware -> what stands in."""
    if not settings(benchmark):
        return {}
    return {"attention": f"{STANDS_IN} for {NEEDS_A_DRIVER}: Transformer Engine cannot be imported without a driver"}


def notes(benchmark: Benchmark) -> list[str]:
    return [FP8_NOTE] if benchmark.dtype == "fp8" and benchmark.hardware.kind == "cpu" else []


def _attention(benchmark: Benchmark) -> str:
    return str(benchmark.knobs.get("attention", "autoselected"))
