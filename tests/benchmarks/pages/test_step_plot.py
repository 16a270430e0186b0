"""Seconds against step: every reason has its line in the legend, and no step is lost."""

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.measuring.figures import SecondsPerStep
from benchmarks.measuring.summary import Result
from benchmarks.pages.step_plot import step_plot
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


def test_every_reason_is_in_the_legend_with_its_count() -> None:
    steps = steps_of((62.0, "compile"), (0.3, "a reason of another backend"), (None, "no_time"), *ORDINARY)
    (drawn,) = step_plot(result_of(steps), steps, "p")
    assert [key.text for key in drawn.keys] == [
        "counted (20)",
        "excluded: compile (1), a reason of another backend (1), no_time (1)",
        "median and its 95% interval",
    ]
    assert "step 0: 62 s" in drawn.says


def test_a_run_without_a_counted_step_shows_those_it_has_and_one_without_times_nothing() -> None:
    steps = steps_of((62.0, "compile"), (7.0, "settling"))
    (drawn,) = step_plot(result_of(steps), steps, "p")
    assert "0 counted" in drawn.says
    assert step_plot(result_of([]), [], "p") == []
    assert step_plot(result_of([]), steps_of((None, "no_time")), "p") == []


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e5) | st.none(), st.sampled_from([None, None, "compile", "no_time", "odd"])),
        max_size=30,
    )
)
def test_any_steps_are_drawn(given_steps: list[Given]) -> None:
    steps = steps_of(*given_steps)
    assert len(step_plot(result_of(steps), steps, "p")) == any(step.seconds is not None for step in steps)
