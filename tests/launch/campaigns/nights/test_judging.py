"""When the nights of a suite are searched for change points."""

import pytest

from launch.campaigns.nights.judging import sweep_is_due
from tests.benchmarks.gate.nights_made import night_name, report


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        ({"swept": True}, False),
        ({"swept": False}, True),
        ({"swept": True, "slowed_by": 0.5}, True),
        ({"swept": True, "night": night_name(14)}, True),
    ],
)
def test_once_a_week(fields: dict[str, object], due: bool) -> None:
    before = [report([], **{"night": night_name(15), **fields})]
    assert sweep_is_due("weekly", night_name(21), before, slowed=False) == due


def test_a_night_that_was_slowed_on_purpose_takes_no_turn() -> None:
    assert sweep_is_due("weekly", night_name(21), [], slowed=False)
    assert not sweep_is_due("weekly", night_name(21), [], slowed=True)
    assert sweep_is_due("yes", night_name(21), [], slowed=True)
    assert not sweep_is_due("no", night_name(21), [], slowed=False)
