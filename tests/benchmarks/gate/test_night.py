"""A cell judged from its nights, and a night from its cells."""

import pytest
from msgspec.structs import replace

from benchmarks.gate.change_points import Change
from benchmarks.gate.night import Memory, exit_code, grant, judge_cell, memory_of, unjudged
from benchmarks.gate.report_text import could_not_see, night_notes
from benchmarks.gate.suites import METRICS, Watched
from benchmarks.gate.values import ChangePoint, MetricJudgement, Verdict
from tests.benchmarks.gate.nights_made import (
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
    before, suspicion = judged(1.5, history())
    assert suspicion is not None
    assert suspicion < (False, 0.001)  # it gates, with this p
    assert before.judgements[0].suspect
    assert before.verdict == "inconclusive"
    after, suspicion = judged(1.5, history(), [1.51, 1.49, 1.5])
    (seconds, _) = after.judgements
    assert (suspicion, after.verdict, seconds.suspect) == (None, "regression", False)
    assert seconds.effect_percent == pytest.approx(50, abs=1)
    assert (seconds.low_percent or 0) < (seconds.effect_percent or 0) < (seconds.high_percent or 0)
    assert seconds.confirmations == [1.51, 1.49, 1.5]


def test_without_enough_history_it_is_inconclusive_and_says_how_many_nights_it_takes() -> None:
    found, suspicion = judged(1.5, history(QUIET[:4]))
    assert (found.verdict, suspicion, found.judgements[0].nights_needed) == ("inconclusive", None, 6)
    assert exit_code([found]) == 0


def test_a_suspect_that_gets_no_re_runs_says_so_and_is_remembered() -> None:
    found, suspicion = judged(1.5, history(), [])
    assert (found.verdict, suspicion) == ("inconclusive", None)
    assert "only 0 of" in found.judgements[0].why
    key = (CELL.name, "seconds_per_step", night_name(20))
    assert memory_of([report([found])], [], night_name(21)).judged[key].suspect


def test_re_runs_that_a_watched_figure_lacks_fail_no_night() -> None:
    jumpy = [Watched(METRICS["memory_bytes"], False), *GATED]
    broken = [entry(20, run_id=f"r{n}", status="failed", memory_bytes=None) for n in range(3)]
    now = tonight(1.0, history(), memory_bytes=9e9)._replace(reruns=broken)
    found, _ = judge_cell(now, jumpy, NO_MEMORY)
    assert found.judgements[0].suspect
    assert (found.failed_reruns, exit_code([found])) == ([], 0)


@pytest.mark.parametrize("loss", [6.0, 4.0])
def test_another_loss_is_a_regression_either_way(loss: float) -> None:
    now = tonight(1.0, history(), last_loss=loss)
    now = now._replace(reruns=[entry(20, run_id=f"r{n}", last_loss=loss) for n in range(3)])
    found, _ = judge_cell(now, [Watched(METRICS["last_loss"], True)], NO_MEMORY)
    assert found.verdict == "regression"


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("invalid", 3)])
def test_a_run_that_is_not_valid_is_not_judged(status: str, code: int) -> None:
    found, suspicion = judge_cell(tonight(1.0, history(), status=status, reasons=["told to"]), GATED, NO_MEMORY)
    assert (found.verdict, found.judgements, suspicion, exit_code([found])) == ("invalid", [], None, code)
    assert could_not_see([found]) == [f"tiny: anything, tonight's run is {status}"]


def test_a_re_run_that_failed_confirms_nothing_unless_it_was_replaced() -> None:
    now = tonight(1.5, history(), [1.5, 1.5, 1.5])
    again = list(now.reruns or [])
    found, _ = judge_cell(now._replace(reruns=[*again[:2], BROKEN]), GATED, NO_MEMORY)
    assert (found.verdict, found.judgements[0].confirmations) == ("inconclusive", [1.5, 1.5])
    assert "re-run broken confirms nothing: it is failed: told to" in found.notes
    assert (found.judgements[0].suspect, found.failed_reruns) == (True, ["broken"])
    assert exit_code([found]) == 1  # what it would have shown is not known
    found, _ = judge_cell(now._replace(reruns=[BROKEN, *again]), GATED, NO_MEMORY)
    assert (found.verdict, found.failed_reruns, exit_code([found])) == ("regression", [], 3)


def test_what_was_confirmed_the_night_before_stands_without_re_runs() -> None:
    past = [*history(), entry(19, 1.5)]
    found, suspicion = judged(1.5, past, memory=remembered({19: "regression"}))
    assert (found.verdict, suspicion, exit_code([found])) == ("regression", None, 3)
    assert found.judgements[0].why.endswith(", as confirmed on an earlier night")
    others: list[dict[int, Verdict]] = [{19: "inconclusive"}, {19: "improvement"}, {}]
    for before in others:
        assert judged(1.5, past, memory=remembered(before))[1] is not None


def test_nights_that_were_judged_regressions_stay_out_until_somebody_accepts_them() -> None:
    past = [*history(), *(entry(day, 1.5) for day in range(11, 20))]
    slow: dict[int, Verdict] = dict.fromkeys(range(11, 20), "regression")
    found, suspicion = judged(1.5, past, memory=remembered(slow))
    assert (found.verdict, suspicion) == ("regression", None)
    assert found.judgements[0].baseline == pytest.approx(1.0, rel=0.01)
    found, suspicion = judged(1.5, past, memory=remembered(slow, accepted=[19]))
    assert suspicion is None
    assert (found.judgements[0].baseline_nights, found.judgements[0].nights_needed) == (9, 1)


def test_what_earlier_reports_say_is_remembered_by_cell_figure_and_night() -> None:
    before = report([SLOW])
    known = memory_of([before], [], night_name(21)).judged
    assert known[(CELL.name, "seconds_per_step", night_name(20))].verdict == "regression"
    assert memory_of([before], [], night_name(20)).judged == {}
    assert memory_of([report([SLOW], slowed_by=0.5)], [], night_name(21)).judged == {}


def test_every_night_is_shown_with_what_it_was_used_as() -> None:
    found, _ = judged(1.0, [*history(), entry(12, 1.5, slowed_by=0.5)])
    points = found.judgements[0].points
    assert [point.used_as for point in points].count("baseline") == 10
    assert points[-1].used_as == "tonight"
    (left_out,) = (point for point in points if point.used_as == "left out")
    assert left_out.why == "slowed on purpose by 50%"


def test_change_points_are_named_by_their_night_and_known_if_told_before() -> None:
    def sweep(values: object) -> list[Change]:
        assert len(values) == 11  # type: ignore[arg-type]
        return [Change(6, 1.5, 0.001), Change(1, 1.5, 0.001)]

    told = ChangePoint(night=night_name(6), percent=1.5, p=0.001)
    memory = remembered({10: "no change"}, shifts=[told])
    now = tonight(1.0, [*history(), entry(12, slowed_by=1.0)])
    found, _ = judge_cell(now, GATED[:1], memory, sweep=sweep)
    shifts = found.judgements[0].change_points
    assert [(one.night, one.told_before) for one in shifts] == [(night_name(7), True), (night_name(2), False)]
    assert any(night_name(7) in note for note in night_notes([found]))


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
    assert "tiny: in the first night, a change of seconds/step below" in could_not_see([seen, short])[0]
    assert could_not_see([short]) == []


# --- runs that were still moving ---


def settling(state: str, baseline: str, off: float | None, tonight_off: float = 1.5) -> MetricJudgement:
    past = [replace(one, settling=baseline, median_off_percent=off) for one in history()]
    now = tonight(1.02, past, settling=state, median_off_percent=tonight_off)
    runs = [replace(now.entry, run_id=f"rerun-{n}") for n in range(3)]
    return judge_cell(now._replace(reruns=runs), GATED, NO_MEMORY)[0].judgements[0]


def test_an_effect_that_an_unsettled_run_may_have_made_is_inconclusive() -> None:
    found = settling("still moving", "settled", None, 2.5)
    assert found.verdict == "inconclusive"
    assert "tonight's run was still moving (its median may be off by 2.5%)" in found.why
    assert settling("settled", "still moving", 2.5).verdict == "inconclusive"


def test_an_effect_beyond_what_the_drift_may_do_or_where_all_nights_are_alike_is_judged() -> None:
    assert settling("still moving", "settled", None, 1.5).verdict == "regression"
    assert settling("still moving", "still moving", 2.5, 2.5).verdict == "regression"
    assert settling("too short", "not judged", None).verdict == "regression"


def test_where_all_cells_are_slower_the_machine_comes_to_mind() -> None:
    assert any("every cell is a regression" in note for note in night_notes([SLOW, SLOW]))
    assert night_notes([SLOW]) == []
