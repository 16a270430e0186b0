"""The report of a sweep: how it scales, the gain from each PGLE mode, and the excluded runs."""

import shlex
from collections.abc import Collection
from pathlib import Path

import msgspec

from benchmarks.compare import compare
from benchmarks.compare import text as comparison_text
from benchmarks.compare.runs import PairPlace, read_side
from benchmarks.compare.values import Comparison
from benchmarks.request.resolve import Request
from benchmarks.runs.campaign_record import SCHEMA_VERSION, read_record, result_of
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import RESULT, RunFolder
from benchmarks.sweeps import scaling
from benchmarks.sweeps.scaling import NO_PGLE, CellRuns, Series
from benchmarks.sweeps.sweep import Results, Sweep, SweepRun, labels
from benchmarks.text import reasons_text
from benchmarks.values import Value

_SECOND = "is a second valid run of the same repeat"


class SweepReport(Value, frozen=True):
    """The metrics of a sweep as data."""

    schema_version: int
    sweep_id: str
    command: list[str]
    repeats: int
    series: list[Series]
    refused: list[str]
    gains: list[Comparison] = []  # each compares a cell that uses PGLE with the same cell without PGLE


def read_sweep(path: Path, next_command: str = "") -> Sweep:
    listed = f"python launch/report.py runs {shlex.quote(str(path.parent))}"
    return read_record(path, Sweep, "sweep", next_command or listed)


def results_of(sweep: Sweep, output_dir: Path) -> dict[str, FinishedRun | None]:
    """Return the current results of a sweep's runs, read from their folders."""
    return {run.run_id: result_of(output_dir / run.run_id) for run in sweep.runs}


def may_continue(run: SweepRun, output_dir: Path) -> bool:
    """Return whether a run may be in progress: its folder exists, but not its result, which is written last."""
    folder = output_dir / run.run_id
    return folder.is_dir() and not (folder / RESULT).exists()


def report_of_file(path: Path) -> SweepReport:
    """Return the report of a sweep so far. Read the sweep's record and the run folders next to it."""
    sweep = read_sweep(path)
    going = [run.run_id for run in sweep.runs if may_continue(run, path.parent)]
    return report_of(sweep, results_of(sweep, path.parent), path.parent, going)


def report_of(sweep: Sweep, results: Results, output_dir: Path, going: Collection[str] = ()) -> SweepReport:
    """Return the report. One valid run per repeat counts; every other run is listed with the reason."""
    names = labels([cell.request for cell in sweep.cells] + [refused.request for refused in sweep.refused])
    refused = zip(names[len(sweep.cells) :], sweep.refused, strict=True)
    cells = [_runs_of(sweep, number, names[number], results, going) for number in range(len(sweep.cells))]
    return SweepReport(
        schema_version=SCHEMA_VERSION,
        sweep_id=sweep.sweep_id,
        command=sweep.command,
        repeats=sweep.repeats,
        series=scaling.scaling(cells),
        refused=[f"{name}: {one.reason}" for name, one in refused],
        gains=_gains(sweep, output_dir),
    )


def text(report: SweepReport, path: Path) -> str:
    """Return the report as text: how the sweep scales, the refused cells, and the gains."""
    lines = [scaling.table_text(report.series)]
    lines += [f"refused and skipped: {text}" for text in report.refused]
    for one in report.gains:
        lines += ["", comparison_text.table_text(one, whole=False)]
    return "\n".join([*lines, f"files: {path}"])


def _runs_of(sweep: Sweep, number: int, name: str, results: Results, going: Collection[str]) -> CellRuns:
    counted: dict[int, FinishedRun] = {}
    others: list[tuple[int, str]] = []
    for run in (run for run in sweep.runs if run.cell == number):
        result = results.get(run.run_id)
        why = _why_left_out(run, result, going) or (_SECOND if run.repeat in counted else "")
        if result is None or why:
            others.append((run.repeat, f"{run.run_id} {why}"))
        else:
            counted[run.repeat] = result
    return CellRuns(name, sweep.cells[number].scale, sweep.repeats, dict(sorted(counted.items())), others)


def _why_left_out(run: SweepRun, result: FinishedRun | None, going: Collection[str]) -> str:
    if run.run_id in going:
        return "is still running"
    if result is None and run.trouble is not None:
        return f"could not be started: {run.trouble}"
    if result is None:
        return "has no readable result: it was interrupted, or its folder is gone"
    if result.status != "valid":
        return f"{result.status}: {reasons_text(result.reasons)}"
    return f"cannot be compared: {'; '.join(result.not_comparable)}" if result.not_comparable else ""


def _gains(sweep: Sweep, output_dir: Path) -> list[Comparison]:
    """Compare cells that differ only in --pgle with the cell without PGLE; if all use PGLE, with the first cell."""
    groups: dict[bytes, list[int]] = {}
    for number, cell in enumerate(sweep.cells):
        but_pgle: Request = msgspec.structs.replace(cell.request, pgle=NO_PGLE)
        groups.setdefault(msgspec.json.encode(but_pgle, order="sorted"), []).append(number)
    pairs = {run.run_id: PairPlace(sweep.sweep_id, run.cell, run.repeat) for run in sweep.runs}
    names = labels([cell.request for cell in sweep.cells])
    sides = [
        read_side(name, [RunFolder(output_dir / run.run_id) for run in sweep.runs if run.cell == number], pairs)
        for number, name in enumerate(names)
    ]
    found = []
    for numbers in groups.values():
        base = next((number for number in numbers if sweep.cells[number].scale.pgle == NO_PGLE), numbers[0])
        found += [compare.compare(sides[base], sides[number]) for number in numbers if number != base]
    return found
