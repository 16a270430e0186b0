"""Text in columns: tables, and labels beside their texts. Every table of text is written here. Pure."""

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

Rows = list[tuple[str, str]]


def columns(table: Sequence[Sequence[str]], numbers: Collection[int] = (), indent: str = "  ") -> list[str]:
    """Rows of equal length, each column as wide as its widest cell; the columns in `numbers` align to the right."""
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
    """A table that a screen and a page show alike."""

    heading: str
    titles: Sequence[str]  # of numbers, if it begins with #
    rows: Sequence[Sequence[str]]

    def lines(self, indent: str = "  ") -> list[str]:
        numbers = {place for place, title in enumerate(self.titles) if title.startswith("#")}
        return columns([[title.removeprefix("#") for title in self.titles], *self.rows], numbers, indent)


def aligned(rows: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Labels in one column, texts in the next; the lines of a long text stay in theirs."""
    return columns(
        [(label if place == 0 else "", line) for label, text in rows for place, line in enumerate(text.split("\n"))],
        indent=indent,
    )


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows))


def wrapped(lines: Iterable[str], width: int) -> list[str]:
    """Lines of labels and texts, none longer than `width` where that can be: a text goes on in its own column.

    The lines of a table, which have several columns, stay whole.
    """
    found = []
    for line in lines:
        if len(re.findall(r"\S  +(?=\S)", line)) > 1:
            found.append(line)
            continue
        text = re.match(r"\s*\S+(?: \S+)*  +|\s*", line)
        hanging = " " * min(text.end() if text else 0, width // 2)
        found += textwrap.wrap(line, width, subsequent_indent=hanging, break_long_words=False) or [""]
    return found


def percent_text(percent: float | None, digits: str = ".2g") -> str:
    """A dash where it is not known; never as a power of ten."""
    if percent is None:
        return "-"
    whole = f"{'+' if digits.startswith('+') else ''},.0f"
    return f"{percent:{digits if abs(percent) < 99.5 else whole}}%"


def digits(value: float) -> str:
    """Four significant digits or all of a larger whole part, never as a power of ten: 0.03162, 4.000, 12,346."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def plural(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last number of each unbroken run."""
    grouped = groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0])
    rows = [[number for _, number in row] for _, row in grouped]
    return [(row[0], row[-1]) for row in rows]


def spans_text(numbers: Iterable[int], width: int = 0) -> str:
    """0-3,7 for 0, 1, 2, 3 and 7, each as wide with zeros."""
    texts = ([f"{end:0{width}}" for end in dict.fromkeys(ends)] for ends in spans(numbers))
    return ",".join(map("-".join, texts))


def some(texts: Sequence[str], most: int = 8, between: str = ", ") -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{between.join(texts[:most])}{more}"
