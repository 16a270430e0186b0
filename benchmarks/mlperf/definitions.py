"""Read an MLPerf benchmark from configs/mlperf as a frozen value, and compute the step of its first evaluation as
NVIDIA's submissions do. package.py contains the reference convergence points.
"""

from typing import Annotated, Literal

import msgspec

from benchmarks.configs import Configs, refuse_unknown
from benchmarks.values import Lora, Positive, Value


class Target(Value, frozen=True):
    """The value that an evaluation must reach for the run to succeed."""

    metric: Literal["eval_loss"]
    at_most: Annotated[float, msgspec.Meta(gt=0)]

    def reached_by(self, value: float) -> bool:
        """Return whether a loss reaches the target. As in MLPerf's checkers, NaN and 0 or less do not."""
        return 0 < value <= self.at_most


class Cadence(Value, frozen=True):
    """When evaluations are required: every N samples, rounded up to whole steps, after those that `skip` omits."""

    every_samples: Positive
    skip: Literal["none", "eighth_of_batch_plus_two"]
    knob_counts: Literal["samples", "steps", "unknown"]  # the unit of VAL_CHECK_INTERVAL in NVIDIA's submissions


class Optimizer(Value, frozen=True):
    """The optimizer settings that the rules fix. If a value is None, the submitter may choose it."""

    name: str
    beta_1: float
    beta_2: float
    epsilon: float
    weight_decay: float
    gradient_clip_norm: float
    schedule: str
    decay_and_warmup_steps: int | None = None  # decay and warm-up together, if the rules fix their sum


class MlperfBenchmark(Value, frozen=True):
    """The contents of one file in configs/mlperf."""

    name: str
    title: str
    model: str | None  # a name in configs/models; None: the model is not a dense decoder
    task: Literal["pretrain", "lora", "diffusion"]
    target: Target
    sequence_length: Positive | None
    eval_samples: Positive
    evaluation: Cadence
    max_steps: Positive | None
    optimizer: Optimizer
    rulesets: list[str]
    source: str
    date: str
    lora: Lora | None = None


def read_definition(configs: Configs, name: str) -> MlperfBenchmark:
    row = configs.row("mlperf", name, MlperfBenchmark)
    known = [*configs.names("models"), row.name]
    refuse_unknown([row.model or row.name], known, f"{configs.path('mlperf', name)}: model")
    return row


class FirstEvaluation(Value, frozen=True):
    """The step of the first evaluation, and the interval between evaluations."""

    steps_apart: int
    skipped: int
    step: int
    samples: int


def steps_apart(cadence: Cadence, batch: int, knob: int | None = None) -> int:
    """Return the steps between two evaluations. `knob` is a VAL_CHECK_INTERVAL that overrides the rules' interval."""
    if knob is not None and cadence.knob_counts == "steps":
        return knob
    samples = cadence.every_samples if knob is None else knob
    return -(-samples // batch)


def first_evaluation(benchmark: MlperfBenchmark, batch: int, knob: int | None = None) -> FirstEvaluation:
    """Return the first evaluation for a global batch size. Its step is (skipped + 1) x ceil(interval / batch).

    NVIDIA's published logs confirm this: with a batch of 9 (72 GPUs), the step is 172 = 4 x ceil(384 / 9).
    """
    apart = steps_apart(benchmark.evaluation, batch, knob)
    skipped = 0 if benchmark.evaluation.skip == "none" else batch // 8 + 2  # floor(0.125 x batch + 2)
    step = (skipped + 1) * apart
    return FirstEvaluation(apart, skipped, step, samples=step * batch)


def wall_minutes(minutes_of_one: int) -> int:
    """Return NVIDIA's WALLTIME for one experiment: 5 + WALLTIME_RUNANDTIME + 5."""
    return minutes_of_one + 10
