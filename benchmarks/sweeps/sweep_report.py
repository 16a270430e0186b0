"""A sweep and its results -> how it scales, what one way of PGLE gains over another, what is left out."""

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from benchmarks.request.resolve import Request
from benchmarks.runs.campaign_record import SCHEMA_VERSION, read_record, result_of
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import RESULT
from benchmarks.sweeps import gain, scaling
from benchmarks.sweeps.gain import Gain
from benchmarks.sweeps.scaling import CellRuns, Series
from benchmarks.sweeps.sweep import Results, Sweep, SweepRun, labels
from benchmarks.text import reasons_text
from benchmarks.values import Value

_SECOND = "is a second valid run of the same repeat"


class SweepReport(Value, frozen=True):
    """What a sweep measured, as data."""

    schema_version: int
    sweep_id: str
    command: list[str]
    repeats: int
    series: list[Series]
    refused: list[str]
    gains: list[Gain] = []


def read_sweep(path: Path) -> Sweep:
    cure = "--noresume starts a new sweep; its runs are in their folders still"
    return read_record(path, Sweep, "sweep", cure)


def results_of(sweep: Sweep, output_dir: Path) -> dict[str, FinishedRun | None]:
    """Return the results of its runs as their folders have them now."""
    return {run.run_id: result_of(output_dir / run.run_id) for run in sweep.runs}


def may_continue(run: SweepRun, output_dir: Path) -> bool:
    """Its folder is the first thing that is made of a run, its result the last."""
    folder = output_dir / run.run_id
    return folder.is_dir() and not (folder / RESULT).exists()


def report_of_file(path: Path) -> SweepReport:
    """Return what a sweep has measured until now, from its record and the run folders next to it."""
    sweep = read_sweep(path)
    going = [run.run_id for run in sweep.runs if may_continue(run, path.parent)]
    return report_of(sweep, results_of(sweep, path.parent), going)


def report_of(sweep: Sweep, results: Results, going: Collection[str] = ()) -> SweepReport:
    """Only valid runs make figures, one a repeat; every other run is named."""
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
        gains=_gains(sweep, cells),
    )


def text(report: SweepReport, path: Path) -> str:
    return f"{table_text(report)}\nfiles: {path}"


def table_text(report: SweepReport) -> str:
    """How it scales, and what one way gains over another."""
    lines = [scaling.table_text(report.series)]
    lines += [f"refused and left out: {text}" for text in report.refused]
    lines += ["", gain.table_text(report.gains), ""] if report.gains else []
    return "\n".join(lines)


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
        return "goes on"
    if result is None and run.trouble is not None:
        return f"could not be started: {run.trouble}"
    if result is None:
        return "left no result that can be read: it was cut off, or its folder is gone"
    if result.status != "valid":
        return f"{result.status}: {reasons_text(result.reasons)}"
    return f"may not be compared: {'; '.join(result.not_comparable)}" if result.not_comparable else ""


def _gains(sweep: Sweep, cells: Sequence[CellRuns]) -> list[Gain]:
    """Of all cells that differ in pgle alone: each against the one without, or where there is none the first."""
    groups: dict[bytes, list[int]] = {}
    for number, cell in enumerate(sweep.cells):
        groups.setdefault(msgspec.json.encode(_but_pgle(cell.request), order="sorted"), []).append(number)
    names = labels([_but_pgle(sweep.cells[numbers[0]].request) for numbers in groups.values()])
    found = []
    for name, numbers in zip(names, groups.values(), strict=True):
        arms = [cells[number] for number in numbers]
        base = next((arm for arm in arms if arm.scale.pgle == gain.OFF), arms[0])
        found += [gain.gain(name, base, arm) for arm in arms if arm is not base]
    return found


def _but_pgle(request: Request) -> Request:
    return msgspec.structs.replace(request, pgle=gain.OFF)
