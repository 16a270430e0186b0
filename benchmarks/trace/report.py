"""What `launch/report.py trace` reports: the summaries, and the same steps timed by the run's own clock. Pure."""

from collections.abc import Sequence
from typing import Literal

from benchmarks.measuring import statistics
from benchmarks.request.profiling import PROFILER
from benchmarks.trace.kinds import COLLECTIVE
from benchmarks.trace.nccl import NcclCalls
from benchmarks.trace.summary import DeviceTimes, HostSummary, StepWindow, mean_times
from benchmarks.trace.trace import Trace
from benchmarks.values import Profiling, Step, Value

SCHEMA_VERSION = 2
FARTHEST_APART = (0.5, 2.0)  # the trace's step over our clock's; a profiler's own cost is far less


class Comparison(Value, frozen=True):
    """The step time in the trace beside that of our clock; what is unknown is null, and `null_because` says why."""

    trace_seconds_per_step: float
    clock_seconds_per_step: float | None  # of the same steps
    difference: float | None  # trace over clock, less one
    null_because: dict[str, str]
    doubt: str = ""  # where the two times are too far apart to be of the same steps


class TraceFile(Value, frozen=True):
    """One file of a profiler, and its summary; without one, why."""

    path: str
    format: Literal["xplane", "nsys"]
    bytes: int
    summary: HostSummary | None
    why_not: str = ""


class TraceReport(Value, frozen=True):
    """All of it. What is unknown is null or empty."""

    place: str
    title: str
    attempt: int | None
    phase: str | None
    files: list[TraceFile]
    mean: DeviceTimes | None  # over all hosts and devices
    comparison: Comparison | None
    nccl: NcclCalls | None
    notes: list[str]
    schema_version: int = SCHEMA_VERSION

    @property
    def summaries(self) -> list[HostSummary]:
        return [file.summary for file in self.files if file.summary is not None]

    @property
    def is_whole_trace(self) -> bool:
        """Whether the times are of all that was recorded, and not of a step."""
        return any(summary.window.is_whole_trace for summary in self.summaries)


def mean_of(files: Sequence[TraceFile]) -> DeviceTimes | None:
    means = [file.summary.mean for file in files if file.summary is not None]
    return mean_times(means, "all") if means else None


def hidden_share(times: DeviceTimes) -> float | None:
    """How much of the collectives' time has compute beside it; None where there are none."""
    work = times.work_seconds[COLLECTIVE]
    return 1 - times.exposed_communication_seconds / work if work else None


# --- the run's own clock ----------------------------------------------------------------------------


def undisturbed_steps(
    steps: Sequence[Step], started_unix_seconds: float | None, trace: Trace, profiling: Profiling | None
) -> frozenset[int]:
    """The steps that the profiler saw from beginning to end, by our own clock.

    The profiler's start and stop take time, which lies in the steps they fall into: which ones depends on how far
    the framework's loop runs ahead of the device. So the two clocks are compared where both tell the time of day;
    otherwise one step at the beginning and two at the end of what was asked for are left out.
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


def compare(summary: HostSummary, steps: Sequence[Step], undisturbed: frozenset[int]) -> Comparison:
    """`steps` as steps.jsonl has them, of the rank that was profiled."""
    timed = {step.step: step.seconds for step in steps if step.seconds is not None}
    numbers = _range(summary.window)
    why_not = ""
    if not numbers:
        why_not = "the trace does not number its steps"
    elif not undisturbed.issuperset(numbers):
        why_not = f"the profiler's start or stop lies in steps {numbers[0]} to {numbers[-1]}"
    elif not timed.keys() >= set(numbers):
        why_not = f"steps.jsonl has no time for all of steps {numbers[0]} to {numbers[-1]}"
    ours = None if why_not else sum(timed[number] for number in numbers) / len(numbers)
    theirs = summary.mean.seconds_per_step
    return Comparison(
        trace_seconds_per_step=theirs,
        clock_seconds_per_step=ours,
        difference=theirs / ours - 1 if ours else None,
        null_because={"clock_seconds_per_step": why_not} if why_not else {},
        doubt=_doubt(theirs, ours or _about(steps, numbers)),
    )


def _range(window: StepWindow) -> range:
    first, last = window.first_step, window.last_step
    return range(0) if first is None or last is None else range(first, last + 1)


def _about(steps: Sequence[Step], numbers: range) -> float | None:
    """A step's time by our clock where the same steps cannot be compared: near them, else any profiled, else any."""
    timed = [step for step in steps if step.seconds is not None]
    near = [step for step in timed if step.step in numbers]
    profiled = [step for step in timed if step.excluded_because == PROFILER]
    counted = [step for step in timed if step.excluded_because is None]
    return statistics.median([step.seconds or 0 for step in near or profiled or counted])


def _doubt(theirs: float, ours: float | None) -> str:
    if not ours or FARTHEST_APART[0] <= theirs / ours <= FARTHEST_APART[1]:
        return ""
    return (
        f"the trace does not cover these steps: {theirs * 1e3:.4g} ms a step in it, {ours * 1e3:.4g} ms by our own "
        "clock; its breakdown is not that of a step"
    )
