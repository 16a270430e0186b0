"""The canned history of a rehearsal, judged by the gate."""

import pytest

from benchmarks.nightly import rehearsal
from benchmarks.nightly.rule import FEWEST_BASELINE_NIGHTS
from benchmarks.nightly.suites import METRICS, WatchedMetric
from tests.benchmarks.nightly.nights_made import CELL, entry

REAL = rehearsal.Real(CELL, entry(1, 0.0681, tokens_per_second_per_gpu=1000.0), "(made just now)")


@pytest.mark.parametrize("name", ["seconds_per_step", "tokens_per_second_per_gpu"])
def test_every_verdict_and_exit_code_is_shown(name: str) -> None:
    played = rehearsal.play(REAL, "smoke", [WatchedMetric(METRICS[name], True)])
    assert [(one.cell.verdict, one.cell.status, one.exit_code) for one in played[FEWEST_BASELINE_NIGHTS:]] == [
        ("same", "valid", 0),
        ("same", "valid", 0),
        ("inconclusive", "valid", 0),
        ("not tested", "failed", 1),
        ("not tested", "invalid", 3),
        ("worse", "valid", 3),
        ("worse", "valid", 3),
        ("same", "valid", 0),
        ("better", "valid", 0),
        ("inconclusive", "valid", 0),
    ]
    assert [bool(one.blind_below_percent) for one in played] == [False] * 19 + [True]
    text = rehearsal.rehearsal_text("smoke", REAL, played)
    assert "inconclusive, BLIND below 40%" in text
    assert {one.cell.verdict for one in played[:FEWEST_BASELINE_NIGHTS]} == {"not tested"}
    assert [len(one.cell.rerun_ids) for one in played[10:17]] == [0, 3, 0, 0, 0, 3, 0]  # the alarm stands without


def test_a_suite_that_must_see_more_is_rehearsed_as_blind() -> None:
    played = rehearsal.play(REAL, "smoke", [WatchedMetric(METRICS["seconds_per_step"], True)], must_detect=0.1)
    assert {one.exit_code for one in played[FEWEST_BASELINE_NIGHTS:] if one.cell.verdict == "same"} == {3}
