"""The runs of a night and the nights before -> its report. Starts nothing, writes nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.errors import StepmarkError
from benchmarks.gate import night as gate
from benchmarks.gate import report_text
from benchmarks.gate.rule import G3
from benchmarks.gate.suites import Cell, Watched, watched
from benchmarks.gate.values import Budget, CellReport, NightReport, Suite
from benchmarks.runs.finished_run import FinishedRun
from launch.campaigns.nights.records import NIGHT_FORMAT, SCHEMA_VERSION, Earlier, Records, check_folders

SWEEP_EVERY_DAYS = 7
LAST = "last"  # of --replay
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
    """The cells' reports, and which want re-runs, how urgently."""

    cells: list[CellReport]
    suspicions: dict[str, gate.Suspicion]


class Judge:
    """Of one night."""

    def __init__(
        self,
        night: str,
        cells: Sequence[Cell],
        watched: Sequence[Watched],
        earlier: Earlier,
        recorded: Sequence[Records],
        sweep: str,
        *,
        slowed: bool,
    ) -> None:
        """`recorded`: the nights beside tonight's runs, then those of other folders (--history)."""
        self._night, self._cells, self._watched, self._earlier = night, cells, watched, earlier
        self.notes: list[str] = []
        known: dict[str, NightReport] = {}
        accepted: list[tuple[str, str]] = []
        for records in recorded:
            reports, problems = records.read_newest()
            decisions, unread = records.accepted()
            known = {report.night: report for report in reports} | known  # one's own word counts first
            accepted += [(one.cell, one.night) for one in decisions]
            self.notes += [*problems, *unread]
        before = [report for name, report in sorted(known.items()) if name < night]
        self._memory = gate.memory_of(before, accepted, night)
        self._sweeps = _due(sweep, night, before, slowed=slowed)
        self.swept = False  # whether any cell had nights enough to search

    def judge(self, runs: Mapping[str, CellRuns], *, final: bool) -> Found:
        """`final`: a suspicion gets no more re-runs."""
        found = Found([], {})
        for cell in self._cells:
            report, suspicion = self._cell(cell, runs[cell.name], final=final)
            found.cells.append(report)
            if suspicion is not None:
                found.suspicions[cell.name] = suspicion
        return found

    def _cell(self, cell: Cell, runs: CellRuns, *, final: bool) -> tuple[CellReport, gate.Suspicion | None]:
        entry, why = self._entry(runs.run_id)
        if entry is None or runs.status == gate.MISSING:
            return _gone(runs, why).unjudged(cell), None
        again = [self._entry(run_id) for run_id in runs.rerun_ids]
        reruns = [found for found, _ in again if found is not None]
        gone = [(run_id, why) for run_id, (found, why) in zip(runs.rerun_ids, again, strict=True) if found is None]
        tonight = gate.Tonight(
            cell,
            self._night,
            entry,
            self._earlier.series(entry, cell),
            reruns if runs.rerun_ids or final else None,
            [*runs.notes, *(f"re-run {run_id} confirms nothing: {why}" for run_id, why in gone)],
        )
        sweep = self._swept if self._sweeps and final else None
        report, suspicion = gate.judge_cell(tonight, self._watched, self._memory, G3, sweep)
        unconfirmed = any(one.gates and one.suspect for one in report.judgements)
        failed = [*report.failed_reruns, *(run_id for run_id, _ in gone if unconfirmed)]
        notes = list(dict.fromkeys(report.notes))  # a night judged again has said them before
        report = msgspec.structs.replace(report, rerun_ids=runs.rerun_ids, failed_reruns=failed, notes=notes)
        return report, suspicion

    def _entry(self, run_id: str | None) -> tuple[FinishedRun | None, str]:
        """The run as its folder has it, or why there is none."""
        if run_id is None:
            return None, ""
        try:
            return self._earlier.entry(run_id), ""
        except (StepmarkError, OSError) as error:
            if not self._earlier.has(run_id):
                return None, f"the folder of run {run_id} is gone"
            what = error.what if isinstance(error, StepmarkError) else error
            return None, f"run {run_id} cannot be read: {what}"

    def _swept(self, values: Sequence[float]) -> Sequence[gate.Shift]:
        from benchmarks.gate.change_points import change_points

        if len(values) < FEWEST_FOR_A_SWEEP:
            return []
        self.swept = True
        return [(place, percent, p) for place, percent, p in change_points(values)]


def _gone(runs: CellRuns, why: str) -> CellRuns:
    """What had ended well, and is not there any more, is not told as if it were."""
    if not why or runs.status not in ("valid", "invalid"):
        return runs
    return msgspec.structs.replace(runs, status=gate.MISSING, reasons=[f"{why}; that night it was {runs.status}"])


def _due(sweep: str, night: str, before: Sequence[NightReport], *, slowed: bool) -> bool:
    """Every week: more often, and chance would find a shift sooner or later. A night slowed on purpose is no turn."""
    if sweep != "weekly":
        return sweep == "yes"
    newest = max((report.night for report in before if report.swept and not report.slowed_by), default=None)
    return not slowed and (newest is None or _days(newest, night) >= SWEEP_EVERY_DAYS)


def _days(before: str, after: str) -> float:
    first, then = (datetime.strptime(night, NIGHT_FORMAT) for night in (before, after))
    return (then - first).total_seconds() / 86_400


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
    frame: Frame, cells: list[CellReport], budget: Budget, finished: str | None, *, swept: bool
) -> NightReport:
    gated = sum(one.gates and one.baseline is not None for cell in cells for one in cell.judgements)
    return NightReport(
        schema_version=SCHEMA_VERSION,
        suite=frame.suite,
        title=frame.title,
        night=frame.night,
        started=frame.started,
        finished=finished,
        verdict=gate.worst([cell.verdict for cell in cells]),
        exit_code=gate.exit_code(cells),
        cells=cells,
        budget=budget,
        false_alarms=report_text.false_alarms(gated),
        could_not_see=report_text.could_not_see(cells),
        history=frame.history,
        notes=[*frame.notes, *report_text.night_notes(cells)],
        site=frame.site,
        slowed_by=frame.slowed_by,
        swept=swept,
    )


def judged_again(
    suite: Suite,
    cells: Sequence[Cell],
    records: Records,
    output_dir: Path,
    history: Sequence[Path],
    night: str,
    sweep: str,
) -> NightReport:
    """By the rule, the history and the decisions of today, as of the nights before."""
    check_folders([output_dir, *history])
    nights = records.nights()
    before = records.read(nights[-1] if night == LAST and nights else night)
    earlier = Earlier(output_dir, history, suite)
    kept = {cell.cell: CellRuns.of(cell) for cell in before.cells}
    recorded = [records, *records.of_others(history)]
    judge = Judge(before.night, cells, watched(suite), earlier, recorded, sweep, slowed=before.slowed_by > 0)
    found = judge.judge({cell.name: kept.get(cell.name, CellRuns()) for cell in cells}, final=True)
    gone = [f"{name} is no longer a cell of the suite" for name in kept if name not in {cell.name for cell in cells}]
    notes = ["judged again from files", *judge.notes, *earlier.notes(), *gone]
    frame = Frame(
        suite.name, suite.title, before.night, before.started, before.site, before.slowed_by, earlier.places(), notes
    )
    return report_of(frame, found.cells, before.budget, before.finished, swept=judge.swept)
