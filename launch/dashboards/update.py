"""All runs of a folder -> the dashboard's directory: reads what there is, decides what is to be, has it written."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.dashboards import nights, scaling, series
from benchmarks.dashboards.points import Board, Category, Charts, Row, Table
from benchmarks.dashboards.runs import asked
from benchmarks.gate.values import NightReport
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Value
from launch.dashboards.bands import bands
from launch.dashboards.folders import ROOT, STATE, Changes, Folder, alone, forget, keep
from launch.dashboards.run_folders import categories as run_categories
from launch.dashboards.run_folders import run_folders

NIGHTS = "nights"  # <output_dir>/nights/<suite>/<night>.json
Progress = Callable[[int, int], None]


class Updated(Value, frozen=True):
    """What the dashboard holds now, and what it leaves out."""

    runs: int  # that fit
    points: int  # of them, in the charts over many runs
    series: int
    rows: int  # of the table
    nights: int
    left_out: dict[str, int]  # why runs are no points -> how many
    notes: list[str]
    changes: Changes


def update(
    output_dir: Path,
    logdir: Path,
    entries: Sequence[FinishedRun],
    *,
    newest: int,
    filtered: bool = False,
    rebuild: bool = False,
    progress: Progress | None = None,
) -> Updated:
    """Bring the directory up to date with the runs, oldest first. `filtered`: there are others that do not fit."""
    drawn, left_out = series.drawn(entries)
    shown = list(entries[-newest:]) if newest else []
    with alone(logdir):
        if rebuild:
            forget(logdir)
        spread, unread = bands(output_dir, logdir / STATE, drawn, progress)
        boards, scalings = series.boards(drawn, spread), scaling.boards(drawn)
        reports, notes = read_reports(output_dir / NIGHTS)
        of_nights = [] if filtered else nights.boards(reports)
        of_runs, odd = run_folders(output_dir, shown)
        figures = series.categories(drawn)
        categories = [
            *figures[:1],  # step times
            *([] if filtered else nights.categories(reports)),
            *figures[1:],
            *scaling.categories(scalings),
            *(run_categories() if of_runs else []),
        ]
        changes = keep(
            logdir,
            [
                _root(categories, shown),
                *(Folder(board=board) for board in (*boards, *scalings, *of_nights)),
                *of_runs,
            ],
        )
    return Updated(
        runs=len(entries),
        points=len(drawn),
        series=len(boards),
        rows=len(shown),
        nights=sum(len(board.points) for board in of_nights),
        left_out=left_out,
        notes=[*_unread_notes(unread), *notes, *odd],
        changes=changes,
    )


def _root(categories: Sequence[Category], shown: Sequence[FinishedRun]) -> Folder:
    """What belongs to no single run: the charts, and the columns of the table."""
    told: list[Charts | Table | Row] = [
        Charts(categories=list(categories)),
        Table(rows=[asked(one) for one in shown]),
    ]
    return Folder(board=Board(name=ROOT, points=[]), told=told)


def _unread_notes(unread: dict[str, str]) -> list[str]:
    """Named one by one as long as that can be read."""
    shown = [f"{path}: not in the charts of step times: {why}" for path, why in list(unread.items())[:5]]
    more = len(unread) - len(shown)
    return [*shown, *([f"and {more} more runs that are not in the charts of step times"] if more > 0 else [])]


def read_reports(folder: Path) -> tuple[list[NightReport], list[str]]:
    """The nights of all suites, and which files are none."""
    reports, notes = [], []
    for path in sorted(folder.glob("*/*.json")):
        if path.exists() and not path.is_file():
            notes.append(f"{path}: the night cannot be read: it is no file")
            continue
        try:
            reports.append(msgspec.json.decode(path.read_bytes(), type=NightReport))
        except OSError as error:
            notes.append(f"{path}: the night cannot be read: {error.strerror}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            notes.append(f"{path}: the night cannot be read: {error}")
    return reports, notes
