"""Where the steps of a trace end on each device, and which of them are whole. Pure.

A step ends on a device when the training program's last operation that occurs once a step has ended, which is what
our own clock sees too (it waits for the step's loss). So step k is the time from that end in the execution before to
the one in its own. Of an xplane the host's marks say how many steps there are, of Nsight Systems the launches.

The numbers come from the host's marks in order. An execution that was under way when the profiler began has no mark:
where there are more executions than marks, the first ones are such.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.trace.trace import Device, Mark, Trace


class StepEnds(NamedTuple):
    """When steps ended on one device, in order. The first has no beginning in the trace, so it is not whole."""

    steps: list[int | None]  # None: the trace does not number them
    ends: list[int]


class Steps(NamedTuple):
    """The steps of a trace, by device."""

    how: str
    by_device: list[StepEnds]


def find_steps(trace: Trace) -> Steps | None:
    """None: nothing in the trace tells one step from another."""
    module = _training_module(trace)
    if module is None:
        return None
    expected = len(trace.marks) or trace.launches
    found = [_ends(trace, device, module, expected) for device in trace.devices]
    if any(len(ends) < 2 for ends in found):
        return None
    how = f"between the ends of {module} on the device"
    return Steps(how, [StepEnds(_numbers(trace.marks, ends), ends) for ends in found])


def _training_module(trace: Trace) -> str | None:
    """The program that takes most of the devices' time."""
    seconds: Counter[str] = Counter()
    modules = [operation.module for operation in trace.operations]
    for device in trace.devices:
        spent = np.bincount(device.operation, device.ends - device.begins, minlength=len(modules))
        for module, picoseconds in zip(modules, spent, strict=True):
            seconds[module] += int(picoseconds)
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


def common_steps(steps: Steps) -> list[int]:
    """The numbers of the steps that are whole on every device."""
    whole = [{step for step in ends.steps[1:] if step is not None} for ends in steps.by_device]
    return sorted(set.intersection(*whole)) if whole else []
