"""Which earlier runs are nights of a cell, and which count nowhere."""

import pytest

from benchmarks.nightly.series import Series, left_out_points, series
from benchmarks.runs.finished_run import FinishedRun
from tests.benchmarks.nightly.nights_made import CELL, SUITE, entry, other

NOW = entry(20)


def series_of(own: list[FinishedRun], across: list[str] | None = None) -> Series:
    return series(NOW, SUITE, CELL.name, own, across or [])


def days(made: Series) -> list[str]:
    return [past.night for past in made.nights]


def test_runs_of_another_cell_or_suite_and_confirmations_and_later_nights_are_none() -> None:
    others = [entry(1, cell="x"), entry(2, suite="x"), entry(3, role="rerun"), entry(21)]
    assert days(series_of(others)) == []


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        (entry(5, status="failed", reasons=["out of memory"]), "failed: out of memory"),
        (entry(5, status="invalid", reasons=["loss is NaN"]), "invalid: loss is NaN"),
        (entry(5, slowed_by=0.5), "slowed on purpose by 50%"),
        (entry(5, not_comparable=["profiled (--profile=nsys)"]), "profiled (--profile=nsys)"),
        (other("environment", 5), "another environment: environment two -> environment one"),
        (other("machine", 5), "another machine: machine two -> machine one"),
        (other("benchmark", 5), "another benchmark: benchmark two -> benchmark one"),
    ],
)
def test_what_no_baseline_may_hold_is_left_out_by_name(spoilt: FinishedRun, why: str) -> None:
    made = series_of([entry(4), spoilt, entry(6)])
    assert [past.left_out for past in made.nights] == ["", why, ""]
    (point,) = left_out_points(made)
    assert (point.run_id, point.used_as, point.why) == (spoilt.run_id, "left out", why)


@pytest.mark.parametrize(
    ("own", "across", "notes"),
    [
        ([entry(4), other("environment", 5)], [], ["environment: environment two -> environment one"]),
        # Looked for in the newest night that could be compared.
        (
            [other("machine", 5), entry(6, status="failed"), entry(7, slowed_by=0.5)],
            [],
            ["machine: machine two -> machine one"],
        ),
        ([other("environment", 5)], ["environment"], []),  # under test
    ],
)
def test_a_change_since_the_previous_night_is_noted(
    own: list[FinishedRun], across: list[str], notes: list[str]
) -> None:
    assert series_of(own, across=across).new_baseline == notes


def test_of_a_night_that_was_begun_twice_the_valid_run_counts() -> None:
    twice = [entry(5, run_id="a", status="failed"), entry(5, run_id="b"), entry(5, run_id="c", status="failed")]
    (past,) = series_of(twice).nights
    assert past.entry.run_id == "b"
