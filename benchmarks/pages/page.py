"""The blocks of a page, and how they become one HTML file that needs no network and no scripts.

page.html.j2 contains a macro for each kind of block. Empty blocks and empty sections are omitted.
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
    """A metric in large type."""

    label: str
    text: str
    detail: str = ""


class Headlines(NamedTuple):
    content: list[Headline]


class Cell(NamedTuple):
    text: str
    tone: Tone = ""
    detail: str = ""  # shown below the text, in smaller type
    link: str = ""


class Table(NamedTuple):
    """A table. On a phone, each row becomes a card."""

    caption: str
    titles: Sequence[str]  # a title that begins with # is for a column of numbers
    content: list[list[Cell]]


class Facts(NamedTuple):
    """Labels with texts. Line breaks in the texts are kept."""

    content: list[tuple[str, str]]


class Words(NamedTuple):
    """Paragraphs, or the items of a list if the style is `list`."""

    content: Sequence[str]
    style: Literal["", "muted", "lead", "list", "code"] = ""


class Box(NamedTuple):
    """A box with facts that the reader must know first."""

    tone: Tone
    heading: str
    content: Sequence[str]


class LogTail(NamedTuple):
    """The last lines of a log. If other lines are omitted, `note` describes the shown lines."""

    content: str  # the name of the log
    lines: list[str]
    note: str = ""


class Key(NamedTuple):
    """One entry of a plot's legend: a sign in the plot, and what it means."""

    sign: str
    colour: str  # a placeholder colour; page() replaces it with a variable of page.css
    text: str


class Plot(NamedTuple):
    """A plot on a page. `says` describes it for readers who cannot see it."""

    heading: str
    says: str
    keys: list[Key]
    svg: Markup
    wide: bool = False  # whether it covers the whole width, and scrolls sideways on a phone


class Plots(NamedTuple):
    """Plots that are next to each other if there is room."""

    content: Sequence[Plot]


class Section(NamedTuple):
    heading: str
    content: "Sequence[Block]"
    key: str = ""  # the id of the section in the page
    folded: bool = False  # whether its content is hidden until the reader clicks (or prints the page)


Block = Headlines | Table | Facts | Words | Box | LogTail | Plots | Section


class Part(NamedTuple):
    """One report on a page. `key` is unique on the page; all ids inside the report begin with it."""

    key: str
    kind: str  # run, comparison, night, sweep
    verdict: str
    tone: Tone
    heading: str
    under: str
    name: str
    blocks: list[Block]
    # For the overview of a page with several reports:
    when: str = ""  # in UTC; empty if the time is unknown
    figures: Sequence[str] = (UNKNOWN, UNKNOWN, UNKNOWN)  # seconds per step, tokens per second, MFU
    trouble: str = ""  # why the report has no metrics, or why they are not comparable


def shown(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks that are not empty."""
    return [one for one in blocks if (shown(one.content) if isinstance(one, Section) else one.content)]


def page(*parts: Part) -> str:
    """Return the HTML page of one or several reports. Several reports are folded, newest first, below a table."""
    parts = tuple(sorted(parts, key=lambda part: part.when, reverse=True))
    title = f"{parts[0].heading} {parts[0].name}" if len(parts) == 1 else f"{len(parts)} reports"
    css = (HERE / "page.css").read_text(encoding="utf-8")
    overview = _overview(parts) if len(parts) > 1 else None
    text = _template().render(title=title, parts=parts, overview=overview, css=css, version=VERSION)
    return text.encode(errors="backslashreplace").decode()  # a file name may contain invalid characters


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
    return Table("The reports on this page; each name is a link to the report", titles, rows)


@cache
def _template() -> "Template":
    """Return the page's template, in which undefined names are errors and all text is escaped."""
    import jinja2  # imported here, because it takes 30 ms

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
    """Return the table of the text report."""
    return Table(
        grid.heading[:1].upper() + grid.heading[1:], grid.titles, [list(map(Cell, row)) for row in grid.rows]
    )


# --- text of values -------------------------------------------------------------------------------


def change_text(percent: float | None) -> str:
    """Return a change as text, such as +1.23%."""
    if percent is None:
        return UNKNOWN
    return f"{percent:+.2f}%" if abs(percent) < 100 else f"{percent:+,.0f}%"


def interval_text(low: float | None, high: float | None) -> str:
    return "no interval" if low is None or high is None else f"{change_text(low)} to {change_text(high)}"
