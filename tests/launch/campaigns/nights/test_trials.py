"""The self test asks for draws enough that its bounds mean something."""

from pathlib import Path

import pytest

from benchmarks.gate.self_test import FEWEST_RUNS
from tests import forked

REPOSITORY = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("trials", [-1, 0, 1, FEWEST_RUNS - 1])
def test_too_few_trials_to_tell_are_refused(trials: int) -> None:
    ended = forked.run(REPOSITORY / "launch/nightly.py", "--self_test", f"--trials={trials}")
    assert ended.returncode == 2, ended.stderr
    assert f"it must be {FEWEST_RUNS} or more" in ended.stderr
    assert ended.stdout == ""
