"""A sweep and its results -> how it scales, what one way of PGLE gains over another, what is left out. Pure."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from benchmarks.request.resolve import Request
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.sweeps import gain, scaling
from benchmarks.sweeps.gain import Arm, Gain
from benchmarks.sweeps.scaling import Measured, Series
from benchmarks.sweeps.sweep import SCHEMA_VERSION, Results, Sweep, SweepRun, labels
from benchmarks.values import Value

NOT_KNOWN: Mapping[str, str] = {}


class SweepReport(Value, frozen=True):
    """What a sweep measured, as data."""

    schema_version: int
    sweep_id: str
    command: list[str]
    repeats: int
    series: list[Series]
    refused: list[str]
    gains: list[Gain] = []


class Ran(Value, frozen=True):
    """The runs of one cell, sorted."""

    valid: dict[int, FinishedRun]  # by repeat: the run that counts for it
    others: list[tuple[int, str]]  # the repeat of each other one, and what became of it


def report_of(
    sweep: Sweep, results: Results, going: Collection[str] = (), xla_flags: Mapping[str, str] = NOT_KNOWN
) -> SweepReport:
    """Only valid runs make figures, one a slot; every other run is named.

    `xla_flags` is what each run's measured phase had, by run id.
    """
    names = labels([cell.request for cell in sweep.cells] + [refused.request for refused in sweep.refused])
    ran = [_ran(sweep, number, results, going) for number in range(len(sweep.cells))]
    return SweepReport(
        schema_version=SCHEMA_VERSION,
        sweep_id=sweep.sweep_id,
        command=sweep.command,
        repeats=sweep.repeats,
        series=scaling.scaling([_measured(sweep, number, names[number], one) for number, one in enumerate(ran)]),
        refused=[
            f"{name}: {refused.reason}"
            for name, refused in zip(names[len(sweep.cells) :], sweep.refused, strict=True)
        ],
        gains=_gains(sweep, ran, xla_flags),
    )


def table_text(report: SweepReport) -> str:
    """How it scales, and what one way gains over another."""
    lines = [scaling.table_text(report.series)]
    lines += [f"refused and left out: {text}" for text in report.refused]
    lines += ["", gain.table_text(report.gains), ""] if report.gains else []
    return "\n".join(lines)


def _ran(sweep: Sweep, number: int, results: Results, going: Collection[str]) -> Ran:
    valid: dict[int, FinishedRun] = {}
    others: list[tuple[int, str]] = []
    for run in (run for run in sweep.runs if run.cell == number):
        result = results.get(run.run_id)
        if result is not None and result.status == "valid" and run.repeat not in valid:
            valid[run.repeat] = result
        else:
            others.append((run.repeat, f"{run.run_id} {_why_left_out(run, result, run.run_id in going)}"))
    return Ran(valid=dict(sorted(valid.items())), others=others)


def _why_left_out(run: SweepRun, result: FinishedRun | None, goes_on: bool) -> str:
    if goes_on:
        return "goes on"
    if result is None and run.trouble is not None:
        return f"could not be started: {run.trouble}"
    if result is None:
        return "left no result that can be read: it was cut off, or its folder is gone"
    if result.status == "valid":
        return "is a second valid run of the same repeat"
    return f"{result.status}: {'; '.join(result.reasons)}"


def _measured(sweep: Sweep, number: int, name: str, ran: Ran) -> Measured:
    cell = sweep.cells[number]
    left_out = [f"{name}, repeat {repeat}: {text}" for repeat, text in ran.others]
    left_out += [
        f"{name}, repeat {repeat}: {result.run_id} may not be compared: {'; '.join(result.not_comparable)}"
        for repeat, result in ran.valid.items()
        if result.not_comparable
    ]
    missing = sweep.repeats - len({*ran.valid, *(repeat for repeat, _ in ran.others)})
    if missing:
        left_out.append(f"{name}: {missing} of {sweep.repeats} runs not started")
    return Measured(
        # The scale of an older record does not say which way of PGLE it is; the request does.
        scale=msgspec.structs.replace(cell.scale, pgle=cell.request.pgle),
        wanted=sweep.repeats,
        results=[result for result in ran.valid.values() if not result.not_comparable],
        left_out=left_out,
    )


def _gains(sweep: Sweep, ran: Sequence[Ran], xla_flags: Mapping[str, str]) -> list[Gain]:
    """Of all cells that differ in pgle alone: each against the one without, or where there is none the first."""
    groups: dict[bytes, list[int]] = {}
    for number, cell in enumerate(sweep.cells):
        groups.setdefault(msgspec.json.encode(_but_pgle(cell.request), order="sorted"), []).append(number)
    names = labels([_but_pgle(sweep.cells[numbers[0]].request) for numbers in groups.values()])
    found = []
    for name, numbers in zip(names, groups.values(), strict=True):
        arms = [Arm(sweep.cells[n].request.pgle, ran[n].valid, dict(ran[n].others)) for n in numbers]
        base = next((arm for arm in arms if arm.way == gain.OFF), arms[0])
        found += [gain.gain(name, base, arm, sweep.repeats, xla_flags) for arm in arms if arm is not base]
    return found


def _but_pgle(request: Request) -> Request:
    return msgspec.structs.replace(request, pgle=gain.OFF)
