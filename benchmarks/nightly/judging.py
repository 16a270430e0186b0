"""Judge the runs of a night by comparison with earlier nights, and build the report. No run is started here.

Before a cell is judged, a CellReport without judgements contains its runs.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from benchmarks.errors import EXIT_INVALID, EXIT_VALID
from benchmarks.history.filters import parse_condition
from benchmarks.history.index import Index
from benchmarks.nightly import night as gate
from benchmarks.nightly import report_text
from benchmarks.nightly.records import Records, first_problems
from benchmarks.nightly.series import Series, series
from benchmarks.nightly.suites import Cell, watched
from benchmarks.nightly.values import Budget, CellReport, NightReport, Suite
from benchmarks.runs.campaign_record import SCHEMA_VERSION, result_of
from benchmarks.runs.finished_run import FinishedRun


def not_run(cell: Cell) -> CellReport:
    return gate.unjudged(cell, None, gate.MISSING, [])


class Judge:
    """Judges the cells of one night."""

    def __init__(
        self, frame: NightReport, suite: Suite, cells: Sequence[Cell], records: Records, index: Index
    ) -> None:
        self._frame, self._suite, self._cells, self._watched = frame, suite, cells, watched(suite)
        self._index = index
        reports, problems = records.read_newest()
        decisions, unread = records.accepted()
        self._notes = [*problems, *unread]
        self._memory = gate.memory_of(reports, [(one.cell, one.night) for one in decisions], frame.night)

    def judge(
        self, runs: Mapping[str, CellReport], *, final: bool
    ) -> tuple[list[CellReport], dict[str, gate.Urgency]]:
        """Return the cells' reports, and cell -> how urgently it needs re-runs, for each suspect cell.

        `final` is true if the night will start no more re-runs.
        """
        control: Mapping[str, float] = {}
        for cell in self._cells:
            found = self._cell_runs(cell, runs[cell.name], final=final) if cell.is_control else None
            if found is not None and found.entry.status == "valid":
                control = gate.control_moves(found, self._watched, self._memory)
        judged = {cell.name: self._cell(cell, runs[cell.name], control, final=final) for cell in self._cells}
        urgencies = {name: urgency for name, (_, urgency) in judged.items() if urgency is not None}
        return [report for report, _ in judged.values()], urgencies

    def _cell(
        self, cell: Cell, runs: CellReport, control: Mapping[str, float], *, final: bool
    ) -> tuple[CellReport, gate.Urgency | None]:
        cell_runs = self._cell_runs(cell, runs, final=final)
        if cell_runs is not None:
            return gate.judge_cell(cell_runs, self._watched, self._memory, control)
        report = gate.unjudged(cell, runs.run_id, runs.status, runs.reasons)
        return replace(report, rerun_ids=runs.rerun_ids, notes=runs.notes), None

    def _cell_runs(self, cell: Cell, runs: CellReport, *, final: bool) -> gate.CellRuns | None:
        """Return the runs of a cell; None if the result of its first run cannot be read."""
        place = self._index.output_dir
        entry = result_of(place / runs.run_id) if runs.run_id and runs.status != gate.MISSING else None
        if entry is None:
            return None
        reruns = [
            result_of(place / run_id) or replace(entry, run_id=run_id, status="failed", reasons=["no result exists"])
            for run_id in runs.rerun_ids
        ]
        asked = reruns if reruns or final else None
        return gate.CellRuns(cell, self._frame.night, entry, self._series(entry, cell), asked, runs.notes)

    def _series(self, latest: FinishedRun, cell: Cell) -> Series:
        of_cell = [parse_condition(f"suite={self._suite.name}"), parse_condition(f"cell={cell.name}")]
        nights = self._index.select(of_cell)
        return series(latest, self._suite.name, cell.name, nights, self._suite.baseline_across)

    def report(self, runs: Mapping[str, CellReport], budget: Budget, finished: str | None) -> NightReport:
        cells, _ = self.judge(runs, final=True)
        place = str(self._index.output_dir)
        problems = first_problems([f"{problem.folder}: {problem.reason}" for problem in self._index.problems()])
        left_out = [f"{place}: skipped: {text}" for text in problems]
        every_note = [*self._notes, *self._index.notes, *left_out]
        frame = replace(self._frame, history=[place], notes=every_note)
        return report_of(frame, cells, budget, finished)


# --- the report -----------------------------------------------------------------------------------


def new_report(suite: Suite, night: str, started: str, site: str, slowed_by: float) -> NightReport:
    """Return the report of a night that has no runs yet."""
    return NightReport(
        schema_version=SCHEMA_VERSION, suite=suite.name, title=suite.title, night=night, started=started, site=site,
        slowed_by=slowed_by, must_detect=suite.must_detect,
    )  # fmt: skip


def report_of(frame: NightReport, cells: list[CellReport], budget: Budget, finished: str | None) -> NightReport:
    """Return `frame` with the cells' reports, and with the verdict and exit code of the whole night."""
    blind = gate.blind_below(cells, frame.must_detect)
    code = gate.exit_code(cells)
    return replace(
        frame,
        blind_below_percent=blind,
        finished=finished,
        verdict=gate.worst([cell.verdict for cell in cells if not cell.is_control]),
        exit_code=EXIT_INVALID if blind and frame.must_detect and code == EXIT_VALID else code,
        cells=cells,
        budget=budget,
        could_not_see=report_text.could_not_see(cells),
        notes=[*frame.notes, *report_text.night_notes(cells)],
    )
