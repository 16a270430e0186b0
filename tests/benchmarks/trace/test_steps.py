"""Where steps end: by what occurs once a step; which number each has; which are whole."""

import pytest

from benchmarks.trace.steps import common_steps, find_steps
from benchmarks.trace.trace import Trace
from tests.benchmarks.trace.made import MS, steps_of, trace_of

PARTS = ((0, 4, "dot.1"), (4, 9, "add.1"))
LOOP = ((2, 3, "layer.1"), (3, 4, "layer.1"))
MARKS = {20: 0.5, 21: 1.0, 22: 10.5, 23: 20.5}  # one step ahead of the device
OPERATIONS = [(0, 9, "k"), (9, 30, "l")]


@pytest.mark.parametrize(
    ("trace", "ends", "steps"),
    [
        pytest.param(trace_of(steps_of(4, *PARTS), marks=MARKS), [9, 19, 29, 39], [20, 21, 22, 23], id="whole steps"),
        pytest.param(
            trace_of(steps_of(4, *PARTS)[:-1], marks=MARKS), [4, 14, 24, 34], [20, 21, 22, 23], id="cut within one"
        ),
        pytest.param(
            trace_of(steps_of(5, *PARTS)[1:], marks={20: 5, 21: 10, 22: 20, 23: 30}),
            [14, 24, 34, 44],
            [20, 21, 22, 23],
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
            trace_of(steps_of(4, *PARTS, *LOOP), marks=MARKS),
            [9, 19, 29, 39],
            [20, 21, 22, 23],
            id="what occurs once a step",
        ),
        pytest.param(
            trace_of(steps_of(4, *PARTS)[1:-1], marks=MARKS),
            [14, 24, 34],
            [20, 21, 22],
            id="once a step, cut",
        ),
        pytest.param(trace_of(steps_of(3, *PARTS), launches=3), [9, 19, 29], [None, None, None], id="no marks"),
    ],
)
def test_where_steps_end_and_which_number_each_has(trace: Trace, ends: list[float], steps: list[int | None]) -> None:
    found = find_steps(trace)
    assert found.by_device[0].ends == [end * MS for end in ends]
    assert found.by_device[0].steps == steps
    assert common_steps(found) == [step for step in steps[1:] if step], "the first has no beginning in the trace"


def test_a_trace_without_anything_tells_no_steps() -> None:
    assert find_steps(trace_of(OPERATIONS, module="")) is None
    assert find_steps(trace_of(OPERATIONS, marks={5: 1, 6: 11, 7: 21})) is None  # nothing occurs once a step


def test_a_step_is_common_where_every_device_has_it_whole() -> None:
    assert common_steps(find_steps(trace_of(steps_of(4, *PARTS), steps_of(3, *PARTS), marks=MARKS))) == [21, 22]


def test_the_training_program_is_the_one_that_takes_the_time() -> None:
    trace = trace_of(steps_of(3, *PARTS), marks=MARKS)
    trace.operations.append(trace.operations[0]._replace(module="jit_other"))
    assert "jit_train_step" in find_steps(trace).how
