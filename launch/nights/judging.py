"""The runs of a night and the nights before -> its report. Starts nothing, writes nothing."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from benchmarks.errors import StepmarkError
from benchmarks.gate import night as gate
from benchmarks.gate import unseen
from benchmarks.gate.rule import G3
from benchmarks.gate.suites import Cell, Watched
from benchmarks.gate.values import Budget, CellReport, NightReport
from benchmarks.history.entry import Entry
from launch.nights.earlier import Earlier
from launch.nights.records import NIGHT_FORMAT, Records

SWEEP_EVERY_DAYS = 7
FEWEST_FOR_A_SWEEP = 10  # a shift needs 5 nights on both sides


class CellRuns(msgspec.Struct, frozen=True):
    """What is known of a cell's runs tonight, before anything is judged."""

    run_id: str | None = None
    status: str = gate.MISSING
    reasons: list[str] = []
    rerun_ids: list[str] = []
    notes: list[str] = []

    @classmethod
    def of(cls, cell: CellReport) -> "CellRuns":
        return cls(cell.run_id, cell.status, cell.reasons, cell.rerun_ids, cell.notes)

    def unjudged(self, cell: Cell) -> CellReport:
        report = gate.unjudged(cell, self.run_id, self.status, self.reasons)
        return msgspec.structs.replace(report, rerun_ids=self.rerun_ids, notes=self.notes)


class Found(NamedTuple):
    """The cells' reports, and which want re-runs: how little chance alone would explain what each shows."""

    cells: list[CellReport]
    suspicions: dict[str, float]


class Judge:
    """Of one night."""

    def __init__(
        self,
        night: str,
        cells: Sequence[Cell],
        watched: Sequence[Watched],
        earlier: Earlier,
        records: Records,
        sweep: str,
    ) -> None:
        self._night, self._cells, self._watched, self._earlier = night, cells, watched, earlier
        reports, problems = records.read_newest()
        accepted, unread = records.accepted()
        self.notes = [*problems, *unread]
        before = [report for report in reports if report.night < night]
        self._memory = gate.memory_of(before, [(one.cell, one.night) for one in accepted], night)
        self.sweeps = _due(sweep, night, before)

    def judge(self, runs: Mapping[str, CellRuns], *, final: bool) -> Found:
        """`final`: a suspicion gets no more re-runs."""
        found = Found([], {})
        for cell in self._cells:
            report, p = self._cell(cell, runs[cell.name], final=final)
            found.cells.append(report)
            if p is not None:
                found.suspicions[cell.name] = p
        return found

    def _cell(self, cell: Cell, runs: CellRuns, *, final: bool) -> tuple[CellReport, float | None]:
        entry = self._entry(runs.run_id)
        if entry is None or runs.status == gate.MISSING:
            return runs.unjudged(cell), None
        reruns = [found for run_id in runs.rerun_ids if (found := self._entry(run_id)) is not None]
        tonight = gate.Tonight(
            cell,
            self._night,
            entry,
            self._earlier.series(entry, cell),
            reruns if runs.rerun_ids or final else None,
            runs.notes,
        )
        report, p = gate.judge_cell(tonight, self._watched, self._memory, G3, _swept if self.sweeps else None)
        return msgspec.structs.replace(report, rerun_ids=runs.rerun_ids), p

    def _entry(self, run_id: str | None) -> Entry | None:
        with contextlib.suppress(StepmarkError, OSError):
            return self._earlier.entry(run_id) if run_id else None
        return None


def _due(sweep: str, night: str, before: Sequence[NightReport]) -> bool:
    """Every week: more often, and chance would find a shift sooner or later."""
    if sweep != "weekly":
        return sweep == "yes"
    newest = max((report.night for report in before if report.swept), default=None)
    return newest is None or _days(newest, night) >= SWEEP_EVERY_DAYS


def _days(before: str, after: str) -> float:
    first, then = (datetime.strptime(night, NIGHT_FORMAT) for night in (before, after))
    return (then - first).total_seconds() / 86_400


def _swept(values: Sequence[float]) -> Sequence[gate.Shift]:
    from benchmarks.gate.change_points import change_points

    if len(values) < FEWEST_FOR_A_SWEEP:
        return []
    return [(place, percent, p) for place, percent, p in change_points(values)]


class Frame(NamedTuple):
    """What a report says beside its cells."""

    suite: str
    title: str
    night: str
    started: str
    site: str
    slowed_by: float
    history: list[str]
    notes: list[str]


def report_of(
    frame: Frame, cells: list[CellReport], budget: Budget, finished: str | None, version: int, *, swept: bool
) -> NightReport:
    gated = sum(one.gates and one.baseline is not None for cell in cells for one in cell.judgements)
    return NightReport(
        schema_version=version,
        suite=frame.suite,
        title=frame.title,
        night=frame.night,
        started=frame.started,
        finished=finished,
        verdict=gate.worst([cell.verdict for cell in cells]),
        exit_code=gate.exit_code(cells),
        cells=cells,
        budget=budget,
        false_alarms=unseen.false_alarms(gated),
        could_not_see=unseen.could_not_see(cells),
        history=frame.history,
        notes=[*frame.notes, *unseen.night_notes(cells)],
        site=frame.site,
        slowed_by=frame.slowed_by,
        swept=swept,
    )
