"""Time to train, taken apart: training, evaluation, checkpoints and the rest, which sum up to run_stop - run_start;
and what it would have been with the samples that the reference needs, so that a slow machine and an unlucky seed can
be told apart. Pure.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation
from benchmarks.mlperf.reference_points import Expected
from benchmarks.mlperf.run_log import LoggedRun, Record
from benchmarks.values import Value

Word = Literal["as the reference", "slower than the reference", "faster than the reference"]
Part = Literal["training", "evaluation", "checkpoint", "other"]
# An instant that several are open in belongs to the first of them.
PARTS: tuple[Part, ...] = ("checkpoint", "evaluation", "training")
MARKS: dict[str, Part] = {"checkpoint": "checkpoint", "eval": "evaluation", "block": "training"}
PART_OF = {f"{mark}_{end}": part for mark, part in MARKS.items() for end in ("start", "stop")}
UNLUCKY = 2.0  # standard deviations of the reference's own runs


class TimeToTrain(Value, frozen=True):
    """Seconds, all between run_start and run_stop but `init`; training + evaluation + checkpoint + other = total."""

    total_seconds: float
    training_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float
    other_seconds: float
    init_seconds: float | None  # before run_start, and no part of the total
    samples: int | None
    evaluations: int
    steps: int | None  # samples over the batch
    seconds_per_step: float | None  # training over steps
    step_seconds_printed: float | None  # the median of those that the run itself printed
    samples_per_second: float | None  # samples over training
    divided: bool  # False: the log marks no blocks, so nothing is known of its parts
    idle_seconds: float | None = None  # of training, between steps; None: not every step is timed


class Convergence(Value, frozen=True):
    """How the samples that a run needed compare with the reference's at its batch size."""

    samples: int
    expected_samples: float
    expected_stdev: float
    how: str  # found or interpolated
    between: list[int]
    ratio: float  # samples over expected
    deviations: float | None  # how many of the reference's standard deviations it lies above its mean
    seconds_at_reference: float  # time to train with the expected samples: training and evaluations in proportion
    word: Word


class _Span(NamedTuple):
    begin: float
    end: float
    part: Part


def take_apart(run: LoggedRun) -> TimeToTrain | None:
    """None where the run has no start or no stop."""
    start, stop = run.start_ms, run.stop_ms
    if start is None or stop is None:
        return None
    spans = list(_spans(run.records, stop))
    seconds = _seconds(spans, start, stop)
    steps = None if run.samples is None or not run.batch else round(run.samples / run.batch)
    training = seconds["training"]
    printed = [step.seconds for step in run.steps if step.seconds is not None and step.seconds > 0]
    divided = any(span.part == "training" for span in spans)
    every_step = divided and steps is not None and len(printed) == steps
    return TimeToTrain(
        total_seconds=(stop - start) / 1000,
        training_seconds=training,
        evaluation_seconds=seconds["evaluation"],
        checkpoint_seconds=seconds["checkpoint"],
        other_seconds=seconds["other"],
        init_seconds=run.init_seconds,
        samples=run.samples,
        evaluations=len(run.evaluations),
        steps=steps,
        seconds_per_step=training / steps if steps and divided else None,
        step_seconds_printed=statistics.median(printed) if printed else None,
        samples_per_second=run.samples / training if run.samples and training > 0 else None,
        divided=divided,
        idle_seconds=max(0.0, training - math.fsum(printed)) if every_step else None,  # time_ms are rounded
    )


def _spans(records: Iterable[Record], stop: float) -> Iterator[_Span]:
    """The parts that were opened, each until it was closed; one that never was, until another of them or the end."""
    opened: dict[Part, float] = {}
    for record in records:
        part = PART_OF.get(record.key)
        if part is None:
            continue
        if part in opened:  # also where it is opened twice: what lies between is of that part all the same
            yield _Span(opened.pop(part), record.time_ms, part)
        if record.key.endswith("_start"):
            opened[part] = record.time_ms
    yield from (_Span(begin, stop, part) for part, begin in opened.items())


def _seconds(spans: Sequence[_Span], start: float, stop: float) -> dict[Part, float]:
    """Every instant from start to stop is in exactly one part, so they sum up to the total."""
    seconds: dict[Part, float] = {"training": 0.0, "evaluation": 0.0, "checkpoint": 0.0, "other": 0.0}
    inside = [_Span(max(span.begin, start), min(span.end, stop), span.part) for span in spans]
    inside = [span for span in inside if span.end > span.begin]
    edges = sorted([(span.begin, 1, span.part) for span in inside] + [(span.end, -1, span.part) for span in inside])
    opened: Counter[Part] = Counter()
    here = start
    for at, change, part in [*edges, (stop, 0, PARTS[0])]:
        now: Part = next((one for one in PARTS if opened[one]), "other")
        seconds[now] += (at - here) / 1000
        opened[part] += change
        here = at
    return seconds


def compare_convergence(
    run: LoggedRun, apart: TimeToTrain, benchmark: MlperfBenchmark, expected: Expected
) -> Convergence | None:
    """None where the run was no success or nothing is expected at its batch size."""
    if run.status != "success" or not run.samples or expected.samples is None or expected.stdev is None:
        return None
    ratio = run.samples / expected.samples
    deviations = (run.samples - expected.samples) / expected.stdev if expected.stdev else None
    word: Word = "as the reference"
    if deviations is not None and abs(deviations) > UNLUCKY:
        word = "slower than the reference" if deviations > 0 else "faster than the reference"
    return Convergence(
        samples=run.samples,
        expected_samples=expected.samples,
        expected_stdev=expected.stdev,
        how=expected.how,
        between=expected.between,
        ratio=ratio,
        deviations=deviations,
        seconds_at_reference=_at_reference(apart, benchmark, expected.batch, expected.samples, ratio),
        word=word,
    )


def _at_reference(apart: TimeToTrain, benchmark: MlperfBenchmark, batch: int, samples: float, ratio: float) -> float:
    """Training in proportion to the samples; as many evaluations as the rules have until then."""
    first = first_evaluation(benchmark, batch)
    evaluations = 1 + max(0.0, (samples - first.samples) / (first.steps_apart * batch))
    each = apart.evaluation_seconds / apart.evaluations if apart.evaluations else 0.0
    return apart.training_seconds / ratio + each * evaluations + apart.checkpoint_seconds + apart.other_seconds


def olympic_mean(minutes: Sequence[float]) -> float | None:
    """The mean without the best and the worst; None of fewer than three."""
    inner = sorted(minutes)[1:-1]
    return statistics.fmean(inner) if inner else None
