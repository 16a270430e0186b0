"""Draw matplotlib figures as inline SVG, in which text is still text. Equal input gives equal bytes.

matplotlib has only fixed colours, so it draws a plot with placeholder colours. Each placeholder is then replaced with
a variable of page.css, so the plot follows the light, dark or print style of the page. pyplot and its global state
are not used. Phones and desktops get the same drawing, which is narrow and scales with its column.
"""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from benchmarks.pages.page import Key, Plot, Tone, change_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Placeholder colour -> the CSS variable that replaces it. A plot may use no other colour.
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
TONE_COLOURS: dict[Tone, str] = {"good": GOOD, "bad": BAD, "warm": WARM, "muted": MUTED, "": INK}

WIDTH = 500  # the width of a plot in CSS pixels before scaling, so that its text is readable on a phone
WIDE = 1000  # the width of a plot across the page, which scrolls sideways on a phone
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # keep text as text instead of outlines
    "svg.hashsalt": "stepmark",  # make ids reproducible
    "text.parse_math": False,  # a dollar sign must not start a formula
    "axes.formatter.useoffset": False,  # no "+1.2e-2" above an axis
    "font.size": 13.5,
    "axes.titlesize": 13.5,
    "axes.titlecolor": MUTED,
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.color": LINE,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "lines.linewidth": 1.6,
}
POINTS_PER_INCH = 72  # matplotlib's SVG uses points; at this resolution, one unit is one CSS pixel
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


class Margins(NamedTuple):
    left: int = 60
    right: int = 16
    top: int = 30
    bottom: int = 48


def plot(
    name: str,
    heading: str,
    says: str,
    draw: "Callable[[Axes], None]",
    height: int,
    margins: Margins | None = None,
    keys: Sequence[Key] = (),
    width: int = WIDTH,
) -> Plot:
    """Draw a plot. `name` must be unique on the page. `says` describes the plot to readers who cannot see it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    left, right, top, bottom = margins or Margins()
    box = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    stream = io.StringIO()
    with mpl.rc_context(), warnings.catch_warnings():  # ignore the user's matplotlibrc
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        figure = Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH), dpi=POINTS_PER_INCH)
        draw(figure.add_axes(box))
        figure.savefig(stream, format="svg", metadata=NO_METADATA, transparent=True)
    svg = _inline(stream.getvalue(), name, heading, says)
    return Plot(heading, says, [Key(key.sign, VARIABLES[key.colour], key.text) for key in keys], svg, width == WIDE)


# --- from matplotlib's SVG to inline SVG --------------------------------------------------------

_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_FONT = re.compile(r'font-family:[^;"]*;? ?')  # the page sets the font
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_COLOUR = re.compile("|".join(VARIABLES))


def _inline(svg: str, name: str, heading: str, says: str) -> Markup:
    """Return the drawing in a new <svg> element that has a title and a description for screen readers."""
    root, body = _STYLE.sub("", svg[svg.index("<svg") :]).removesuffix("</svg>\n").split(">", 1)
    view = re.findall(r'viewBox="[^"]*"', root)[0]
    body = re.sub(r">\s+<", "><", _TAG.sub(lambda match: _tag(match[0], name), body).strip())
    head = f'<svg class="drawing" role="img" {view} aria-labelledby="{name}-title {name}-desc">'
    titles = f'<title id="{name}-title">{escape(heading)}</title><desc id="{name}-desc">{escape(says)}</desc>'
    return Markup(f"{head}{titles}{body}</svg>")


def _tag(tag: str, name: str) -> str:
    """Return a tag with unique ids and with colours of the page. The text between tags does not change."""
    tag = _ID.sub(lambda match: f"{match[1]}{name}-", _FONT.sub("", tag))
    return _COLOUR.sub(lambda match: f"var({VARIABLES[match[0]]})", tag).replace("xlink:href", "href")


# --- shared by several pages ----------------------------------------------------------------------


def seconds_axis(seconds: float) -> tuple[float, str]:
    """Return the factor from seconds to the unit of an axis, and the name of the unit."""
    return (1.0, "seconds") if seconds >= 1 else (1e3, "milliseconds")


class Interval(NamedTuple):
    """A difference in percent with its interval. Without an interval, it is drawn only as a dot."""

    name: str
    percent: float
    low: float | None
    high: float | None
    tone: Tone


def forest_plot(rows: Sequence[Interval], name: str, heading: str, says: str, axis: str) -> list[Plot]:
    """Return a plot with one row per difference, which shows its interval; an empty list without rows."""
    if not rows:
        return []
    margins = Margins(left=16, top=8)
    return [plot(name, heading, says, lambda axes: _forest(axes, rows, axis), 48 * len(rows) + 58, margins)]


def _forest(axes: "Axes", rows: Sequence[Interval], axis: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    most = 3 * max(1.0, *(abs(row.percent) for row in rows))  # one wide interval must not hide the others
    known = [end for row in rows for end in (row.percent, row.low, row.high) if end is not None]
    ends = [-1.0, 1.0, *(min(max(end, -most), most) for end in known)]  # a tiny difference must not fill the plot
    axes.set_xlim(1.08 * min(ends), 1.08 * max(ends))
    axes.set_ylim(-len(rows) + 0.5, 0.75)
    axes.axvline(0, color=INK, linewidth=1, zorder=1)
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}  # makes the text readable on top of lines
    for place, row in enumerate(rows):
        colour = TONE_COLOURS[row.tone]
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [-place, -place], color=colour, linewidth=5, alpha=0.45, zorder=2)
        axes.plot([row.percent], [-place], marker="o", markersize=7, color=colour, linestyle="none", zorder=3)
        text = f"{row.name} {change_text(row.percent)}"
        edge = axes.get_yaxis_transform()
        axes.text(0, 0.2 - place, text, transform=edge, color=colour, bbox=paper, va="bottom")
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, prune="both"))  # a label at the edge would be cut off
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}%" if value else "0"))
    axes.set_xlabel(axis)
