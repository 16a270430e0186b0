"""A cell judged from its nights, and a night from its cells."""

import pytest
from msgspec.structs import replace

from benchmarks.nightly.night import Memory, control_moves, exit_code, grant, judge_cell, memory_of, unjudged
from benchmarks.nightly.report_text import could_not_see, night_notes
from benchmarks.nightly.suites import METRICS, WatchedMetric
from benchmarks.nightly.values import MetricJudgement, Suspicion
from benchmarks.runs.finished_run import changed
from benchmarks.verdict import Verdict
from tests.benchmarks.nightly.nights_made import (
    CELL,
    GATED,
    entry,
    history,
    judged,
    night_name,
    remembered,
    report,
    tonight,
)

NO_MEMORY = Memory()
SLOW, _ = judged(1.5, history(), [1.5, 1.5, 1.5])
BROKEN = entry(20, 1.5, run_id="broken", status="failed", reasons=["told to"])


def test_a_suspect_that_gets_no_re_runs_says_so_and_is_remembered() -> None:
    found, urgency = judged(1.5, history(), [])
    assert (found.verdict, urgency, exit_code([found])) == (Verdict.INCONCLUSIVE, None, 0)
    key = (CELL.name, "seconds_per_step", night_name(20))
    assert memory_of([report([found])], [], night_name(21)).judged[key].suspicion is Suspicion.OPEN


@pytest.mark.parametrize("loss", [6.0, 4.0])
def test_another_loss_is_a_regression_either_way(loss: float) -> None:
    now = tonight(1.0, history(), last_loss=loss)
    now = now._replace(reruns=[entry(20, run_id=f"r{n}", last_loss=loss) for n in range(3)])
    found, _ = judge_cell(now, [WatchedMetric(METRICS["last_loss"], True)], NO_MEMORY)
    assert found.is_regression


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("invalid", 3)])
def test_a_run_that_is_not_valid_is_not_judged(status: str, code: int) -> None:
    found, suspicion = judge_cell(tonight(1.0, history(), status=status, reasons=["told to"]), GATED, NO_MEMORY)
    assert (found.verdict, found.judgements, suspicion, exit_code([found])) == (Verdict.NOT_TESTED, [], None, code)
    assert could_not_see([found]) == [f"tiny: any change, because the latest run is {status}"]


def test_a_re_run_that_failed_confirms_nothing_unless_it_was_replaced() -> None:
    now = tonight(1.5, history(), [1.5, 1.5, 1.5])
    again = list(now.reruns or [])
    found, _ = judge_cell(now._replace(reruns=[*again[:2], BROKEN]), GATED, NO_MEMORY)
    assert (found.verdict, found.judgements[0].confirmations) == (Verdict.INCONCLUSIVE, [1.5, 1.5])
    assert "re-run broken is failed: told to" in found.notes
    assert found.failed_reruns == ["broken"]
    assert exit_code([found]) == 1  # its result is unknown
    found, _ = judge_cell(now._replace(reruns=[BROKEN, *again]), GATED, NO_MEMORY)
    assert (found.verdict, found.failed_reruns, exit_code([found])) == (Verdict.WORSE, [], 3)


def test_an_open_alarm_stands_without_re_runs_and_says_since_when() -> None:
    past = [*history(), entry(18, 1.5), entry(19, 1.5)]
    worse = {18: Verdict.WORSE, 19: Verdict.INCONCLUSIVE}
    found, urgency = judged(1.5, past, memory=remembered(worse))
    assert (found.is_regression, urgency, exit_code([found])) == (True, None, 3)
    assert found.judgements[0].since == night_name(18)
    back, _ = judged(1.0, past, memory=remembered(worse))
    assert (back.verdict, back.judgements[0].since) == (Verdict.SAME, None)
    for before in ({19: Verdict.INCONCLUSIVE}, {19: Verdict.BETTER}, {}):
        assert judged(1.5, past, memory=remembered(before))[1] is not None


# --- the control cell -----------------------------------------------------------------------------


CONTROL = CELL._replace(name="control", is_control=True)


def test_a_control_that_moved_explains_the_same_change_of_a_cell() -> None:
    now = tonight(1.02, history())
    moves = control_moves(now._replace(cell=CONTROL), GATED, NO_MEMORY)
    assert moves == {"seconds_per_step": pytest.approx(0.0198, abs=0.001)}
    found, urgency = judge_cell(now, GATED, NO_MEMORY, moves)
    assert (found.verdict, urgency) == (Verdict.INCONCLUSIVE, None)
    assert found.judgements[0].suspicion is Suspicion.SHARED
    assert judge_cell(now, GATED, NO_MEMORY, {"seconds_per_step": -0.02})[1] is not None
    assert control_moves(tonight(1.0, history()), GATED, NO_MEMORY) == {}
    assert control_moves(tonight(1.5, history()[:9]), GATED, NO_MEMORY) == {}


def test_a_control_is_judged_and_decides_no_exit_code() -> None:
    now = tonight(1.5, history(), [1.5, 1.5, 1.5])._replace(cell=CONTROL)
    found, _ = judge_cell(now, GATED, NO_MEMORY, {"seconds_per_step": 0.4})
    assert (found.verdict, found.is_regression, exit_code([found])) == (Verdict.WORSE, False, 0)
    assert any("control cell" in note for note in night_notes([found]))


# --- all cells --------------------------------------------------------------------------------------


def test_a_run_that_failed_or_never_ran_outranks_a_regression_in_the_code() -> None:
    assert (exit_code([SLOW]), exit_code([])) == (3, 0)
    for status in ("failed", "missing", "running"):
        assert exit_code([SLOW, unjudged(CELL, None, status, [])]) == 1


@pytest.mark.parametrize(
    ("left", "granted", "refused"),
    [(6, ["c", "b"], ["a"]), (8, ["c", "b"], ["a"]), (2, [], ["c", "b", "a"]), (-3, [], ["c", "b", "a"])],
)
def test_the_budget_goes_to_what_gates_and_then_to_the_least_likely_chance(
    left: int, granted: list[str], refused: list[str]
) -> None:
    suspicions = {"a": (True, 1e-9), "b": (False, 0.04), "c": (False, 0.001)}  # a is only watched
    assert grant(suspicions, 3, left) == (granted, refused)


# --- runs that were still moving ---


def settling(state: str, baseline: str, off: float | None, tonight_off: float = 1.5) -> MetricJudgement:
    past = [changed(one, settling=baseline, median_off_percent=off) for one in history()]
    now = tonight(1.02, past, settling=state, median_off_percent=tonight_off)
    runs = [replace(now.entry, run_id=f"rerun-{n}") for n in range(3)]
    return judge_cell(now._replace(reruns=runs), GATED, NO_MEMORY)[0].judgements[0]


def test_an_effect_that_an_unsettled_run_may_have_made_is_inconclusive() -> None:
    found = settling("still moving", "settled", None, 2.5)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "the latest run was still moving" in found.why
    assert settling("settled", "still moving", 2.5).verdict is Verdict.INCONCLUSIVE


def test_an_effect_beyond_what_the_drift_may_do_or_where_all_nights_are_alike_is_judged() -> None:
    assert settling("still moving", "settled", None, 1.5).verdict is Verdict.WORSE
    assert settling("still moving", "still moving", 2.5, 2.5).verdict is Verdict.WORSE
    assert settling("too short", "not judged", None).verdict is Verdict.WORSE
