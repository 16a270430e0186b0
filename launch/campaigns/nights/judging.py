"""The runs of a night and the nights before -> its report. Starts nothing, writes nothing.

What is known of a cell's runs before anything is judged is a CellReport without judgements.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from benchmarks.gate import night as gate
from benchmarks.gate import report_text
from benchmarks.gate.change_points import FEWEST_NIGHTS, Change, change_points
from benchmarks.gate.noise import Reruns, control_sees, night_course, reruns_of, shared_noise
from benchmarks.gate.rule import G3
from benchmarks.gate.suites import Cell, watched
from benchmarks.gate.values import Budget, CellReport, MetricJudgement, NightReport, Suite
from launch.campaigns.nights.records import NIGHT_FORMAT, SCHEMA_VERSION, Earlier, Records, check_folders

SWEEP_EVERY = timedelta(days=7)


def not_run(cell: Cell) -> CellReport:
    return gate.unjudged(cell, None, gate.MISSING, [])


class Judge:
    """Of one night."""

    def __init__(
        self,
        frame: NightReport,
        suite: Suite,
        cells: Sequence[Cell],
        records: Records,
        output_dir: Path,
        history: Sequence[Path],
        sweep: str,
    ) -> None:
        """`history`: other folders whose runs are earlier nights, and beside whose runs there may be records too."""
        self._frame, self._cells, self._watched = frame, cells, watched(suite)
        self._earlier = Earlier(output_dir, history, suite)
        self._notes: list[str] = []
        known: dict[str, NightReport] = {}
        accepted: list[tuple[str, str]] = []
        for one_place in [records, *records.of_others(history)]:
            reports, problems = one_place.read_newest()
            decisions, unread = one_place.accepted()
            known = {report.night: report for report in reports} | known  # one's own word counts first
            accepted += [(one.cell, one.night) for one in decisions]
            self._notes += [*problems, *unread]
        before = [report for name, report in sorted(known.items()) if name < frame.night]
        self._before = before
        self._memory = gate.memory_of(before, accepted, frame.night)
        self._sweeps = sweep_is_due(sweep, frame.night, before, slowed=frame.slowed_by > 0)
        self._swept = False  # whether any cell had nights enough to search

    def judge(
        self, runs: Mapping[str, CellReport], *, final: bool
    ) -> tuple[list[CellReport], dict[str, gate.Suspicion]]:
        """The cells' reports, and which want re-runs, how urgently. `final`: a suspicion gets no more re-runs."""
        found = {cell.name: self._cell(cell, runs[cell.name], final=final) for cell in self._cells}
        suspicions = {name: suspicion for name, (_, suspicion) in found.items() if suspicion is not None}
        return [report for report, _ in found.values()], suspicions

    def _cell(self, cell: Cell, runs: CellReport, *, final: bool) -> tuple[CellReport, gate.Suspicion | None]:
        entry = self._earlier.run(runs.run_id) if runs.run_id else None
        if entry is None or runs.status == gate.MISSING:
            if runs.status in ("valid", "invalid"):  # what is not there any more is not told as if it were
                reasons = [f"{_gone(runs.run_id)}; that night it was {runs.status}"]
                runs = replace(runs, status=gate.MISSING, reasons=reasons)
            report = gate.unjudged(cell, runs.run_id, runs.status, runs.reasons)
            return replace(report, rerun_ids=runs.rerun_ids, notes=runs.notes), None
        reruns = [
            self._earlier.run(run_id) or replace(entry, run_id=run_id, status="failed", reasons=[_gone(run_id)])
            for run_id in runs.rerun_ids
        ]
        asked = reruns if reruns or final else None
        controls = {run_id: found for run_id, other in runs.controls.items() if (found := self._earlier.run(other))}
        control = controls.get(entry.run_id)
        past = self._earlier.series(entry, cell, control)
        tonight = gate.Tonight(cell, self._frame.night, entry, past, asked, runs.notes, control, controls)
        sweep = self._sweep if self._sweeps and final else None
        report, suspicion = gate.judge_cell(tonight, self._watched, self._memory, G3, sweep)
        return replace(report, controls=runs.controls, fresh_nodes=runs.fresh_nodes), suspicion

    def _sweep(self, values: Sequence[float]) -> Sequence[Change]:
        self._swept = self._swept or len(values) >= 2 * FEWEST_NIGHTS
        return change_points(values)

    def report(
        self, runs: Mapping[str, CellReport], budget: Budget, finished: str | None, *notes: str
    ) -> NightReport:
        cells, _ = self.judge(runs, final=True)
        told = [*notes, *self._notes, *self._earlier.notes()]
        frame = replace(self._frame, history=self._earlier.places(), notes=told)
        reruns = reruns_of([*self._before, replace(self._frame, cells=cells)])
        return report_of(frame, cells, budget, finished, reruns, swept=self._swept)


def _gone(run_id: str | None) -> str:
    return f"the folder of run {run_id} is gone, or cannot be read"


def sweep_is_due(sweep: str, night: str, before: Sequence[NightReport], *, slowed: bool) -> bool:
    """Every week: more often, and chance would find a shift sooner or later. A night slowed on purpose is no turn."""
    if sweep != "weekly":
        return sweep == "yes"
    newest = max((report.night for report in before if report.swept and not report.slowed_by), default=None)
    if slowed or newest is None:
        return not slowed
    return datetime.strptime(night, NIGHT_FORMAT) - datetime.strptime(newest, NIGHT_FORMAT) >= SWEEP_EVERY


# --- the report -----------------------------------------------------------------------------------


def new_report(suite: Suite, night: str, started: str, site: str, slowed_by: float) -> NightReport:
    """Of a night in which nothing has run."""
    return NightReport(
        schema_version=SCHEMA_VERSION, suite=suite.name, title=suite.title, night=night, started=started, site=site,
        slowed_by=slowed_by,
    )  # fmt: skip


def report_of(
    frame: NightReport,
    cells: list[CellReport],
    budget: Budget,
    finished: str | None,
    reruns: Sequence[Reruns] = (),
    *,
    swept: bool,
) -> NightReport:
    """`frame` with what its cells came to. `reruns`: of this night and of those before."""
    controlled = all(one.control_p is not None for cell in cells for one in cell.judgements if _is_gated(one))
    gated = sum(_is_gated(one) for cell in cells for one in cell.judgements)
    shared, course = shared_noise(reruns), night_course(cells)
    sees = control_sees(reruns) if controlled else None
    return replace(
        frame,
        finished=finished,
        verdict=gate.worst([cell.verdict for cell in cells]),
        exit_code=gate.exit_code(cells),
        cells=cells,
        budget=budget,
        false_alarms=report_text.false_alarms_text(gated, shared, course, sees, controlled=controlled),
        shared_noise=shared,
        night_course=course,
        control_sees=sees,
        could_not_see=report_text.could_not_see(cells),
        notes=[*frame.notes, *report_text.night_notes(cells)],
        swept=swept,
    )


def _is_gated(one: MetricJudgement) -> bool:
    return one.gates and one.baseline is not None


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
    before = records.read(records.named(night))
    kept = {cell.cell: cell for cell in before.cells}
    frame = new_report(suite, before.night, before.started, before.site, before.slowed_by)
    judge = Judge(frame, suite, cells, records, output_dir, history, sweep)
    runs = {cell.name: kept.get(cell.name) or not_run(cell) for cell in cells}
    gone = [f"{name} is no longer a cell of the suite" for name in kept if name not in runs]
    return judge.report(runs, before.budget, before.finished, "judged again from files", *gone)
