"""What one way gains over another: pairs, their paired comparison, the verdict, the repeats that do not count."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.compare.intervals import of_pairs, percent
from benchmarks.runs.finished_run import FinishedRun, changed
from benchmarks.sweeps import gain
from benchmarks.sweeps.gain import Gain
from benchmarks.sweeps.scaling import CellRuns
from benchmarks.verdict import Verdict
from tests.benchmarks.sweeps.test_scaling import result, scale


def run(name: str, seconds: float | None, **changes: Any) -> FinishedRun:
    return changed(result(scale(1), seconds), run_id=name, **changes)


def off(*seconds: float | None, **changes: Any) -> CellRuns:
    """Its run of repeat N is the Nth; None: there is none."""
    return arm_of("off", seconds, changes)


def auto(*seconds: float | None, applied: bool | None = True, **changes: Any) -> CellRuns:
    return arm_of("auto", seconds, {"pgle_applied": applied, "pgle_reason": "every trace was empty", **changes})


def arm_of(way: str, seconds: Sequence[float | None], changes: dict[str, Any]) -> CellRuns:
    found = {n: run(f"{way}-{n}", one, **changes) for n, one in enumerate(seconds, 1) if one is not None}
    return CellRuns("the cell", scale(1, pgle=way), 3, found)


def gained(base: CellRuns, arm: CellRuns, wanted: int = 3) -> Gain:
    return gain.gain("the cell", base._replace(wanted=wanted), arm)


# --- figures ------------------------------------------------------------------------------------


def test_it_is_the_paired_comparison_of_compare() -> None:
    machine = (1.0, 1.3, 0.7)
    way = [seconds / factor for seconds, factor in zip(machine, (1.019, 1.02, 1.021), strict=True)]
    found = gained(off(*machine), auto(*way))
    expected = of_pairs(*([float(np.log(one)) for one in side] for side in (machine, way)))
    assert expected.low is not None and expected.high is not None
    ends = [percent(one) for one in (expected.centre, expected.low, expected.high)]
    assert [found.percent, found.low, found.high] == pytest.approx(ends)
    assert found.percent == pytest.approx(100 / 1.02 - 100, abs=0.001)
    assert found.verdict == Verdict.BETTER


@pytest.mark.parametrize(("applied", "why"), [(False, "every trace was empty"), (None, "does not say that it was")])
def test_one_run_without_the_profile_is_enough_for_no_test(applied: bool | None, why: str) -> None:
    arm = auto(0.5, 0.5, 0.501)
    without = msgspec.structs.replace(arm.counted[2], pgle_applied=applied)
    found = gained(off(1.0, 1.0, 1.0), arm._replace(counted={**arm.counted, 2: without}))
    assert (found.verdict, found.percent) == (Verdict.NOT_TESTED, None)
    assert why in found.why
    assert found.pairs[0].percent == pytest.approx(-50)  # as measured


# --- which pairs count --------------------------------------------------------------------------


def test_a_run_that_has_no_speed_makes_no_pair() -> None:
    found = gained(off(1.0, 1.0, 1.0), auto(0.5, 0.5, 0.5, seconds_per_step=None))
    assert found.pairs == []
    assert found.left_out[0] == "repeat 1: auto: auto-1 has no speed: it is emulated"
