"""Build the table of `report.py timing`: one row for each training log. ingest.py reads logs with the same code."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks import statistics
from benchmarks.backend import LogFormat
from benchmarks.errors import RequestError
from benchmarks.measuring import window
from benchmarks.reading.log_files import UNREADABLE_ERRORS, log_files, open_log
from benchmarks.reading.read_log import ReadLog, formats_of, one_series
from benchmarks.request import window_rule
from benchmarks.text import columns, digits, first_few, plural, printable, spans_text
from benchmarks.values import Step, Value

DEFAULT_WINDOW = "35-44"  # the steps that the timing table of NVIDIA's recipes covers
DEVIATION = "sample standard deviation (n - 1)"
SHOWN_FILES = 20  # the most files without training that the table lists; --json has all


class Status(StrEnum):
    SUCCESS = "Success"
    INCOMPLETE = "Incomplete"
    FAILED = "Failed"
    NOT_A_LOG = "Not a training log"
    UNREADABLE = "Unreadable"


class Row(Value, frozen=True):
    """The metrics of one log, over the counted steps of one attempt. None means unknown."""

    path: str
    status: Status
    reason: str | None = None  # why the status is not Success, and other remarks
    format: str | None = None
    attempt: int | None = None
    attempts: int | None = None
    reached_step: int | None = None
    steps_counted: int = 0
    steps_missing: int = 0  # steps of the window that have no time in the log
    seconds_mean: float | None = None
    seconds_stdev: float | None = None
    seconds_median: float | None = None
    tflops_per_gpu_mean: float | None = None
    tflops_per_gpu_stdev: float | None = None
    tflops_per_gpu_median: float | None = None
    excluded: dict[str, str] = {}  # reason -> the steps that do not count
    skipped_lines: int = 0  # step lines that could not be read


class Timings(Value, frozen=True):
    window: str
    deviation: str
    files: int
    by_status: dict[str, int]
    rows: list[Row]


# --- from files to rows -----------------------------------------------------------------------


def find_logs(places: Sequence[Path]) -> tuple[list[Path], list[Row]]:
    """Return the logs in these files and folders, and a row for each folder that cannot be listed."""
    found: set[Path] = set()
    errors: list[OSError] = []
    for place in places:
        if not place.exists():
            raise RequestError(
                f"'{printable(str(place))}' does not exist",
                where=f"the folder of logs, relative to {Path.cwd()}",
                next_command="python launch/report.py timing --window=35-44 results",
            )
        found |= set(log_files(place, errors.append))
    why = "the folder cannot be listed: {}".format
    unlisted = [Row(printable(str(error.filename)), Status.UNREADABLE, why(error.strerror)) for error in errors]
    return sorted(found), unlisted


def row_of(path: Path, rule: str, formats: Sequence[LogFormat]) -> Row:
    name = printable(str(path))
    try:
        with open_log(path) as stream:
            log_format = next(formats_of(stream, formats), None)
            if log_format is None:
                return Row(name, Status.NOT_A_LOG, "no line of a known log format")
            stream.seek(0)
            log = ReadLog(log_format.read(stream))
    except UNREADABLE_ERRORS as error:
        return Row(name, Status.UNREADABLE, getattr(error, "strerror", None) or str(error))
    return row_of_log(name, log_format.name, log, rule, log_format.no_seconds)


def row_of_log(path: str, format_name: str, log: ReadLog, rule: str, no_seconds: str = "") -> Row:
    """Return the row of a log: of the last attempt with step times or rates, otherwise of the last attempt."""
    steps = one_series(log.last_timed() or (log.attempts or [[]])[-1])
    if not steps:
        skipped = len(log.skipped)
        return Row(path, Status.INCOMPLETE, "the log has no step", format=format_name, skipped_lines=skipped)
    marked = window.choose_window(steps, rule)[1]
    counted = [step for step in marked if step.excluded_because is None]
    missing = window.missing_steps(rule, steps)
    diverged = sum(step.loss is not None and not math.isfinite(step.loss) for step in counted)
    reached = max(step.step for step in steps)
    reasons = [f"loss not finite in {diverged} of {len(counted)} steps"] if diverged else []
    if missing:
        reasons.append(f"reached step {reached}; missing in the window: {plural(missing, 'step')}")
    elif not counted:
        reasons.append(f"reached step {reached}, but no step of the window counts")
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
        excluded=excluded_steps(marked),
        skipped_lines=len(log.skipped),
    )
    return msgspec.structs.replace(row, **_figures(counted))


def excluded_steps(marked: Sequence[Step]) -> dict[str, str]:
    """Return the excluded steps by reason, except steps outside the window."""
    reasons: dict[str, list[int]] = {}
    for step in marked:
        if step.excluded_because not in (None, window.OUTSIDE_WINDOW):
            reasons.setdefault(str(step.excluded_because), []).append(step.step)
    return {reason: first_few(spans_text(numbers).split(",")) for reason, numbers in reasons.items()}


def _figures(counted: Sequence[Step]) -> dict[str, float | None]:
    """Return mean, deviation and median of seconds and TFLOP/s; None if any counted step lacks the value."""
    found: dict[str, float | None] = {}
    printed = [step.framework_tflops_per_device for step in counted]
    series = {"seconds": [step.seconds for step in counted], "tflops_per_gpu": printed}
    for name, values in series.items():
        known = [value for value in values if value is not None and abs(value) < 1e100]  # so that squares stay finite
        for how in (statistics.mean, statistics.stdev, statistics.median):
            found[f"{name}_{how.__name__}"] = how(known) if len(known) == len(counted) else None
    return found


# --- from rows to text ------------------------------------------------------------------------


def as_data(rows: Sequence[Row], rule: str) -> Timings:
    """Return the document that --json prints."""
    return Timings(
        window=rule,
        deviation=DEVIATION,
        files=len(rows),
        by_status={status.value: sum(row.status == status for row in rows) for status in Status},
        rows=list(rows),
    )


HEADINGS = [
    ("", "", "", "Time (s)", "", "TFLOPS_per_GPU", ""),
    ("Experiment", "Status", "Steps", "Mean", "Std", "Mean", "Std"),
]


def as_table(timings: Timings) -> str:
    """Return the table as text."""
    rows, rule = timings.rows, timings.window
    trained = [row for row in rows if row.format]
    over = "iterations" if window_rule.last_step_wanted(rule) is not None else "window"
    title = f"Train Step Timing and TFLOPS Analysis ({over} {rule})"
    lines = [title, "=" * len(title)]
    if trained:
        names = _names(rows)
        cells = [(names[row.path], *_cells(row)) for row in trained]
        header, titles, *texts = columns([*HEADINGS, *cells], numbers=(2, 3, 4, 5, 6), indent="")
        lines += [header, titles, "-" * max(map(len, (header, titles, *texts)))]
        for row, text in zip(trained, texts, strict=True):
            lines += [text, *(f"  {note}" for note in _notes(row))]
    others = [f"{row.status}: {row.path}: {row.reason}" for row in rows if not row.format]
    lines += ["", first_few(others, SHOWN_FILES, "\n")] if others else []
    counts = ", ".join(f"{count} {status}" for status, count in timings.by_status.items() if count)
    lines += ["", f"Std is the {DEVIATION}, over the steps of a log's last attempt."]
    if any(row.status in (Status.INCOMPLETE, Status.FAILED) for row in rows):
        lines.append("Why a run ended: python launch/doctor.py logs LOG")
    lines.append(f"{plural(len(rows), 'file')}: {counts or 'none found'}")
    return "\n".join(lines) + "\n"


def _names(rows: Sequence[Row]) -> dict[str, str]:
    """Return path -> name in the table: NAME for `log-NAME.out` if the name is unique, otherwise the path."""
    found = {row.path: re.fullmatch(r"(?:.*/)?log-(.+)\.out", row.path) for row in rows}
    often = Counter(match[1] for match in found.values() if match)
    return {path: match[1] if match and often[match[1]] == 1 else path for path, match in found.items()}


def _cells(row: Row) -> Iterator[str]:
    yield row.status
    wanted = row.steps_counted + row.steps_missing
    yield f"{row.steps_counted}/{wanted}" if row.steps_missing else str(row.steps_counted)
    for value in (row.seconds_mean, row.seconds_stdev, row.tflops_per_gpu_mean, row.tflops_per_gpu_stdev):
        yield "-" if value is None else digits(value)


def _notes(row: Row) -> list[str]:
    notes = [row.reason] if row.reason else []
    if row.excluded:
        notes.append("excluded: " + "; ".join(f"{reason}: {steps}" for reason, steps in row.excluded.items()))
    if row.skipped_lines:
        notes.append(f"{row.skipped_lines} lines of steps could not be read (launch/ingest.py lists them)")
    return notes
