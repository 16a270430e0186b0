"""Draw the plot of a run: the time of each step. No I/O.

The y-axis covers the counted steps. Slower steps, such as steps that compile, are drawn at the edge of the plot.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.measuring.figures import usable_seconds
from benchmarks.measuring.result_text import window_text
from benchmarks.measuring.summary import Result
from benchmarks.pages.drawing import BLUE, WARM, plot, seconds_axis
from benchmarks.pages.page import Key, Plot
from benchmarks.text import first_few, seconds_text
from benchmarks.values import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 280
MOST_POINTS = 1500  # of counted and of excluded steps; if there are more, only every n-th is drawn


def step_plot(result: Result, steps: Sequence[Step], name: str) -> list[Plot]:
    """Return the plot; an empty list if no step has a time."""
    timed = [step for step in steps if step.rank == 0 and usable_seconds([step])]
    if not timed:
        return []
    low, high = _view(timed)
    axis = "does not start at 0" if low > 0 else "starts at 0"
    out = [f"step {one.step}: {seconds_text(one.seconds)}" for one in timed if one.seconds and one.seconds > high]
    rim = f" Drawn at the edge: {first_few(out, 4)}." if out else ""
    says = f"{window_text(result)}.{rim} The y-axis {axis}."

    def draw(axes: "Axes") -> None:
        _draw(axes, result, timed, low, high)

    return [plot(name, "Seconds of each step", says, draw, HEIGHT, keys=_keys(result, steps))]


def _view(timed: Sequence[Step]) -> tuple[float, float]:
    """Return the range of the y-axis: the range of 90% of the counted steps, extended on both sides by its width."""
    import numpy as np

    counted = usable_seconds([step for step in timed if step.excluded_because is None]) or usable_seconds(timed)
    low, high = (float(one) for one in np.percentile(counted, (5, 95)))
    span = max(high - low, 0.01 * high) or 1.0
    return max(low - span, 0.0), high + span


def _draw(axes: "Axes", result: Result, timed: Sequence[Step], low: float, high: float) -> None:
    from matplotlib.ticker import MaxNLocator

    spread = result.seconds_per_step
    scale, unit = seconds_axis(spread.median or low or high)
    axes.set_ylim(low * scale, (high + 0.04 * (high - low)) * scale)
    axes.margins(x=0.012)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axes.set_title(f"{unit} per step")
    axes.set_xlabel("step")
    if spread.ci95:
        axes.axhspan(spread.ci95[0] * scale, spread.ci95[1] * scale, color=BLUE, alpha=0.16, linewidth=0, zorder=1)
    if spread.median is not None:
        axes.axhline(spread.median * scale, color=BLUE, linewidth=1.4, zorder=2)
    for counts, colour, face in ((True, BLUE, BLUE), (False, WARM, "none")):
        group = [step for step in timed if (step.excluded_because is None) is counts]
        group = group[:: 1 + len(group) // MOST_POINTS]
        heights = [min(max(seconds, low), high) * scale for seconds in usable_seconds(group)]
        axes.plot(
            [step.step for step in group], heights, "o", clip_on=False, zorder=3, color=colour, markerfacecolor=face,
            markersize=2.6 if len(group) > 250 else 4.6,
        )  # fmt: skip


def _keys(result: Result, steps: Sequence[Step]) -> list[Key]:
    """Return the legend. Its counts of excluded steps include steps of earlier attempts."""
    window, spread = result.window, result.seconds_per_step
    marked = Counter(step.excluded_because for step in steps if step.rank == 0 and step.excluded_because is not None)
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in {**marked, **window.excluded}.items())
    keys = [Key("●", BLUE, f"counted ({window.counted:,})")] if window.counted else []
    keys += [Key("○", WARM, f"excluded: {reasons}")] if reasons else []
    if spread.median is not None:
        keys.append(Key("━", BLUE, "median and its 95% interval" if spread.ci95 else "median"))
    return keys
