"""Read NVIDIA's submission of an MLPerf benchmark from configs/submissions as a frozen value: the container image,
its mounts, the variables that configure it, and the variables that no run may set.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from benchmarks.configs import Configs
from benchmarks.values import Architecture, Benchmark, ImageNames, Positive, Value

DIVISION = "MLPERF_DIVISION"  # the variable that NVIDIA's logger reads
CLOSED, OPEN = "closed", "open"

SettingType = Literal["bool", "int", "float", "str"]
InsidePath = Annotated[str, msgspec.Meta(pattern=r"^/[\w./-]+$")]
Folder = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!.*\.\.)[\w./-]+$")]


class Mount(Value, frozen=True):
    """A folder in --data (or in the run's folder), and its path inside the container."""

    folder: Folder
    inside: InsidePath


class Knobs(Value, frozen=True):
    """The names of the submission's variables for batch, layout and schedule. None: it has no such variable."""

    micro_batch: str
    learning_rate: str
    evaluation_interval: str
    tensor: str | None = None
    pipeline: str | None = None
    context: str | None = None
    minibatch: str | None = None  # sequences per replica and step
    global_batch: str | None = None  # only in submissions that set the global batch directly
    max_steps: str | None = None

    def layout(self) -> dict[str, str]:
        """Return parallelism axis -> the variable that sets it."""
        axes = {"tensor": self.tensor, "pipeline": self.pipeline, "context": self.context}
        return {axis: name for axis, name in axes.items() if name is not None}


class ReservedVariable(Value, frozen=True):
    """A variable that no run may set, and why."""

    name: str
    why: str


class PrepareStep(Value, frozen=True):
    """One step that prepares the data or the model. In its container, --out has the path `Submission.inside`."""

    name: str
    asset: str  # a name in configs/assets; the step is skipped if this asset is complete
    command: list[str]
    minutes: Positive
    makes: str


class SubmissionImage(Value, frozen=True):
    """The container image for one CPU architecture, and the source of its name. None: no public image is known."""

    name: str | None
    source: str


class Submission(Value, frozen=True):
    """The contents of one file in configs/submissions. Its name is the name of the benchmark and of the model."""

    name: str
    title: str
    images: dict[Architecture, SubmissionImage]
    workdir: InsidePath
    ruleset: str
    logger: Literal["mlperf_common", "mlperf_logging"]  # the package in the container that writes cache_clear
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


# Settings that every submission has: for optional steps of the job, and for the logger.
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
# Settings that only the job script uses. They are not passed to the program.
OF_THE_JOB = ("CLEAR_CACHES", "NCCL_TEST", "VBOOST_VALUE", "WALLTIME_RUNANDTIME")


def setting_types(submission: Submission) -> dict[str, str]:
    """Return every variable that --set accepts, with its type."""
    knobs = submission.knobs
    own: dict[str, str] = {knobs.learning_rate: "float", knobs.evaluation_interval: "int"}
    return {**COMMON_SETTINGS, **submission.settings, **own, **dict.fromkeys(knobs.layout().values(), "int")}


# --- a benchmark as settings of its submission --------------------------------------------------


def division_of(asked: Benchmark) -> str:
    return str(asked.settings.knobs.get(DIVISION, CLOSED)).lower()


def clears_caches(asked: Benchmark) -> bool:
    return bool(asked.settings.knobs.get("CLEAR_CACHES", True))


def variables(benchmark: Benchmark, submission: Submission) -> dict[str, str]:
    """Return the variables that the submission's own config_*.sh would export."""
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
            # NVIDIA's configurations use True and False, because Hydra reads these words.
            name: str(bool(value)) if types[name] == "bool" else str(value)
            for name, value in benchmark.settings.knobs.items()
            if name in types
        },
        **{name: str(size) for name, size in sizes.items() if name is not None},
        **benchmark.settings.environment,
    }
