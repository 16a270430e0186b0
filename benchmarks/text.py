"""Formats text for users: tables, numbers with units, reasons, and Markdown.

All text tables are formatted here.
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from benchmarks.values import Benchmark, Parallelism, Step

Rows = list[tuple[str, str]]
OF_A_RANK = re.compile(r"((?:phase \S+: )?)rank (\d{1,9})(:?) (.+)")
BREAKS = re.compile(r"(?:\s|\\n)+")  # line breaks; a quoted message contains them as \n
MOST_REASONS = 4


# --- one printable line ---------------------------------------------------------------------------


def printable(text: str) -> str:
    """Return the text with non-printable characters escaped, so that it cannot move a cursor or break a row."""
    safe = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    if safe.isprintable():
        return safe
    return "".join(c if c.isprintable() else " " if c == "\t" else repr(c)[1:-1] for c in safe)


def printable_lines(text: str) -> str:
    """Return the same lines with each one printable."""
    return "\n".join(map(printable, text.split("\n")))


# --- tables ---------------------------------------------------------------------------------------


def columns(table: Sequence[Sequence[str]], numbers: Collection[int] = (), indent: str = "  ") -> list[str]:
    """Return the rows with each column as wide as its widest cell. Columns in `numbers` are aligned to the right.

    Every cell is made one printable line.
    """
    table = [list(map(printable, row)) for row in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        indent
        + "  ".join(
            text.rjust(width) if place in numbers else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


class Grid(NamedTuple):
    """A table for the terminal or for an HTML page."""

    heading: str
    titles: Sequence[str]  # a title that begins with # is for a column of numbers
    rows: Sequence[Sequence[str]]

    def lines(self, indent: str = "  ") -> list[str]:
        numbers = {place for place, title in enumerate(self.titles) if title.startswith("#")}
        return columns([[title.removeprefix("#") for title in self.titles], *self.rows], numbers, indent)


def aligned(rows: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Return lines with labels in the first column and texts in the second. A text may have several lines."""
    return columns(
        [(label if place == 0 else "", line) for label, text in rows for place, line in enumerate(text.split("\n"))],
        indent=indent,
    )


def percent_text(percent: float | None, digits: str = ".2g") -> str:
    """Return the percentage without an exponent, or a dash if it is unknown."""
    if percent is None:
        return "-"
    whole = f"{'+' if digits.startswith('+') else ''},.0f"
    return f"{percent:{digits if abs(percent) < 99.5 else whole}}%"


def digits(value: float) -> str:
    """Return four significant digits, or all digits of a larger whole part, without an exponent: 0.03162, 12,346."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def plural(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each range without gaps."""
    grouped = groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0])
    rows = [[number for _, number in row] for _, row in grouped]
    return [(row[0], row[-1]) for row in rows]


def spans_text(numbers: Iterable[int], width: int = 0) -> str:
    """Return ranges as text: 0-3,7 for 0, 1, 2, 3 and 7. `width` pads each number with zeros."""
    texts = ([f"{end:0{width}}" for end in dict.fromkeys(ends)] for ends in spans(numbers))
    return ",".join(map("-".join, texts))


def first_few(texts: Sequence[str], most: int = 8, between: str = ", ") -> str:
    """Return the first few texts, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{between.join(texts[:most])}{more}"


# --- figures and reasons ----------------------------------------------------------------------------


def seconds_text(seconds: float) -> str:
    """Return four significant digits with a fitting unit: 6.999 s, 15.21 ms."""
    if seconds >= 1:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"


def count_text(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def bytes_text(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size / 1e3:.1f} kB"


def layout_text(layout: Parallelism) -> str:
    return " x ".join(f"{word} {size}" for word, size in layout.words()) or "one device"


# --- a result -----------------------------------------------------------------------------------


def title(benchmark: Benchmark) -> str:
    return (
        f"{benchmark.model.name} {benchmark.task} {benchmark.dtype} · {benchmark.backend} ({benchmark.engine}) · "
        f"{benchmark.gpus} x {benchmark.hardware.name}"
    )


def folded(reasons: Sequence[str]) -> list[str]:
    """Return each reason as one line. Equal reasons of several ranks are joined: "64 ranks (0-63): no step"."""
    ranks: dict[tuple[str, str, str], set[int]] = {}
    for reason in reasons:
        line = BREAKS.sub(" ", reason).strip()
        found = OF_A_RANK.fullmatch(line)
        before, rank, sign, what = found.groups() if found else ("", "", "", line)
        ranks.setdefault((before, sign, what), set()).update([int(rank)] if rank else [])
    return [f"{before}{_ranks_text(found, sign)}{what}" for (before, sign, what), found in ranks.items()]


def _ranks_text(ranks: Collection[int], sign: str) -> str:
    if len(ranks) < 2:
        return "".join(f"rank {rank}{sign} " for rank in ranks)
    several = f"{len(ranks)} ranks ({spans_text(ranks)})"
    return f"{several}: " if sign else f"each of {several} "  # "each of", because a singular verb follows


def reasons_text(reasons: Sequence[str]) -> str:
    """Return the first few reasons in one line."""
    return first_few(folded(reasons), MOST_REASONS, "; ")


def step_text(
    step: Step,
    total_steps: int,
    typical_seconds: float | None,
    seconds_left: float | None,
) -> str:
    """Return the status line of a run in progress: its last step, its speed, and the remaining time."""
    words = [f"step {step.step + 1}/{total_steps}"]
    if seconds_left is not None:  # near the start, because a narrow terminal cuts off the end
        words.append(f"{duration_text(seconds_left)} left")
    if typical_seconds:
        words.append(f"{seconds_text(typical_seconds)}/step")
        if step.tokens:
            words.append(f"{count_text(step.tokens / typical_seconds)} tokens/s")
    if step.loss is not None:
        words.append(f"loss {step.loss:.3f}")
    return " · ".join(words)


def duration_text(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# --- Markdown, for a job's summary and a comment -----------------------------------------------------


def headed(text: str) -> str:
    """Return the text as Markdown, with its first line as the heading and the rest as a code block."""
    first, _, rest = text.partition("\n")
    return fenced(first, rest.strip("\n").split("\n"))


def fenced(heading: str, lines: Sequence[str]) -> str:
    """Return Markdown with a heading and a code block, so that names and logs are never read as markup."""
    body = "\n".join(map(printable, lines))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
    inert = printable(heading).replace("`", "'")
    return f"## `{inert}`\n\n{fence}text\n{body}\n{fence}\n"
