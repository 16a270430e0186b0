"""The trace and our own clock, of the same steps."""

import json

import pytest

from benchmarks.trace.report import compare
from benchmarks.trace.summary import summarise
from benchmarks.trace.xplane import read_xplane
from benchmarks.values import Profiling, Step
from tests.benchmarks.trace.made import SAMPLE_EVENTS, kinds, sample, steps_of, trace_of
from tests.benchmarks.trace.test_xplane import PATH

MADE = steps_of(4, (0, 9, "dot.1"))  # 10 ms a step
NUMBERED = summarise(trace_of(MADE, marks={20: 0, 21: 1, 22: 11, 23: 21}), kinds())
UNNUMBERED = summarise(trace_of(MADE, launches=4), kinds())
WHOLE = summarise(trace_of([(0, 9, "dot.1")], module=""), kinds())


def step_at(number: int, seconds: float, reason: str | None = None) -> Step:
    return Step(step=number, seconds=seconds, loss=None, tokens=None, excluded_because=reason)


def profiled(seconds: float) -> list[Step]:
    return [step_at(2, 0.020), *(step_at(number, seconds, reason="profiler") for number in range(20, 24))]


def test_the_real_trace_and_our_clock_agree_within_5_percent() -> None:
    events = [json.loads(line) for line in SAMPLE_EVENTS.read_text().splitlines()]
    steps = [step_at(one["step"], one["seconds"]) for one in events if one["event"] == "step"]
    asked = Profiling(ranks=[0], start_step=20, stop_step=24)
    summary = summarise(read_xplane(sample(), PATH), kinds(), asked)
    found = compare(summary, steps)
    assert (summary.window.first_step, summary.window.last_step) == (21, 22)
    assert abs(found.difference) < 0.05
    assert sum(summary.mean.wall_seconds.values()) == pytest.approx(found.clock_seconds_per_step, rel=0.05)


@pytest.mark.parametrize("summary", [NUMBERED, UNNUMBERED])
def test_the_same_steps_are_compared_or_those_that_were_profiled(summary: object) -> None:
    found = compare(summary, [*profiled(0.0125), step_at(30, 0.5)])
    assert (found.trace_seconds_per_step, found.clock_seconds_per_step) == pytest.approx((0.010, 0.0125))
    assert found.difference == pytest.approx(-0.2)


def test_what_cannot_be_compared_has_no_comparison() -> None:
    assert compare(NUMBERED, []) is None
    assert compare(UNNUMBERED, [step_at(2, 1.0)]) is None
    assert compare(WHOLE, profiled(0.01)) is None
