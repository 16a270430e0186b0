"""What pages are made of, and how parts become one HTML file: no network, and a script only where a table is sorted.

page.html.j2 has a macro for each kind of block. An empty block is not shown, nor a section without blocks.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from markupsafe import Markup

from benchmarks import VERSION
from benchmarks.text import count_text, seconds_text
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
    value: float  # the very number of the result, for programs that read the page
    field: str
    detail: str = ""


class Headlines(NamedTuple):
    content: list[Headline]


class Cell(NamedTuple):
    text: str
    tone: Tone = ""
    detail: str = ""  # below it, in smaller type
    link: str = ""


class Table(NamedTuple):
    """On a phone a row becomes a card."""

    caption: str
    titles: Sequence[str]  # of numbers, if it begins with #
    content: list[list[Cell]]


class Facts(NamedTuple):
    """Labels and texts; the lines of a text stay lines."""

    content: list[tuple[str, str]]


class Words(NamedTuple):
    """A paragraph, or a list where there are several texts."""

    content: Sequence[str]
    style: Literal["", "muted", "lead", "list", "code"] = ""


class Box(NamedTuple):
    """What a reader must know first."""

    tone: Tone
    heading: str
    content: Sequence[str]


class LogTail(NamedTuple):
    """The last lines of a log; `note` says what is left out."""

    content: str  # its name
    lines: list[str]
    note: str = ""


class Key(NamedTuple):
    """A line of a plot's legend, which is text beside it: a sign as the plot has it, and what it means."""

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
    """Side by side where there is room."""

    content: Sequence[Plot]


class Fold(NamedTuple):
    """Shown after a click, and on paper."""

    heading: str
    content: "Sequence[Block]"


class Section(NamedTuple):
    heading: str
    content: "Sequence[Block]"
    key: str = ""  # its id on the page
    eyebrow: str = ""
    verdict: str = ""
    tone: Tone = ""


Block = Headlines | Table | Facts | Words | Box | LogTail | Plots | Fold | Section


class Overview(NamedTuple):
    """A report as a row of the table over several; what is None or empty is not known."""

    what: str
    detail: str = ""
    trouble: str = ""  # why it has no figures, or why they are compared with nothing
    seconds_per_step: float | None = None
    tokens_per_second: float | None = None
    mfu_percent: float | None = None
    when: str = ""  # UTC
    name: str = ""  # the end of its id


class Part(NamedTuple):
    """A report on a page; `key` is its own there, and begins all names inside it."""

    key: str
    kind: str  # run, comparison, night, sweep
    title: str  # in the list of contents
    verdict: str
    tone: Tone
    heading: str
    under: str
    name: str
    blocks: list[Block]
    overview: Overview


def shown(blocks: Sequence[Block]) -> list[Block]:
    """Without those that hold nothing."""
    return [one for one in blocks if (shown(one.content) if isinstance(one, Fold | Section) else one.content)]


def page(*parts: Part) -> str:
    """One file for one or several reports: of several, the newest first, a table, and each folded behind its row."""
    parts = tuple(sorted(parts, key=lambda part: part.overview.when, reverse=True))
    title = parts[0].title if len(parts) == 1 else f"{len(parts)} reports"
    css = (HERE / "page.css").read_text(encoding="utf-8")
    script = (HERE / "page.js").read_text(encoding="utf-8") if len(parts) > 1 else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = _template().render(title=title, parts=parts, css=css, script=script, digest=digest, version=VERSION)
    return text.encode(errors="backslashreplace").decode()  # a file's name may hold what no text can


@cache
def _template() -> "Template":
    """An undefined name is an error, and every text is escaped."""
    import jinja2  # takes 30 ms: only who makes a page waits for it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["shown"] = shown
    environment.filters["seconds"] = seconds_text
    environment.filters["count"] = count_text
    return environment.get_template("page.html.j2")


# --- words ----------------------------------------------------------------------------------------


def change_text(percent: float | None) -> str:
    """+1.23%"""
    if percent is None:
        return UNKNOWN
    return f"{percent:+.2f}%" if abs(percent) < 100 else f"{percent:+,.0f}%"


def interval_text(low: float | None, high: float | None) -> str:
    return "no interval" if low is None or high is None else f"{change_text(low)} to {change_text(high)}"
