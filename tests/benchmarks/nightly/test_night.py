"""A cell judged from its nights, and a night from its cells."""

import pytest
from msgspec.structs import replace

from benchmarks.nightly.night import Memory, control_moves, exit_code, grant, judge_cell, memory_of, unjudged
from benchmarks.nightly.report_text import could_not_see, night_notes
from benchmarks.nightly.suites import METRICS, Watched
from benchmarks.nightly.values import MetricJudgement, Suspicion
from benchmarks.runs.finished_run import changed
from benchmarks.verdict import Verdict
from tests.benchmarks.nightly.nights_made import (
    CELL,
    GATED,
    QUIET,
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


def test_a_slower_night_is_suspect_until_its_re_runs_confirm_it() -> None:
    before, urgency = judged(1.5, history())
    assert urgency is not None
    assert urgency < (False, 0.001)  # it gates, with this p
    assert before.judgements[0].suspicion is Suspicion.OPEN
    assert before.verdict is Verdict.INCONCLUSIVE
    after, urgency = judged(1.5, history(), [1.51, 1.49, 1.5])
    (seconds, _) = after.judgements
    assert (urgency, after.verdict, after.is_regression) == (None, Verdict.WORSE, True)
    assert seconds.effect_percent == pytest.approx(50, abs=1)
    assert (seconds.low_percent or 0) < (seconds.effect_percent or 0) < (seconds.high_percent or 0)
    assert seconds.confirmations == [1.51, 1.49, 1.5]
    assert seconds.since == night_name(20)


def test_without_enough_history_it_is_not_tested_and_says_how_many_nights_are_missing() -> None:
    found, urgency = judged(1.5, history(QUIET[:4]))
    assert (found.verdict, urgency, found.judgements[0].nights_needed) == (Verdict.NOT_TESTED, None, 6)
    assert exit_code([found]) == 0


def test_a_suspect_that_gets_no_re_runs_says_so_and_is_remembered() -> None:
    found, urgency = judged(1.5, history(), [])
    assert (found.verdict, urgency, exit_code([found])) == (Verdict.INCONCLUSIVE, None, 0)
    key = (CELL.name, "seconds_per_step", night_name(20))
    assert memory_of([report([found])], [], night_name(21)).judged[key].suspicion is Suspicion.OPEN


def test_re_runs_that_a_watched_figure_lacks_fail_no_night() -> None:
    jumpy = [Watched(METRICS["memory_bytes"], False), *GATED]
    broken = [entry(20, run_id=f"r{n}", status="failed", memory_bytes=None) for n in range(3)]
    now = tonight(1.0, history(), memory_bytes=9e9)._replace(reruns=broken)
    found, _ = judge_cell(now, jumpy, NO_MEMORY)
    assert found.judgements[0].suspicion is Suspicion.OPEN
    assert (found.failed_reruns, exit_code([found])) == ([], 0)


@pytest.mark.parametrize("loss", [6.0, 4.0])
def test_another_loss_is_a_regression_either_way(loss: float) -> None:
    now = tonight(1.0, history(), last_loss=loss)
    now = now._replace(reruns=[entry(20, run_id=f"r{n}", last_loss=loss) for n in range(3)])
    found, _ = judge_cell(now, [Watched(METRICS["last_loss"], True)], NO_MEMORY)
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


def test_nights_that_were_judged_worse_stay_out_until_the_user_accepts_them() -> None:
    past = [*history(), *(entry(day, 1.5) for day in range(11, 20))]
    slow = dict.fromkeys(range(11, 20), Verdict.WORSE)
    found, urgency = judged(1.5, past, memory=remembered(slow))
    assert (found.verdict, urgency) == (Verdict.WORSE, None)
    assert found.judgements[0].baseline == pytest.approx(1.0, rel=0.01)
    found, urgency = judged(1.5, past, memory=remembered(slow, accepted=[19]))
    assert urgency is None
    assert (found.judgements[0].baseline_nights, found.judgements[0].nights_needed) == (9, 1)


def test_what_earlier_reports_say_is_remembered_by_cell_figure_and_night() -> None:
    before = report([SLOW])
    known = memory_of([before], [], night_name(21)).judged
    assert known[(CELL.name, "seconds_per_step", night_name(20))].verdict is Verdict.WORSE
    assert memory_of([before], [], night_name(20)).judged == {}
    assert memory_of([report([SLOW], slowed_by=0.5)], [], night_name(21)).judged == {}


def test_every_night_is_shown_with_what_it_was_used_as() -> None:
    found, _ = judged(1.0, [*history(), entry(12, 1.5, slowed_by=0.5)])
    points = found.judgements[0].points
    assert [point.used_as for point in points].count("baseline") == 10
    assert points[-1].used_as == "latest"
    (left_out,) = (point for point in points if point.used_as == "left out")
    assert left_out.why == "slowed on purpose by 50%"


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


def test_what_could_not_be_seen_is_said_of_every_cell_that_has_a_baseline() -> None:
    seen, _ = judged(1.0, history())
    short, _ = judged(1.0, history(QUIET[:3]))
    assert "a change of seconds/step" in could_not_see([seen, short])[0]
    assert could_not_see([short]) == []


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


def test_where_all_cells_are_slower_the_machine_comes_to_mind() -> None:
    assert any("every cell is a regression" in note for note in night_notes([SLOW, SLOW]))
    assert night_notes([SLOW]) == []
