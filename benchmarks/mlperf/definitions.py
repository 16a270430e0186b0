"""An MLPerf benchmark as a frozen value, read from configs/mlperf, and the step of its first evaluation, computed as
in NVIDIA's submissions. package.py has the reference convergence points.
"""

from typing import Annotated, Literal

import msgspec

from benchmarks.configs import Configs, refuse_unknown
from benchmarks.values import Lora, Positive, Value


class Target(Value, frozen=True):
    """The target that an evaluation must reach for the run to succeed."""

    metric: Literal["eval_loss"]
    at_most: Annotated[float, msgspec.Meta(gt=0)]

    def reached_by(self, value: float) -> bool:
        """Return whether a loss reaches the target. As in the checkers, 0 or less and NaN do not."""
        return 0 < value <= self.at_most


class Cadence(Value, frozen=True):
    """The evaluations that the rules require: every N samples, rounded up to whole steps; the first are skipped."""

    every_samples: Positive
    skip: Literal["none", "eighth_of_batch_plus_two"]
    knob_counts: Literal["samples", "steps", "unknown"]  # what VAL_CHECK_INTERVAL counts in NVIDIA's submissions


class Optimizer(Value, frozen=True):
    """The optimizer settings that the rules fix. None: the submitter may choose the value."""

    name: str
    beta_1: float
    beta_2: float
    epsilon: float
    weight_decay: float
    gradient_clip_norm: float
    schedule: str
    decay_and_warmup_steps: int | None = None  # the sum of both, if the rules fix it


class MlperfBenchmark(Value, frozen=True):
    """One file of configs/mlperf."""

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
    """Return the steps between two evaluations. `knob`, a VAL_CHECK_INTERVAL, replaces the interval of `cadence`."""
    if knob is not None and cadence.knob_counts == "steps":
        return knob
    samples = cadence.every_samples if knob is None else knob
    return -(-samples // batch)


def first_evaluation(benchmark: MlperfBenchmark, batch: int, knob: int | None = None) -> FirstEvaluation:
    """Return the first evaluation at a global batch size. Its step is (skipped + 1) x ceil(interval / batch).

    NVIDIA's published logs confirm it: with a batch of 9 (72 GPUs), it is at step 172 = 4 x ceil(384 / 9).
    """
    apart = steps_apart(benchmark.evaluation, batch, knob)
    skipped = 0 if benchmark.evaluation.skip == "none" else batch // 8 + 2  # floor(0.125 x batch + 2)
    step = (skipped + 1) * apart
    return FirstEvaluation(apart, skipped, step, samples=step * batch)


def wall_minutes(minutes_of_one: int) -> int:
    """Return NVIDIA's WALLTIME for one experiment: 5 + WALLTIME_RUNANDTIME + 5."""
    return minutes_of_one + 10
