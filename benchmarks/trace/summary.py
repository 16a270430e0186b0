"""Compute from a trace how the time of a step is spent. Pure.

Every moment of the window belongs to exactly one kind of work, so the parts add up to the step time: compute if any
operation computes (several kinds of compute in the order of kinds.KINDS), otherwise collectives, otherwise copies,
otherwise idle. The part of collectives is exposed communication. In addition, each kind has its total time, including
times when others ran too. The time of a collective includes the wait for the slowest device.
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
    """The summarised steps of a trace, and the reasons for the excluded ones."""

    how: str  # how the ends of steps are known
    first_step: int | None  # None: the trace does not number them
    last_step: int | None
    steps: int
    left_out: dict[str, int]  # why -> how many
    is_whole_trace: bool = False  # the trace counts as one step, because nothing separates its steps


class DeviceTimes(Value, frozen=True):
    """One device, or the mean over several: seconds a step."""

    host: str
    device: str
    devices: int
    seconds_per_step: float
    wall_seconds: dict[str, float]  # each moment to one kind, or idle; of collectives: exposed communication
    work_seconds: dict[str, float]  # the total of each kind, including overlap


class HostSummary(Value, frozen=True):
    """The trace of one host."""

    host: str
    window: StepWindow
    mean: DeviceTimes
    devices: list[DeviceTimes]
    notes: list[str]


Span = tuple[int, int]


def summarise(trace: Trace, kinds: Kinds, profiling: Profiling | None = None) -> HostSummary | None:
    """Return the summary, or None if no device did anything in the trace.

    `profiling`: the profiler's settings of the run, if they are known.
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
    """The whole steps without the profiler's start and stop; where the trace knows no steps, all of it."""
    found = find_steps(trace)
    if found is None:
        window = StepWindow(
            how="the whole trace as the requested steps, because it does not mark steps"
            if profiling
            else "the whole trace as one, because it does not mark steps",
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
    # The profiler's start and stop take time: they fall into the first step and the last two.
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
    """Return the time of each kind and of idling, each moment for one of them; and the time of each kind in all."""
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
    )


# --- where steps end ------------------------------------------------------------------------------
#
# A step ends on a device when the training program's last operation that occurs once a step has ended. Our own clock
# sees that too: it waits for the step's loss. So step k is the time from that end in the execution before to the one
# in its own. The host's marks in an xplane say how many steps there are; with Nsight Systems, the launches do.
#
# The numbers come from the host's marks in order. An execution that was under way when the profiler began has no
# mark. If there are more executions than marks, the first ones are such.


class Steps(NamedTuple):
    """The ends of the steps on each device, in order. The first step is incomplete: its start is not in the trace."""

    how: str
    numbers: list[list[int | None]]  # None: the trace does not number them
    ends: list[list[int]]

    def common(self) -> list[int]:
        """The numbers of the steps that are whole on every device."""
        whole = [{step for step in steps[1:] if step is not None} for steps in self.numbers]
        return sorted(set.intersection(*whole)) if whole else []


def find_steps(trace: Trace) -> Steps | None:
    """Return the steps; None if nothing in the trace separates them."""
    module = _training_module(trace)
    if module is None:
        return None
    expected = len(trace.marks) or trace.launches
    found = [_ends(trace, device, module, expected) for device in trace.devices]
    if any(len(ends) < 2 for ends in found):
        return None
    numbers = [_numbers(trace.marks, ends) for ends in found]
    return Steps(f"between the ends of {module} on the device", numbers, found)


def _training_module(trace: Trace) -> str | None:
    """The program that takes most of the devices' time."""
    seconds: Counter[str] = Counter()
    for device in trace.devices:
        spent = np.bincount(device.operation, device.ends - device.begins, minlength=len(trace.operations))
        for operation, picoseconds in zip(trace.operations, spent, strict=True):
            seconds[operation.module] += int(picoseconds)
    del seconds[""]
    return seconds.most_common(1)[0][0] if seconds else None


def _ends(trace: Trace, device: Device, module: str, expected: int) -> list[int]:
    """The ends of one operation that occurs as often as there are steps, give or take one that was cut."""
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
    """The step that each end belongs to."""
    if not marks:
        return [None] * len(ends)
    unmarked = max(0, len(ends) - len(marks))
    while any(end < mark.begin for end, mark in zip(ends[unmarked:], marks, strict=False)):
        unmarked += 1  # nothing ends before it was begun
    first = marks[0].step
    numbers = [first - unmarked + place for place in range(min(unmarked, len(ends)))]
    return [*numbers, *(mark.step for mark in marks[: len(ends) - unmarked])]
