"""Update the dashboard's directory from all runs in a folder.

Each of the newest runs has a row in the table, and links to its scalars and profiles. TensorBoard's profile plugin
reads RUN/plugins/profile/SESSION/HOST.xplane.pb and writes caches next to the links, so the run's own folder does not
change.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.dashboard import charts
from benchmarks.dashboard.events import EVENT_FILES, plain
from benchmarks.dashboard.folders import ROOT, Board, Row, Table, exclusive_update, keep
from benchmarks.dashboard.runs import newest as newest_of
from benchmarks.dashboard.runs import row_of, run_name, trial_name, unix_seconds
from benchmarks.errors import StepmarkError
from benchmarks.nightly.values import NightReport
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.text import Rows, plural

NEWEST, RUNS = "newest", "runs"


def update(
    output_dir: Path,
    logdir: Path,
    entries: Sequence[FinishedRun],
    *,
    newest: int,
) -> tuple[Rows, list[str]]:
    """Update the directory. `entries` are sorted by time. Return rows about its contents, and notes."""
    drawn, left_out = charts.drawn(entries)
    shown = list(entries[-newest:]) if newest else []
    notes: list[str] = []
    with exclusive_update(logdir):
        boards = charts.boards_of_runs(drawn)
        reports = _reports(output_dir / charts.NIGHTS, notes)
        of_nights = charts.boards_of_nights(reports)
        first = {run.run_id for run in newest_of(shown)}
        of_newest = [_board_of_run(output_dir, run, NEWEST, notes) for run in shown if run.run_id in first]
        of_runs = [_board_of_run(output_dir, run, RUNS, notes) for run in shown if run.run_id not in first]
        root = Board(name=ROOT, table=Table(rows=[row_of(one) for one in shown]))
        coloured = [
            msgspec.structs.replace(board, place=place)
            for place, board in enumerate([*boards, *of_nights, *of_newest])
        ]
        written = keep(logdir, [root, *coloured, *of_runs])
    count = sum(len(board.points) for board in of_nights)
    also = f"; {plural(count, 'night')}" if count else ""
    older = f", the newest (--newest={newest})" if len(shown) < len(entries) else ""
    reasons = ", ".join(f"{count:,} {why}" for why, count in sorted(left_out.items()))
    rows = [
        ("runs", f"{len(entries):,}"),
        ("charts", f"{plural(len(drawn), 'run')} in {len(boards)} series{also}"),
        ("table", f"{plural(len(shown), 'run')}{older}"),
        ("written", plural(written, "line")),
        *([("excluded", f"{reasons}; not in the charts of several runs")] if reasons else []),
        *(("note", note) for note in notes),
    ]
    return rows, notes


def _reports(folder: Path, notes: list[str]) -> list[NightReport]:
    """Return the reports of all nights of all suites."""
    reports = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            reports.append(files.read_json(path, NightReport))
        except (OSError, *files.NOT_JSON) as error:
            notes.append(f"a night of {path.parent.name} is skipped: {path.name}: {error}")
    return reports


def _board_of_run(output_dir: Path, entry: FinishedRun, kind: str, notes: list[str]) -> Board:
    run = output_dir / entry.path
    links = {path.name: str(path) for path in (run / "tensorboard").glob(EVENT_FILES)}
    if entry.benchmark.profile == "xplane":
        try:
            links |= _profile_links(run)
        except (StepmarkError, OSError) as error:
            notes.append(f"{entry.run_id}: its profile cannot be shown: {error}")
    trial = trial_name(entry, newest=kind == NEWEST)
    return Board(
        name=f"{kind}/{run_name(entry)}",
        table=Row(name=trial, unix_seconds=unix_seconds(entry), cells=row_of(entry)),
        links=links,
    )


def _profile_links(run: Path) -> dict[str, str]:
    """Return links to the last profile of the measured phase. The name of a link includes the rank unless it is 0."""
    from benchmarks.trace.files import find_traces

    links = {}
    for path, rank in find_traces(run).ranks.items():
        host = path.name if not rank else f"rank-{rank}.{path.name}"
        links[f"plugins/profile/{plain(path.parent.name)}/{host}"] = str(path)
    return links
