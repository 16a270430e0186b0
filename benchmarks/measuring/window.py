"""Choose the steps of a run that are in the window, and give the reason for each excluded step. No I/O.

`steady` is the same rule for every backend. `last` and `A-B` are rules of published recipes, so that Stepmark can
reproduce their tables. statistics.py computes the metrics of the counted steps. The caller decides whether a window
is good enough for a valid result.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.measuring import settling
from benchmarks.measuring.settling import Judgement, TimedStep
from benchmarks.request.window_rule import LAST, STEADY, check_rule, step_range
from benchmarks.values import Step, Window

# Reasons to exclude a step. Log readers and workers have already set other reasons ("profiler", "pgle", ...).
COMPILE = "compile"
NO_TIME = "no_time"
ARTEFACT = "artefact"
SETTLING = "settling"
OUTSIDE_WINDOW = "outside_window"

ARTEFACT_BELOW_MEDIAN = 0.5  # a step whose time is below this share of the median is too fast
CARRIER_ABOVE_MEDIAN = 1.05  # a neighbour above this share contains the missing time; normal steps vary by 0.04-3%
DISPATCH_BELOW_MEDIAN = 0.1  # below this share of the median, only the dispatch was timed
DISPATCH_TOLERATED = 0.2  # if this is the case for a larger share of steps, no step is in the window

Marks = list[str | None]  # for each step, why it is excluded, or None if it is in the window


def choose_window(
    steps: Sequence[Step], rule: str, fastest_possible_seconds: float | None = None
) -> tuple[Window, list[Step]]:
    """Return the window of one attempt of one rank, and all its steps with the reason for each excluded step.

    Steps that already have a reason keep it. Pass the steps as they were reported, never the steps that this function
    returned, because it would search for settling again. `fastest_possible_seconds` is the time of a step at the
    hardware's peak, or None if that is unknown.
    """
    check_rule(rule)
    if len({(step.attempt, step.rank) for step in steps}) > 1:
        raise ValueError("a window is chosen within one attempt of one rank")
    times = _times(steps)
    ends = _step_ends(steps, times)
    steady = _mark_steady(steps, times, fastest_possible_seconds)
    start = _settled_from(times, ends, steady)
    if start is not None and steady[start:].count(None) < settling.FEWEST_STEPS:
        start = None
    if rule != STEADY:
        marks = _mark_recipe(steps, times, rule)
    else:
        marks = [SETTLING if mark is None and index < (start or 0) else mark for index, mark in enumerate(steady)]
    marked = [
        step if step.excluded_because == mark else msgspec.structs.replace(step, excluded_because=mark)
        for step, mark in zip(steps, marks, strict=True)
    ]
    return _window(marked, rule, _judge(times, ends, steady, marks, start)), marked


def _judge(
    times: Mapping[int, float], ends: Sequence[float], steady: Marks, marks: Marks, start: int | None
) -> Judgement:
    """Judge whether step times changed after settling. A recipe's window can be too short, or start before that."""
    if start is None:
        return settling.before_settling([times[index] for index, mark in enumerate(steady) if mark is None])
    if None not in marks[start:] or marks.index(None) < start:
        return settling.TOO_SHORT
    began = ends[steady.index(None) - 1] if steady.index(None) else 0.0

    def timed(of: Marks) -> list[TimedStep]:
        return [
            TimedStep(times[index], ends[index] - began) for index in range(start, len(ends)) if of[index] is None
        ]

    of_run = timed(steady)
    counted = of_run if marks[start:] == steady[start:] else timed(marks)
    return settling.judge(of_run, counted, len(ends) - len(of_run))


def missing_steps(rule: str, steps: Sequence[Step]) -> int:
    """Return how many steps of the rule are missing or lack a time; 0 for `steady`, which has no fixed number."""
    timed = {steps[index].step for index in _times(steps)}
    if rule == STEADY:
        return 0
    if rule == LAST:
        return 0 if timed else 1
    wanted = step_range(rule) or range(0)
    return len(wanted) - sum(step in wanted for step in timed)


def _times(steps: Sequence[Step]) -> dict[int, float]:
    """Return position -> seconds for each step with a usable time."""
    return {
        index: step.seconds
        for index, step in enumerate(steps)
        if step.seconds is not None and math.isfinite(step.seconds) and step.seconds >= 0
    }


def _window(marked: Sequence[Step], rule: str, judgement: Judgement) -> Window:
    counted = [step.step for step in marked if step.excluded_because is None]
    return Window(
        rule=rule,
        first_step=counted[0] if counted else None,
        last_step=counted[-1] if counted else None,
        counted=len(counted),
        settled=judgement.settling == "settled",
        excluded=dict(Counter(step.excluded_because for step in marked if step.excluded_because is not None)),
        settling=judgement.settling,
        drift_percent_per_minute=judgement.drift_percent_per_minute,
        median_off_percent=judgement.median_off_percent,
        steps_to_tell=judgement.steps_to_tell,
    )


# --- the uniform rule -------------------------------------------------------------------------


def _mark_steady(steps: Sequence[Step], times: Mapping[int, float], fastest_possible_seconds: float | None) -> Marks:
    """Return the marks of the steady rule, before steps are excluded for settling.

    Only the first step of the attempt is marked as compilation. If step times are correct, as in MaxText 0.2.5, no
    other step needs the mark. A worker marks a later recompilation (PGLE) itself. A slow second step counts: it
    hardly changes the median, and the excess shows it.
    """
    marks = [step.excluded_because for step in steps]
    if marks and marks[0] is None:
        marks[0] = COMPILE
    marks = [mark if mark is not None or index in times else NO_TIME for index, mark in enumerate(marks)]
    # If a clock recorded the end of every step, asynchronous dispatch cannot distort the times.
    stamped = all(step.elapsed_seconds is not None for step in steps)
    artefacts = set() if stamped else _artefacts(times, marks, fastest_possible_seconds or 0.0)
    return [ARTEFACT if index in artefacts else mark for index, mark in enumerate(marks)]


def _artefacts(times: Mapping[int, float], marks: Marks, fastest_possible_seconds: float) -> set[int]:
    """Return the positions of steps that are too fast, and of their neighbours that contain the missing time.

    A framework that dispatches asynchronously can print 0.002 s for a step, and add the step's real time to that of a
    neighbour. If a fifth of all steps are like this, the other times are also unreliable, and no step counts. For
    example, 0.002, 24, 0.002, 24 is a run of 12 s per step.
    """
    candidates = [index for index, mark in enumerate(marks) if mark is None]
    if not candidates:
        return set()
    import statistics

    typical = statistics.median(times[index] for index in candidates)
    least = max(ARTEFACT_BELOW_MEDIAN * typical, fastest_possible_seconds)
    too_fast = {index for index in candidates if times[index] < least}
    dispatch_only = sum(times[index] < DISPATCH_BELOW_MEDIAN * typical for index in too_fast)
    if dispatch_only >= 3 and dispatch_only > DISPATCH_TOLERATED * len(candidates):
        return set(candidates)
    neighbours = [{index - 1, index + 1}.intersection(candidates) for index in too_fast]
    carriers = {max(pair, key=times.__getitem__) for pair in neighbours if pair}
    return too_fast | {index for index in carriers if times[index] > CARRIER_ABOVE_MEDIAN * typical}


def _settled_from(times: Mapping[int, float], ends: Sequence[float], marks: Marks) -> int | None:
    countable = [times.get(index) if mark is None else None for index, mark in enumerate(marks)]
    first = marks.index(None) if None in marks else len(marks)
    return settling.settled_from(countable, ends, first)


def _step_ends(steps: Sequence[Step], times: Mapping[int, float]) -> list[float]:
    """Return when each step ended: the reported time, otherwise the end of the previous step plus the step's time."""
    ends: list[float] = []
    ended = 0.0
    for index, step in enumerate(steps):
        ended = ended + times.get(index, 0.0) if step.elapsed_seconds is None else step.elapsed_seconds
        ends.append(ended)
    return ends


# --- the recipes' own rules -------------------------------------------------------------------


def _mark_recipe(steps: Sequence[Step], times: Mapping[int, float], rule: str) -> Marks:
    """Return the marks of a recipe's published rule, which excludes only steps without a time inside the window."""
    inside = _inside_recipe(steps, times, rule)
    marks: Marks = []
    for index, step in enumerate(steps):
        own = None if index in times else NO_TIME
        marks.append(step.excluded_because or (own if index in inside else OUTSIDE_WINDOW))
    return marks


def _inside_recipe(steps: Sequence[Step], times: Mapping[int, float], rule: str) -> range | set[int]:
    wanted = step_range(rule)
    if wanted is not None:
        return {index for index, step in enumerate(steps) if step.step in wanted}
    last = max((index for index in times if steps[index].excluded_because is None), default=0)
    return range(last, len(steps))
