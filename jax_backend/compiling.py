"""Make the request to compile_program.py, which compiles a training step on a machine without the benchmark's GPUs.

XLA's CUDA compiler needs the settings and XLA flags of the plan, and the properties of the GPU from configs/hardware.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from benchmarks.backend import SideProgram
from benchmarks.compilation.compiled import Job
from benchmarks.errors import RequestError
from benchmarks.request.framework import program as inside
from benchmarks.values import Benchmark, CompileTarget, Hardware, Scalar
from jax_backend import phases, planning

SORTS_BY_CUB = "xla_gpu_enable_cub_radix_sort"
NEEDS_A_DRIVER, STANDS_IN = "cudnn_flash_te", "cudnn_flash_jax"

# JAX runs on the CPU. It calls the CUDA compiler without starting a CUDA client, because a client needs a driver.
ENVIRONMENT = {
    "DECOUPLE_GCLOUD": "TRUE",
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}


INSIDE = "jax_backend/inside/compile_program.py"
PROGRAM = SideProgram(
    command=[*inside(INSIDE), "--folder={phase_dir}", "--jobs={phase_dir}/request.json"],
    environment=ENVIRONMENT,
    platform="cuda",  # the environment for CUDA includes the plugin that has the compiler
)


def job(name: str, benchmark: Benchmark) -> Job:
    if benchmark.parallelism.context > 1 and benchmark.settings.knobs.get("attention") in (NEEDS_A_DRIVER, STANDS_IN):
        raise RequestError(
            "a context axis cannot be compiled without a GPU",
            where="--set=ici_context_parallelism, dcn_context_parallelism",
            why="context parallelism uses Transformer Engine, which needs a driver; use a context axis of 1",
        )
    changed = settings(benchmark)
    why = f"{STANDS_IN} replaces {NEEDS_A_DRIVER}, because Transformer Engine needs a driver"
    replaced, flags = dict.fromkeys(changed, why), dict(benchmark.settings.xla_flags)
    if benchmark.model.experts:
        flags[SORTS_BY_CUB] = "false"
        replaced[SORTS_BY_CUB] = "false, because CUB, which sorts tokens by expert, needs a driver"
    return Job(
        name=name,
        settings=[word.replace("{phase_dir}", ".") for word in planning.maxtext_argv(benchmark, changed)],
        flags=planning.xla_flags_text(flags),
        target=target(benchmark.hardware),
        devices=benchmark.gpus,
        nodes=benchmark.nodes,  # each node becomes a slice, because XLA assumes NVLink between all GPUs of a slice
        words={**planning.AXIS_WORDS, "stage": "pipeline"},
        replaced=replaced,
    )


def settings(benchmark: Benchmark) -> dict[str, Scalar]:
    """Return the settings that must differ from the run's settings, because this machine does not have the GPUs."""
    return {"attention": STANDS_IN} if benchmark.settings.knobs.get("attention") == NEEDS_A_DRIVER else {}


# --- a GPU of another machine ---------------------------------------------------------------------

# Fields of GpuTargetConfigProto with the same value for all GPUs since A100. The limits are from CUDA's programming
# guide (compute capabilities 8.0 to 10.3), and the driver version is from openxla/xla's own target descriptions.
EVERY_GPU = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "shared_memory_per_block": 49152,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "collective_memory_granularity": 2097152,
    "driver_version": "13.0.0",
}
ENUMS = ("feature_extension",)


def target(hardware: Hardware) -> str:
    """Return the GPU's properties as the text of a GpuTargetConfigProto, which XLA's compiler reads."""
    facts = hardware.compile_target
    if facts is None:
        raise RequestError(
            f"XLA cannot compile for {hardware.title} here",
            where=f"--hardware={hardware.name}",
            why=f"configs/hardware/{hardware.name}.yml has no compile_target, which describes a device to XLA",
            next_command="--hardware=h100",
        )
    name = hardware.device_names[0]
    cudnn = _locked("nvidia-cudnn-cu12")
    cuda = ".".join([*_locked("nvidia-cuda-runtime-cu12")[:2], "0"])
    versions = {"runtime_version": cuda, "compile_time_toolkit_version": cuda, "dnn_version": ".".join(cudnn)}
    return "\n".join(
        _lines(
            {
                "gpu_device_info": {**EVERY_GPU, **versions, **_device(facts), "name": name},
                "platform_name": "CUDA",
                "dnn_version_info": dict(zip(("major", "minor", "patch"), map(int, cudnn), strict=True)),
                "device_description_str": name,
            }
        )
    )


def _device(facts: CompileTarget) -> dict[str, Any]:
    major, minor = map(int, facts.compute_capability.rstrip("a").split("."))
    features = "ACCELERATED_FEATURES" if facts.compute_capability.endswith("a") else "NONE"
    return {
        "core_count": facts.multiprocessors,
        "fpus_per_core": facts.fpus_per_multiprocessor,
        "clock_rate_ghz": facts.clock_ghz,
        "memory_bandwidth": facts.memory_bytes_per_second,
        "device_memory_size": facts.memory_bytes,
        "l2_cache_size": facts.l2_cache_bytes,
        "shared_memory_per_core": facts.shared_memory_bytes,
        "shared_memory_per_block_optin": facts.shared_memory_of_a_block_bytes,
        "cuda_compute_capability": {"major": major, "minor": minor, "feature_extension": features},
        "device_interconnect_info": {"active_links": facts.nvlinks},
    }


@cache
def _locked(package: str) -> tuple[str, ...]:
    """Return the major, minor and patch version of a package in the lock file of the compiler's environment."""
    pin = re.search(rf"^{package}==(\d+)\.(\d+)\.(\d+)", phases.CUDA_LOCK.read_text(), re.MULTILINE)
    assert pin is not None, f"{phases.CUDA_LOCK.name} has no {package}"
    return pin.groups()


def _lines(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield f"{name} {{ {' '.join(_lines(value))} }}"
        elif isinstance(value, str) and name not in ENUMS:
            yield f'{name}: "{value}"'
        else:
            yield f"{name}: {value}"
