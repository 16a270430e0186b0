"""Seconds against step: every reason has its line in the legend, and no step is lost."""

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.measuring.figures import SecondsPerStep
from benchmarks.measuring.summary import Result
from benchmarks.pages.step_plot import MARKS, beyond, drawable, step_plot, view
from benchmarks.values import Step, Window
from tests.benchmarks.measuring import test_summary as summary

Given = tuple[float | None, str | None]


def steps_of(*given: Given) -> list[Step]:
    return [
        Step(step=number, seconds=seconds, loss=1.0, tokens=8, excluded_because=why)
        for number, (seconds, why) in enumerate(given)
    ]


def result_of(steps: Sequence[Step]) -> Result:
    counted = [step.step for step in steps if step.excluded_because is None]
    window = Window(
        rule="steady",
        first_step=counted[0] if counted else None,
        last_step=counted[-1] if counted else None,
        counted=len(counted),
        settled=True,
        excluded={str(step.excluded_because): 1 for step in steps if step.excluded_because},
    )
    spread = SecondsPerStep(median=0.25, ci95=[0.24, 0.26]) if counted else SecondsPerStep()
    made = summary.result_of(summary.record_of(summary.steps_of()), summary.DONE)
    return msgspec.structs.replace(made, window=window, seconds_per_step=spread)


ORDINARY: list[Given] = [(0.25 + 0.001 * (n % 5), None) for n in range(20)]


def test_every_reason_is_in_the_legend_with_its_count_and_drawn_otherwise_than_the_counted() -> None:
    reasons = [*MARKS, "a reason of another backend"]
    steps = steps_of(*((0.3, why) for why in reasons), (None, "no_time"), *ORDINARY)
    (drawn,) = step_plot(result_of(steps), steps, "p")
    legend = [key.text for key in drawn.keys]
    assert "counted (20)" in legend
    for why in reasons:
        assert [text for text in legend if text.startswith(f"{why} (")], why
    signs = {key.text.partition(" (")[0]: (key.sign, key.colour) for key in drawn.keys}
    assert len({signs[name] for name in ("counted", "compile", "settling", "profiler", "pgle", "artefact")}) == 6


def test_a_run_without_a_counted_step_shows_those_it_has_and_one_without_times_nothing() -> None:
    steps = steps_of((62.0, "compile"), (7.0, "settling"))
    (drawn,) = step_plot(result_of(steps), steps, "p")
    assert "No step is counted." in drawn.says
    assert step_plot(result_of([]), [], "p") == []
    assert step_plot(result_of([]), steps_of((None, "no_time")), "p") == []


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e5) | st.none(), st.sampled_from([None, None, "compile", "no_time", "odd"])),
        max_size=30,
    )
)
def test_every_step_with_a_time_is_inside_or_named_as_outside(given_steps: list[Given]) -> None:
    steps = steps_of(*given_steps)
    groups = drawable(steps)
    timed = [step for step in steps if step.seconds is not None]
    assert sorted(step.step for group in groups.values() for step in group) == [step.step for step in timed]
    if groups:
        low, high = view(groups)
        assert low < high
        inside = [step for step in timed if low <= (step.seconds or 0.0) <= high]
        assert len(inside) + len(beyond(groups, low, high)) == len(timed)
        assert step_plot(result_of(steps), steps, "p")
