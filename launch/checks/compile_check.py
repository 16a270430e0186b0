"""What this machine lacks for compiling a training step, refused before the compiler is started."""

import shutil

from benchmarks.backend import Backend, SideProgram
from benchmarks.errors import RequestError
from benchmarks.values import Benchmark
from launch.checks.flags_check import refuse_unknown_flags
from launch.environments import venvs
from launch.machine import this_machine

# Llama 2 70B takes 1.1 to 1.5 GB, whether for 64 GPUs or for 2,048; a model of few layers little less.
COMPILER_GB = 1.5


def refuse_to_compile(
    benchmark: Benchmark, backend: Backend, program: SideProgram, *, make_environment: bool
) -> None:
    """RequestError where there is no compiler, too little memory, or an XLA flag that the compiler does not know."""
    if not make_environment:
        _refuse_without_compiler(benchmark, backend, program)
    _refuse_little_memory()
    refuse_unknown_flags(benchmark, backend)


def _refuse_without_compiler(benchmark: Benchmark, backend: Backend, program: SideProgram) -> None:
    """Planning downloads nothing that was not asked for."""
    spec = backend.environment(benchmark.engine, program.platform)
    if venvs.python_of(spec) is not None:
        return
    lock_file, root = spec.locks[0], venvs.environments_root()
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    free_gb = shutil.disk_usage(place).free / 1e9
    raise RequestError(
        f"the compiler for {benchmark.hardware.title} is not installed; it takes about {lock_file.size_gb:g} GB",
        where=f"environment '{spec.name}' from {lock_file.path.name}, in {root}",
        why=f"it is downloaded and installed once, when you ask for it; {free_gb:.1f} GB of disk are free there",
        next_command="the same command with --make_environment",
    )


def _refuse_little_memory() -> None:
    available_gb = this_machine.available_memory_bytes() / 1e9
    if available_gb < COMPILER_GB:
        raise RequestError(
            f"this machine has too little free memory to compile: {available_gb:.2f} of {COMPILER_GB:g} GB",
            where="MemAvailable in /proc/meminfo, and the control group's memory.max",
            why="a compiler that runs out of memory is killed without a word",
            next_command="end what uses the memory, or run this on a larger machine",
        )
