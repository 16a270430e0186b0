"""A diagnosis as a person reads it: rows of labels and texts. Pure."""

import time
from collections.abc import Iterable, Sequence

from benchmarks.diagnosis.order import Diagnosis, Entry
from benchmarks.rendering.columns import Rows, aligned
from benchmarks.rendering.report import bytes_text, count_text

MOST_FURTHER = 6
MOST_WARNINGS = 5
NAMES = {"cause": "first cause", "unknown": "first error", "suspect": "first error"}


def diagnosis_text(found: Diagnosis) -> str:
    return "\n".join([headline(found), *aligned(rows(found))])


def headline(found: Diagnosis) -> str:
    read = f"{count_text(found.files)} log{'' if found.files == 1 else 's'}, {bytes_text(found.bytes)}"
    warned = len(found.warnings)
    warnings = f", {warned} warning{'' if warned == 1 else 's'}" if warned else ""
    if found.failed and found.entries:
        return f"{read}: failed"
    if found.failed:
        return f"{read}: the run failed, and its logs do not say why"
    if found.ended_well:
        return f"{read}: ended well{warnings}"
    steps = f" in {found.steps:,} lines of steps" if found.steps else ""
    return f"{read}: nothing wrong was found{steps}{warnings}"


def rows(found: Diagnosis) -> Rows:
    made: Rows = []
    first = found.first
    if first is not None:
        made += first_rows(first)
        made += [("then", line) for line in _lines(found.entries[1:], MOST_FURTHER)][:1]
        made += [("", line) for line in _lines(found.entries[1:], MOST_FURTHER)[1:]]
    warned = _lines(found.warnings, MOST_WARNINGS)
    return made + [("warnings" if number == 0 else "", line) for number, line in enumerate(warned)]


def first_rows(first: Entry) -> Rows:
    """The first cause: what, who and when; the line it rests on; what it means; what to do."""
    label = NAMES.get(first.kind, "seen first")
    return [
        (label, _who(first)),
        ("line", f"{first.first.file}:{first.first.line}: {first.first.text}"),
        ("means", first.means),
        ("do", "\n".join(f"- {one}" for one in first.do)),
    ]


def one_line(found: Diagnosis) -> str | None:
    """The first cause in one line."""
    first = found.first
    return None if first is None else f"{_who(first)}; {first.first.file}:{first.first.line}: {first.first.text}"


def _who(entry: Entry) -> str:
    words = [entry.title or entry.id.replace("_", " ")]
    if entry.first.rank is not None:
        words.append(f"rank {entry.first.rank}" + (" first" if len(entry.ranks) > 1 else ""))
    if entry.first.time is not None:
        words.append(time_text(entry.first.time))
    if len(entry.ranks) > 1:
        words.append(f"{len(entry.ranks)} ranks say so: {ranks_text(entry.ranks)}")
    return ", ".join(words)


def time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _lines(entries: Sequence[Entry], most: int) -> list[str]:
    lines = [f"{_who(one)}; {one.first.file}:{one.first.line}: {one.first.text}" for one in entries[:most]]
    return [*lines, f"and {len(entries) - most} more: --json has them all"] if len(entries) > most else lines


def ranks_text(ranks: Iterable[int]) -> str:
    """0-3,7 for 0, 1, 2, 3 and 7."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
