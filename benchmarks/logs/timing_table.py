"""`report.py timing`: one row for each training log below some folders, from what ingest's reader reads."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec

from benchmarks import statistics
from benchmarks.backend import LogFormat
from benchmarks.errors import RequestError
from benchmarks.measuring import window
from benchmarks.reading.log_files import UNREADABLE_ERRORS, log_files, open_log
from benchmarks.reading.read_log import ReadLog, detect, one_series, read_log
from benchmarks.reading.shown_lines import printable
from benchmarks.request import window_rule
from benchmarks.runs.runfolder import BENCHMARK
from benchmarks.text import columns, digits, plural, some, spans_text
from benchmarks.values import Step, Value

DEFAULT_WINDOW = "35-44"  # of the recipes whose table this is
DEVIATION = "sample standard deviation (n - 1)"
SHOWN_FILES = 20  # rows without training in the table; csv and json have all
ZERO = "printed as taking 0 s"  # why a step is left out, in addition to the reasons of window.py


class Status(StrEnum):
    SUCCESS = "Success"
    INCOMPLETE = "Incomplete"
    FAILED = "Failed"
    NOT_A_LOG = "Not a training log"
    UNREADABLE = "Unreadable"


class Row(Value, frozen=True):
    """What one log says. Figures are of the window's counted steps in the last attempt; None is unknown."""

    path: str
    status: Status
    reason: str | None = None  # why not Success, and what else must be known
    format: str | None = None
    attempt: int | None = None
    attempts: int | None = None
    reached_step: int | None = None
    steps_counted: int = 0
    steps_missing: int = 0  # that the rule asks for, and the log has no time of
    seconds_mean: float | None = None
    seconds_stdev: float | None = None
    seconds_median: float | None = None
    tflops_per_gpu_mean: float | None = None
    tflops_per_gpu_stdev: float | None = None
    tflops_per_gpu_median: float | None = None
    excluded: dict[str, str] = {}  # why steps of the window were left out -> which
    skipped_lines: int = 0  # lines of steps that could not be read


class Timings(Value, frozen=True):
    window: str
    deviation: str
    files: int
    by_status: dict[str, int]
    run_folders: int  # of Stepmark, which are not read
    rows: list[Row]


# --- files -> rows ----------------------------------------------------------------------------


class FoundLogs(NamedTuple):
    paths: list[Path]  # without those in run folders of Stepmark
    run_folders: int
    unlisted: list[Row]  # folders that can't be listed


def find_logs(places: Sequence[Path]) -> FoundLogs:
    found: dict[Path, Path] = {}  # by what links lead to
    runs = set()
    errors: list[OSError] = []
    for place in places:
        if not place.exists():
            raise RequestError(
                f"there is no '{printable(str(place))}'",
                where=f"the folder of logs, from {Path.cwd()}",
                next_command="python launch/report.py timing --window=35-44 DIR",
            )
        for path in log_files(place, errors.append):
            inside = [folder for folder in path.parents if folder.is_relative_to(place)]
            run = next((folder for folder in inside if (folder / BENCHMARK).is_file()), None)
            if run is None:
                found.setdefault(path.resolve(), path)
            else:
                runs.add(run)
    why = "the folder can't be listed: {}".format
    unlisted = [Row(printable(str(error.filename)), Status.UNREADABLE, why(error.strerror)) for error in errors]
    return FoundLogs(sorted(found.values()), len(runs), unlisted)


def row_of(path: Path, rule: str, formats: Sequence[LogFormat]) -> Row:
    name = printable(str(path))
    try:
        with open_log(path) as stream:
            log_format = detect(stream, formats)
            if log_format is None:
                return Row(name, Status.NOT_A_LOG, "no line of a known log format")
            log, _ = read_log(stream, log_format)
    except UNREADABLE_ERRORS as error:
        return Row(name, Status.UNREADABLE, getattr(error, "strerror", None) or str(error))
    except Exception as error:  # an installed package's reader: one log costs no other its row
        why = f"its reader failed: {type(error).__name__}: {error}"
        return Row(name, Status.UNREADABLE, printable(why))
    return row_of_log(name, log_format.name, log, rule, log_format.no_seconds)


def row_of_log(path: str, format_name: str, log: ReadLog, rule: str, no_seconds: str = "") -> Row:
    """The row of the last attempt with times, otherwise of the last with steps."""
    steps = one_series(log.last_timed() or (log.attempts or [[]])[-1])
    if not steps:
        skipped = len(log.skipped)
        return Row(path, Status.INCOMPLETE, "no step was logged", format=format_name, skipped_lines=skipped)
    marked = [
        msgspec.structs.replace(step, excluded_because=ZERO)
        if step.excluded_because is None and step.seconds == 0
        else step
        for step in window.choose_window(steps, rule)[1]
    ]
    counted = [step for step in marked if step.excluded_because is None]
    missing = window.missing_steps(rule, steps)
    diverged = sum(step.loss is not None and not math.isfinite(step.loss) for step in counted)
    reached = max(step.step for step in steps)
    reasons = [f"loss not finite in {diverged} of {len(counted)} steps"] if diverged else []
    if missing:
        reasons.append(f"reached step {reached}, and lacks {plural(missing, 'step')} of the window")
    elif not counted:
        reasons.append(f"reached step {reached}; no step of the window counts")
    if no_seconds and not counted:
        reasons.append(no_seconds)
    if log.begun > 1:
        reasons.append(f"attempt {steps[0].attempt} of {log.begun}")
    complete = Status.INCOMPLETE if missing or not counted else Status.SUCCESS
    row = Row(
        path=path,
        status=Status.FAILED if counted and diverged == len(counted) else complete,
        reason="; ".join(reasons) or None,
        format=format_name,
        attempt=steps[0].attempt,
        attempts=log.begun,
        reached_step=reached,
        steps_counted=len(counted),
        steps_missing=missing,
        excluded=_excluded(marked, rule),
        skipped_lines=len(log.skipped),
    )
    return msgspec.structs.replace(row, **_figures(counted))


def _excluded(marked: Sequence[Step], rule: str) -> dict[str, str]:
    last = window_rule.last_step_wanted(rule)
    inside = marked if last is None else [s for s in marked if int(rule.partition("-")[0]) <= s.step <= last]
    reasons: dict[str, list[int]] = {}
    for step in inside:
        if step.excluded_because not in (None, window.OUTSIDE_WINDOW):
            reasons.setdefault(str(step.excluded_because), []).append(step.step)
    return {reason: some(spans_text(numbers).split(",")) for reason, numbers in reasons.items()}


def _figures(counted: Sequence[Step]) -> dict[str, float | None]:
    """TFLOP/s are shown if all steps have them: a mean over some steps next to one over all would mislead."""
    found: dict[str, float | None] = {}
    printed = [step.framework_tflops_per_device for step in counted]
    series = {"seconds": [step.seconds for step in counted], "tflops_per_gpu": printed}
    for name, values in series.items():
        known = [value for value in values if value is not None and abs(value) < 1e100]  # squares stay finite
        for how in (statistics.mean, statistics.stdev, statistics.median):
            found[f"{name}_{how.__name__}"] = how(known) if len(known) == len(counted) else None
    return found


# --- rows -> text -----------------------------------------------------------------------------


def as_data(rows: Sequence[Row], rule: str, run_folders: int = 0) -> Timings:
    """The rows for --json."""
    return Timings(
        window=rule,
        deviation=DEVIATION,
        files=len(rows),
        by_status={status.value: sum(row.status == status for row in rows) for status in Status},
        run_folders=run_folders,
        rows=list(rows),
    )


def as_csv(timings: Timings) -> str:
    """A header and a record for each row (RFC 4180); an unknown value is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(Row.__struct_fields__)
    for row in timings.rows:
        values = msgspec.structs.asdict(row) | {"excluded": _excluded_text(row)}
        writer.writerow(["" if value is None else value for value in values.values()])
    return out.getvalue()


HEADINGS = [
    ("", "", "", "Time (s)", "", "TFLOPS_per_GPU", ""),
    ("Experiment", "Status", "Steps", "Mean", "Std", "Mean", "Std"),
]


def as_table(timings: Timings) -> str:
    """The table for people."""
    rows, rule = timings.rows, timings.window
    names = _names(rows)
    trained = [row for row in rows if row.format]
    over = "iterations" if window_rule.last_step_wanted(rule) is not None else "window"
    title = f"Train Step Timing and TFLOPS Analysis ({over} {rule})"
    lines = [title, "=" * len(title)]
    if trained:
        cells = [(names[row.path], *_cells(row)) for row in trained]
        header, titles, *texts = columns([*HEADINGS, *cells], numbers=(2, 3, 4, 5, 6), indent="")
        lines += [header, titles, "-" * max(map(len, (header, titles, *texts)))]
        for row, text in zip(trained, texts, strict=True):
            lines += [text, *(f"  {note}" for note in _notes(row))]
    for status in (Status.UNREADABLE, Status.NOT_A_LOG):
        others = [row for row in rows if row.status == status]
        lines += ["", f"{status} ({len(others)}):"] if others else []
        lines += [f"  {row.path}: {row.reason}" for row in others[:SHOWN_FILES]]
        if len(others) > SHOWN_FILES:
            lines.append(f"  and {len(others) - SHOWN_FILES} more (--format=csv has all)")
    counts = ", ".join(f"{count} {status}" for status, count in timings.by_status.items() if count)
    lines += ["", f"Std is the {DEVIATION}, over the steps of a log's last attempt."]
    if any(row.status in (Status.INCOMPLETE, Status.FAILED) for row in rows):
        lines.append("Why a run ended: python launch/doctor.py logs LOG")
    if timings.run_folders:
        lines.append(f"Not read: {plural(timings.run_folders, 'run folder')} (python launch/report.py runs)")
    lines.append(f"{plural(len(rows), 'file')}: {counts or 'none found'}")
    return "\n".join(lines) + "\n"


def _names(rows: Sequence[Row]) -> dict[str, str]:
    """The path of a row -> its name: `log-NAME.out` is NAME if no other log has it, any other file is its path."""
    short = {}
    for row in rows:
        name = PurePath(row.path).name.removesuffix(".gz")
        inside = name.removeprefix("log-").removesuffix(".out")
        short[row.path] = inside if name == f"log-{inside}.out" and inside else row.path
    often = Counter(short.values())
    return {path: path if often[name] > 1 else name for path, name in short.items()}


def _cells(row: Row) -> Iterator[str]:
    yield row.status
    wanted = row.steps_counted + row.steps_missing
    yield f"{row.steps_counted}/{wanted}" if row.steps_missing else str(row.steps_counted)
    for value in (row.seconds_mean, row.seconds_stdev, row.tflops_per_gpu_mean, row.tflops_per_gpu_stdev):
        yield "-" if value is None else digits(value)


def _notes(row: Row) -> list[str]:
    notes = [row.reason] if row.reason else []
    if row.excluded:
        notes.append(f"excluded: {_excluded_text(row)}")
    if row.skipped_lines:
        notes.append(f"{row.skipped_lines} lines of steps could not be read (launch/ingest.py names them)")
    return notes


def _excluded_text(row: Row) -> str:
    return "; ".join(f"{reason}: {steps}" for reason, steps in row.excluded.items())


FORMATS = {"table": as_table, "csv": as_csv}
