"""Differences in percent with their intervals, a row for each: the plot of comparisons and of gains. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.pages.drawing import BAD, GOOD, INK, MUTED, PAPER, WARM, Canvas, Plot, Size, plot
from benchmarks.pages.elements import Tone

ROW_HEIGHT = 46
COLOURS = {"good": GOOD, "bad": BAD, "warm": WARM, "muted": MUTED, "": INK}
LEAST_SPAN = 1.0  # percent to either side: a difference of nothing shall not fill the plot


class Row(NamedTuple):
    """A difference; without an interval it is a dot alone."""

    name: str
    percent: float
    low: float | None
    high: float | None
    tone: Tone


def percent_text(percent: float) -> str:
    """+1.23%, and more digits only below a thousandth of a percent's reach."""
    return f"{percent:+.2f}%" if abs(percent) < 100 else f"{percent:+,.0f}%"


def interval_text(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "no interval"
    return f"{percent_text(low)} to {percent_text(high)}"


def forest_plot(rows: Sequence[Row], name: str, heading: str, says: str, axis: str) -> Plot | None:
    """None where there is no row with a figure."""
    if not rows:
        return None
    height = ROW_HEIGHT * len(rows) + 56
    return plot(
        name,
        heading,
        f"A row for each figure: {axis}, with its interval as a line; a line stands at 0.",
        says,
        lambda canvas: _draw(canvas, rows, axis),
        (
            Size(1010, height, left=8, right=70, top=6, bottom=48),
            Size(358, height, left=4, right=60, top=6, bottom=48),
        ),
    )


def _draw(canvas: Canvas, rows: Sequence[Row], axis: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes = canvas.axes
    ends = [one for row in rows for one in (row.percent, row.low, row.high) if one is not None]
    low, high = min([*ends, -LEAST_SPAN]), max([*ends, LEAST_SPAN])
    pad = 0.04 * (high - low)
    axes.set_xlim(low - pad, high + pad)
    axes.set_ylim(-len(rows) + 0.5, 0.75)
    axes.axvline(0, color=INK, linewidth=1, zorder=1)
    for place, row in enumerate(rows):
        colour = COLOURS[row.tone]
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [-place, -place], color=colour, linewidth=5, alpha=0.45, zorder=2)
        axes.plot([row.percent], [-place], marker="o", markersize=7, color=colour, linestyle="none", zorder=3)
        axes.annotate(
            row.name,
            (0, -place),
            xycoords=axes.get_yaxis_transform(),
            xytext=(0, 9),
            textcoords="offset points",
            va="bottom",
            color=INK,
            fontsize=12,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        )
        axes.annotate(
            percent_text(row.percent),
            (1, -place),
            xycoords=axes.get_yaxis_transform(),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=12,
            annotation_clip=False,
        )
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4 if canvas.narrow else 9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}%" if value else "0"))
    axes.set_xlabel(axis)
