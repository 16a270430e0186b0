"""Export many runs as a table, CSV or JSON. No I/O.

CSV and JSON contain every field of a FinishedRun. The table has one heading for all runs of the same benchmark. Its
newest run comes last.
"""

import csv
import io
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from benchmarks.history.index import Problem
from benchmarks.runs import identity
from benchmarks.runs.find_runs import short_names
from benchmarks.runs.finished_run import FIELDS, RUNNING, FinishedRun, field_of
from benchmarks.text import columns, count_text, folded, plural, printable, seconds_text
from benchmarks.values import Value

NOTHING = "-"
NAMED = ("seconds/step", "95% interval", "tokens/s", "MFU")


class RunListing(Value, frozen=True):
    """The document of --json: the runs that were selected, and the conditions that selected them."""

    folder: str
    where: list[str]
    runs: list[FinishedRun]
    problems: list[Problem]


# --- table ----------------------------------------------------------------------------------------


def table_text(listing: RunListing, every: Collection[str] = ()) -> str:
    """Return the runs as a table. `every` contains the paths of all runs in the folder, including runs not shown."""
    groups: dict[str, list[FinishedRun]] = {}
    for entry in listing.runs:
        of = entry.benchmark
        title = (
            f"{of.model} {of.task} {of.dtype} · {of.backend} ({of.engine}) · {of.gpus} x {of.hardware} · {of.site}"
        )
        groups.setdefault(title, []).append(entry)
    lines: list[str] = []
    paths = [entry.path for entry in listing.runs]
    names = short_names([path for path in paths if "/" not in path], every)
    names |= {
        path: path for path in paths if path not in names
    }  # the name of a run in a subfolder cannot be shortened
    for what, entries in sorted(groups.items(), key=lambda group: group[1][-1].started):
        rows = _rows(entries, names)
        lines += [printable(line) for line in (what, *rows, "")]  # a run may come from an untrusted source
    return "\n".join([*lines, _closing(listing)]) + "\n"


def _rows(entries: Sequence[FinishedRun], names: Mapping[str, str]) -> list[str]:
    cells = [("when", "status", *NAMED, "run")]
    starts = [entry.started[:16].replace("T", " ") or NOTHING for entry in entries]
    cells += [(at, one.status, *_figures(one), names[one.path]) for at, one in zip(starts, entries, strict=True)]
    heading, *rows = columns(cells)
    notes = [[f"    {note}" for note in _notes(entry)] for entry in entries]
    return [heading, *(line for row, under in zip(rows, notes, strict=True) for line in (row, *under))]


def _figures(entry: FinishedRun) -> tuple[str, str, str, str]:
    """Return the cells of a row: seconds per step, their interval, tokens/s, and MFU with its convention and peak."""
    low, high = entry.metrics.seconds_low, entry.metrics.seconds_high
    peak = f"{entry.mfu.convention}, {entry.mfu.precision} {entry.mfu.peak_tflops or 0:.5g} TFLOP/s"
    return (
        NOTHING if entry.metrics.seconds_per_step is None else seconds_text(entry.metrics.seconds_per_step),
        NOTHING if low is None or high is None else f"{seconds_text(low)} to {seconds_text(high)}",
        NOTHING if entry.metrics.tokens_per_second is None else count_text(entry.metrics.tokens_per_second),
        NOTHING if entry.mfu.percent is None else f"{entry.mfu.percent:.1f}% {peak}",
    )


def _notes(entry: FinishedRun) -> list[str]:
    """Return notes that a reader needs to interpret a row, and the labels of the run."""
    notes = [f"{entry.status}: {folded(entry.reasons)[0]}"] if entry.reasons and entry.status != "valid" else []
    notes += [f"not comparable: {reason}" for reason in entry.not_comparable]
    if entry.window.settling == "still moving":
        notes.append(f"step times still moving: median off by up to {entry.window.median_off_percent or 0:.2g}%")
    if entry.slowed_by:
        notes.append(f"slowed on purpose by {entry.slowed_by:.0%}")
    called = [f"tag {tag}" for tag in entry.labels.tags]
    if entry.labels.suite is not None:
        role = f", {entry.labels.role}" if entry.labels.role not in (None, "night") else ""
        called.append(f"suite {entry.labels.suite}, cell {entry.labels.cell}, night {entry.labels.night}{role}")
    return notes + (["; ".join(called)] if called else [])


def _closing(listing: RunListing) -> str:
    counts = Counter(str(entry.status) for entry in listing.runs)
    runs = plural(len(listing.runs), "run")
    asked = " with " + ", ".join(listing.where) if listing.where else ""
    by_status = ": " + ", ".join(f"{count} {status}" for status, count in counts.items()) if counts else ""
    lines = [f"{runs} in {listing.folder}{asked}{by_status}"]
    if any(entry.metrics.seconds_per_step is None or entry.mfu.percent is None for entry in listing.runs):
        lines.append(f"{NOTHING}: unknown; the run's result.json gives the reason")
    if counts.get(RUNNING):
        lines.append(f"{RUNNING}: no result yet; python launch/status.py shows the state")
    return "\n".join(lines)


# --- for programs ---------------------------------------------------------------------------------


def as_csv(listing: RunListing) -> str:
    """Return CSV (RFC 4180): a header, then a record for each run. Unknown values are empty fields.

    If a spreadsheet would interpret a text as a formula, the text gets an apostrophe as its first character.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_CSV_FIELDS)
    for entry in listing.runs:
        writer.writerow([_csv_cell(entry, name) for name in _CSV_FIELDS])
    return out.getvalue()


_MAPS = ("identity", "identity_text")

_FIRST = ("run_id", "path", "started", "status")
_CSV_FIELDS = [
    *_FIRST,
    *(name for name in FIELDS if name not in (*_FIRST, *_MAPS)),
    *(f"{name}.{kind}" for name in _MAPS for kind in identity.KINDS),
]


def _csv_cell(entry: FinishedRun, field: str) -> Any:
    name, _, kind = field.partition(".")
    value = field_of(entry, name)
    if kind:
        value = value.get(kind)
    if isinstance(value, dict):
        value = [f"{figure}: {why}" for figure, why in value.items()]
    if isinstance(value, list):
        value = "; ".join(value)
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if text.lstrip()[:1] in _FORMULA else text
    return "" if value is None else value


_FORMULA = ("=", "+", "-", "@")
