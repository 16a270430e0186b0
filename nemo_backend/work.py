"""The program that says what NeMo computes, for the proof that backends do the same work; see same_work/work.py."""

from benchmarks.backend import SideProgram
from benchmarks.values import Benchmark
from nemo_backend import planning
from nemo_backend.megatron import text_of


def program(benchmark: Benchmark) -> SideProgram:
    """On a CPU, also where there is a GPU: float32 is not multiplied in TF32 there, and sums have one order."""
    return SideProgram(
        command=[
            "{python}",
            "-P",  # keeps nemo_backend/ itself off the import path
            "{repository}/nemo_backend/work_program.py",
            "--folder={phase_dir}",
            f"--vocabulary_size={benchmark.model.vocabulary_size}",
            "--",
            *(f"{name}={text_of(value)}" for name, value in planning.nemo_settings(benchmark).items()),
        ],
        environment=planning.environment(benchmark),
    )
