"""What a control on the same nodes does to verdicts: whole nights, from runs to reports."""

from collections.abc import Sequence

import pytest

from benchmarks.gate.control import Control
from benchmarks.gate.night import Memory, Tonight, judge_cell
from benchmarks.gate.report_text import control_text, night_notes
from benchmarks.gate.rule import judge, stands
from benchmarks.gate.series import series
from benchmarks.gate.values import CellReport, MetricJudgement
from benchmarks.runs.finished_run import FinishedRun
from tests.benchmarks.gate.nights_made import CELL, GATED, QUIET, SUITE, entry, history, night_name, other

USUAL_CONTROL = (0.1001, 0.0999, 0.1002, 0.0998, 0.1, 0.1, 0.1001, 0.0999, 0.1, 0.1)


def control_of(day: int, seconds: float, **fields: object) -> FinishedRun:
    return entry(day, seconds, **{"run_id": f"control-{day}", "role": "control", **fields})


def night(
    seconds: float, control: float | None, past: Sequence[float] = USUAL_CONTROL, **fields: object
) -> CellReport:
    """Tonight and its three re-runs take so long, the control beside each as long as `control`."""
    now = entry(20, seconds)
    again = [entry(20, seconds, run_id=f"rerun-{n}", role="rerun") for n in range(3)]
    ours = None if control is None else control_of(20, control)
    controls = {run.run_id: ours for run in again if ours}
    before = [*history(), *(control_of(day, value, **fields) for day, value in enumerate(past, start=1))]
    nights = series(now, SUITE, CELL.name, before, [], [], ours)
    tonight = Tonight(CELL, night_name(20), now, nights, again, (), ours, controls)
    return judge_cell(tonight, GATED, Memory())[0]


def seconds_of(report: CellReport) -> MetricJudgement:
    return report.judgements[0]


def test_a_night_that_slows_the_control_as_well_is_no_regression_and_is_said() -> None:
    found = seconds_of(night(1.02, 0.102))
    assert found.verdict == "inconclusive"
    assert "it is the night or its nodes, not the cell: the control changed by 2%" in found.why
    assert found.control_percent == pytest.approx(2, abs=0.05)
    assert "the night or its nodes are off" in control_text(found)[0]
    assert night_notes([night(1.02, 0.102)]) == [
        "the control was off too for tiny: look first at the night and the nodes"
    ]


@pytest.mark.parametrize("control", [0.1, 0.0999, 0.098, None])
def test_a_change_of_the_cell_alone_is_a_regression(control: float | None) -> None:
    assert seconds_of(night(1.02, control)).verdict == "regression"


def test_a_change_twice_the_nights_own_is_still_the_cells() -> None:
    assert seconds_of(night(1.04, 0.102)).verdict == "regression"


def test_a_control_of_too_few_nights_or_of_another_program_says_nothing() -> None:
    assert seconds_of(night(1.02, 0.102, USUAL_CONTROL[:9])).verdict == "regression"
    changed = other("benchmark", 1).identity
    assert seconds_of(night(1.02, 0.102, identity=changed)).verdict == "regression"
    assert seconds_of(night(1.02, 0.102, identity=changed)).control_percent is None


def test_controls_are_no_nights_of_the_cell() -> None:
    found = seconds_of(night(1.0, 0.1))
    assert found.baseline_nights == len(QUIET)
    assert found.baseline == pytest.approx(1.0, abs=0.001)
    assert [point.control for point in found.points[:2]] == [0.1001, 0.0999]


def test_nights_on_which_the_control_was_off_are_no_baseline() -> None:
    values = [1 + 0.001 * (day % 3) for day in range(20)]
    controls: list[float | None] = [0.1 + 0.0001 * (day % 2) for day in range(20)]
    values[4] *= 1.02
    controls[4] = 0.103
    judged = judge(values, [1.0], "lower", control=Control(controls, 0.1))
    assert judged.baseline_nights == 19
    assert judged.noise_percent is not None
    assert judged.noise_percent < 0.12


def test_a_confirmed_regression_does_not_stand_where_only_the_night_is_slow() -> None:
    controls = Control(USUAL_CONTROL, 0.102)
    assert stands(QUIET, 1.02, "lower", "regression", control=controls) is None
    assert stands(QUIET, 1.02, "lower", "regression", control=controls._replace(tonight=0.1)) == "regression"
