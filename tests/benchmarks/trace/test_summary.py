"""Where a step goes: the parts add up, compute wins over collectives over copies, only whole steps count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.errors import RequestError
from benchmarks.trace.kinds import IDLE, KINDS
from benchmarks.trace.summary import HostSummary, mean_times, summarise
from benchmarks.trace.trace import Trace
from benchmarks.trace.xplane import read_xplane
from benchmarks.values import Profiling
from tests.benchmarks.trace.made import kinds, sample, steps_of, trace_of
from tests.benchmarks.trace.test_xplane import PATH

MARKS = {20: 0, 21: 1, 22: 11, 23: 21}
# A step of 10 ms: 3 of matmul, a gather of 4 of which 2 lie under it, a copy of 3 of which 1 lies under the gather.
PARTS = ((0, 3, "dot.1"), (1, 5, "all-gather.1"), (4, 7, "copy.1"), (7, 8, "tanh.1"), (0, 9.5, "while.1"))


def summary_of(trace: Trace, profiling: Profiling | None = None) -> HostSummary:
    return summarise(trace, kinds(), profiling)


def milliseconds(times: dict[str, float]) -> dict[str, float]:
    return {kind: round(seconds * 1e3, 6) for kind, seconds in times.items() if seconds}


def test_every_moment_has_one_kind_and_the_parts_add_up() -> None:
    found = summary_of(trace_of(steps_of(4, *PARTS), marks=MARKS)).mean
    assert milliseconds(found.wall_seconds) == {"matmul": 3, "collective": 2, "copy": 2, "other": 1, IDLE: 2}
    assert milliseconds(found.work_seconds) == {"matmul": 3, "collective": 4, "copy": 3, "other": 1}
    assert found.seconds_per_step == pytest.approx(0.010)
    assert found.exposed_communication_seconds == pytest.approx(0.002)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 9), st.floats(0.01, 3), st.sampled_from(["dot.1", "all-gather.1", "copy.1", "tanh.1"])
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_parts_add_up_to_the_step_whatever_ran_when(rows: list[tuple[float, float, str]]) -> None:
    parts = [(begin, begin + length, name) for begin, length, name in rows]
    found = summary_of(trace_of(steps_of(4, *parts), marks=MARKS)).mean
    assert set(found.wall_seconds) == {*KINDS, IDLE}
    assert sum(found.wall_seconds.values()) == pytest.approx(found.seconds_per_step, rel=1e-9)
    assert all(found.wall_seconds[kind] <= found.work_seconds[kind] + 1e-12 for kind in KINDS)
    assert min(found.wall_seconds.values()) >= 0


def test_the_real_trace_adds_up_and_has_every_kind() -> None:
    found = summary_of(read_xplane(sample(), PATH))
    assert (found.window.first_step, found.window.last_step, found.window.steps) == (21, 24, 4)
    for device in (found.mean, *found.devices):
        assert sum(device.wall_seconds.values()) == pytest.approx(device.seconds_per_step, rel=1e-9)
        assert all(seconds > 0 for seconds in device.wall_seconds.values())


LONGER = trace_of(steps_of(6, *PARTS), marks={step: 10 * step - 200 for step in range(20, 26)})
CUT, PROFILER = "not whole in the trace", "the profiler's start or stop is in them"
ASKED = Profiling(ranks=[0], start_step=45, stop_step=48)
WITHOUT = trace_of([(5, 9, "dot.1"), (9, 25, "tanh.1")], module="")


@pytest.mark.parametrize(
    ("trace", "profiling", "steps", "left_out"),
    [
        (LONGER, Profiling(ranks=[0], start_step=20, stop_step=25), (21, 23, 3), {CUT: 1, PROFILER: 2}),
        (LONGER, ASKED, (21, 25, 5), {CUT: 1}),  # none of those that were asked for: all whole ones
        (trace_of(steps_of(4, *PARTS), launches=4), None, (None, None, 3), {CUT: 1}),  # no numbers
        (WITHOUT, None, (None, None, 1), {}),  # no steps: all of it as one
        (WITHOUT, ASKED, (45, 48, 4), {}),
    ],
)
def test_which_steps_are_summarised_and_why_others_are_not(
    trace: Trace, profiling: Profiling | None, steps: tuple[int | None, int | None, int], left_out: dict[str, int]
) -> None:
    window = summary_of(trace, profiling).window
    assert (window.first_step, window.last_step, window.steps) == steps
    assert window.left_out == left_out
    assert window.is_whole_trace == (trace is WITHOUT and profiling is None)


def test_only_what_lies_in_the_window_counts() -> None:
    """The step before the window is ten times as long; nothing of it may show."""
    slow = [(-100, -1, "dot.1"), (-1, 0, "tanh.1")]
    later = steps_of(3, (0, 5, "dot.1"), (5, 10, "tanh.1"))
    found = summary_of(trace_of([*slow, *later], marks={20: -100, 21: 0, 22: 1, 23: 11}))
    assert milliseconds(found.mean.wall_seconds) == {"matmul": 5, "other": 5}


def test_a_trace_without_devices_has_no_summary() -> None:
    assert summarise(trace_of(marks=MARKS), kinds()) is None


def test_the_mean_over_hosts_counts_devices() -> None:
    one = summary_of(trace_of(steps_of(4, *PARTS), marks=MARKS)).mean
    three = mean_times([summary_of(trace_of(*[steps_of(4, *PARTS, period=20)] * 3, marks=MARKS)).mean], "n2")
    found = mean_times([one, three], "all")
    assert found.devices == 4
    assert found.seconds_per_step == pytest.approx((0.010 + 3 * 0.020) / 4)


def test_a_window_without_length_is_refused() -> None:
    at_once = [(5, 5, "dot.1")]
    with pytest.raises(RequestError, match="no step of any length"):
        summary_of(trace_of(at_once, module=""))
