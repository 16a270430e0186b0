"""Format a diagnosis as rows of labels and texts. No I/O."""

import time

from benchmarks.doctor.order import Diagnosis, Entry
from benchmarks.text import Rows, aligned, bytes_text, plural, spans_text

MOST_FURTHER = 6
MOST_WARNINGS = 5
NAMES = {"cause": "first cause", "unknown": "first error", "suspect": "first error"}


def diagnosis_text(found: Diagnosis) -> str:
    result: Rows = [("result", "\n".join(found.reasons))] if found.reasons else []
    return "\n".join([headline(found), *aligned([*rows(found), *result])])


def headline(found: Diagnosis) -> str:
    read = f"{plural(found.files, 'log')}, {bytes_text(found.bytes)}"
    warnings = f", {plural(len(found.warnings), 'warning')}" if found.warnings else ""
    if found.first is not None and found.first.kind == "begin":
        return f"{read}: no error, but the training did not reach its end{warnings}"
    if found.failed:
        return f"{read}: failed" if found.entries else f"{read}: the run failed, and its logs do not show the reason"
    if found.ended_well:
        return f"{read}: ended well{warnings}"
    steps = f" ({plural(found.steps, 'step')})" if found.steps else ""
    return f"{read}: no error found{steps}{warnings}"


def rows(found: Diagnosis) -> Rows:
    made: Rows = first_rows(found.first) if found.first else []
    further = ("then", found.entries[1:], MOST_FURTHER)
    for label, entries, most in (further, ("warnings", found.warnings, MOST_WARNINGS)):
        lines = [_line(entry) for entry in entries[:most]]
        if len(entries) > most:
            lines.append(f"and {len(entries) - most} more: --json has them all")
        made += [(label, "\n".join(lines))] if lines else []
    return made


def first_rows(first: Entry) -> Rows:
    """Return rows about the first cause: title, rank and time; the line that shows it; its meaning; what to do."""
    label = NAMES.get(first.kind, "seen first")
    return [
        (label, _entry_label(first)),
        ("line", f"{first.first.file}:{first.first.line}: {first.first.text}"),
        ("meaning", first.means),
        ("try", "\n".join(f"- {one}" for one in first.do)),
    ]


def one_line(found: Diagnosis) -> str | None:
    """Return the first cause in one line; None if the diagnosis has no finding."""
    return None if found.first is None else _line(found.first)


def _line(entry: Entry) -> str:
    return f"{_entry_label(entry)}; {entry.first.file}:{entry.first.line}: {entry.first.text}"


def _entry_label(entry: Entry) -> str:
    words = [entry.title or entry.id.replace("_", " ")]
    if entry.first.rank is not None:
        words.append(f"rank {entry.first.rank}" + (" first" if len(entry.ranks) > 1 else ""))
    if entry.first.time is not None:
        words.append(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.first.time)))
    if len(entry.ranks) > 1:
        words.append(
            f"{len(entry.ranks)} ranks{'' if entry.kind == 'silence' else ' show it'}: {spans_text(entry.ranks)}"
        )
    return ", ".join(words)
