"""What pages are made of: figures, tables, lists and the last lines of logs, as values that macros.html.j2 draws."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Tone = Literal["", "good", "bad", "warm", "muted"]
UNKNOWN = "-"


class Headline(NamedTuple):
    """A figure in large type. `value` is the very number of the result, for machines that read the page."""

    label: str
    text: str
    detail: str = ""
    value: float | None = None
    field: str = ""


class Cell(NamedTuple):
    text: str
    tone: Tone = ""
    value: float | None = None
    field: str = ""
    link: str = ""
    detail: str = ""  # below it, in smaller type


class Column(NamedTuple):
    title: str
    number: bool = False


class Table(NamedTuple):
    """`cards`: a row becomes a card on a phone; `scroll`: a dense table scrolls inside its own box there."""

    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    shape: Literal["cards", "scroll"] = "cards"


class Facts(NamedTuple):
    """Labels and texts; the lines of a text stay lines."""

    heading: str
    rows: list[tuple[str, str]]


class LogTail(NamedTuple):
    """The last lines of a log; `note` says what is left out."""

    name: str
    lines: list[str]
    note: str = ""


def cells(*texts: str) -> list[Cell]:
    return [Cell(text) for text in texts]


def table(
    caption: str, titles: Sequence[str], rows: list[list[Cell]], shape: Literal["cards", "scroll"] = "cards"
) -> Table:
    """A title that begins with # is that of numbers."""
    columns = [Column(title.removeprefix("#"), number=title.startswith("#")) for title in titles]
    return Table(caption, columns, rows, shape)


def sentence(text: str) -> str:
    """With an end, so that another one may follow."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
