"""The table of `parse_train_timing`: one row for each log, whatever became of its run, and its three shapes.

Pure: events of a log in, a row out; rows in, text out. Every file has one of six statuses and gets a row, or is
counted in that of its run, so the counts at the end sum up to the number of files. Which files there are is found
in launch/reports/log_folder.py; why a run ended early is read in log_endings.py.
"""

import csv
import io
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import PurePath

import msgspec

from benchmarks.backend import LogEvent
from benchmarks.logs.log_endings import Ending
from benchmarks.measuring import statistics, window
from benchmarks.values import Step, Value, json_text

SUCCESS = "Success"
INCOMPLETE = "Incomplete"
FAILED = "Failed"
NOT_COMPARED = "Not compared"  # of a run of ours: a profiler ran, or it is of a phase that is not the measured one
NOT_A_LOG = "Not a training log"
UNREADABLE = "Unreadable"
STATUSES = (SUCCESS, INCOMPLETE, FAILED, NOT_COMPARED, NOT_A_LOG, UNREADABLE)

DEFAULT_WINDOW = "35-44"  # of the recipes whose table this is
DEVIATION = "sample standard deviation (n - 1)"
SHOWN_SPANS = 10  # of steps in one reason
SHOWN_FILES = 20  # rows without training in the table; csv and json have all

NOT_ABOVE_ZERO = "time_not_above_zero"  # why a step is left out, beside the reasons of window.py

Span = tuple[int, int]  # the first and the last step of an unbroken row


class Row(Value, frozen=True):
    """What one file says, or several that are counted together.

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
    files: int = 1  # counted in this row


# --- a log's events -> its row ----------------------------------------------------------------


class Attempt:
    """The steps of one attempt that a window rule may count: of a log of several GB, few."""

    def __init__(self, number: int, rule: str) -> None:
        self.number = number
        self.reached = -1
        self.timed = False
        self.kept: list[Step] = []
        self._keep = _keeper(rule)

    def add(self, step: Step) -> None:
        self.reached = max(self.reached, step.step)
        self.timed = self.timed or _is_time(step.seconds)
        # A log's ranks report the same steps: they are one series, whoever was first.
        self._keep(self.kept, step if step.rank == 0 else msgspec.structs.replace(step, rank=0))


def _keeper(rule: str) -> Callable[[list[Step], Step], None]:
    wanted = wanted_steps(rule)

    def keep(kept: list[Step], step: Step) -> None:
        if rule == window.LAST:
            if step.excluded_because is None and (_is_time(step.seconds) or not _any_time(kept)):
                kept[:] = [step]  # the last with a time; of a run without any, the last
        elif rule == window.STEADY or (wanted is not None and step.step in wanted):
            kept.append(step)

    return keep


def wanted_steps(rule: str) -> range | None:
    """The steps that an A-B rule asks for; None for rules that take what the run has."""
    last = window.last_step_wanted(rule)
    return None if last is None else range(int(rule.split("-", maxsplit=1)[0]), last + 1)


class Reading:
    """Takes in the events of one log."""

    def __init__(self, rule: str) -> None:
        window.check_rule(rule)
        self.rule = rule
        self.attempts = 1
        self.skipped_lines = 0
        self._chosen: Attempt | None = None  # the last with seconds, or else the last with steps
        self._current: Attempt | None = None
        self.complete_before: int | None = None  # an earlier attempt that has the whole window

    def add(self, event: LogEvent) -> None:
        self.attempts = max(self.attempts, event.attempt)
        self.skipped_lines += event.skipped is not None
        if event.step is None:
            return
        if self._current is None or self._current.number != event.attempt:
            self._begin(event.attempt)
        if self._current is not None:
            self._current.add(event.step)
            if self._current.timed and self._chosen is not self._current:
                self._note_complete(self._chosen)
                self._chosen = self._current

    @property
    def attempt(self) -> Attempt | None:
        """The attempt the row is about: the last that has steps with seconds."""
        return self._chosen or self._current

    def _begin(self, number: int) -> None:
        self._current = Attempt(number, self.rule)

    def _note_complete(self, attempt: Attempt | None) -> None:
        wanted = wanted_steps(self.rule)
        if attempt is not None and wanted and not _missing(wanted, attempt.kept):
            self.complete_before = attempt.number


def row_of_log(path: str, format_name: str, reading: Reading, ending: Ending | None) -> Row:
    """The row of a file in which a log format was recognised."""
    attempt = reading.attempt
    wanted = wanted_steps(reading.rule)
    marked = _marked(attempt.kept, reading.rule) if attempt else []
    counted = [step for step in marked if step.excluded_because is None]
    missing = _missing(wanted, marked)
    diverged = _not_finite(counted)
    status = _status(complete=bool(counted) and not missing, asked=wanted is not None, ending=ending)
    if counted and diverged == len(counted):
        status = FAILED  # it ran, and did not train
    reasons = _reasons(reading, status, ending, missing, len(counted), diverged)
    row = Row(
        experiment=path,
        path=path,
        status=status,
        reason="; ".join(reasons) or None,
        ending=ending.name if ending else None,
        format=format_name,
        attempt=attempt.number if attempt else None,
        attempts=reading.attempts,
        reached_step=attempt.reached if attempt else None,
        steps_counted=len(counted),
        steps_wanted=None if wanted is None else len(wanted),
        excluded=_excluded(marked),
        skipped_lines=reading.skipped_lines,
    )
    return _with_figures(row, counted)


def row_without_log(path: str, status: str, reason: str, ending: Ending | None = None) -> Row:
    """The row of a file that is no training log, or can't be read."""
    shown = f"{reason}; it says: {ending.text}" if ending else reason
    return Row(experiment=path, path=path, status=status, reason=shown, ending=ending.name if ending else None)


def row_of_run(path: str, run_id: str, files: int, silent: Sequence[Row] = ()) -> Row:
    """One row for the files of a run folder of Stepmark that are no logs, and for the logs of silent ranks."""
    counted = files + len(silent)
    reason = f"{counted} file{'s' if counted != 1 else ''} of Stepmark's run {run_id}"
    told = next((row for row in silent if row.ending is not None), None)
    if told is not None:
        reason += f"; {PurePath(told.path).name}: {told.reason}"
    ending = told.ending if told else None
    return Row(experiment=path, path=path, status=NOT_A_LOG, reason=reason, ending=ending, files=counted)


def _marked(steps: Sequence[Step], rule: str) -> list[Step]:
    """Every step with the reason it is left out. A time of 0 has no meaning: its log printed too few digits."""
    return [
        msgspec.structs.replace(step, excluded_because=NOT_ABOVE_ZERO)
        if step.excluded_because is None and not _is_time(step.seconds)
        else step
        for step in window.choose_window(steps, rule)[1]
    ]


def _not_finite(steps: Sequence[Step]) -> int:
    """How many steps have a loss that is no finite number; one that isn't known is not held against a step."""
    return sum(step.loss is not None and not math.isfinite(step.loss) for step in steps)


def _status(*, complete: bool, asked: bool, ending: Ending | None) -> str:
    """Complete is what has all that was asked for. Where nothing was asked for, a run that failed isn't."""
    if complete and (asked or ending is None):
        return SUCCESS
    return INCOMPLETE if ending is None else FAILED


def _missing(wanted: range | None, marked: Sequence[Step]) -> list[Span]:
    """The steps of the window that have no time."""
    if wanted is None:
        return []
    timed = sorted({step.step for step in marked if _is_time(step.seconds)})
    points = [wanted.start - 1, *timed, wanted.stop]
    return [(before + 1, after - 1) for before, after in pairwise(points) if after > before + 1]


def _is_time(seconds: float | None) -> bool:
    return seconds is not None and math.isfinite(seconds) and seconds > 0


def _any_time(steps: Iterable[Step]) -> bool:
    return any(_is_time(step.seconds) for step in steps)


def _reasons(
    reading: Reading, status: str, ending: Ending | None, missing: Sequence[Span], counted: int, diverged: int
) -> list[str]:
    reasons = []
    if ending:
        reasons.append(f"after the window: {ending.text}" if status == SUCCESS else ending.text)
    if diverged:
        reasons.append(f"loss not finite in {diverged} of {counted} steps")
    if reading.attempt is None:
        reasons.append("no step was logged")
    elif status != SUCCESS:
        reasons.append(_reached_text(reading.attempt, wanted_steps(reading.rule), missing))
        if not missing and not counted:
            reasons.append("no step of the window counts")
    if reading.attempts > 1 and reading.attempt is not None:
        reasons.append(f"attempt {reading.attempt.number} of {reading.attempts}")
    if status != SUCCESS and reading.complete_before is not None:
        reasons.append(f"attempt {reading.complete_before} has the whole window")
    return reasons


def _reached_text(attempt: Attempt, wanted: range | None, missing: Sequence[Span]) -> str:
    reached = f"reached step {attempt.reached}"
    if not wanted or not missing:
        return reached
    there = len(wanted) - sum(last - first + 1 for first, last in missing)
    return f"{reached}, {there} of {len(wanted)} steps of the window (lacks {_spans_text(missing)})"


def _excluded(marked: Sequence[Step]) -> dict[str, str]:
    reasons: dict[str, list[int]] = {}
    for step in marked:
        if step.excluded_because is not None:
            reasons.setdefault(step.excluded_because, []).append(step.step)
    return {reason: _spans_text(_spans(numbers)) for reason, numbers in reasons.items()}


def _spans(numbers: Iterable[int]) -> list[Span]:
    rows = [list(row) for _, row in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0])]
    return [(row[0][1], row[-1][1]) for row in rows]


def _spans_text(spans: Sequence[Span]) -> str:
    """Steps for people: 35-37, 40."""
    named = [str(first) if first == last else f"{first}-{last}" for first, last in spans[:SHOWN_SPANS]]
    more = f" and {len(spans) - SHOWN_SPANS} more" if len(spans) > SHOWN_SPANS else ""
    return ", ".join(named) + more


def _with_figures(row: Row, counted: Sequence[Step]) -> Row:
    seconds = [step.seconds for step in counted if step.seconds is not None]
    printed = [step.framework_tflops_per_device for step in counted]
    tflops = [value for value in printed if value is not None and math.isfinite(value)]
    if len(tflops) < len(counted):
        tflops = []  # a mean of some steps beside a mean of all would be read as one of all
    return msgspec.structs.replace(
        row,
        seconds_mean=_figure(statistics.mean, seconds),
        seconds_stdev=_figure(statistics.stdev, seconds),
        seconds_median=_figure(statistics.median, seconds),
        tflops_per_gpu_mean=_figure(statistics.mean, tflops),
        tflops_per_gpu_stdev=_figure(statistics.stdev, tflops),
        tflops_per_gpu_median=_figure(statistics.median, tflops),
    )


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
    short = [_short_name(row.path) for row in rows]
    often = Counter(short)
    return [
        msgspec.structs.replace(row, experiment=row.path if full_names or often[name] > 1 else name)
        for row, name in zip(rows, short, strict=True)
    ]


def _short_name(path: str) -> str:
    name = log_name(PurePath(path).name)
    return path if name is None else name


def log_name(file_name: str) -> str | None:
    """The experiment that a `log-NAME.out` is of; None for files that are called otherwise."""
    base = file_name.removesuffix(".gz")
    inside = base.removeprefix("log-").removesuffix(".out")
    return inside if base == f"log-{inside}.out" and inside else None


# --- rows -> text -----------------------------------------------------------------------------


def by_status(rows: Sequence[Row]) -> dict[str, int]:
    """How many files have each status."""
    return {status: _files(row for row in rows if row.status == status) for status in STATUSES}


def _files(rows: Iterable[Row]) -> int:
    return sum(row.files for row in rows)


def as_json(rows: Sequence[Row], rule: str) -> str:
    """The rows as one JSON object. What is unknown is null; nan and inf don't exist."""
    return json_text(
        {
            "window": rule,
            "deviation": DEVIATION,
            "files": _files(rows),
            "by_status": by_status(rows),
            "rows": [msgspec.to_builtins(row) for row in rows],
        }
    )


def as_csv(rows: Sequence[Row]) -> str:
    """A header and a record for each row, as RFC 4180 has it; what is unknown is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(Row.__struct_fields__)
    for row in rows:
        values = msgspec.structs.asdict(row) | {"excluded": _excluded_text(row)}
        writer.writerow(["" if value is None else value for value in values.values()])
    return out.getvalue()


HEADINGS = ("Status", "Steps", "Mean", "Std", "Mean", "Std")
WIDTHS = (10, 7, 9, 8, 8, 7)
GROUPS = (("", 10), ("", 7), ("Time (s)", 9 + 2 + 8), ("TFLOPS_per_GPU", 8 + 2 + 7))  # above the headings
NARROWEST_NAME, WIDEST_NAME = 19, 100
INDENT = "  "


def as_table(rows: Sequence[Row], rule: str, columns: int | None = None) -> str:
    """The table for people, in lines of `columns` characters where a terminal has so many; None: no limit."""
    trained = [row for row in rows if row.status in (SUCCESS, INCOMPLETE, FAILED)]
    name_width = _name_width(trained, columns)
    total = columns or name_width + sum(WIDTHS) + 2 * len(WIDTHS)
    over = "iterations " + rule if wanted_steps(rule) is not None else "window " + rule
    lines = [f"Train Step Timing and TFLOPS Analysis ({over})", "=" * min(total, 80)]
    if trained:
        lines.append("  ".join([" " * name_width, *(f"{title:^{width}}" for title, width in GROUPS)]))
        lines.append(_line(["Experiment"], HEADINGS, name_width))
        lines.append(_line(["-" * name_width], ["-" * width for width in WIDTHS], name_width))
    for row in trained:
        lines += _table_row(row, name_width, columns)
    lines += _other_files(rows, columns)
    lines += ["", *_closing(rows, columns)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _name_width(rows: Sequence[Row], columns: int | None) -> int:
    longest = max((len(row.experiment) for row in rows), default=0)
    room = WIDEST_NAME if columns is None else columns - sum(WIDTHS) - 2 * len(WIDTHS)
    return max(min(longest, room), NARROWEST_NAME)


def _line(name: Sequence[str], cells: Sequence[str], name_width: int) -> str:
    """A name, at its last part with the cells of its row beside it."""
    status, *figures = [(cell, width) for cell, width in zip(cells, WIDTHS, strict=True)]
    beside = [f"{status[0]:<{status[1]}}", *(f"{cell:>{width}}" for cell, width in figures)]
    return "\n".join([*name[:-1], "  ".join([f"{name[-1]:<{name_width}}", *beside])])


def _table_row(row: Row, name_width: int, columns: int | None) -> list[str]:
    decimals = _decimals(row.seconds_mean)
    cells = [
        row.status,
        str(row.steps_counted) if row.steps_wanted is None else f"{row.steps_counted}/{row.steps_wanted}",
        _cell(row.seconds_mean, decimals, WIDTHS[2]),
        _cell(row.seconds_stdev, decimals, WIDTHS[3]),
        _cell(row.tflops_per_gpu_mean, _decimals(row.tflops_per_gpu_mean, 2), WIDTHS[4]),
        _cell(row.tflops_per_gpu_stdev, _decimals(row.tflops_per_gpu_mean, 2), WIDTHS[5]),
    ]
    # A name is never cut short: in a narrow terminal it goes on in the next line.
    width = name_width if columns else len(row.experiment)
    parts = [row.experiment[start : start + width] for start in range(0, len(row.experiment), width)] or [""]
    return [_line(parts, cells, name_width), *_notes(row, columns)]


def _notes(row: Row, columns: int | None) -> list[str]:
    notes = [row.reason] if row.reason else []
    if row.excluded:
        notes.append(f"left out: {_excluded_text(row)}")
    if row.skipped_lines:
        notes.append(f"{row.skipped_lines} lines of steps could not be read (launch/ingest.py names them)")
    return [line for note in notes for line in _wrapped(note, columns)]


def _wrapped(text: str, columns: int | None, indent: str = INDENT) -> list[str]:
    if columns is None:
        return [indent + text]
    return textwrap.wrap(text, max(columns, 40), initial_indent=indent, subsequent_indent=indent + INDENT)


def _excluded_text(row: Row) -> str:
    return "; ".join(f"{reason}: {steps}" for reason, steps in row.excluded.items())


def _cell(value: float | None, decimals: int, width: int) -> str:
    if value is None:
        return "-"
    text = f"{value:.{decimals}f}"
    return text if len(text) <= width else f"{value:.3g}"


def _decimals(mean: float | None, fewest: int = 3) -> int:
    """As many as show four digits of the mean, and at least as many as the recipes print."""
    return fewest if not mean or mean < 0 else max(fewest, 3 - math.floor(math.log10(mean)))


def _other_files(rows: Sequence[Row], columns: int | None) -> list[str]:
    lines = []
    for status in (NOT_COMPARED, UNREADABLE, NOT_A_LOG):
        others = [row for row in rows if row.status == status]
        others.sort(key=lambda row: (row.ending is None, row.files > 1))  # first those that say why something failed
        if others:
            lines += ["", f"{status} ({_files(others)}):"]
        for row in others[:SHOWN_FILES]:
            lines += _wrapped(f"{row.experiment}: {row.reason}", columns)
        if len(others) > SHOWN_FILES:
            lines.append(f"{INDENT}and {_files(others[SHOWN_FILES:])} more (--format=csv has all)")
    return lines


def _closing(rows: Sequence[Row], columns: int | None) -> list[str]:
    counts = ", ".join(f"{count} {status}" for status, count in by_status(rows).items() if count)
    lines = _wrapped(f"Std is the {DEVIATION}, over the steps of a log's last attempt.", columns, "")
    files = _files(rows)
    return lines + _wrapped(f"{files} file{'s' if files != 1 else ''}: {counts or 'none found'}", columns, "")


FORMATS: dict[str, Callable[[Sequence[Row], str, int | None], str]] = {
    "table": as_table,
    "csv": lambda rows, _rule, _columns: as_csv(rows),
    "json": lambda rows, rule, _columns: as_json(rows, rule),
}
