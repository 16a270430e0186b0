"""Compute from a trace how a step spends its time. No I/O.

Every moment of the window counts for exactly one kind of work, so the parts add up to the step time: compute if any
operation computes (if several kinds compute, the first in kinds.KINDS), otherwise collectives, otherwise copies,
otherwise idle. The part of collectives is exposed communication. Each kind also has a total time, which includes the
overlap with other kinds. The time of a collective includes the wait for the slowest device.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.trace.kinds import IDLE, KINDS, Kind, Kinds
from benchmarks.trace.trace import Device, Mark, Numbers, Trace
from benchmarks.values import Profiling, Value

PICOSECONDS = 1e12
NOT_WHOLE, DISTURBED = "incomplete in the trace", "with the profiler's start or stop"


class StepWindow(Value, frozen=True):
    """The steps of a trace that the summary covers, and the reasons why other steps are excluded."""

    how: str  # how the end of each step was found
    first_step: int | None  # None: the trace does not number its steps
    last_step: int | None
    steps: int
    left_out: dict[str, int]  # reason -> the number of steps excluded for it
    is_whole_trace: bool = False  # whether the trace counts as one step, because nothing in it separates steps


class DeviceTimes(Value, frozen=True):
    """The times of one device, or the mean over several devices, in seconds per step."""

    host: str
    device: str
    devices: int
    seconds_per_step: float
    wall_seconds: dict[str, float]  # kind or `idle` -> time; for collectives, the exposed communication
    work_seconds: dict[str, float]  # kind -> total time, including overlap with other kinds


class HostSummary(Value, frozen=True):
    """The summary of one host's trace."""

    host: str
    window: StepWindow
    mean: DeviceTimes
    devices: list[DeviceTimes]
    notes: list[str]


Span = tuple[int, int]


def summarise(trace: Trace, kinds: Kinds, profiling: Profiling | None = None) -> HostSummary | None:
    """Return the summary; None if no operation in the trace belongs to a device.

    `profiling` is what the run requested from the profiler, if this is known.
    """
    if not trace.devices:
        return None
    window, spans = _choose_window(trace, profiling)
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
    """Return the complete steps that the profiler's start and stop do not disturb; without steps, the whole trace."""
    found = find_steps(trace)
    if found is None:
        window = StepWindow(
            how="the requested steps share the whole trace, because the trace does not mark steps"
            if profiling
            else "one step for the whole trace, because the trace does not mark steps",
            first_step=profiling.start_step if profiling else None,
            last_step=profiling.stop_step if profiling else None,
            steps=profiling.stop_step - profiling.start_step + 1 if profiling else 1,
            left_out={},
            is_whole_trace=profiling is None,
        )
        return window, [(int(one.begins.min()), int(one.ends.max())) for one in trace.devices]
    numbers = found.common()
    if not numbers:
        steps = min(map(len, found.ends)) - 1
        window = StepWindow(how=found.how, first_step=None, last_step=None, steps=steps, left_out={NOT_WHOLE: 1})
        return window, [(ends[0], ends[steps]) for ends in found.ends]
    # Starting and stopping the profiler takes time in the first step and in the last two steps.
    undisturbed = range(profiling.start_step + 1, profiling.stop_step - 1) if profiling else []
    used = [step for step in numbers if step in undisturbed] or numbers
    recorded = {*itertools.chain(*found.numbers), *(mark.step for mark in trace.marks)}
    left_out = {NOT_WHOLE: len(recorded - {*numbers}), DISTURBED: len(numbers) - len(used)}
    window = StepWindow(
        how=found.how,
        first_step=used[0],
        last_step=used[-1],
        steps=len(used),
        left_out={why: count for why, count in left_out.items() if count},
    )
    return window, [
        (ends[steps.index(used[0]) - 1], ends[steps.index(used[-1])])
        for steps, ends in zip(found.numbers, found.ends, strict=True)
    ]


def _device_times(host: str, device: Device, span: Span, steps: int, kind_of: Sequence[Kind]) -> DeviceTimes:
    place = {kind: number for number, kind in enumerate(KINDS)}
    kinds = np.array([place.get(kind, -1) for kind in kind_of])[device.operation]
    wall, work = _picoseconds_by_kind(np.clip(device.begins, *span), np.clip(device.ends, *span), kinds, span)
    of_a_step = PICOSECONDS * steps
    return DeviceTimes(
        host=host,
        device=device.name,
        devices=1,
        seconds_per_step=(span[1] - span[0]) / of_a_step,
        wall_seconds={kind: float(n) / of_a_step for kind, n in zip((*KINDS, IDLE), wall, strict=True)},
        work_seconds={kind: float(n) / of_a_step for kind, n in zip(KINDS, work, strict=True)},
    )


def _picoseconds_by_kind(begins: Numbers, ends: Numbers, kinds: Numbers, span: Span) -> tuple[Numbers, Numbers]:
    """Return the times that add up to the span (of each kind, and idle), then the total time of each kind."""
    edges = np.unique(np.concatenate([begins, ends, span]))
    lengths = np.diff(edges)
    at_work = []
    for kind in range(len(KINDS)):
        begun, ended = (np.searchsorted(edges, moments[kinds == kind]) for moments in (begins, ends))
        running = np.bincount(begun, minlength=len(edges)) - np.bincount(ended, minlength=len(edges))
        at_work.append(np.cumsum(running)[:-1] > 0)
    first = np.argmax([*at_work, np.ones(len(lengths), dtype=bool)], axis=0)
    wall = np.bincount(first, weights=lengths, minlength=len(KINDS) + 1)
    return wall, np.array([lengths[moments].sum() for moments in at_work])


def mean_times(rows: Sequence[DeviceTimes], host: str) -> DeviceTimes:
    """Return the mean of the rows, weighted by the number of devices in each row."""
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
    )


# --- the ends of steps ----------------------------------------------------------------------------
#
# On a device, a step ends with the last operation of the training program that occurs once per step. Stepmark's clock
# stops at the same point, because it waits for the loss. Step k therefore lasts from this operation in execution k -
# 1 until this operation in execution k. The host's marks in an xplane, or the launches, give the number of steps.
#
# The host's marks number the steps in order. An execution that started before the profiler has no mark, so if there
# are more executions than marks, the first executions are those without a mark.


class Steps(NamedTuple):
    """The end of each step on each device, in order. The trace does not contain the start of the first step."""

    how: str
    numbers: list[list[int | None]]  # None: the trace does not number its steps
    ends: list[list[int]]

    def common(self) -> list[int]:
        """Return the numbers of the steps that every device has completely."""
        whole = [{step for step in steps[1:] if step is not None} for steps in self.numbers]
        return sorted(set.intersection(*whole)) if whole else []


def find_steps(trace: Trace) -> Steps | None:
    """Return the ends of the steps; None if nothing in the trace separates steps."""
    module = _training_module(trace)
    if module is None:
        return None
    expected = len(trace.marks) or trace.launches
    found = [_ends(trace, device, module, expected) for device in trace.devices]
    if any(len(ends) < 2 for ends in found):
        return None
    numbers = [_numbers(trace.marks, ends) for ends in found]
    return Steps(f"each from one end of {module} on the device to the next", numbers, found)


def _training_module(trace: Trace) -> str | None:
    """Return the program that takes most of the devices' time, or None."""
    seconds: Counter[str] = Counter()
    for device in trace.devices:
        spent = np.bincount(device.operation, device.ends - device.begins, minlength=len(trace.operations))
        for operation, picoseconds in zip(trace.operations, spent, strict=True):
            seconds[operation.module] += int(picoseconds)
    del seconds[""]
    return seconds.most_common(1)[0][0] if seconds else None


def _ends(trace: Trace, device: Device, module: str, expected: int) -> list[int]:
    """Return the ends of the last operation that occurs once per step. The trace may lack one step."""
    within = np.array([operation.module == module for operation in trace.operations])
    rows = within[device.operation]
    numbers, ends = device.operation[rows], device.ends[rows]
    counts = np.bincount(numbers, minlength=len(trace.operations))
    for wanted in (expected, expected - 1, expected + 1):
        if wanted >= 2 and (counts == wanted).any():
            once = counts[numbers] == wanted
            last = numbers[once][np.argmax(ends[once])]
            return sorted(int(end) for end in ends[numbers == last])
    return []


def _numbers(marks: Sequence[Mark], ends: Sequence[int]) -> list[int | None]:
    """Return the number of the step that ends at each of these times; None for each if the trace has no marks."""
    if not marks:
        return [None] * len(ends)
    unmarked = max(0, len(ends) - len(marks))
    while any(end < mark.begin for end, mark in zip(ends[unmarked:], marks, strict=False)):
        unmarked += 1  # a step cannot end before it begins
    first = marks[0].step
    numbers = [first - unmarked + place for place in range(min(unmarked, len(ends)))]
    return [*numbers, *(mark.step for mark in marks[: len(ends) - unmarked])]
