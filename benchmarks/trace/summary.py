"""A trace -> where the time of a step goes, as values. Pure.

Every moment of the window belongs to one kind of work alone: to compute where any operation computes (of several
kinds of compute, in the order of kinds.KINDS), else to collectives, else to copies, else it is idle. So the parts add
up to the step time. Collectives that have a moment for themselves are exposed communication. Beside it stands how
long each kind was at work in all, whatever ran beside it. A collective's time holds the wait for the slowest device.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.errors import RequestError
from benchmarks.trace import intervals
from benchmarks.trace.intervals import Intervals
from benchmarks.trace.kinds import COLLECTIVE, IDLE, KINDS, NONE, Kind, Kinds
from benchmarks.trace.steps import StepEnds, Steps, common_steps, find_steps, longest_stretch
from benchmarks.trace.trace import Device, Trace
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


class TopOperation(Value, frozen=True):
    """Operations that are alike, over the window: what they took of a step, on the mean device."""

    name: str
    module: str
    kind: str
    calls_per_step: float
    seconds_per_step: float
    share: float  # of the time of all operations


class HostSummary(Value, frozen=True):
    """The trace of one host."""

    host: str
    window: StepWindow
    mean: DeviceTimes
    devices: list[DeviceTimes]
    operations: list[TopOperation]
    notes: list[str]


class Wanted(NamedTuple):
    """What is known of the run from elsewhere: the steps whose time is known there too, and what was asked for."""

    steps: frozenset[int] | None = None
    profiling: Profiling | None = None
    why_not: str = "our clock has the profiler's start or stop in them"


class Spans(NamedTuple):
    """The window, from where to where on each device."""

    window: StepWindow
    by_device: list[tuple[int, int]]


def summarise(trace: Trace, kinds: Kinds, wanted: Wanted, most: int = 15) -> HostSummary | None:
    """None where no device did anything in the trace; RequestError where its times make no window."""
    if not trace.devices:
        return None
    spans = choose_window(trace, wanted)
    if any(end <= begin for begin, end in spans.by_device):
        raise RequestError(
            f"the trace of {trace.host} has no step of any length",
            where=trace.host,
            why="its times do not go on from one operation to the next: the file is damaged",
            next_command="a run with --profile=xplane or nsys makes another",
        )
    kind_of = [kinds.of(*pair) for pair in zip(trace.operations, trace.instructions, strict=True)]
    rows = [
        _device_times(trace.host, device, span, spans.window.steps, kind_of)
        for device, span in zip(trace.devices, spans.by_device, strict=True)
    ]
    return HostSummary(
        host=trace.host,
        window=spans.window,
        mean=mean_times(rows, trace.host, "mean"),
        devices=rows,
        operations=_top_operations(trace, spans, kind_of)[:most],
        notes=trace.notes,
    )


# --- the window ---------------------------------------------------------------------------------


def choose_window(trace: Trace, wanted: Wanted) -> Spans:
    """The whole steps, and of these those that are wanted; where the trace knows no steps, all of it."""
    profiling = wanted.profiling
    asked = profiling.stop_step - profiling.start_step + 1 if profiling else None
    found = find_steps(trace, profiling.start_step if profiling else None, asked)
    if found is None:
        return _everything(trace, profiling)
    numbers = common_steps(found)
    if not numbers:
        return _unnumbered(found)
    chosen = longest_stretch(numbers)
    both = longest_stretch(set(chosen) & wanted.steps) if wanted.steps is not None else []
    used = both or chosen
    recorded = {step for ends in found.by_device for step in ends.steps} | {mark.step for mark in trace.marks}
    left_out = {
        "not whole in the trace": len(recorded - set(numbers)),
        "apart from the others": len(set(numbers) - set(chosen)),
        wanted.why_not: len(set(chosen) - set(used)),
    }
    window = StepWindow(
        how=found.how,
        first_step=used[0],
        last_step=used[-1],
        steps=len(used),
        left_out={why: count for why, count in left_out.items() if count},
    )
    return Spans(window, [_span(ends, used[0], used[-1]) for ends in found.by_device])


def _span(ends: StepEnds, first: int, last: int) -> tuple[int, int]:
    return ends.between(ends.steps.index(first), ends.steps.index(last))


def _unnumbered(found: Steps) -> Spans:
    steps = min(len(ends.ends) for ends in found.by_device) - 1
    window = StepWindow(
        how=found.how, first_step=None, last_step=None, steps=steps, left_out={"not whole in the trace": 1}
    )
    return Spans(window, [ends.between(1, steps) for ends in found.by_device])


def _everything(trace: Trace, profiling: Profiling | None) -> Spans:
    """From the first operation to the last, taken for the steps that the profiler was asked to record."""
    window = StepWindow(
        how="the whole trace as one, which tells no step from another",
        first_step=None,
        last_step=None,
        steps=1,
        left_out={},
        is_whole_trace=True,
    )
    if profiling is not None:
        window = StepWindow(
            how="the whole trace as the steps that were asked for, which it does not tell apart",
            first_step=profiling.start_step,
            last_step=profiling.stop_step,
            steps=profiling.stop_step - profiling.start_step + 1,
            left_out={},
        )
    return Spans(window, [(int(one.begins.min()), int(one.ends.max())) for one in trace.devices])


# --- the times ----------------------------------------------------------------------------------


def _device_times(
    host: str, device: Device, span: tuple[int, int], steps: int, kind_of: Sequence[Kind]
) -> DeviceTimes:
    window = span[1] - span[0]
    by_kind = {
        kind: intervals.union([intervals.within(moments, *span)])
        for kind, moments in _by_kind(device, kind_of).items()
    }
    wall = dict(zip(KINDS, intervals.shares([by_kind[kind] for kind in KINDS]), strict=True))
    wall_seconds: dict[str, float] = {kind: share / PICOSECONDS / steps for kind, share in wall.items()}
    wall_seconds[IDLE] = (window - sum(wall.values())) / PICOSECONDS / steps
    return DeviceTimes(
        host=host,
        device=device.name,
        devices=1,
        seconds_per_step=window / PICOSECONDS / steps,
        wall_seconds=wall_seconds,
        work_seconds={kind: intervals.total(by_kind[kind]) / PICOSECONDS / steps for kind in KINDS},
        exposed_communication_seconds=wall_seconds[COLLECTIVE],
    )


def _by_kind(device: Device, kind_of: Sequence[Kind]) -> Mapping[Kind, Intervals]:
    place = {kind: number for number, kind in enumerate(KINDS)}
    numbers = np.array([place.get(kind, -1) for kind in kind_of])[device.operation]
    return {
        kind: Intervals(device.begins[numbers == number], device.ends[numbers == number])
        for kind, number in place.items()
    }


def mean_times(rows: Sequence[DeviceTimes], host: str, name: str) -> DeviceTimes:
    """The mean over devices, each as often as it stands for."""
    count = sum(row.devices for row in rows)

    def mean(values: Sequence[float]) -> float:
        return sum(value * row.devices for value, row in zip(values, rows, strict=True)) / count

    return DeviceTimes(
        host=host,
        device=name,
        devices=count,
        seconds_per_step=mean([row.seconds_per_step for row in rows]),
        wall_seconds={kind: mean([row.wall_seconds[kind] for row in rows]) for kind in (*KINDS, IDLE)},
        work_seconds={kind: mean([row.work_seconds[kind] for row in rows]) for kind in KINDS},
        exposed_communication_seconds=mean([row.exposed_communication_seconds for row in rows]),
    )


def _top_operations(trace: Trace, spans: Spans, kind_of: Sequence[Kind]) -> list[TopOperation]:
    """By their time in the window: what encloses others is left out, so each moment of a thread counts once."""
    spent = np.zeros(len(kind_of))
    calls = np.zeros(len(kind_of))
    for device, (begin, end) in zip(trace.devices, spans.by_device, strict=True):
        inside = np.minimum(device.ends, end) - np.maximum(device.begins, begin)
        rows = inside > 0
        spent += np.bincount(device.operation[rows], inside[rows], minlength=len(kind_of))
        calls += np.bincount(device.operation[rows], minlength=len(kind_of))
    for number, kind in enumerate(kind_of):
        if kind == NONE:
            spent[number] = 0
    everything = float(spent.sum()) or 1.0
    over = len(trace.devices) * spans.window.steps
    return [
        TopOperation(
            name=trace.operations[number].title,
            module=trace.operations[number].module,
            kind=kind_of[number],
            calls_per_step=float(calls[number]) / over,
            seconds_per_step=float(spent[number]) / PICOSECONDS / over,
            share=float(spent[number]) / everything,
        )
        for number in map(int, np.argsort(-spent, kind="stable"))
        if spent[number] > 0
    ]
