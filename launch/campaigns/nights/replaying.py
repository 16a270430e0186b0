"""A night judged again from its files: nothing is run, and nothing is written."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.gate.suites import Cell, watched
from benchmarks.gate.values import NightReport, Suite
from launch.campaigns.nights.earlier import Earlier, check_folders
from launch.campaigns.nights.judging import CellRuns, Frame, Judge, report_of
from launch.campaigns.nights.records import SCHEMA_VERSION, Records

LAST = "last"


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
    gone = [f"{name} was a cell then, and is none now" for name in kept if name not in {cell.name for cell in cells}]
    notes = ["judged again from files", *judge.notes, *earlier.notes(), *gone]
    frame = Frame(
        suite.name, suite.title, before.night, before.started, before.site, before.slowed_by, earlier.places(), notes
    )
    return report_of(frame, found.cells, before.budget, before.finished, SCHEMA_VERSION, swept=judge.swept)
