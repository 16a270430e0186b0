"""What a sweep measured: which runs count, why each other one does not, and which cells make pairs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.measuring.summary import Pgle
from benchmarks.runs.finished_run import FinishedRun, changed
from benchmarks.sweeps import sweep
from benchmarks.sweeps.sweep import Sweep, SweepRun
from benchmarks.sweeps.sweep_report import report_of
from benchmarks.values import to_builtins
from benchmarks.verdict import Verdict
from tests.benchmarks.compare.made import folder, run
from tests.benchmarks.sweeps.test_scaling import result, scale
from tests.benchmarks.sweeps.test_sweep import a_sweep, outcome, with_runs

SEEN = {"way": "auto", "seen": {"applied": True, "reason": "seen"}}
APPLIED = {"off": None, "auto": msgspec.convert(SEEN, Pgle)}
TO_DO = {"off": 1.0, "auto": 0.9, "nsys": 0.8}


def ran(of: Sweep, **changes: Any) -> tuple[Sweep, dict[str, FinishedRun | None]]:
    """All of a sweep, in its order, valid."""
    runs, results = [], {}
    for place, slot in enumerate(sweep.slots(len(of.cells), of.repeats)):
        way = of.cells[slot.cell].request.pgle
        name = f"{slot.cell}-{slot.repeat}"
        runs.append(SweepRun(run_id=name, cell=slot.cell, repeat=slot.repeat, started=float(place)))
        seconds = TO_DO[way] * (1 + slot.repeat / 10)
        results[name] = changed(result(scale(1), seconds), run_id=name, **changes)
    return msgspec.structs.replace(of, runs=runs), results


def test_only_valid_runs_make_figures_and_each_other_one_is_named() -> None:
    of = with_runs(a_sweep(), ("one", 0, 1), ("two", 0, 2), ("three", 0, 2), ("four", 0, 2), ("five", 1, 1))
    results = {
        "one": outcome("valid"), "two": outcome("failed"), "three": outcome("valid"), "four": outcome("valid"),
    }  # fmt: skip
    (series,) = report_of(of, results, Path(), ["five"]).series
    first, second = series.points
    assert first.valid == 2
    assert first.left_out == [
        "--gpus=1, repeat 2: two failed: why",
        "--gpus=1, repeat 2: four is a second valid run of the same repeat",
    ]
    assert second.left_out == ["--gpus=2, repeat 1: five is still running", "--gpus=2: 1 of 2 runs not started"]
    assert second.valid == 0


def test_profiled_runs_are_left_out_with_the_reason_and_are_not_run_again() -> None:
    of, results = ran(a_sweep(repeats=2, gpus="1,2"), not_comparable=["profiled (--profile=xplane)"])
    found = report_of(of, results, Path())
    points = [point for series in found.series for point in series.points]
    assert [point.valid for point in points] == [0, 0]
    assert points[0].left_out[0] == "--gpus=1, repeat 1: 0-1 cannot be compared: profiled (--profile=xplane)"
    assert points[0].null_because["seconds_per_step"] == "the scale has no valid, comparable run"
    assert sweep.still_to_do(of, results, []) == []


# --- pairs --------------------------------------------------------------------------------------


def test_cells_that_differ_in_pgle_alone_are_compared_pair_by_pair(tmp_path: Path) -> None:
    of, results = ran(a_sweep(repeats=4, gpus="1,2", pgle="off,auto"))
    for one in of.runs:
        way = of.cells[one.cell].request.pgle
        changes = run(one.run_id, TO_DO[way] * (1 + one.repeat / 10), result={"pgle": APPLIED[way]}).result
        folder(
            tmp_path,
            one.run_id,
            benchmark=lambda document, way=way: document.update(pgle=way),
            result=lambda document, to=changes: document.update(to_builtins(to)),
        )
    (tmp_path / "3-4" / "result.json").unlink()
    first, second = report_of(of, results, tmp_path).gains
    assert (first.a.label, first.b.label) == ("--gpus=1 --pgle=off", "--gpus=1 --pgle=auto")
    assert [list(second.b.left_out), second.b.run_ids] == [["3-4"], ["3-1", "3-2", "3-3"]]
    for found, pairs in ((first, 4), (second, 3)):
        assert found.verdict == Verdict.BETTER
        assert found.differences[0].percent == pytest.approx(-10, abs=1e-4)
        assert f"{pairs} pairs of one sweep" in found.differences[0].why
