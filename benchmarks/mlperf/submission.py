"""NVIDIA's submission of an MLPerf benchmark as a frozen value, read from configs/submissions: the container, what it
reads, the variables it is steered by, and which of them the rules fix.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from benchmarks.configs import Configs
from benchmarks.values import Architecture, Benchmark, ImageNames, Positive, Value

DIVISION = "MLPERF_DIVISION"  # as NVIDIA's logger reads it
CLOSED, OPEN = "closed", "open"

SettingType = Literal["bool", "int", "float", "str"]
InsidePath = Annotated[str, msgspec.Meta(pattern=r"^/[\w./-]+$")]
Folder = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!.*\.\.)[\w./-]+$")]


class Mount(Value, frozen=True):
    """A folder below the one that --data names (or below the run's), and where the container sees it."""

    folder: Folder
    inside: InsidePath


class Knobs(Value, frozen=True):
    """The submission's variables for the numbers of every training run. None: it has no such variable."""

    micro_batch: str
    learning_rate: str
    evaluation_interval: str
    tensor: str | None = None
    pipeline: str | None = None
    context: str | None = None
    minibatch: str | None = None  # sequences a replica and step
    global_batch: str | None = None  # where the whole batch is stated instead
    max_steps: str | None = None

    def layout(self) -> dict[str, str]:
        """Axis -> variable."""
        axes = {"tensor": self.tensor, "pipeline": self.pipeline, "context": self.context}
        return {axis: name for axis, name in axes.items() if name is not None}


class ReservedVariable(Value, frozen=True):
    """A variable that no run may set."""

    name: str
    why: str


class PrepareStep(Value, frozen=True):
    """One step of getting data and model ready; the container sees --out at the submission's `inside`."""

    name: str
    asset: str  # of configs/assets: if it is complete, the step is skipped
    command: list[str]
    minutes: Positive
    makes: str


class SubmissionImage(Value, frozen=True):
    """The container image for one CPU architecture, and its source. None: no public name is known."""

    name: str | None
    source: str


class Submission(Value, frozen=True):
    """One file of configs/submissions. Its name is that of the benchmark and of the model."""

    name: str
    title: str
    images: dict[Architecture, SubmissionImage]
    workdir: InsidePath
    ruleset: str
    logger: Literal["mlperf_common", "mlperf_logging"]  # what writes cache_clear in its container
    knobs: Knobs
    mounts: list[Mount]
    inside: InsidePath
    steps: list[PrepareStep]
    kept: list[ReservedVariable]
    settings: dict[str, SettingType]
    variables: dict[str, str]
    source: str
    date: str
    run_mounts: list[Mount] = []

    @property
    def image_names(self) -> ImageNames:
        return {architecture: image.name for architecture, image in self.images.items() if image.name}


def read_submission(configs: Configs, name: str) -> Submission:
    return configs.row("submissions", name, Submission)


# Settings of every submission's launcher: further steps of the job, and fields for the logger.
COMMON_SETTINGS: Mapping[str, SettingType] = {
    "SEED": "int",
    "CLEAR_CACHES": "bool",
    "NCCL_TEST": "bool",
    "VBOOST_VALUE": "int",
    "WALLTIME_RUNANDTIME": "int",
    DIVISION: "str",
    "MLPERF_SUBMISSION_ORG": "str",
    "MLPERF_SUBMISSION_PLATFORM": "str",
    "MLPERF_STATUS": "str",
}
# Those that only the job uses; they are not passed to the program.
OF_THE_JOB = ("CLEAR_CACHES", "NCCL_TEST", "VBOOST_VALUE", "WALLTIME_RUNANDTIME")


def setting_types(submission: Submission) -> dict[str, str]:
    """Every variable that --set may name, with its type."""
    knobs = submission.knobs
    own: dict[str, str] = {knobs.learning_rate: "float", knobs.evaluation_interval: "int"}
    return {**COMMON_SETTINGS, **submission.settings, **own, **dict.fromkeys(knobs.layout().values(), "int")}


# --- a benchmark as settings of its submission --------------------------------------------------


def division_of(asked: Benchmark) -> str:
    return str(asked.settings.knobs.get(DIVISION, CLOSED)).lower()


def clears_caches(asked: Benchmark) -> bool:
    return bool(asked.settings.knobs.get("CLEAR_CACHES", True))


def variables(benchmark: Benchmark, submission: Submission) -> dict[str, str]:
    """Everything that the submission's own config_*.sh would export, each once."""
    knobs, types = submission.knobs, setting_types(submission)
    sizes = {
        "DGXNNODES": benchmark.nodes,
        "DGXNGPU": benchmark.gpus // benchmark.nodes,
        knobs.micro_batch: benchmark.batch.micro_batch_size,
        knobs.minibatch: benchmark.batch.micro_batch_size * benchmark.batch.gradient_accumulation,
        knobs.global_batch: benchmark.batch.global_batch_size,
        knobs.max_steps: benchmark.steps,
    }
    return {
        **submission.variables,
        **{
            # As NVIDIA's configurations write it: Hydra reads True and False.
            name: str(bool(value)) if types[name] == "bool" else str(value)
            for name, value in benchmark.settings.knobs.items()
            if name in types
        },
        **{name: str(size) for name, size in sizes.items() if name is not None},
        **benchmark.settings.environment,
    }
