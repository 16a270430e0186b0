"""A benchmark of the engine `mlperf` -> the variables that its submission is steered by. Pure."""

from benchmarks.mlperf.submission import COMMON_SETTINGS, OF_THE_JOB, Submission, setting_types
from benchmarks.values import Benchmark, Scalar


def variables(benchmark: Benchmark, submission: Submission) -> dict[str, str]:
    """Everything that the submission's own config_*.sh would export, each once."""
    knobs, types = submission.knobs, setting_types(submission)
    sizes = {
        "DGXNNODES": benchmark.nodes,
        "DGXNGPU": benchmark.gpus // benchmark.nodes,
        knobs.micro_batch: benchmark.micro_batch_size,
        knobs.minibatch: benchmark.micro_batch_size * benchmark.gradient_accumulation,
        knobs.global_batch: benchmark.global_batch_size,
        knobs.max_steps: benchmark.steps,
    }
    return {
        **submission.variables,
        **{name: text(value, types[name]) for name, value in benchmark.knobs.items() if name in types},
        **{name: str(size) for name, size in sizes.items() if name is not None},
        **benchmark.environment,
    }


def inside(benchmark: Benchmark, submission: Submission) -> dict[str, str]:
    """Those of them that the program in the container is told."""
    return {name: value for name, value in variables(benchmark, submission).items() if name not in OF_THE_JOB}


def of_the_job(benchmark: Benchmark, name: str, default: Scalar) -> Scalar:
    """What the job itself does: a variable of OF_THE_JOB."""
    assert name in COMMON_SETTINGS
    return benchmark.knobs.get(name, default)


def text(value: Scalar, kind: str) -> str:
    """As NVIDIA's configurations write it: Hydra reads True and False."""
    return str(bool(value)) if kind == "bool" else str(value)
