"""The program that says what NeMo computes, for the proof that backends do the same work; see same_work/work.py."""

from benchmarks.backend import SideProgram
from benchmarks.values import Benchmark
from nemo_backend import planning
from nemo_backend.megatron import text_of

PLAIN = {name: False for name in planning.FALSE_WITHOUT_TRANSFORMER_ENGINE if name.startswith("model.config.")}


def program(benchmark: Benchmark) -> SideProgram:
    """Without fused kernels, so that Transformer Engine is not needed and it is the arithmetic that is compared."""
    told = {**planning.nemo_settings(benchmark), **PLAIN}
    return SideProgram(
        command=[
            "{python}",
            "-P",  # keeps nemo_backend/ itself off the import path
            "{repository}/nemo_backend/inside/work_program.py",
            "--folder={phase_dir}",
            f"--vocabulary_size={benchmark.model.vocabulary_size}",
            "--",
            *(f"{name}={text_of(value)}" for name, value in told.items()),
        ],
        environment=planning.environment(benchmark),
        platform=benchmark.hardware.platform,
    )
