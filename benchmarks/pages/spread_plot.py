"""How the counted steps of a run spread: a histogram with the median and its interval, and quantiles. Pure."""

import math
from collections.abc import Sequence

from benchmarks.measuring.summary import Result
from benchmarks.pages.drawing import BLUE, INK, MUTED, Canvas, Key, Plot, Size, plot
from benchmarks.pages.elements import plural
from benchmarks.pages.step_plots import core, drawable, seconds_of
from benchmarks.pages.units import unit_of_seconds
from benchmarks.rendering.report import seconds_text
from benchmarks.values import Step

SIZE = Size(420, 250, left=42, top=30)
MOST_TICKS = 300  # beyond so many steps they would be one black line
QUANTILES = ((0, "lowest"), (5, "5%"), (25, "25%"), (50, "median"), (75, "75%"), (95, "95%"), (100, "highest"))


def spread_plot(result: Result, steps: Sequence[Step], name: str) -> Plot | None:
    """None where fewer than three steps count: there is nothing to be seen."""
    counted = seconds_of(drawable(steps).get(None, []))
    if len(counted) < 3 or result.seconds_per_step.median is None:
        return None
    keys = [Key("━", "--ink", "median")]
    keys += [Key("▒", "--blue", "its 95% interval")] if result.seconds_per_step.ci95 else []
    return plot(
        name,
        "How the counted steps spread",
        "Across: seconds a step. Up: how many counted steps took so long; each step is a tick at the foot.",
        _spread_in_words(counted),
        lambda canvas: _draw_spread(canvas, result, counted),
        SIZE,
        [
            Key("━", "--ink", "median"),
            *([Key("▒", "--blue", "its 95% interval")] if result.seconds_per_step.ci95 else []),
        ],
    )


def _draw_spread(canvas: Canvas, result: Result, counted: Sequence[float]) -> None:
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    axes, spread = canvas.axes, result.seconds_per_step
    median = spread.median or 0.0
    scale, unit = unit_of_seconds(median)
    low, high = core(counted)
    values = np.asarray([seconds for seconds in counted if low <= seconds <= high]) * scale
    bins = min(max(len(np.histogram_bin_edges(values, bins="auto")) - 1, 5), 40)
    heights, edges = np.histogram(values, bins=bins)
    axes.bar(edges[:-1], heights, np.diff(edges) * 0.94, align="edge", color=BLUE, alpha=0.55, linewidth=0, zorder=2)
    if spread.ci95:
        axes.axvspan(spread.ci95[0] * scale, spread.ci95[1] * scale, color=BLUE, alpha=0.16, linewidth=0, zorder=1)
    axes.axvline(median * scale, color=INK, linewidth=1.4, zorder=4)
    if len(counted) <= MOST_TICKS:
        axes.vlines(values, 0, max(heights) * 0.035, color=INK, linewidth=0.7, alpha=0.7, zorder=3)
    axes.set_ylim(0, max(heights) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.set_title("counted steps", loc="left", fontsize=12, color=MUTED)
    axes.set_xlabel(f"{unit} a step")


def quantiles(counted: Sequence[float]) -> list[tuple[str, float]]:
    import numpy as np

    return [(name, float(np.percentile(counted, share))) for share, name in QUANTILES]


def _spread_in_words(counted: Sequence[float]) -> str:
    of = dict(quantiles(counted))
    middle = f"{seconds_text(of['25%'])} to {seconds_text(of['75%'])}"
    wide = f"{seconds_text(of['5%'])} to {seconds_text(of['95%'])}"
    widest = of["highest"] / of["lowest"] - 1 if of["lowest"] > 0 else math.inf
    slower = f" The slowest took {widest:.1%} longer than the fastest." if math.isfinite(widest) else ""
    low, high = core(counted)
    out = sorted((seconds for seconds in counted if not low <= seconds <= high), reverse=True)
    beyond = f" Outside of the axis: {plural(len(out), 'step')}, up to {seconds_text(out[0])}." if out else ""
    return f"Half of the {len(counted):,} counted steps took {middle}, nine in ten {wide}.{slower}{beyond}"
