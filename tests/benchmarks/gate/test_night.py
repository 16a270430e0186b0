"""A cell judged from its nights, and a night from its cells."""

import pytest

from benchmarks.gate.night import (
    GATES,
    WATCHED,
    Memory,
    Suspicion,
    exit_code,
    grant,
    judge_cell,
    memory_of,
    unjudged,
)
from benchmarks.gate.report_text import could_not_see, false_alarms, night_notes
from benchmarks.gate.suites import METRICS, Watched
from benchmarks.gate.values import ChangePoint, Verdict
from tests.benchmarks.gate.nights_made import (
    CELL,
    GATED,
    QUIET,
    entry,
    history,
    judged,
    night_name,
    report,
    tonight,
)


def test_a_slower_night_is_suspect_until_its_re_runs_confirm_it() -> None:
    before, suspicion = judged(1.5, history())
    assert suspicion is not None
    assert suspicion.order == GATES
    assert suspicion.p < 0.001
    assert before.judgements[0].suspect
    assert before.verdict == "inconclusive"
    after, suspicion = judged(1.5, history(), [1.51, 1.49, 1.5])
    assert suspicion is None
    assert after.verdict == "regression"
    assert not after.judgements[0].suspect
    (seconds, _) = after.judgements
    assert seconds.effect_percent == pytest.approx(50, abs=1)
    assert seconds.low_percent is not None
    assert seconds.low_percent < seconds.effect_percent < (seconds.high_percent or 0)
    assert seconds.confirmations == [1.51, 1.49, 1.5]
    assert "re-runs" in seconds.why


def test_without_enough_history_it_is_inconclusive_and_says_how_many_nights_it_takes() -> None:
    found, p = judged(1.5, history(QUIET[:4]))
    assert p is None
    assert found.verdict == "inconclusive"
    assert found.judgements[0].nights_needed == 6
    assert exit_code([found]) == 0


def test_a_suspect_that_gets_no_re_runs_says_so() -> None:
    found, p = judged(1.5, history(), [])
    assert p is None
    assert found.verdict == "inconclusive"
    assert "only 0 of" in found.judgements[0].why


def test_re_runs_that_a_watched_figure_lacks_fail_no_night() -> None:
    jumpy = [Watched(METRICS["memory_bytes"], False), *GATED]
    broken = [entry(20, run_id=f"r{n}", status="failed", memory_bytes=None) for n in range(3)]
    now = tonight(1.0, history(), memory_bytes=9e9)._replace(reruns=broken)
    found, _ = judge_cell(now, jumpy, Memory())
    assert found.judgements[0].suspect
    assert found.failed_reruns == []
    assert exit_code([found]) == 0


@pytest.mark.parametrize(("loss", "verdict"), [(6.0, "regression"), (4.0, "regression")])
def test_another_loss_is_a_regression_either_way(loss: float, verdict: str) -> None:
    now = tonight(1.0, history(), [1.0, 1.0, 1.0], last_loss=loss)
    now = now._replace(reruns=[entry(20, run_id=f"r{n}", last_loss=loss) for n in range(3)])
    found, _ = judge_cell(now, [Watched(METRICS["last_loss"], True)], Memory())
    assert found.verdict == verdict


@pytest.mark.parametrize("status", ["failed", "invalid"])
def test_a_run_that_is_not_valid_is_not_judged(status: str) -> None:
    now = tonight(1.0, history(), status=status, reasons=["told to"])
    found, p = judge_cell(now, GATED, Memory())
    assert (found.verdict, found.judgements, p) == ("invalid", [], None)
    assert exit_code([found]) == {"failed": 1, "invalid": 3}[status]
    assert could_not_see([found]) == [f"tiny: anything, tonight's run is {status}"]


def test_a_re_run_that_failed_confirms_nothing() -> None:
    now = tonight(1.5, history(), [1.5, 1.5, 1.5])
    again = [*(now.reruns or [])[:2], entry(20, 1.5, run_id="broken", status="failed", reasons=["told to"])]
    found, _ = judge_cell(now._replace(reruns=again), GATED, Memory())
    assert found.verdict == "inconclusive"
    assert found.judgements[0].confirmations == [1.5, 1.5]
    assert "re-run broken confirms nothing: it is failed: told to" in found.notes
    assert found.judgements[0].suspect
    assert found.failed_reruns == ["broken"]
    assert exit_code([found]) == 1  # what it would have shown is not known


def test_a_re_run_that_failed_and_was_replaced_fails_no_night() -> None:
    now = tonight(1.5, history(), [1.5, 1.5, 1.5])
    broken = entry(20, 1.5, run_id="broken", status="failed", reasons=["told to"])
    found, _ = judge_cell(now._replace(reruns=[broken, *(now.reruns or [])]), GATED, Memory())
    assert (found.verdict, found.failed_reruns, exit_code([found])) == ("regression", [], 3)


SLOW_BEFORE = (CELL.name, "seconds_per_step", night_name(19))


def test_what_was_confirmed_the_night_before_stands_without_re_runs() -> None:
    past = [*history(), entry(19, 1.5)]
    found, suspicion = judged(1.5, past, memory=Memory(verdicts={SLOW_BEFORE: "regression"}))
    assert suspicion is None
    assert found.verdict == "regression"
    assert found.judgements[0].why.endswith("it stands, as confirmed before")
    assert exit_code([found]) == 3


@pytest.mark.parametrize("before", ["inconclusive", "improvement", None])
def test_nothing_stands_that_was_not_confirmed_before(before: Verdict | None) -> None:
    memory = Memory(verdicts={SLOW_BEFORE: before} if before else {})
    _, suspicion = judged(1.5, [*history(), entry(19, 1.5)], memory=memory)
    assert suspicion is not None


def test_suspicions_without_an_answer_are_remembered() -> None:
    found, _ = judged(1.5, history(), [])
    memory = memory_of([report([found])], [], night_name(21))
    assert memory.suspects == [(CELL.name, "seconds_per_step", night_name(20))]
    assert memory.past(CELL.name, "seconds_per_step", night_name(20), 1.5, "").suspect


def test_nights_that_were_judged_regressions_stay_out_until_somebody_accepts_them() -> None:
    past = [*history(), *(entry(day, 1.5) for day in range(11, 20))]
    slow = {(CELL.name, "seconds_per_step", night_name(day)): "regression" for day in range(11, 20)}
    memory = Memory(verdicts=slow)  # type: ignore[arg-type]
    found, p = judged(1.5, past, memory=memory)
    assert (found.verdict, p) == ("regression", None)
    assert found.judgements[0].baseline == pytest.approx(1.0, rel=0.01)
    accepted = Memory(verdicts=slow, accepted=[(CELL.name, night_name(19))])  # type: ignore[arg-type]
    found, p = judged(1.5, past, memory=accepted)
    assert p is None
    assert found.judgements[0].baseline_nights == 9 or found.judgements[0].nights_needed == 1


def test_what_earlier_reports_say_is_remembered_by_cell_figure_and_night() -> None:
    bad, _ = judged(1.5, history(), [1.5, 1.5, 1.5])
    before = report([bad], night=night_name(20))
    assert memory_of([before], [], night_name(21)).verdicts[(CELL.name, "seconds_per_step", night_name(20))] == (
        "regression"
    )
    assert memory_of([before], [], night_name(20)).verdicts == {}
    assert memory_of([report([bad], slowed_by=0.5)], [], night_name(21)).verdicts == {}


def test_every_night_is_shown_with_what_it_was_used_as() -> None:
    found, _ = judged(1.0, [*history(), entry(12, 1.5, slowed_by=0.5)])
    points = found.judgements[0].points
    assert [point.used_as for point in points].count("baseline") == 10
    assert points[-1].used_as == "tonight"
    (left_out,) = (point for point in points if point.used_as == "left out")
    assert left_out.why == "slowed on purpose by 50%"


def test_change_points_are_named_by_their_night() -> None:
    def sweep(values: object) -> list[tuple[int, float, float]]:
        assert len(values) == 11  # type: ignore[arg-type]
        return [(6, 1.5, 0.001)]

    found, _ = judge_cell(tonight(1.0, [*history(), entry(12, slowed_by=1.0)]), GATED[:1], Memory(), sweep=sweep)
    assert found.judgements[0].change_points == [ChangePoint(night=night_name(7), percent=1.5, p=0.001)]
    told, _ = judge_cell(
        tonight(1.0, history()),
        GATED[:1],
        Memory(told=[(CELL.name, "seconds_per_step", night_name(6))]),
        sweep=lambda _values: [(6, 1.5, 0.001), (1, 1.5, 0.001)],
    )
    assert [shift.told_before for shift in told.judgements[0].change_points] == [True, False]
    assert night_notes([found]) == [
        f"change point: tiny, seconds/step +1.50% from night {night_name(7)} on (p = 0.001)"
    ]


# --- all cells --------------------------------------------------------------------------------------


def test_a_run_that_failed_or_never_ran_outranks_a_regression_in_the_code() -> None:
    slow, _ = judged(1.5, history(), [1.5, 1.5, 1.5])
    assert exit_code([slow]) == 3
    for status in ("failed", "missing", "running"):
        assert exit_code([slow, unjudged(CELL, None, status, [])]) == 1
    assert exit_code([]) == 0


def test_the_budget_goes_to_the_least_likely_chance_first() -> None:
    suspicions = {name: Suspicion(GATES, p) for name, p in {"a": 0.04, "b": 0.001, "c": 0.02}.items()}
    assert grant(suspicions, 3, 6) == (["b", "c"], ["a"])
    assert grant(suspicions, 3, 8) == (["b", "c"], ["a"])
    assert grant(suspicions, 3, 2) == ([], ["b", "c", "a"])
    assert grant(suspicions, 3, -3) == ([], ["b", "c", "a"])


def test_the_budget_goes_to_what_gates_before_what_is_watched() -> None:
    suspicions = {"a": Suspicion(WATCHED, 1e-9), "b": Suspicion(GATES, 0.04)}
    assert grant(suspicions, 3, 3) == (["b"], ["a"])
    assert grant(suspicions, 3, 6) == (["b", "a"], [])


def test_what_could_not_be_seen_is_said_of_every_cell() -> None:
    seen, _ = judged(1.0, history())
    short, _ = judged(1.0, history(QUIET[:3]))
    said = could_not_see([seen, short])
    assert any("tiny: in the first night, a change of seconds/step below" in line for line in said)
    assert any("7 more nights needed" in line for line in said)
    assert any("re-runs on the nodes of the first run" in line for line in said)


def test_false_alarms_are_those_of_a_suite_of_this_size() -> None:
    assert "one false regression in 50 nights" in false_alarms(20)
    assert "one false regression in 1,000 nights" in false_alarms(1)
    assert "nothing was judged" in false_alarms(0)


def test_where_all_cells_are_slower_the_machine_comes_to_mind() -> None:
    slow, _ = judged(1.5, history(), [1.5, 1.5, 1.5])
    assert any("every cell is a regression" in note for note in night_notes([slow, slow]))
    assert night_notes([slow]) == []
