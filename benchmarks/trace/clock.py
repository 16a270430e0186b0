"""A trace held against our own clock: the same steps, timed by the profiler and by the worker. Pure."""

from collections.abc import Sequence

from benchmarks import statistics
from benchmarks.trace.summary import HostSummary
from benchmarks.trace.trace import Trace
from benchmarks.values import Profiling, Step, Value


class Comparison(Value, frozen=True):
    """The step time in the trace beside that of our clock; what is unknown is null, and `null_because` says why."""

    trace_seconds_per_step: float
    clock_seconds_per_step: float | None  # of the same steps
    difference: float | None  # trace over clock, less one
    unprofiled_seconds_per_step: float | None  # the median of the steps that no profiler touched
    unprofiled_steps: int
    profiling_cost: float | None  # clock over unprofiled, less one
    null_because: dict[str, str]


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
        day = [
            (step.step, started_unix_seconds + step.elapsed_seconds, step.seconds)
            for step in steps
            if step.elapsed_seconds is not None and step.seconds is not None
        ]
        return frozenset(number for number, end, seconds in day if begins <= end - seconds and end <= ends)
    if profiling is None:
        return frozenset()
    return frozenset(range(profiling.start_step + 1, profiling.stop_step - 1))


def compare(summary: HostSummary, steps: Sequence[Step], undisturbed: frozenset[int]) -> Comparison:
    """`steps` as steps.jsonl has them, of the rank that was profiled."""
    window, nulls = summary.window, {}
    first, last = window.first_step, window.last_step
    timed = {step.step: step.seconds for step in steps if step.seconds is not None}
    ours: float | None = None
    if first is None or last is None:
        nulls["clock_seconds_per_step"] = "the trace does not number its steps"
    elif not undisturbed.issuperset(range(first, last + 1)):
        nulls["clock_seconds_per_step"] = f"the profiler's start or stop lies in steps {first} to {last}"
    elif any(number not in timed for number in range(first, last + 1)):
        nulls["clock_seconds_per_step"] = f"steps.jsonl has no time for all of steps {first} to {last}"
    else:
        ours = sum(timed[number] for number in range(first, last + 1)) / window.steps
    free = [step.seconds for step in steps if step.excluded_because is None and step.seconds is not None]
    unprofiled = statistics.median(free)
    if unprofiled is None:
        nulls["unprofiled_seconds_per_step"] = "no step of the run counts that was not profiled"
    theirs = summary.mean.seconds_per_step
    return Comparison(
        trace_seconds_per_step=theirs,
        clock_seconds_per_step=ours,
        difference=theirs / ours - 1 if ours else None,
        unprofiled_seconds_per_step=unprofiled,
        unprofiled_steps=len(free),
        profiling_cost=ours / unprofiled - 1 if ours and unprofiled else None,
        null_because=nulls,
    )
