"""The blocks of pages, and their rendering as one HTML file without network and without scripts.

page.html.j2 has a macro for each kind of block. An empty block is not shown, nor a section without blocks.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from markupsafe import Markup

from benchmarks import VERSION
from benchmarks.text import Grid, printable_lines
from benchmarks.verdict import Verdict

if TYPE_CHECKING:
    from jinja2 import Template

Tone = Literal["", "good", "bad", "warm", "muted"]
UNKNOWN = "-"
VERDICT_TONES: dict[Verdict, Tone] = {
    Verdict.BETTER: "good",
    Verdict.WORSE: "bad",
    Verdict.SAME: "good",
    Verdict.INCONCLUSIVE: "warm",
    Verdict.NOT_TESTED: "muted",
}
HERE = Path(__file__).parent


class Headline(NamedTuple):
    """A figure in large type."""

    label: str
    text: str
    detail: str = ""


class Headlines(NamedTuple):
    content: list[Headline]


class Cell(NamedTuple):
    text: str
    tone: Tone = ""
    detail: str = ""  # below it, in smaller type
    link: str = ""


class Table(NamedTuple):
    """A table; on a phone, each row becomes a card."""

    caption: str
    titles: Sequence[str]  # of numbers, if it begins with #
    content: list[list[Cell]]


class Facts(NamedTuple):
    """Labels and texts; the lines of a text stay lines."""

    content: list[tuple[str, str]]


class Words(NamedTuple):
    """A paragraph, or a list for several texts."""

    content: Sequence[str]
    style: Literal["", "muted", "lead", "list", "code"] = ""


class Box(NamedTuple):
    """A box for the facts that a reader must know first."""

    tone: Tone
    heading: str
    content: Sequence[str]


class LogTail(NamedTuple):
    """The last lines of a log; `note` describes the omitted ones."""

    content: str  # its name
    lines: list[str]
    note: str = ""


class Key(NamedTuple):
    """A line of a plot's legend, which is text next to it: a sign of the plot and its meaning."""

    sign: str
    colour: str  # a stand-in here, a variable of page.css on the page
    text: str


class Plot(NamedTuple):
    """A plot as a page shows it. `says` is the same in words, for those who can't see it."""

    heading: str
    says: str
    keys: list[Key]
    svg: Markup
    wide: bool = False  # across the whole column; on a phone it can be scrolled sideways


class Plots(NamedTuple):
    """Plots side by side, if there is room."""

    content: Sequence[Plot]


class Section(NamedTuple):
    heading: str
    content: "Sequence[Block]"
    key: str = ""  # its id on the page
    folded: bool = False  # shown after a click, and on paper


Block = Headlines | Table | Facts | Words | Box | LogTail | Plots | Section


class Part(NamedTuple):
    """A report on a page; `key` is its own there, and begins all names inside it."""

    key: str
    kind: str  # run, comparison, night, sweep
    verdict: str
    tone: Tone
    heading: str
    under: str
    name: str
    blocks: list[Block]
    # In the table over several reports:
    when: str = ""  # UTC; empty if it is not known
    figures: Sequence[str] = (UNKNOWN, UNKNOWN, UNKNOWN)  # seconds per step, tokens per second, MFU
    trouble: str = ""  # why it has no figures, or why they are compared with nothing


def shown(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks that are not empty."""
    return [one for one in blocks if (shown(one.content) if isinstance(one, Section) else one.content)]


def page(*parts: Part) -> str:
    """One file for one or several reports: of several, the newest first, a table, and each folded behind its row."""
    parts = tuple(sorted(parts, key=lambda part: part.when, reverse=True))
    title = f"{parts[0].heading} {parts[0].name}" if len(parts) == 1 else f"{len(parts)} reports"
    css = (HERE / "page.css").read_text(encoding="utf-8")
    overview = _overview(parts) if len(parts) > 1 else None
    text = _template().render(title=title, parts=parts, overview=overview, css=css, version=VERSION)
    return text.encode(errors="backslashreplace").decode()  # a file's name may hold what no text can


def _overview(parts: Sequence[Part]) -> Table:
    rows = [
        [
            Cell(part.heading, detail=part.under, link=part.key),
            Cell(part.verdict, part.tone, part.trouble),
            *map(Cell, part.figures),
            Cell(part.when[:16].replace("T", " ") or UNKNOWN, detail=part.name.rpartition("-")[2]),
        ]
        for part in parts
    ]
    titles = ["report", "status", "#s/step", "#tokens/s", "#MFU", "when, UTC"]
    return Table("The reports on this page; a name leads to the report", titles, rows)


@cache
def _template() -> "Template":
    """An undefined name is an error, and every text is escaped."""
    import jinja2  # takes 30 ms: only who makes a page waits for it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable_lines(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["shown"] = shown
    return environment.get_template("page.html.j2")


def table_of(grid: Grid) -> Table:
    """Return the table that a screen has too."""
    return Table(
        grid.heading[:1].upper() + grid.heading[1:], grid.titles, [list(map(Cell, row)) for row in grid.rows]
    )


# --- words ----------------------------------------------------------------------------------------


def change_text(percent: float | None) -> str:
    """+1.23%"""
    if percent is None:
        return UNKNOWN
    return f"{percent:+.2f}%" if abs(percent) < 100 else f"{percent:+,.0f}%"


def interval_text(low: float | None, high: float | None) -> str:
    return "no interval" if low is None or high is None else f"{change_text(low)} to {change_text(high)}"
