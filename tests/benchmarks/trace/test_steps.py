"""Where steps end: by execution, by what occurs once a step, by marks; which number each has; which are whole."""

import pytest

from benchmarks.trace.steps import common_steps, find_steps, longest_stretch
from benchmarks.trace.xplane import read_xplane
from tests.benchmarks.trace.made import MS, sample, steps_of, trace_of
from tests.benchmarks.trace.test_xplane import PATH

PARTS = ((0, 4, "dot.1"), (4, 9, "add.1"))
MARKS = {20: 0.5, 21: 1.0, 22: 10.5, 23: 20.5}  # one step ahead of the device


def ends(*milliseconds: float) -> list[int]:
    return [round(one * MS) for one in milliseconds]


def test_a_step_ends_with_its_execution_and_is_named_by_its_mark() -> None:
    found = find_steps(trace_of(steps_of(4, *PARTS), marks=MARKS))
    assert found.by_device[0].ends == ends(9, 19, 29, 39)
    assert found.by_device[0].steps == [20, 21, 22, 23]
    assert common_steps(found) == [21, 22, 23], "the first has no beginning in the trace"
    assert found.by_device[0].between(1, 3) == (9 * MS, 39 * MS)


def test_the_real_trace_has_four_whole_steps() -> None:
    found = find_steps(read_xplane(sample(), PATH))
    assert common_steps(found) == [21, 22, 23, 24]
    assert "jit_train_step" in found.how


def test_an_execution_that_the_trace_was_cut_within_has_no_end() -> None:
    found = find_steps(trace_of(steps_of(4, *PARTS)[:-1], marks=MARKS))
    assert found.by_device[0].ends == ends(9, 19, 29)


def test_an_execution_under_way_when_the_profiler_began_has_no_mark() -> None:
    found = find_steps(trace_of(steps_of(5, *PARTS)[1:], marks={20: 5, 21: 10, 22: 20, 23: 30}))
    assert found.by_device[0].steps == [19, 20, 21, 22, 23]


def test_nothing_ends_before_it_was_begun() -> None:
    """As many ends as marks, but the first end lies before the first mark: it is of the step before."""
    found = find_steps(trace_of(steps_of(3, *PARTS), marks={20: 9.5, 21: 19.5, 22: 29.5}))
    assert found.by_device[0].steps == [19, 20, 21]


def test_a_mark_whose_execution_is_not_in_the_trace_names_none() -> None:
    found = find_steps(trace_of(steps_of(3, *PARTS), marks=MARKS))
    assert found.by_device[0].steps == [20, 21, 22]


def test_without_executions_what_occurs_once_a_step_tells_them_apart() -> None:
    loop = [(2, 3, "layer.1"), (3, 4, "layer.1")]
    found = find_steps(trace_of(steps_of(4, *PARTS, *loop, runs=False), marks=MARKS))
    assert "occurs once a step" in found.how
    assert found.by_device[0].ends == ends(9, 19, 29, 39)
    assert found.by_device[0].steps == [20, 21, 22, 23]


def test_a_step_that_was_cut_leaves_one_occurrence_less() -> None:
    found = find_steps(trace_of(steps_of(4, *PARTS, runs=False)[1:-1], marks=MARKS))
    assert len(found.by_device[0].ends) == 3


def test_launches_count_where_there_are_no_marks() -> None:
    found = find_steps(trace_of(steps_of(3, *PARTS, runs=False), launches=3), asked_first=9, asked=3)
    assert found.by_device[0].steps == [9, 10, 11]


def test_steps_without_marks_are_numbered_only_where_their_count_is_what_was_asked_for() -> None:
    found = find_steps(trace_of(steps_of(3, *PARTS)), asked_first=9, asked=4)
    assert found.by_device[0].steps == [None, None, None]
    assert common_steps(found) == []


def test_marks_alone_reach_from_mark_to_mark() -> None:
    found = find_steps(trace_of([(0, 9, "k"), (9, 30, "l")], marks={5: 1, 6: 11, 7: 21}, module=""))
    assert common_steps(found) == [5, 6]
    assert found.by_device[0].between(1, 2) == (1 * MS, 21 * MS)


def test_a_trace_without_anything_tells_no_steps() -> None:
    assert find_steps(trace_of([(0, 9, "k"), (9, 30, "l")], module="")) is None


def test_a_step_is_common_where_every_device_has_it_whole() -> None:
    found = find_steps(trace_of(steps_of(4, *PARTS), steps_of(3, *PARTS), marks=MARKS))
    assert found is not None
    assert common_steps(found) == [21, 22]


def test_the_training_program_is_the_one_that_takes_the_time() -> None:
    trace = trace_of(steps_of(3, *PARTS), marks=MARKS)
    trace.operations.append(trace.operations[0]._replace(module="jit_other"))
    found = find_steps(trace)
    assert "jit_train_step" in found.how


@pytest.mark.parametrize(
    ("numbers", "best"),
    [([], []), ([4], [4]), ([1, 2, 5, 6, 7, 9], [5, 6, 7]), ([3, 1, 2], [1, 2, 3]), ([1, 2, 4, 5], [1, 2])],
)
def test_the_longest_stretch_leaves_none_out(numbers: list[int], best: list[int]) -> None:
    assert longest_stretch(numbers) == best
