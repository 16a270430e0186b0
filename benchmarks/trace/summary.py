"""A trace -> where the time of a step goes, as values. Pure.

Every moment of the window belongs to one kind of work alone: to compute where any operation computes (of several
kinds of compute, in the order of kinds.KINDS), else to collectives, else to copies, else it is idle. So the parts add
up to the step time. Collectives that have a moment for themselves are exposed communication. Beside it stands how
long each kind was at work in all, whatever ran beside it. A collective's time holds the wait for the slowest device.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.errors import RequestError
from benchmarks.trace.kinds import COLLECTIVE, IDLE, KINDS, Kind, Kinds
from benchmarks.trace.steps import common_steps, find_steps
from benchmarks.trace.trace import Device, Intervals, Trace, shares, union, within
from benchmarks.values import Profiling, Value

PICOSECONDS = 1e12


class StepWindow(Value, frozen=True):
    """Which steps of a trace are summarised, and of those it holds otherwise, why not."""

    how: str  # how the ends of steps are known
    first_step: int | None  # None: the trace does not number them
    last_step: int | None
    steps: int
    left_out: dict[str, int]  # why -> how many
    is_whole_trace: bool = False  # taken as one step, for want of anything that tells steps apart


class DeviceTimes(Value, frozen=True):
    """One device, or the mean over several: seconds a step."""

    host: str
    device: str
    devices: int
    seconds_per_step: float
    wall_seconds: dict[str, float]  # each moment to one kind, or idle: adds up to seconds_per_step
    work_seconds: dict[str, float]  # each kind in all, whatever ran beside it
    exposed_communication_seconds: float


class HostSummary(Value, frozen=True):
    """The trace of one host."""

    host: str
    window: StepWindow
    mean: DeviceTimes
    devices: list[DeviceTimes]
    notes: list[str]


Span = tuple[int, int]


def summarise(trace: Trace, kinds: Kinds, profiling: Profiling | None = None) -> HostSummary | None:
    """None where no device did anything in the trace; RequestError where its times make no window.

    `profiling` is what the profiler of the run was asked for, where that is known.
    """
    if not trace.devices:
        return None
    window, spans = _choose_window(trace, profiling)
    if any(end <= begin for begin, end in spans):
        raise RequestError(
            f"the trace of {trace.host} has no step of any length",
            where=trace.host,
            why="its times do not go on from one operation to the next: the file is damaged",
            next_command="a run with --profile=xplane or nsys makes another",
        )
    kind_of = [kinds.of(*pair) for pair in zip(trace.operations, trace.instructions, strict=True)]
    rows = [
        _device_times(trace.host, device, span, window.steps, kind_of)
        for device, span in zip(trace.devices, spans, strict=True)
    ]
    return HostSummary(
        host=trace.host,
        window=window,
        mean=mean_times(rows, trace.host),
        devices=rows,
        notes=trace.notes,
    )


def _choose_window(trace: Trace, profiling: Profiling | None) -> tuple[StepWindow, list[Span]]:
    """The whole steps without the profiler's start and stop; where the trace knows no steps, all of it."""
    found = find_steps(trace)
    if found is None:
        window = StepWindow(
            how="the whole trace as the steps that were asked for, which it does not tell apart"
            if profiling
            else "the whole trace as one, which tells no step from another",
            first_step=profiling.start_step if profiling else None,
            last_step=profiling.stop_step if profiling else None,
            steps=profiling.stop_step - profiling.start_step + 1 if profiling else 1,
            left_out={},
            is_whole_trace=profiling is None,
        )
        return window, [(int(one.begins.min()), int(one.ends.max())) for one in trace.devices]
    numbers = common_steps(found)
    if not numbers:
        steps = min(len(ends.ends) for ends in found.by_device) - 1
        left_out = {"not whole in the trace": 1}
        window = StepWindow(how=found.how, first_step=None, last_step=None, steps=steps, left_out=left_out)
        return window, [(ends.ends[0], ends.ends[steps]) for ends in found.by_device]
    # The profiler's start and stop take time: they fall into the first step and the last two.
    undisturbed = range(profiling.start_step + 1, profiling.stop_step - 1) if profiling else []
    used = [step for step in numbers if step in undisturbed] or numbers
    recorded = {step for ends in found.by_device for step in ends.steps} | {mark.step for mark in trace.marks}
    left_out = {
        "not whole in the trace": len(recorded - set(numbers)),
        "the profiler's start or stop is in them": len(numbers) - len(used),
    }
    window = StepWindow(
        how=found.how,
        first_step=used[0],
        last_step=used[-1],
        steps=len(used),
        left_out={why: count for why, count in left_out.items() if count},
    )
    first_and_last = [(ends.steps.index(used[0]), ends.steps.index(used[-1])) for ends in found.by_device]
    return window, [
        (ends.ends[first - 1], ends.ends[last])
        for ends, (first, last) in zip(found.by_device, first_and_last, strict=True)
    ]


def _device_times(host: str, device: Device, span: Span, steps: int, kind_of: Sequence[Kind]) -> DeviceTimes:
    place = {kind: number for number, kind in enumerate(KINDS)}
    numbers = np.array([place.get(kind, -1) for kind in kind_of])[device.operation]
    work = [
        union([within(Intervals(device.begins[rows], device.ends[rows]), *span)])
        for rows in (numbers == number for number in range(len(KINDS)))
    ]
    of_a_step = PICOSECONDS * steps
    wall_seconds: dict[str, float] = {
        kind: share / of_a_step for kind, share in zip(KINDS, shares(work), strict=True)
    }
    window_seconds = (span[1] - span[0]) / of_a_step
    return DeviceTimes(
        host=host,
        device=device.name,
        devices=1,
        seconds_per_step=window_seconds,
        wall_seconds={**wall_seconds, IDLE: window_seconds - sum(wall_seconds.values())},
        work_seconds={kind: moments.total() / of_a_step for kind, moments in zip(KINDS, work, strict=True)},
        exposed_communication_seconds=wall_seconds[COLLECTIVE],
    )


def mean_times(rows: Sequence[DeviceTimes], host: str) -> DeviceTimes:
    """The mean over devices, each as often as it stands for."""
    count = sum(row.devices for row in rows)

    def mean(values: Sequence[float]) -> float:
        return sum(value * row.devices for value, row in zip(values, rows, strict=True)) / count

    return DeviceTimes(
        host=host,
        device="mean",
        devices=count,
        seconds_per_step=mean([row.seconds_per_step for row in rows]),
        wall_seconds={kind: mean([row.wall_seconds[kind] for row in rows]) for kind in (*KINDS, IDLE)},
        work_seconds={kind: mean([row.work_seconds[kind] for row in rows]) for kind in KINDS},
        exposed_communication_seconds=mean([row.exposed_communication_seconds for row in rows]),
    )
