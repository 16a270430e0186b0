"""The table of `parse_train_timing`: one row for each log, whatever became of its run, and its three shapes.

Pure: events of a log in, a row out; rows in, text out. Every file, and every run folder of Stepmark, has one of six
statuses and gets a row. Which there are is found in launch/reports/log_folder.py; why a run ended early is read in
log_endings.py.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import PurePath

import msgspec

from benchmarks.logs.ingest import ReadLog, one_series
from benchmarks.logs.log_endings import Ending
from benchmarks.measuring import statistics, window
from benchmarks.rendering.columns import columns, plural, spans
from benchmarks.values import Step, Value

SUCCESS = "Success"
INCOMPLETE = "Incomplete"
FAILED = "Failed"
NOT_COMPARED = "Not compared"  # a run of ours that is invalid, or that a profiler recorded
NOT_A_LOG = "Not a training log"
UNREADABLE = "Unreadable"
STATUSES = (SUCCESS, INCOMPLETE, FAILED, NOT_COMPARED, NOT_A_LOG, UNREADABLE)

DEFAULT_WINDOW = "35-44"  # of the recipes whose table this is
DEVIATION = "sample standard deviation (n - 1)"
SHOWN_SPANS = 10  # of steps in one reason
SHOWN_FILES = 20  # rows without training in the table; csv and json have all
WIDEST_FIGURE = 9

NOT_ABOVE_ZERO = "time_not_above_zero"  # why a step is left out, beside the reasons of window.py

Span = tuple[int, int]  # the first and the last step of an unbroken row


class Row(Value, frozen=True):
    """What one log says, or one run folder of Stepmark.

    Figures are of the window's counted steps in the last attempt; None is unknown.
    """

    experiment: str
    path: str
    status: str
    reason: str | None = None  # why not Success, and what else must be known
    ending: str | None = None  # the name of the rule that recognised how the run ended (configs/symptoms.yml)
    format: str | None = None
    attempt: int | None = None
    attempts: int | None = None
    reached_step: int | None = None
    steps_counted: int = 0
    steps_wanted: int | None = None  # None: the rule takes what the run has
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
    rows: list[Row]


FIGURES = tuple(name for name in Row.__struct_fields__ if name.startswith(("seconds_", "tflops_")))


# --- a log's events -> its row ----------------------------------------------------------------


def wanted_steps(rule: str) -> range | None:
    """The steps that an A-B rule asks for; None for rules that take what the run has."""
    last = window.last_step_wanted(rule)
    return None if last is None else range(int(rule.split("-", maxsplit=1)[0]), last + 1)


def row_of_log(
    path: str, format_name: str, log: ReadLog, rule: str, ending: Ending | None, no_seconds: str = ""
) -> Row:
    """The row of a file that a format recognised: of the last attempt with times, or else of the last with steps.
    `no_seconds`: why the format prints no time."""
    timed = [steps for steps in log.attempts if any(_is_time(step.seconds) for step in steps)]
    # A log's ranks report the same steps: they are one series, whoever was first.
    steps = [msgspec.structs.replace(step, rank=0) for step in (timed or log.attempts or [[]])[-1]]
    attempt, wanted = steps[0].attempt if steps else None, wanted_steps(rule)
    marked = _marked(steps, rule) if steps else []
    counted = [step for step in marked if step.excluded_because is None]
    missing = _missing(wanted, marked)
    diverged = sum(step.loss is not None and not math.isfinite(step.loss) for step in counted)
    status = INCOMPLETE if ending is None else FAILED
    if counted and not missing and (wanted is not None or ending is None):
        status = SUCCESS  # it has all that was asked for
    if counted and diverged == len(counted):
        status = FAILED  # it ran, and did not train
    reasons = [f"after the window: {ending.text}" if status == SUCCESS else ending.text] if ending else []
    if diverged:
        reasons.append(f"loss not finite in {diverged} of {len(counted)} steps")
    if attempt is None:
        reasons.append("no step was logged")
    elif status != SUCCESS:
        reasons.append(_reached(steps, wanted, missing))
        reasons += ["no step of the window counts"] if not missing and not counted else []
    if attempt is not None and not timed and no_seconds:
        reasons.append(no_seconds)
    if attempt is not None and log.begun > 1:
        reasons.append(f"attempt {attempt} of {log.begun}")
    row = Row(
        experiment=path,
        path=path,
        status=status,
        reason="; ".join(reasons) or None,
        ending=ending.name if ending else None,
        format=format_name,
        attempt=attempt,
        attempts=log.begun,
        reached_step=max((step.step for step in steps), default=None),
        steps_counted=len(counted),
        steps_wanted=None if wanted is None else len(wanted),
        excluded=_excluded(marked),
        skipped_lines=len(log.skipped),
    )
    return msgspec.structs.replace(row, **_figures(counted))


def row_without_log(path: str, status: str, reason: str, ending: Ending | None = None) -> Row:
    """The row of a file that is no training log, or can't be read."""
    shown = f"{reason}; it says: {ending.text}" if ending else reason
    return Row(experiment=path, path=path, status=status, reason=shown, ending=ending.name if ending else None)


def _marked(steps: Sequence[Step], rule: str) -> list[Step]:
    """The window's steps, each with the reason it is left out. A time of 0 has no meaning: it was rounded to that."""
    wanted = wanted_steps(rule)
    if wanted is not None:
        steps = [step for step in steps if step.step in wanted]
    elif rule == window.LAST:
        timed = [step for step in steps if step.excluded_because is None and _is_time(step.seconds)]
        steps = (timed or steps)[-1:]
    return [
        msgspec.structs.replace(step, excluded_because=NOT_ABOVE_ZERO)
        if step.excluded_because is None and not _is_time(step.seconds)
        else step
        for step in window.choose_window(one_series(steps), rule)[1]
    ]


def _missing(wanted: range | None, marked: Sequence[Step]) -> list[Span]:
    """The steps of the window that have no time."""
    if wanted is None:
        return []
    timed = sorted({step.step for step in marked if _is_time(step.seconds) and step.step in wanted})
    points = [wanted.start - 1, *timed, wanted.stop]
    return [(before + 1, after - 1) for before, after in pairwise(points) if after > before + 1]


def _is_time(seconds: float | None) -> bool:
    return seconds is not None and math.isfinite(seconds) and seconds > 0


def _reached(steps: Sequence[Step], wanted: range | None, missing: Sequence[Span]) -> str:
    reached = f"reached step {max(step.step for step in steps)}"
    if not wanted or not missing:
        return reached
    there = len(wanted) - sum(last - first + 1 for first, last in missing)
    return f"{reached}, {there} of {len(wanted)} steps of the window (lacks {_spans_text(missing)})"


def _excluded(marked: Sequence[Step]) -> dict[str, str]:
    reasons: dict[str, list[int]] = {}
    for step in marked:
        if step.excluded_because is not None:
            reasons.setdefault(step.excluded_because, []).append(step.step)
    return {reason: _spans_text(spans(numbers)) for reason, numbers in reasons.items()}


def _spans_text(spans: Sequence[Span]) -> str:
    """Steps for people: 35-37, 40."""
    named = [str(first) if first == last else f"{first}-{last}" for first, last in spans[:SHOWN_SPANS]]
    more = f" and {len(spans) - SHOWN_SPANS} more" if len(spans) > SHOWN_SPANS else ""
    return ", ".join(named) + more


def _figures(counted: Sequence[Step]) -> dict[str, float | None]:
    """Of the printed TFLOP/s only where all steps have them: beside a mean of all, one of some would mislead."""
    found: dict[str, float | None] = {}
    printed = [step.framework_tflops_per_device for step in counted]
    series = {"seconds": [step.seconds for step in counted], "tflops_per_gpu": printed}
    for name, values in series.items():
        known = [value for value in values if value is not None and math.isfinite(value)]
        for how in (statistics.mean, statistics.stdev, statistics.median):
            found[f"{name}_{how.__name__}"] = _figure(how, known) if len(known) == len(counted) else None
    return found


def _figure(compute: Callable[[Sequence[float]], float | None], values: Sequence[float]) -> float | None:
    """A figure, or None where it is no number: a damaged log can hold times of 1e308 s."""
    try:
        figure = compute(values)
    except OverflowError:
        return None
    return figure if figure is not None and math.isfinite(figure) else None


# --- names ------------------------------------------------------------------------------------


def named(rows: Iterable[Row], full_names: bool = False) -> list[Row]:
    """The rows with the names that people know them by: `log-NAME.out` is NAME, any other file is its path.

    Where two would be called the same, both are called by their paths.
    """
    rows = list(rows)
    short = [log_name(PurePath(row.path).name) or row.path for row in rows]
    often = Counter(short)
    return [
        msgspec.structs.replace(row, experiment=row.path if full_names or often[name] > 1 else name)
        for row, name in zip(rows, short, strict=True)
    ]


def log_name(file_name: str) -> str | None:
    """The experiment that a `log-NAME.out` is of; None for files that are called otherwise."""
    base = file_name.removesuffix(".gz")
    inside = base.removeprefix("log-").removesuffix(".out")
    return inside if base == f"log-{inside}.out" and inside else None


# --- rows -> text -----------------------------------------------------------------------------


def by_status(rows: Sequence[Row]) -> dict[str, int]:
    """How many files have each status."""
    return {status: sum(row.status == status for row in rows) for status in STATUSES}


def as_data(rows: Sequence[Row], rule: str) -> Timings:
    """The rows for --json. What is unknown is null; nan and inf don't exist."""
    return Timings(window=rule, deviation=DEVIATION, files=len(rows), by_status=by_status(rows), rows=list(rows))


def as_csv(rows: Sequence[Row], _: str) -> str:
    """A header and a record for each row, as RFC 4180 has it; what is unknown is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(Row.__struct_fields__)
    for row in rows:
        values = msgspec.structs.asdict(row) | {"excluded": _excluded_text(row)}
        writer.writerow(["" if value is None else value for value in values.values()])
    return out.getvalue()


HEADINGS = [
    ("", "", "", "Time (s)", "", "TFLOPS_per_GPU", ""),
    ("Experiment", "Status", "Steps", "Mean", "Std", "Mean", "Std"),
]


def as_table(rows: Sequence[Row], rule: str) -> str:
    """The table for people."""
    trained = [row for row in rows if row.status in (SUCCESS, INCOMPLETE, FAILED)]
    over = "iterations" if wanted_steps(rule) is not None else "window"
    title = f"Train Step Timing and TFLOPS Analysis ({over} {rule})"
    lines = [title, "=" * len(title)]
    if trained:
        header, names, *cells = columns([*HEADINGS, *map(_cells, trained)], numbers=(2, 3, 4, 5, 6), indent="")
        lines += [header, names, "-" * max(map(len, (header, names, *cells)))]
        for row, text in zip(trained, cells, strict=True):
            lines += [text, *(f"  {note}" for note in _notes(row))]
    for status in (NOT_COMPARED, UNREADABLE, NOT_A_LOG):
        others = [row for row in rows if row.status == status]
        others.sort(key=lambda row: row.ending is None)  # first those that say why something failed
        lines += ["", f"{status} ({len(others)}):"] if others else []
        lines += [f"  {row.experiment}: {row.reason}" for row in others[:SHOWN_FILES]]
        if len(others) > SHOWN_FILES:
            lines.append(f"  and {len(others) - SHOWN_FILES} more (--format=csv has all)")
    counts = ", ".join(f"{count} {status}" for status, count in by_status(rows).items() if count)
    lines += ["", f"Std is the {DEVIATION}, over the steps of a log's last attempt."]
    lines.append(f"{plural(len(rows), 'file')}: {counts or 'none found'}")
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    steps = str(row.steps_counted) if row.steps_wanted is None else f"{row.steps_counted}/{row.steps_wanted}"
    seconds = [_cell(value, row.seconds_mean, 3) for value in (row.seconds_mean, row.seconds_stdev)]
    tflops = [
        _cell(value, row.tflops_per_gpu_mean, 2) for value in (row.tflops_per_gpu_mean, row.tflops_per_gpu_stdev)
    ]
    return (row.experiment, row.status, steps, *seconds, *tflops)


def _cell(value: float | None, mean: float | None, fewest: int) -> str:
    """With as many decimals as show four digits of the mean, and at least as many as the recipes print."""
    if value is None:
        return "-"
    decimals = fewest if not mean or mean < 0 else max(fewest, 3 - math.floor(math.log10(mean)))
    text = f"{value:.{decimals}f}"
    return text if len(text) <= WIDEST_FIGURE else f"{value:.3g}"


def _notes(row: Row) -> list[str]:
    notes = [row.reason] if row.reason else []
    if row.excluded:
        notes.append(f"left out: {_excluded_text(row)}")
    if row.skipped_lines:
        notes.append(f"{row.skipped_lines} lines of steps could not be read (launch/ingest.py names them)")
    return notes


def _excluded_text(row: Row) -> str:
    return "; ".join(f"{reason}: {steps}" for reason, steps in row.excluded.items())


FORMATS: dict[str, Callable[[Sequence[Row], str], str]] = {"table": as_table, "csv": as_csv}
