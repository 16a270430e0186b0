"""The blocks of a page, and their rendering as one HTML file that needs no network and no scripts.

page.html.j2 has a macro for each kind of block. Empty blocks and empty sections are not shown.
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
    detail: str = ""  # below the text, in smaller type
    link: str = ""


class Table(NamedTuple):
    """A table; on a phone, each row becomes a card."""

    caption: str
    titles: Sequence[str]  # a # at the beginning of a title marks a column of numbers
    content: list[list[Cell]]


class Facts(NamedTuple):
    """Labels with texts. Line breaks in a text are kept."""

    content: list[tuple[str, str]]


class Words(NamedTuple):
    """Paragraphs, or a list if the style is `list`."""

    content: Sequence[str]
    style: Literal["", "muted", "lead", "list", "code"] = ""


class Box(NamedTuple):
    """A box for the facts that a reader must know first."""

    tone: Tone
    heading: str
    content: Sequence[str]


class LogTail(NamedTuple):
    """The last lines of a log. `note` describes which lines are shown if some are omitted."""

    content: str  # the name of the log
    lines: list[str]
    note: str = ""


class Key(NamedTuple):
    """A line of the legend next to a plot: a sign in the plot and its meaning."""

    sign: str
    colour: str  # a placeholder colour; on the page, a variable of page.css
    text: str


class Plot(NamedTuple):
    """A plot on a page. `says` describes it in words, for readers who cannot see it."""

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
    key: str = ""  # the id of the section on the page
    folded: bool = False  # the content is shown after a click, and when the page is printed


Block = Headlines | Table | Facts | Words | Box | LogTail | Plots | Section


class Part(NamedTuple):
    """A report on a page. `key` is unique on the page, and is the prefix of all ids inside the report."""

    key: str
    kind: str  # run, comparison, night, sweep
    verdict: str
    tone: Tone
    heading: str
    under: str
    name: str
    blocks: list[Block]
    # For the table of a page with several reports:
    when: str = ""  # UTC; empty if the time is not known
    figures: Sequence[str] = (UNKNOWN, UNKNOWN, UNKNOWN)  # seconds per step, tokens per second, MFU
    trouble: str = ""  # why the report has no figures, or why they are not comparable


def shown(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks that are not empty."""
    return [one for one in blocks if (shown(one.content) if isinstance(one, Section) else one.content)]


def page(*parts: Part) -> str:
    """Return the HTML of one or several reports. Several get a table, the newest first, and are folded."""
    parts = tuple(sorted(parts, key=lambda part: part.when, reverse=True))
    title = f"{parts[0].heading} {parts[0].name}" if len(parts) == 1 else f"{len(parts)} reports"
    css = (HERE / "page.css").read_text(encoding="utf-8")
    overview = _overview(parts) if len(parts) > 1 else None
    text = _template().render(title=title, parts=parts, overview=overview, css=css, version=VERSION)
    return text.encode(errors="backslashreplace").decode()  # names of files may contain invalid characters


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
    """Return the template. An undefined name in it is an error, and every text is escaped."""
    import jinja2  # imported here because it takes 30 ms

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
    """Return the same table as on the screen."""
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
