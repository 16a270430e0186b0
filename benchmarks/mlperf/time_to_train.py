"""Split the time to train into training, evaluation, checkpoints and the rest. They add up to run_stop - run_start.

The time is also scaled to the reference's number of samples, to distinguish a slow machine from an unlucky seed.
"""

import statistics
from collections.abc import Sequence
from typing import Literal

from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation
from benchmarks.mlperf.package import ExpectedSamples
from benchmarks.mlperf.run_log import LoggedRun
from benchmarks.values import Value

Word = Literal["as the reference", "slower than the reference", "faster than the reference"]
PARTS = ("checkpoint", "evaluation", "training")  # while several overlap, the time counts for the first of these
MARKS = {"checkpoint": "checkpoint", "eval": "evaluation", "block": "training"}
UNLUCKY = 2.0  # the largest usual distance, in standard deviations of the reference's runs


class TimeToTrain(Value, frozen=True):
    """The seconds between run_start and run_stop; training + evaluation + checkpoint + other = total."""

    total_seconds: float
    training_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float
    other_seconds: float
    steps: int | None  # samples / batch
    seconds_per_step: float | None  # training seconds / steps
    samples_per_second: float | None  # samples / training seconds
    divided: bool  # False: the log marks no blocks, so the parts are unknown


class Convergence(Value, frozen=True):
    """How many samples a run needed, compared with the reference at the same batch size."""

    expected: ExpectedSamples
    ratio: float  # samples / expected samples
    deviations: float | None  # the distance from the reference's mean in standard deviations; above 0: more samples
    seconds_at_reference: float  # the time to train for the expected samples, with scaled training and evaluations
    word: Word


def split_time_to_train(run: LoggedRun) -> TimeToTrain | None:
    """Return the parts of the time to train; None if the run has no start, or no stop after the start."""
    start, stop = run.start_ms, run.stop_ms
    if start is None or stop is None or stop < start:
        return None
    marks = [
        (record.time_ms, MARKS[mark], end == "start")
        for record in run.records
        for mark, _, end in [record.key.partition("_")]
        if mark in MARKS and end in ("start", "stop")
    ]
    seconds = dict.fromkeys([*PARTS, "other"], 0.0)
    opened: set[str] = set()
    here = start
    for at, part, opens in [*sorted(marks, key=lambda mark: mark[0]), (stop, "other", False)]:
        until = max(here, min(at, stop))
        seconds[next((one for one in PARTS if one in opened), "other")] += (until - here) / 1000
        here = until
        opened = opened | {part} if opens else opened - {part}
    steps = None if run.samples is None or not run.batch else round(run.samples / run.batch)
    training, divided = seconds["training"], any(part == "training" and opens for _, part, opens in marks)
    return TimeToTrain(
        total_seconds=(stop - start) / 1000,
        training_seconds=training,
        evaluation_seconds=seconds["evaluation"],
        checkpoint_seconds=seconds["checkpoint"],
        other_seconds=seconds["other"],
        steps=steps,
        seconds_per_step=training / steps if steps and divided else None,
        samples_per_second=run.samples / training if run.samples and training > 0 else None,
        divided=divided,
    )


def compare_convergence(
    run: LoggedRun, apart: TimeToTrain, benchmark: MlperfBenchmark, expected: ExpectedSamples
) -> Convergence | None:
    """Return the comparison with the reference; None if the run did not reach its target."""
    if run.status != "success" or not run.samples or not run.batch:
        return None
    ratio = run.samples / expected.samples
    deviations = (run.samples - expected.samples) / expected.stdev if expected.stdev else None
    word: Word = "as the reference"
    if deviations is not None and abs(deviations) > UNLUCKY:
        word = "slower than the reference" if deviations > 0 else "faster than the reference"
    # Training time is scaled by samples, evaluation time by the number of evaluations that the rules require.
    first = first_evaluation(benchmark, run.batch)
    evaluations = 1 + max(0.0, (expected.samples - first.samples) / (first.steps_apart * run.batch))
    each = apart.evaluation_seconds / len(run.evaluations)
    rest = apart.checkpoint_seconds + apart.other_seconds
    at_reference = apart.training_seconds / ratio + each * evaluations + rest
    return Convergence(expected, ratio, deviations, at_reference, word)


def olympic_mean(minutes: Sequence[float]) -> float | None:
    """Return the mean without the lowest and the highest value; None for fewer than three values."""
    inner = sorted(minutes)[1:-1]
    return statistics.fmean(inner) if inner else None
