"""The program that says what MaxText computes, for the proof that backends do the same work: same_work/work.py."""

from benchmarks.backend import SideProgram
from benchmarks.values import Benchmark
from jax_backend import planning


def program(benchmark: Benchmark) -> SideProgram:
    return SideProgram(
        command=[
            "{python}",
            "-P",  # keeps jax_backend/ itself off the import path
            "{repository}/jax_backend/inside/work_program.py",
            "--folder={phase_dir}",
            "--",
            *planning.maxtext_argv(benchmark),
        ],
        environment=planning.environment(benchmark),
        platform=benchmark.hardware.platform,
    )
