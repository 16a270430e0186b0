"""matplotlib's figures as inline SVG: text stays text, colours are the page's own, equal input gives equal bytes.

matplotlib knows fixed colours alone, so a plot is drawn in stand-ins, each of which becomes a variable of page.css:
that is what makes a plot follow light, dark and print. pyplot and its global state are never used.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-in -> the variable it becomes. No other colour may be in a plot.
VARIABLES = {
    "#fe0001": "--ink",
    "#fe0002": "--muted",
    "#fe0003": "--line",
    "#fe0004": "--blue",
    "#fe0005": "--good",
    "#fe0006": "--bad",
    "#fe0007": "--warm",
    "#fe0008": "--violet",
    "#fe0009": "--paper",
}
INK, MUTED, LINE, BLUE, GOOD, BAD, WARM, VIOLET, PAPER = VARIABLES

FONT_PIXELS = 12.5
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text, not outlines
    "svg.hashsalt": "stepmark",  # the same ids every time
    "text.parse_math": False,  # a dollar is a dollar
    "axes.formatter.useoffset": False,  # no "+1.2e-2" above an axis
    "font.size": FONT_PIXELS,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "xtick.major.size": 4,
    "xtick.minor.size": 0,
    "ytick.color": LINE,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "hatch.linewidth": 0.8,
}
POINTS_PER_INCH = 72  # matplotlib's SVG is in points: a figure of so many inches has one unit a CSS pixel
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


class Size(NamedTuple):
    """Of a plot in CSS pixels, with the room around its axes."""

    width: int
    height: int
    left: int = 56
    right: int = 14
    top: int = 14
    bottom: int = 44


class Canvas(NamedTuple):
    """What a plot is drawn on; one is `narrow` where it is for a phone."""

    figure: "Figure"
    axes: "Axes"
    size: Size
    narrow: bool


class Key(NamedTuple):
    """A line of a plot's legend, which is text beside it: a sign as the plot has it, and what it means."""

    sign: str
    colour: str  # a variable of page.css
    text: str


class Plot(NamedTuple):
    """A plot as a page shows it. `says` is the same in words, for those who can't see it."""

    heading: str
    says: str
    keys: list[Key]
    wide: "Markup"
    narrow: "Markup | None"  # for a phone; None: the wide one is readable there too


Draw = Callable[[Canvas], None]


def plot(
    name: str,
    heading: str,
    shows: str,
    says: str,
    draw: Draw,
    sizes: tuple[Size, Size] | Size,
    keys: list[Key] | None = None,
) -> Plot:
    """Drawn once for each size. `name` is its own on the page; `shows` says what is on which axis."""
    wide, *narrow = [sizes] if isinstance(sizes, Size) else sizes
    return Plot(
        heading=heading,
        says=says,
        keys=keys or [],
        wide=_drawn(name, heading, shows, draw, wide, narrow=False),
        narrow=_drawn(f"{name}-narrow", heading, shows, draw, narrow[0], narrow=True) if narrow else None,
    )


def _drawn(name: str, heading: str, shows: str, draw: Draw, size: Size, *, narrow: bool) -> "Markup":
    stream = io.StringIO()
    with _settings():
        canvas = _canvas(size, narrow=narrow)
        draw(canvas)
        canvas.figure.savefig(stream, format="svg", metadata=NO_METADATA, transparent=True)
    return inline(stream.getvalue(), name, heading, shows, size)


@contextmanager
def _settings() -> "Iterator[None]":
    """Ours alone, whatever a person's matplotlibrc says; and no word about a letter that its own font lacks."""
    import warnings

    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def _canvas(size: Size, *, narrow: bool) -> Canvas:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size.width / POINTS_PER_INCH, size.height / POINTS_PER_INCH), dpi=POINTS_PER_INCH)
    axes = figure.add_axes(
        (
            size.left / size.width,
            size.bottom / size.height,
            (size.width - size.left - size.right) / size.width,
            (size.height - size.top - size.bottom) / size.height,
        )
    )
    return Canvas(figure=figure, axes=axes, size=size, narrow=narrow)


# --- matplotlib's SVG -> ours -------------------------------------------------------------------

_ROOT = re.compile(r"<svg\b[^>]*>")
_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
# Inside a tag: names of groups, which nobody refers to; the font, which is the page's; turning by nothing.
_NEEDLESS = re.compile(r'(?<=<g) id="[^"]*"|font-family:[^;"]*;? ?| transform="rotate\(-?0 [^"]*"|<!--.*')
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_COLOUR = re.compile("|".join(VARIABLES))
_LONG_NUMBER = re.compile(r"\d+\.\d{3,}")


def inline(svg: str, name: str, heading: str, shows: str, size: Size) -> "Markup":
    """The drawing alone, under a root of our own: it scales with the page and says what it is."""
    from markupsafe import Markup, escape

    root = _ROOT.search(svg)
    body = svg[root.end() if root else 0 : svg.rindex("</svg>")]
    body = _TAG.sub(lambda match: _tag(match[0], name), _STYLE.sub("", body))
    head = (
        f'<svg class="drawing" role="img" viewBox="0 0 {size.width} {size.height}" '
        f'aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(heading)}</title><desc id="{name}-desc">{escape(shows)}</desc>'
    )
    return Markup(head + re.sub(r">\s+<", "><", body.strip()) + "</svg>")


def _tag(tag: str, name: str) -> str:
    """A tag with our names and colours. What stands between tags is text, and is left as it is."""
    tag = _ID.sub(lambda match: f"{match[1]}{name}-", _NEEDLESS.sub("", tag))
    tag = _COLOUR.sub(lambda match: f"var({VARIABLES[match[0]]})", tag)
    tag = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), tag)
    return " ".join(tag.split()).replace("xlink:href", "href")
