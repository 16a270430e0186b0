"""All runs of a folder -> the dashboard's directory: reads what there is, decides what is to be, has it written.

Of the newest runs each has a row of the table, a page of text, its own live scalars and its profiles, by links. The
profile plugin looks for RUN/plugins/profile/SESSION/HOST.xplane.pb and writes its caches beside the links, so a run's
own folder stays as it was sealed.
"""

import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks import files
from benchmarks.dashboards import nights, series
from benchmarks.dashboards.live import plain
from benchmarks.dashboards.points import Board, Category, Chart, Charts, Point, Row, Table, Text
from benchmarks.dashboards.runs import newest as newest_of
from benchmarks.dashboards.runs import reached, row_of, run_names, status, trial_names, unix_seconds
from benchmarks.dashboards.series import Band, band_of
from benchmarks.errors import StepmarkError
from benchmarks.gate.values import NightReport
from benchmarks.rendering.columns import Rows, aligned, plural
from benchmarks.rendering.report import result_rows
from benchmarks.runs.finished_run import RUNNING, FinishedRun
from benchmarks.runs.runfolder import COMPARISONS, STEPS, RunFolder
from benchmarks.values import Step
from launch.dashboards.folders import ROOT, STATE, alone, keep
from launch.reports.html_pages import cleaned
from launch.running.step_sink import EVENT_FILES

NEWEST, RUNS = "newest", "runs"
NIGHTS = "nights"  # <output_dir>/nights/<suite>/<night>.json
BANDS = "bands.json"
MOST_NOTES = 5
Read = TypeVar("Read")
Figures = tuple[str, int, float | None, float | None]  # what tells one result of a run from another
Kept = dict[str, tuple[Figures, Band]]  # by the run's path
OF_EACH_RUN = {
    "seconds of each step": "perf/step_seconds",
    "tokens/s of one device": "perf/tokens_per_second_per_gpu",
    "loss": "train/loss",
    "power of one GPU, W": "telemetry/gpu_power_watts",
    "memory of one GPU, GB": "telemetry/gpu_memory_gb_highest",
    "processors busy, %": "telemetry/cpu_utilisation_percent",
}


def update(
    output_dir: Path,
    logdir: Path,
    entries: Sequence[FinishedRun],
    *,
    newest: int,
    filtered: bool = False,
) -> tuple[Rows, list[str]]:
    """Bring the directory up to date with the runs, oldest first; what it holds now, and what to say of some runs.

    `filtered`: there are others that do not fit.
    """
    drawn, left_out = series.drawn(entries)
    shown = list(entries[-newest:]) if newest else []
    notes: list[str] = []
    with alone(logdir):
        bands = _bands(output_dir, logdir / STATE / BANDS, drawn, notes)
        boards = series.boards(drawn, bands)
        reports = [] if filtered else _reports(output_dir / NIGHTS, notes)
        of_nights = nights.boards(reports)
        compared = [] if filtered else _boards_of_comparisons(output_dir / COMPARISONS, notes)
        of_runs = _boards_of_runs(output_dir, shown, notes)
        figures = series.categories(drawn)
        own = [Chart(title=title, tags=[tag]) for title, tag in OF_EACH_RUN.items()]
        categories = [
            *figures[:1],  # step times
            *nights.categories(reports),
            *figures[1:],
            *([Category(title="Each run, step by step", charts=own)] if of_runs else []),
        ]
        root = Board(name=ROOT, told=[Charts(categories=categories), Table(rows=[row_of(one) for one in shown])])
        coloured = [
            msgspec.structs.replace(board, place=place)
            for place, board in enumerate([*boards, *of_nights, *(one for one in of_runs if _is_newest(one))])
        ]
        changes = keep(logdir, [root, *coloured, *compared, *(one for one in of_runs if not _is_newest(one))])
    also = (
        f"; {plural(count, 'night')}"
        if (count := sum(len(board.points) for board in of_nights if board.told))
        else ""
    )
    older = f", the newest (--newest={newest})" if len(shown) < len(entries) else ""
    reasons = ", ".join(f"{count:,} {why}" for why, count in sorted(left_out.items()))
    rows = [
        ("runs", f"{len(entries):,}"),
        ("charts", f"{plural(len(drawn), 'run')} in {len(boards)} series{also}"),
        ("table", f"{plural(len(shown), 'run')}{older}"),
        ("written", f"{changes.written} new, {changes.unchanged} as before, {changes.removed} removed"),
        *([("left out", f"{reasons}: in no chart over many runs")] if reasons else []),
        *(("note", note) for note in notes),
    ]
    return rows, notes


def _read(path: Path, kind: type[Read]) -> Read:
    """StepmarkError with the reason."""
    try:
        data = files.read(path)
        if path.name == STEPS:
            data = b"[" + b",".join(data.splitlines()) + b"]"
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise StepmarkError(f"{path.name}: {error.strerror}") from None
    except files.NOT_JSON as error:
        raise StepmarkError(f"{path.name} cannot be read: {error}") from None


def _reports(folder: Path, notes: list[str]) -> list[NightReport]:
    """The nights of all suites."""
    reports = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            reports.append(_read(path, NightReport))
        except StepmarkError as error:
            notes.append(f"a night of {path.parent.name} is left out: {error.what}")
    return reports


def _boards_of_comparisons(folder: Path, notes: list[str]) -> list[Board]:
    """As compare.py --dashboard=NAME kept them: the sentence is the heading."""
    boards = []
    for path in sorted(folder.glob("*.txt")):
        try:
            heading, *lines = cleaned(files.read(path).decode(errors="backslashreplace")).split("\n")
        except OSError as error:
            notes.append(f"the comparison {path.stem} is left out: {error.strerror}")
            continue
        name = plain(path.stem)
        boards.append(
            Board(
                name=f"{COMPARISONS}/{name}", told=[Text(tag=f"0 comparisons/{name}", heading=heading, lines=lines)]
            )
        )
    return boards


def _bands(output_dir: Path, file: Path, entries: Sequence[FinishedRun], notes: list[str]) -> dict[str, Band]:
    """By the path of each run. Read once from a run's steps, then kept; where its result is made anew, read again."""
    kept: Kept = {}
    with contextlib.suppress(OSError, ValueError):  # damaged, it is made anew
        kept = files.read_json(file, Kept)
    figures: dict[str, Figures] = {
        run.path: (run.run_id, run.counted, run.seconds_per_step, run.seconds_mean) for run in entries
    }
    unread = [path for path, known in figures.items() if path not in kept or kept[path][0] != known]
    missing = []
    for path in unread:
        kept.pop(path, None)
        try:
            band = band_of(_read(output_dir / path / STEPS, list[Step]))
            if band is None:
                raise StepmarkError(f"{STEPS} has no counted step")
            kept[path] = (figures[path], band)
        except StepmarkError as error:
            missing.append(f"{path}: not in the charts of step times: {error.what}")
    if len(unread) > len(missing):
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_bytes(msgspec.json.encode(kept))
        unfinished.replace(file)
    more = len(missing) - MOST_NOTES
    notes += missing[:MOST_NOTES]
    notes += [f"and {more} more runs that are not in the charts of step times"] if more > 0 else []
    return {path: kept[path][1] for path in figures if path in kept}


def _boards_of_runs(output_dir: Path, shown: Sequence[FinishedRun], notes: list[str]) -> list[Board]:
    """The newest ones in a group of their own, which stands before all others."""
    first = {run.run_id for run in newest_of(shown)}
    names = zip(shown, run_names(shown), trial_names(shown, first), strict=True)
    return [
        _board_of_run(output_dir / run.path, run, f"{NEWEST if run.run_id in first else RUNS}/{name}", trial, notes)
        for run, name, trial in names
    ]


def _is_newest(board: Board) -> bool:
    return board.name.startswith(f"{NEWEST}/")


def _board_of_run(run: Path, entry: FinishedRun, name: str, trial: str, notes: list[str]) -> Board:
    started = unix_seconds(entry)
    links = {path.name: str(path) for path in (run / "tensorboard").glob(EVENT_FILES)}
    if entry.profile == "xplane":
        try:
            links |= _profile_links(run)
        except (StepmarkError, OSError) as error:
            notes.append(f"{entry.run_id}: its profile cannot be shown: {error}")
    row = Row(name=trial, unix_seconds=started, cells=row_of(entry))
    return Board(
        name=name,
        points=[Point(step=0, unix_seconds=started, scalars=reached(entry))],
        told=[row, _text(RunFolder(run), entry)],
        links=links,
    )


def _text(folder: RunFolder, entry: FinishedRun) -> Text:
    """Verdict, command, layout, figures and notes; of a run that still trains what was asked."""
    rows: Rows = [("folder", str(folder.path)), ("layout", entry.parallelism)]
    command = ""
    with contextlib.suppress(StepmarkError, OSError):
        words = folder.provenance().get("command", [])
        command = f"python launch/{shlex.join(map(str, words))}" if words else ""
    with contextlib.suppress(StepmarkError, OSError):
        if entry.status != RUNNING:
            rows += result_rows(folder.stored_result())
    heading = f"{status(entry)}: {entry.model} {entry.task} {entry.dtype} on {entry.gpus} x {entry.hardware}"
    lines = [*([command, ""] if command else []), *aligned(rows, indent="")]
    return Text(tag="2 runs/summary", heading=heading, lines=cleaned("\n".join(lines)).split("\n"))


def _profile_links(run: Path) -> dict[str, str]:
    """The last profile of the measured phase; ranks of one host are told apart in the name."""
    from launch.reports.trace_files import find_traces

    links = {}
    for path, rank in find_traces(run).ranks.items():
        host = path.name if not rank else f"rank-{rank}.{path.name}"
        links[f"plugins/profile/{plain(path.parent.name)}/{host}"] = str(path)
    return links
