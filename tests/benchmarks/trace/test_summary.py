"""Where steps end, which count, where their time goes, how that compares with our own clock; all of it as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.trace.kinds import IDLE, KINDS
from benchmarks.trace.report import TraceFile, TraceReport, compare
from benchmarks.trace.summary import HostSummary, find_steps, mean_times, summarise
from benchmarks.trace.tables import report_text
from benchmarks.trace.trace import Trace
from benchmarks.trace.xplane import read_xplane
from benchmarks.values import Profiling, Step
from tests.benchmarks.trace.made import MS, Row, kinds, sample, steps_of, trace_of
from tests.benchmarks.trace.test_xplane import PATH

# --- steps --------------------------------------------------------------------------------------

TWO = ((0, 4, "dot.1"), (4, 9, "add.1"))
LOOP = ((2, 3, "layer.1"), (3, 4, "layer.1"))
AHEAD = {20: 0.5, 21: 1.0, 22: 10.5, 23: 20.5}  # one step ahead of the device
LATE = {20: 5, 21: 10, 22: 20, 23: 30}
LATER = {20: 9.5, 21: 19.5, 22: 29.5}


@pytest.mark.parametrize(
    ("trace", "ends", "steps"),
    [
        pytest.param(trace_of(steps_of(4, *TWO), marks=AHEAD), [9, 19, 29, 39], [20, 21, 22, 23], id="whole"),
        pytest.param(trace_of(steps_of(4, *TWO)[:-1], marks=AHEAD), [4, 14, 24, 34], [20, 21, 22, 23], id="cut"),
        pytest.param(
            trace_of(steps_of(5, *TWO)[1:], marks=LATE),
            [14, 24, 34, 44],
            [20, 21, 22, 23],
            id="begun before the profiler",
        ),
        pytest.param(
            trace_of(steps_of(3, *TWO), marks=LATER), [9, 19, 29], [19, 20, 21], id="none ends before it begins"
        ),
        pytest.param(trace_of(steps_of(3, *TWO), marks=AHEAD), [9, 19, 29], [20, 21, 22], id="a mark too many"),
        pytest.param(
            trace_of(steps_of(4, *TWO, *LOOP), marks=AHEAD), [9, 19, 29, 39], [20, 21, 22, 23], id="once a step"
        ),
        pytest.param(
            trace_of(steps_of(4, *TWO)[1:-1], marks=AHEAD), [14, 24, 34], [20, 21, 22], id="cut at both ends"
        ),
        pytest.param(trace_of(steps_of(3, *TWO), launches=3), [9, 19, 29], [None, None, None], id="no marks"),
    ],
)
def test_where_steps_end_and_which_number_each_has(trace: Trace, ends: list[float], steps: list[int | None]) -> None:
    found = find_steps(trace)
    assert found.ends == [[end * MS for end in ends]]
    assert found.numbers == [steps]
    assert found.common() == [step for step in steps[1:] if step], "the first has no beginning in the trace"


def test_the_steps_of_several_devices_and_of_none() -> None:
    assert find_steps(trace_of(steps_of(4, *TWO), steps_of(3, *TWO), marks=AHEAD)).common() == [21, 22]
    assert find_steps(trace_of(TWO, module="")) is None
    assert find_steps(trace_of(TWO, marks={5: 1, 6: 11, 7: 21})) is None  # nothing occurs once a step


# --- which of them are summarised ---------------------------------------------------------------

MARKS = {20: 0, 21: 1, 22: 11, 23: 21}
# A step of 10 ms: 3 of matmul, a gather of 4 of which 2 lie under it, a copy of 3 of which 1 lies under the gather.
PARTS = ((0, 3, "dot.1"), (1, 5, "all-gather.1"), (4, 7, "copy.1"), (7, 8, "tanh.1"), (0, 9.5, "while.1"))
LONGER = trace_of(steps_of(6, *PARTS), marks={step: 10 * step - 200 for step in range(20, 26)})
CUT, PROFILER = "incomplete in the trace", "with the profiler's start or stop"
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


# --- where the time goes --------------------------------------------------------------------------


def summary_of(trace: Trace, profiling: Profiling | None = None) -> HostSummary:
    return summarise(trace, kinds(), profiling)


def milliseconds(times: dict[str, float]) -> dict[str, float]:
    return {kind: round(seconds * 1e3, 6) for kind, seconds in times.items() if seconds}


def test_every_moment_has_one_kind_and_the_parts_add_up() -> None:
    found = summary_of(trace_of(steps_of(4, *PARTS), marks=MARKS)).mean
    assert milliseconds(found.wall_seconds) == {"matmul": 3, "collective": 2, "copy": 2, "other": 1, IDLE: 2}
    assert milliseconds(found.work_seconds) == {"matmul": 3, "collective": 4, "copy": 3, "other": 1}
    assert found.seconds_per_step == pytest.approx(0.010)


NAMES = {"matmul": "dot.1", "other": "tanh.1", "collective": "all-gather.1", "copy": "copy.1"}
ROWS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from([*NAMES])), min_size=1, max_size=12)


@given(ROWS)
def test_each_moment_is_of_the_first_kind_that_is_at_work(rows: list[tuple[int, int, str]]) -> None:
    """Held against counting every moment."""
    moments = {
        kind: {t for begin, long, name in rows if name == kind for t in range(begin, begin + long)} for kind in KINDS
    }
    begin, end = min(row[0] for row in rows), max(row[0] + row[1] for row in rows)
    trace = trace_of([(at, at + long, NAMES[kind]) for at, long, kind in rows], module="")
    expected, taken = {}, set[int]()
    for kind in KINDS:
        expected[kind] = len(moments[kind] - taken)
        taken |= moments[kind]
    found = summary_of(trace).mean
    expected[IDLE] = end - begin - len(taken)
    assert milliseconds(found.wall_seconds) == {kind: count for kind, count in expected.items() if count}
    assert milliseconds(found.work_seconds) == {kind: len(own) for kind, own in moments.items() if own}


def test_only_what_lies_in_the_window_counts() -> None:
    """The step before the window is ten times as long; nothing of it may show."""
    slow: list[Row] = [(-100, -1, "dot.1"), (-1, 0, "tanh.1")]
    later = steps_of(3, (0, 5, "dot.1"), (5, 10, "tanh.1"))
    found = summary_of(trace_of([*slow, *later], marks={20: -100, 21: 0, 22: 1, 23: 11}))
    assert milliseconds(found.mean.wall_seconds) == {"matmul": 5, "other": 5}
    assert summarise(trace_of(marks=MARKS), kinds()) is None, "a trace without devices"


def test_the_mean_over_hosts_counts_devices() -> None:
    one = summary_of(trace_of(steps_of(4, *PARTS), marks=MARKS)).mean
    three = summary_of(trace_of(*[steps_of(4, *PARTS, period=20)] * 3, marks=MARKS)).mean
    found = mean_times([one, three], "all")
    assert found.devices == 4
    assert found.seconds_per_step == pytest.approx((0.010 + 3 * 0.020) / 4)


# --- our own clock ------------------------------------------------------------------------------


def step_at(number: int, seconds: float, reason: str | None = None) -> Step:
    return Step(step=number, seconds=seconds, loss=None, tokens=None, excluded_because=reason)


MADE = steps_of(4, (0, 9, "dot.1"))  # 10 ms a step
UNNUMBERED = summary_of(trace_of(MADE, launches=4))
PROFILED = [step_at(2, 0.020), *(step_at(number, 0.0125, reason="profiler") for number in range(20, 24))]


@pytest.mark.parametrize("summary", [summary_of(trace_of(MADE, marks=MARKS)), UNNUMBERED])
def test_the_same_steps_are_compared_or_those_that_were_profiled(summary: HostSummary) -> None:
    found = compare(summary, [*PROFILED, step_at(30, 0.5)])
    assert (found.trace_seconds_per_step, found.clock_seconds_per_step) == pytest.approx((0.010, 0.0125))
    assert found.difference == pytest.approx(-0.2)


def test_what_cannot_be_compared_has_no_comparison() -> None:
    assert compare(UNNUMBERED, [step_at(2, 1.0)]) is None
    assert compare(summary_of(WITHOUT), PROFILED) is None


# --- the report as text ---------------------------------------------------------------


@pytest.fixture(scope="module")
def summary() -> HostSummary:
    return summarise(read_xplane(sample(), PATH), kinds())


def report_of(*summaries: HostSummary, **fields: object) -> TraceReport:
    files = [
        TraceFile(path=f"/runs/r/{one.host}.xplane.pb", format="xplane", bytes=2_000_000, summary=one)
        for one in summaries
    ]
    mean = mean_times([one.mean for one in summaries], "all") if summaries else None
    whole: dict[str, object] = {
        "place": "/runs/r", "title": "llama", "attempt": 1, "phase": "perf", "files": files, "mean": mean,
        "comparison": None, "nccl": None, "notes": [],
    }  # fmt: skip
    return TraceReport(**{**whole, **fields})  # type: ignore[arg-type]


def test_every_number_of_the_table_is_there_within_80_columns(summary: HostSummary) -> None:
    text = report_text(report_of(summary))
    rows = [line for line in text.splitlines() if "CPU" in line or line.startswith(("  share", "  mean"))]
    assert len(rows) == 4 and max(map(len, rows)) <= 80
    assert rows[2].endswith(f"{summary.mean.seconds_per_step * 1e3:.2f}") and rows[3].endswith("100.0%")


def test_of_many_hosts_some_are_shown_and_the_rest_counted() -> None:
    one = summarise(trace_of(steps_of(3, (0, 4, "dot.1"))), kinds())
    names = [f"a-long-name-of-node-{number}" for number in range(40)]
    text = report_text(report_of(*(replace(one, host=name, mean=replace(one.mean, host=name)) for name in names)))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ..")][8:11] == [
        "..me-of-node-8", "..me-of-node-9", "..e-of-node-10",
    ], "the end of a name tells hosts and ranks apart"  # fmt: skip
    for words in ("and 24 more hosts (--json has all)", "and 24 more files", "mean of 40"):
        assert words in text


def test_notes_and_files_without_a_summary_have_a_row() -> None:
    unread = TraceFile(path="/runs/r/a.nsys-rep", format="nsys", bytes=10, summary=None, why_not="no nsys on PATH")
    text = report_text(report_of(files=[unread], notes=["bad \x1b[2J\r name"]))
    assert "bad \\x1b[2J\\r name" in text
    assert "a.nsys-rep (0.0 kB): no nsys on PATH" in text
