"""NVIDIA's submission of an MLPerf benchmark as a frozen value, read from configs/submissions: the container, what it
reads, the variables it is steered by, which of them the rules fix, and what a configuration of them asks for.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
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
    """What the submission calls the numbers that every training run has. None: it has no such variable."""

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


class Kept(Value, frozen=True):
    """A variable that no run may set to anything but these values; without any, it may not be set at all."""

    name: str
    values: list[str]
    why: str


class PrepareStep(Value, frozen=True):
    """One step of getting data and model ready; the container sees --out at the submission's `inside`."""

    name: str
    asset: str  # of configs/assets: where it is whole, the step is left out
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
    kept: list[Kept]
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


# What every submission's launcher takes: steps of the job beside training, and what the logger writes.
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
# Of these, what the job itself does and the program inside is not told.
OF_THE_JOB = ("CLEAR_CACHES", "NCCL_TEST", "VBOOST_VALUE", "WALLTIME_RUNANDTIME")


def setting_types(submission: Submission) -> dict[str, str]:
    """Every variable that --set may name, with its type."""
    knobs = submission.knobs
    own: dict[str, str] = {knobs.learning_rate: "float", knobs.evaluation_interval: "int"}
    return {**COMMON_SETTINGS, **submission.settings, **own, **dict.fromkeys(knobs.layout().values(), "int")}


# --- a benchmark as its submission is told of it ------------------------------------------------


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


# --- what its variables ask for, in common words ------------------------------------------------


class Configuration(Value, frozen=True):
    """What a configuration asks for; None: it says nothing of it."""

    variables: dict[str, str]
    nodes: int
    gpus_per_node: int
    tensor: int
    pipeline: int
    context: int
    minibatch: int | None  # sequences a replica and step
    micro_batch: int
    stated_batch: int | None  # where the whole batch is stated
    max_steps: int | None
    evaluation_interval: int | None
    minutes_of_one: int | None
    minutes: int | None  # of the whole job
    division: str
    clears_caches: bool
    vboost: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def batch(self) -> int:
        """The global batch size as the submission computes it: MINIBS x (GPUs // (TP x PP)) // CP."""
        if self.stated_batch is not None:
            return self.stated_batch
        return (self.minibatch or 1) * (self.gpus // (self.tensor * self.pipeline)) // self.context

    def batch_text(self) -> str:
        """The arithmetic of the batch, for people."""
        if self.stated_batch is not None:
            return f"BATCHSIZE = {self.stated_batch}"
        return (
            f"MINIBS {self.minibatch or 1} x ({self.gpus} GPUs // (TP {self.tensor} x PP {self.pipeline}))"
            f" // CP {self.context} = {self.batch}"
        )


def configuration_of(variables: Mapping[str, str], submission: Submission) -> Configuration:
    """RequestError if a number is too small."""

    def number(name: str | None, least: int = 1) -> int | None:
        text = variables.get(name, "") if name else ""
        if text and int(text) < least:
            raise RequestError(f"{name}={text}: a whole number of {least} or more is expected", where=str(name))
        return int(text) if text else None

    knobs = submission.knobs
    if float(variables.get(knobs.learning_rate) or 1) <= 0:
        what = f"{knobs.learning_rate}={variables[knobs.learning_rate]}: a number over 0 is expected"
        raise RequestError(what, where=knobs.learning_rate)
    return Configuration(
        variables=dict(variables),
        nodes=number("DGXNNODES") or 1,
        gpus_per_node=number("DGXNGPU") or 8,
        tensor=number(knobs.tensor) or 1,
        pipeline=number(knobs.pipeline) or 1,
        context=number(knobs.context) or 1,
        minibatch=number(knobs.minibatch),
        micro_batch=number(knobs.micro_batch) or 1,
        stated_batch=number(knobs.global_batch),
        max_steps=number(knobs.max_steps),
        evaluation_interval=number(knobs.evaluation_interval),
        minutes_of_one=number("WALLTIME_RUNANDTIME", 0),
        minutes=number("WALLTIME", 0),
        division=variables.get(DIVISION, CLOSED).lower(),
        clears_caches=variables.get("CLEAR_CACHES", "1").lower() not in ("0", "false"),
        vboost=number("VBOOST_VALUE", 0) or 0,
    )


def system_name(system: str, config: Configuration) -> str:
    """As NVIDIA names its config_*.sh, and tells the program inside."""
    batch = config.minibatch or config.micro_batch
    return (
        f"{system}_{config.nodes}x{config.gpus_per_node}x{batch}"
        f"xtp{config.tensor}pp{config.pipeline}cp{config.context}"
    )
