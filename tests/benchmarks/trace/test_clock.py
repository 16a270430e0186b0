"""The trace against our own clock: the same steps, or a reason why not."""

import json

import pytest

from benchmarks.trace.report import compare, undisturbed_steps
from benchmarks.trace.summary import Wanted, summarise
from benchmarks.trace.xplane import read_xplane
from benchmarks.values import Profiling, Step
from tests.benchmarks.trace.made import SAMPLE_EVENTS, kinds, sample, steps_of, trace_of
from tests.benchmarks.trace.test_xplane import PATH

PROFILING = Profiling(ranks=[0], start_step=20, stop_step=29)
MADE = steps_of(4, (0, 9, "dot.1"))  # 10 ms a step
NUMBERED = summarise(trace_of(MADE, marks={20: 0, 21: 1, 22: 11, 23: 21}), kinds(), Wanted())
UNNUMBERED = summarise(trace_of(MADE), kinds(), Wanted())
WHOLE = frozenset({21, 22, 23})


def step_at(number: int, seconds: float, elapsed: float | None = None, reason: str | None = None) -> Step:
    return Step(
        step=number, seconds=seconds, loss=None, tokens=None, elapsed_seconds=elapsed, excluded_because=reason
    )


def profiled(seconds: float) -> list[Step]:
    return [step_at(2, 0.010), *(step_at(number, seconds, reason="profiler") for number in range(20, 24))]


def test_the_real_trace_and_our_clock_agree_within_5_percent() -> None:
    events = [json.loads(line) for line in SAMPLE_EVENTS.read_text().splitlines()]
    started = next(event["unix_seconds"] for event in events if event["event"] == "started")
    steps = [step_at(one["step"], one["seconds"], one["elapsed_seconds"]) for one in events if one["event"] == "step"]
    trace = read_xplane(sample(), PATH)
    undisturbed = undisturbed_steps(steps, started, trace, None)
    summary = summarise(trace, kinds(), Wanted(undisturbed))
    found = compare(summary, steps, undisturbed)
    assert (summary.window.first_step, summary.window.last_step) == (21, 22)
    assert abs(found.difference) < 0.05
    assert sum(summary.mean.wall_seconds.values()) == pytest.approx(found.clock_seconds_per_step, rel=0.05)


def test_by_the_time_of_day_only_steps_within_the_trace_are_undisturbed() -> None:
    trace = trace_of(MADE, starts_unix_seconds=100.0, stops_unix_seconds=103.5)
    steps = [step_at(number, 1.0, number + 0.5) for number in range(10)]  # step n ends at 95.5 + n
    assert undisturbed_steps(steps, 95.0, trace, PROFILING) == {6, 7, 8}


@pytest.mark.parametrize("started", [None, 95.0])
def test_without_the_time_of_day_the_ends_of_what_was_asked_for_are_left_out(started: float | None) -> None:
    assert undisturbed_steps([], started, trace_of(MADE), PROFILING) == set(range(21, 28))
    assert undisturbed_steps([], started, trace_of(MADE), None) == set()


def test_the_same_steps_are_compared() -> None:
    found = compare(NUMBERED, profiled(0.0125), WHOLE)
    assert (found.trace_seconds_per_step, found.clock_seconds_per_step) == pytest.approx((0.010, 0.0125))
    assert found.difference == pytest.approx(-0.2)
    assert found.null_because == {}


@pytest.mark.parametrize(
    ("summary", "timed", "undisturbed", "said"),
    [
        (UNNUMBERED, (), WHOLE, "does not number"),
        (NUMBERED, (), WHOLE, "no time for all of steps 21 to 23"),
        (NUMBERED, (21, 23), WHOLE, "no time"),
        (NUMBERED, (21, 22, 23), frozenset({21, 22}), "start or stop lies in"),
    ],
)
def test_what_cannot_be_compared_says_why(
    summary: object, timed: tuple[int, ...], undisturbed: frozenset[int], said: str
) -> None:
    found = compare(summary, [step_at(number, 1.0) for number in timed], undisturbed)
    assert found.difference is found.clock_seconds_per_step is None
    assert said in found.null_because["clock_seconds_per_step"]


@pytest.mark.parametrize(("seconds", "doubted"), [(0.0049, True), (0.0051, False), (0.0199, False), (0.021, True)])
def test_a_trace_whose_step_is_not_near_ours_does_not_cover_the_steps(seconds: float, doubted: bool) -> None:
    """Also where the profiler's start lies in the steps, so that no difference is said."""
    for undisturbed in (WHOLE, frozenset[int]()):
        doubt = compare(NUMBERED, profiled(seconds), undisturbed).doubt
        assert doubt.startswith("the trace does not cover these steps: 10 ms") == doubted
        assert bool(doubt) == doubted
