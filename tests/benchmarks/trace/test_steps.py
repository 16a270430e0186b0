"""Where steps end: by execution, by what occurs once a step, by marks; which number each has; which are whole."""

import pytest

from benchmarks.trace.steps import common_steps, find_steps, longest_stretch
from benchmarks.trace.trace import Trace
from tests.benchmarks.trace.made import MS, steps_of, trace_of

PARTS = ((0, 4, "dot.1"), (4, 9, "add.1"))
LOOP = ((2, 3, "layer.1"), (3, 4, "layer.1"))
MARKS = {20: 0.5, 21: 1.0, 22: 10.5, 23: 20.5}  # one step ahead of the device
OPERATIONS = [(0, 9, "k"), (9, 30, "l")]


@pytest.mark.parametrize(
    ("trace", "ends", "steps"),
    [
        pytest.param(trace_of(steps_of(4, *PARTS), marks=MARKS), [9, 19, 29, 39], [20, 21, 22, 23], id="executions"),
        pytest.param(trace_of(steps_of(4, *PARTS)[:-1], marks=MARKS), [9, 19, 29], [20, 21, 22], id="cut within one"),
        pytest.param(
            trace_of(steps_of(5, *PARTS)[1:], marks={20: 5, 21: 10, 22: 20, 23: 30}),
            [9, 19, 29, 39, 49],
            [19, 20, 21, 22, 23],
            id="the first was under way when the profiler began",
        ),
        pytest.param(
            trace_of(steps_of(3, *PARTS), marks={20: 9.5, 21: 19.5, 22: 29.5}),
            [9, 19, 29],
            [19, 20, 21],
            id="nothing ends before it was begun",
        ),
        pytest.param(trace_of(steps_of(3, *PARTS), marks=MARKS), [9, 19, 29], [20, 21, 22], id="a mark too many"),
        pytest.param(
            trace_of(steps_of(4, *PARTS, *LOOP, runs=False), marks=MARKS),
            [9, 19, 29, 39],
            [20, 21, 22, 23],
            id="what occurs once a step",
        ),
        pytest.param(
            trace_of(steps_of(4, *PARTS, runs=False)[1:-1], marks=MARKS),
            [14, 24, 34],
            [20, 21, 22],
            id="once a step, cut",
        ),
        pytest.param(trace_of(OPERATIONS, marks={5: 1, 6: 11, 7: 21}, module=""), [1, 11, 21], [4, 5, 6], id="marks"),
    ],
)
def test_where_steps_end_and_which_number_each_has(trace: Trace, ends: list[float], steps: list[int]) -> None:
    found = find_steps(trace)
    assert found.by_device[0].ends == [end * MS for end in ends]
    assert found.by_device[0].steps == steps
    assert common_steps(found) == steps[1:], "the first has no beginning in the trace"


@pytest.mark.parametrize(("asked", "steps"), [(3, [9, 10, 11]), (4, [None, None, None])])
def test_without_marks_steps_are_numbered_where_their_count_is_what_was_asked_for(
    asked: int, steps: list[int | None]
) -> None:
    assert find_steps(trace_of(steps_of(3, *PARTS)), asked_first=9, asked=asked).by_device[0].steps == steps
    launched = trace_of(steps_of(3, *PARTS, runs=False), launches=3)
    assert find_steps(launched, asked_first=9, asked=asked).by_device[0].steps == steps


def test_a_trace_without_anything_tells_no_steps() -> None:
    assert find_steps(trace_of(OPERATIONS, module="")) is None


def test_a_step_is_common_where_every_device_has_it_whole() -> None:
    assert common_steps(find_steps(trace_of(steps_of(4, *PARTS), steps_of(3, *PARTS), marks=MARKS))) == [21, 22]


def test_the_training_program_is_the_one_that_takes_the_time() -> None:
    trace = trace_of(steps_of(3, *PARTS), marks=MARKS)
    trace.operations.append(trace.operations[0]._replace(module="jit_other"))
    assert "jit_train_step" in find_steps(trace).how


@pytest.mark.parametrize(
    ("numbers", "best"),
    [([], []), ([4], [4]), ([1, 2, 5, 6, 7, 9], [5, 6, 7]), ([3, 1, 2], [1, 2, 3]), ([1, 2, 4, 5], [1, 2])],
)
def test_the_longest_stretch_leaves_none_out(numbers: list[int], best: list[int]) -> None:
    assert longest_stretch(numbers) == best
