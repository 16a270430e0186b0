"""A trace held against our own clock: the same steps, timed by the profiler and by the worker. Pure."""

from collections.abc import Mapping, Sequence

from benchmarks.measuring import statistics
from benchmarks.request.profiling import PROFILER
from benchmarks.trace.summary import HostSummary, StepWindow
from benchmarks.trace.trace import Trace
from benchmarks.values import Profiling, Step, Value

FARTHEST_APART = (0.5, 2.0)  # the trace's step over our clock's; a profiler's own cost is far less


class Comparison(Value, frozen=True):
    """The step time in the trace beside that of our clock; what is unknown is null, and `null_because` says why."""

    trace_seconds_per_step: float
    clock_seconds_per_step: float | None  # of the same steps
    difference: float | None  # trace over clock, less one
    unprofiled_seconds_per_step: float | None  # the median of the steps that no profiler touched
    unprofiled_steps: int
    profiling_cost: float | None  # clock over unprofiled, less one
    null_because: dict[str, str]
    whole_run: bool = False  # every step was recorded: none of them says what a run without a profiler takes
    doubt: str = ""  # where the two times are too far apart to be of the same steps


def undisturbed_steps(
    steps: Sequence[Step], started_unix_seconds: float | None, trace: Trace, profiling: Profiling | None
) -> frozenset[int]:
    """The steps that the profiler saw from beginning to end, by our own clock.

    Its start and its stop take time, and this lies in the steps they fall into: which these are, depends on how far
    the framework's loop runs ahead of the device. So the two clocks are compared where both say the time of day, else
    one step at the beginning and two at the end of what was asked for are left out.
    """
    begins, ends = trace.starts_unix_seconds, trace.stops_unix_seconds
    if begins is not None and ends is not None and started_unix_seconds is not None:
        return frozenset(
            step.step
            for step in steps
            if step.elapsed_seconds is not None
            and step.seconds is not None
            and begins <= started_unix_seconds + step.elapsed_seconds - step.seconds
            and started_unix_seconds + step.elapsed_seconds <= ends
        )
    if profiling is None:
        return frozenset()
    return frozenset(range(profiling.start_step + 1, profiling.stop_step - 1))


def compare(
    summary: HostSummary, steps: Sequence[Step], undisturbed: frozenset[int], *, whole_run: bool = False
) -> Comparison:
    """`steps` as steps.jsonl has them, of the rank that was profiled."""
    nulls: dict[str, str] = {}
    timed = {step.step: step.seconds for step in steps if step.seconds is not None}
    ours, why_not = _same_steps(summary.window, timed, undisturbed)
    if ours is None:
        nulls["clock_seconds_per_step"] = why_not
    free = [] if whole_run else _seconds(steps, None)
    unprofiled = statistics.median(free)
    if unprofiled is None:
        nulls["unprofiled_seconds_per_step"] = (
            "the profiler ran beside every step" if whole_run else "no step of the run counts that was not profiled"
        )
    theirs = summary.mean.seconds_per_step
    near = [seconds for number, seconds in timed.items() if number in _range(summary.window)]
    beside = ours or statistics.median(near or _seconds(steps, PROFILER) or _seconds(steps, None))
    return Comparison(
        trace_seconds_per_step=theirs,
        clock_seconds_per_step=ours,
        difference=theirs / ours - 1 if ours else None,
        unprofiled_seconds_per_step=unprofiled,
        unprofiled_steps=len(free),
        profiling_cost=ours / unprofiled - 1 if ours and unprofiled else None,
        null_because=nulls,
        whole_run=whole_run,
        doubt=_doubt(theirs, beside),
    )


def _range(window: StepWindow) -> range:
    first, last = window.first_step, window.last_step
    return range(0) if first is None or last is None else range(first, last + 1)


def _seconds(steps: Sequence[Step], excluded_because: str | None) -> list[float]:
    return [s.seconds for s in steps if s.excluded_because == excluded_because and s.seconds is not None]


def _same_steps(
    window: StepWindow, timed: Mapping[int, float], undisturbed: frozenset[int]
) -> tuple[float | None, str]:
    """What our clock says of the very steps of the window; or why it says nothing."""
    numbers = _range(window)
    if not numbers:
        return None, "the trace does not number its steps"
    if not undisturbed.issuperset(numbers):
        return None, f"the profiler's start or stop lies in steps {numbers[0]} to {numbers[-1]}"
    if not timed.keys() >= set(numbers):
        return None, f"steps.jsonl has no time for all of steps {numbers[0]} to {numbers[-1]}"
    return sum(timed[number] for number in numbers) / len(numbers), ""


def _doubt(theirs: float, ours: float | None) -> str:
    if not ours or FARTHEST_APART[0] <= theirs / ours <= FARTHEST_APART[1]:
        return ""
    return (
        f"the trace does not cover these steps: {theirs * 1e3:.4g} ms a step in it, {ours * 1e3:.4g} ms by our own "
        "clock; its breakdown is not that of a step"
    )
