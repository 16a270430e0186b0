"""What a submission cannot be asked, before any rule of MLPerf is looked at: one message each. Pure."""

from collections.abc import Iterator

from benchmarks.errors import RequestError
from benchmarks.mlperf.submission import CLOSED, DIVISION, setting_types
from benchmarks.values import Benchmark, Hardware
from nemo_backend.mlperf_planning import submission_of


def refusals(benchmark: Benchmark) -> list[RequestError]:
    """What follows from an earlier refusal is not said again."""
    for rules in (_platform, _settings, _beside, _data):
        found = list(rules(benchmark))
        if found:
            return found
    return []


def refuses_hardware(hardware: Hardware) -> RequestError | None:
    if hardware.platform == "cuda":
        return None
    return RequestError(
        f"NVIDIA's MLPerf submission does not run on {hardware.title}",
        where=f"--task=mlperf --hardware={hardware.name}",
        why="its container holds CUDA and fp8 kernels, and nothing else",
        next_command="--hardware=h100, or --task=lora to train adapters on a CPU",
    )


def _platform(benchmark: Benchmark) -> Iterator[RequestError]:
    refusal = refuses_hardware(benchmark.hardware)
    if refusal is not None:
        yield refusal
    if benchmark.task != "mlperf":
        yield RequestError(
            f"a submission has no task '{benchmark.task}'",
            where=f"--task={benchmark.task}",
            next_command="--task=mlperf",
        )
    if benchmark.site.runtime != "container" or benchmark.site.slurm is None:
        yield RequestError(
            f"site '{benchmark.site.name}' has no container runtime on Slurm, where a submission runs",
            where=f"--site={benchmark.site.name}",
            why="what runs is NVIDIA's own program, which is nowhere else than in its image and is started by Slurm",
            next_command="--site with one whose runtime is container (configs/sites/example_pyxis.yml)",
        )


def _settings(benchmark: Benchmark) -> Iterator[RequestError]:
    submission = submission_of(benchmark.model.name)
    known = setting_types(submission)
    for key in benchmark.knobs:
        if key.startswith("peft.") and key not in benchmark.overrides:
            continue
        if key not in known:
            yield RequestError(
                f"the submission of {submission.name} has no variable '{key}'",
                where=f"--set={key}",
                why="its train.py states rank, alpha, dropout and targets of the adapters itself"
                if key.startswith("peft.")
                else "another submission's, or another engine's",
                next_command="leave it out; --set=env.NAME=VALUE sets any other variable of the container",
            )
    for key in (submission.knobs.learning_rate, "WALLTIME_RUNANDTIME"):
        if key not in benchmark.knobs:
            yield RequestError(
                f"{key} is not stated for {benchmark.gpus} GPUs",
                where=f"recipe {benchmark.recipe.name}",
                why="it goes with the batch and the layout, and the recipe has none for this one",
                next_command=f"--set={key}=VALUE, or --gpus with a layout of the recipe",
            )
    if submission.knobs.max_steps is None and benchmark.gradient_accumulation > 1:
        yield RequestError(
            f"the submission of {submission.name} accumulates no gradients",
            where="--set=gradient_accumulation",
            why="its batch is the micro batch times the replicas",
            next_command="--set=micro_batch_size=N",
        )


def _beside(benchmark: Benchmark) -> Iterator[RequestError]:
    """What needs a worker of Stepmark inside, of which a submission has none."""
    for flag, given in (("--profile", benchmark.profile != "none"), ("--inject_slowdown", benchmark.inject_slowdown)):
        if given:
            what = f"{flag} is not to be had with a submission: its steps are not Stepmark's"
            yield RequestError(what, where=flag, next_command=f"no {flag}")


def _data(benchmark: Benchmark) -> Iterator[RequestError]:
    if not benchmark.data.startswith("/"):
        yield RequestError(
            f"where the data of {benchmark.model.name} lies is not said",
            where="--data",
            why=f"a run in the {benchmark.knobs.get(DIVISION, CLOSED)} division trains on the benchmark's own data",
            next_command=f"--data=DIR; python launch/setup.py --site={benchmark.site.name}"
            f" --model={benchmark.model.name} --task=mlperf --out=DIR makes it",
        )
