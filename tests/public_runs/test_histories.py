"""The nightly rule on histories of public runs."""

import pytest

from tests.public_runs import histories

SETS = histories.read_sets()
HISTORIES = histories.histories(SETS)


def test_every_set_has_five_runs_or_more_and_its_median_is_one() -> None:
    assert len(SETS) == 117
    assert all(len(one.logs) >= 5 for one in SETS)
    assert all(min(map(abs, one.logs)) < 0.005 for one in SETS)


def test_quiet_runs_raise_no_alarm_and_a_planted_slowdown_is_found() -> None:
    found = histories.replay(HISTORIES["Cisco hpf"], [0.0, 0.01])
    assert (found.nights, found.false_alarms) == (27, 0)
    assert found.found == {0.0: (0, 25), 0.01: (25, 25)}


def test_the_change_that_a_submitter_made_is_called() -> None:
    found = histories.replay(HISTORIES["AMD MI300X, MI350X"], [])
    assert found.false_alarms == 3


def test_a_system_as_noisy_as_the_shift_hides_a_part_of_it() -> None:
    found = histories.replay(HISTORIES["MangoBoost MI300X, MI325X"], [0.01])
    assert found.noise == pytest.approx(0.0064, abs=0.0001)
    assert found.found[0.01] == (12, 25)
