"""Compute the metrics of one attempt from its steps, both for runs and for logs of other programs. No I/O."""

import math
from collections.abc import Callable, Sequence

import msgspec

from benchmarks import statistics
from benchmarks.measuring.utilisation import (
    ACHIEVABLE,
    Mfu,
    Workload,
    fastest_possible_seconds,
    hfu,
    mfu,
)
from benchmarks.measuring.window import ARTEFACT, choose_window, missing_steps
from benchmarks.values import PROFILER, Seconds, Step, Value, Window

SECONDS_A_DAY = 86_400
# Metrics that are computed from step times, so they are unknown if the step times are.
SPEED_FIGURES = (
    "tokens_per_second",
    "tokens_per_second_effective",
    "tokens_per_second_per_gpu",
    "days_per_trillion_tokens",
    "mfu",
    "hfu",
)
FEWEST_FOR_95_PERCENT = 30  # with fewer similar steps, the interval contains the truth in only 66 to 86% of cases
MOST_ARTEFACTS = 0.2  # the largest share of artefacts; with more, the other times are unreliable too
RECORDED = (PROFILER, "pgle")  # reasons of steps during which a profiler or a compiler ran


class SecondsPerStep(Value, frozen=True):
    median: Seconds | None = None
    mean: Seconds | None = None
    stdev: Seconds | None = None
    ci95: list[Seconds] | None = None
    excess: float | None = None


class Figures(Value, frozen=True):
    """The metrics of one window, before Stepmark judges whether the run is valid."""

    window: Window
    seconds_per_step: SecondsPerStep
    null_because: dict[str, str]
    complaints: list[str]  # why the metrics must be wrong
    notes: list[str] = []  # warnings for readers of the metrics
    tokens_per_second: float | None = None
    tokens_per_second_effective: float | None = None
    tokens_per_second_per_gpu: float | None = None
    days_per_trillion_tokens: float | None = None
    mfu: list[Mfu] | None = None
    hfu: list[Mfu] | None = None


Resolution = Callable[[float], float]  # a value -> one unit of its last printed digit


def measure(
    workload: Workload, steps: Sequence[Step], rule: str, seconds_resolution: Resolution | None = None
) -> tuple[Figures, list[Step]]:
    """Return the metrics of one attempt from one rank's steps, and these steps with the reasons for exclusions."""
    window, marked = choose_window(steps, rule, fastest_possible_seconds(workload))
    counted = [step for step in marked if step.excluded_because is None]
    seconds = usable_seconds(counted)
    nulls: dict[str, str] = {}
    complaints = _complaints(rule, marked, counted)
    median = statistics.median(seconds)
    if median is None:
        nulls["seconds_per_step"] = "no step of the run is in the window"
        return no_figures(window, nulls, complaints + _faster_than_the_peak(workload, marked)[0]), marked
    if median <= 0:
        nulls["seconds_per_step"] = "the median step took no measurable time"
        return no_figures(window, nulls, [*complaints, nulls["seconds_per_step"]]), marked
    tokens_per_second = workload.tokens_per_step / median
    entries = mfu(workload, median, nulls)
    impossible, notes = _faster_than_the_peak(workload, marked, median)
    figures = Figures(
        window=window,
        seconds_per_step=_seconds_per_step(seconds, seconds_resolution(median) if seconds_resolution else 0.0, nulls),
        tokens_per_second=tokens_per_second,
        tokens_per_second_effective=_effective(workload, marked, counted, nulls),
        tokens_per_second_per_gpu=tokens_per_second / workload.gpus,
        days_per_trillion_tokens=1e12 / tokens_per_second / SECONDS_A_DAY,
        mfu=entries,
        hfu=hfu(workload, median, nulls),
        null_because=nulls,
        complaints=complaints + impossible,
        notes=notes + _above_the_peak(workload, entries or []) + few_steps(len(seconds)),
    )
    if workload.model.uncounted and not workload.model.vocabulary_size:  # the model does not train on tokens
        rates = [name for name in SPEED_FIGURES if name not in ("mfu", "hfu")]
        figures = msgspec.structs.replace(figures, **dict.fromkeys(rates))
        nulls |= dict.fromkeys(rates, workload.model.uncounted)
    return figures, marked


def usable_seconds(steps: Sequence[Step]) -> list[float]:
    """Return the step times that are finite and not negative. window.py uses the same condition."""
    times = [step.seconds for step in steps if step.seconds is not None]
    return [seconds for seconds in times if math.isfinite(seconds) and seconds >= 0]


def _seconds_per_step(seconds: list[float], resolution: float, nulls: dict[str, str]) -> SecondsPerStep:
    interval = statistics.median_interval(seconds, resolution)
    if interval is None:
        nulls["seconds_per_step.ci95"] = (
            f"an interval needs at least {statistics.FEWEST_VALUES} counted steps, and there are {len(seconds)}"
        )
    if len(seconds) < 2:
        nulls["seconds_per_step.stdev"] = "one counted step has no spread"
    return SecondsPerStep(
        median=statistics.median(seconds),
        mean=statistics.mean(seconds),
        stdev=statistics.stdev(seconds),
        ci95=[interval.low, interval.high] if interval else None,
        excess=statistics.excess(seconds),
    )


def _effective(workload: Workload, marked: list[Step], counted: list[Step], nulls: dict[str, str]) -> float | None:
    """Return tokens divided by elapsed time from the first to the last step of the window, including excluded steps.

    Steps with a reason in RECORDED are omitted with their tokens and their time, because a profiler or compiler
    used part of the time. The excess omits these steps too.
    """
    first, last = marked.index(counted[0]), marked.index(counted[-1])
    inside = [step for step in marked[first : last + 1] if step.excluded_because not in RECORDED]
    times = usable_seconds(inside)
    if len(times) < len(inside):
        nulls["tokens_per_second_effective"] = "a step inside the window has no usable time"
        return None
    return workload.tokens_per_step * len(inside) / math.fsum(times)


def _complaints(rule: str, marked: list[Step], counted: list[Step]) -> list[str]:
    found = []
    missing = missing_steps(rule, marked)
    if missing:
        found.append(f"window {rule}: {missing} of its steps are missing from the run")
    if not counted:
        found.append("no step of the run is in the window")
    artefacts = sum(step.excluded_because == ARTEFACT for step in marked)
    if artefacts > MOST_ARTEFACTS * (artefacts + len(counted)):
        found.append(f"{artefacts} steps are artefacts, only {len(counted)} count: the step times cannot be right")
    return found


def _faster_than_the_peak(
    workload: Workload, marked: Sequence[Step], median: float = math.inf
) -> tuple[list[str], list[str]]:
    """Return complaints if the median or many steps are faster than the peak allows, or notes if a few steps are."""
    fastest = fastest_possible_seconds(workload) or 0.0

    def too_fast(steps: Sequence[Step]) -> int:
        return sum(seconds < fastest for seconds in usable_seconds(steps))

    timed = len(usable_seconds(marked))
    what = f"than {workload.gpus} x {workload.hardware.name} can be ({fastest:.4g} s at the {workload.dtype} peak)"
    if median < fastest or too_fast(marked) > MOST_ARTEFACTS * timed:
        asked = "check model, GPUs, dtype and batch"
        return [f"{too_fast(marked)} of {timed} steps are faster {what}: {asked}"], []
    counted = too_fast([step for step in marked if step.excluded_because is None])
    return [], [f"{counted} of the counted steps are faster {what}: their times cannot be right"] if counted else []


def _above_the_peak(workload: Workload, entries: Sequence[Mfu]) -> list[str]:
    """Return a note for each peak of the run's precision that the MFU in the first convention exceeds.

    Achievable rates are not limits, so a run may exceed them.
    """
    limits = [one for one in entries if one.table != ACHIEVABLE and one.precision_peak == workload.dtype]
    return [
        f"MFU is {one.percent:.1f}% of the {one.table} {one.precision_peak} peak, which no device exceeds: the peak "
        f"is too low, or the program skips FLOPs that convention {one.counted_by} counts"
        for one in limits
        if one.percent > 100 and one.counted_by == entries[0].counted_by
    ]


def few_steps(count: int) -> list[str]:
    """Return a note if there are too few steps for an interval that really has 95% coverage."""
    if not statistics.FEWEST_VALUES <= count < FEWEST_FOR_95_PERCENT:
        return []
    return [f"the 95% interval of {count} steps may be too narrow: count {FEWEST_FOR_95_PERCENT} steps or more"]


def no_figures(window: Window, nulls: dict[str, str], complaints: list[str]) -> Figures:
    for name in SPEED_FIGURES:
        nulls.setdefault(name, nulls["seconds_per_step"])
    return Figures(
        window=window,
        seconds_per_step=SecondsPerStep(),
        null_because=nulls,
        complaints=complaints,
    )
