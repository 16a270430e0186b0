"""The plot of a run: the seconds of each step. Pure.

The axis of seconds is that of the counted steps, so that what matters is seen; a step far outside, such as one that
compiles, is drawn at the rim with its seconds.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.measuring.figures import usable_seconds
from benchmarks.measuring.settling import WORDS
from benchmarks.measuring.summary import Result
from benchmarks.pages.drawing import BLUE, MUTED, VIOLET, WARM, plot, seconds_axis
from benchmarks.pages.page import Key, Plot
from benchmarks.text import plural, seconds_text
from benchmarks.values import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Groups = dict[str | None, list[Step]]  # rank 0's steps that have a time, by why they are left out; None: they count

HEIGHT = 280
MOST_POINTS = 1500  # of one reason, within the axis; of more, one of so many is drawn
FAR = 4.0  # widths of the middle half; a counted step beyond does not set the scale
LEAST_SPREAD = 0.002  # of the median, where that width is next to nothing


class Mark(NamedTuple):
    """How the steps of one reason are drawn, and what the reason means."""

    marker: str
    sign: str
    colour: str
    meaning: str = ""
    hollow: bool = False


COUNTED = Mark("o", "●", BLUE)
MARKS = {
    "compile": Mark("^", "▲", WARM, "the first step, which compiles"),
    "settling": Mark("o", "○", WARM, "before step times had settled", hollow=True),
    "outside_window": Mark("o", "○", MUTED, "outside the window", hollow=True),
    "profiler": Mark("D", "◆", VIOLET, "a profiler recorded it"),
    "pgle": Mark("s", "■", VIOLET, "PGLE recorded or compiled in it"),
    "artefact": Mark("X", "✖", MUTED, "an artefact of how it was printed"),
    "earlier_attempt": Mark("v", "▽", MUTED, "of an earlier attempt", hollow=True),
    "no_time": Mark("", "·", MUTED, "it has no time, and is not drawn"),
    "not_on_rank_0": Mark("", "·", MUTED, "only other ranks reported it: not drawn"),
}
OTHER = Mark("P", "✚", VIOLET)


def drawable(steps: Sequence[Step]) -> Groups:
    found: Groups = {}
    for step in steps:
        if step.rank == 0 and usable_seconds([step]):
            found.setdefault(step.excluded_because, []).append(step)
    return found


def view(groups: Groups) -> tuple[float, float]:
    """The part of the axis of seconds that is shown: what nearly all counted steps need, and what lies near them."""
    import numpy as np

    everything = [seconds for group in groups.values() for seconds in usable_seconds(group)]
    counted = usable_seconds(groups.get(None, [])) or everything
    quarter, middle, three_quarters = (float(one) for one in np.percentile(counted, (25, 50, 75)))
    reach = FAR * max(three_quarters - quarter, LEAST_SPREAD * middle)
    near = [one for one in counted if quarter - reach <= one <= three_quarters + reach]
    low, high = min(near), max(near)
    span = max(high - low, 0.01 * high) or 1.0
    inside = [s for s in everything if low - span <= s <= high + span]
    room = 0.55 if max(everything) > max(inside) else 0.25
    return max(min(inside) - 0.25 * span, 0.0), max(inside) + room * span


def beyond(groups: Groups, low: float, high: float) -> list[Step]:
    """Steps that lie outside of what the axis shows, the first ones first."""
    out = [step for group in groups.values() for step in group if not low <= (step.seconds or 0.0) <= high]
    return sorted(out, key=lambda step: (step.step, step.attempt))


def step_plot(result: Result, steps: Sequence[Step], name: str) -> list[Plot]:
    """None where no step has a time."""
    groups = drawable(steps)
    if not groups:
        return []
    low, high = view(groups)
    axis = "does not start at 0" if low > 0 else "starts at 0"
    return [
        plot(
            name,
            "Seconds of each step",
            f"Across: the step. Up: its seconds; that axis {axis}. A line and a band: median, 95% interval.",
            f"{_steps_in_words(result, groups, beyond(groups, low, high))} The y-axis {axis}.",
            lambda axes: _draw_steps(axes, result, groups, low, high),
            HEIGHT,
            keys=_step_keys(result, steps),
        )
    ]


def _draw_steps(axes: "Axes", result: Result, groups: Groups, low: float, high: float) -> None:
    from matplotlib.ticker import MaxNLocator

    spread = result.seconds_per_step
    scale, unit = seconds_axis(spread.median or low or high)
    axes.set_ylim(low * scale, high * scale)
    numbers = [step.step for group in groups.values() for step in group]
    pad = max((max(numbers) - min(numbers)) * 0.012, 0.5)
    axes.set_xlim(min(numbers) - pad, max(numbers) + pad)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axes.set_title(f"{unit} per step")
    axes.set_xlabel("step")
    if spread.ci95:
        axes.axhspan(spread.ci95[0] * scale, spread.ci95[1] * scale, color=BLUE, alpha=0.16, linewidth=0, zorder=1)
    if spread.median is not None:
        axes.axhline(spread.median * scale, color=BLUE, linewidth=1.4, zorder=2)
    for reason, group in groups.items():
        inside = [step for step in group if low <= (step.seconds or 0.0) <= high]
        inside = inside[:: 1 + len(inside) // MOST_POINTS]
        seconds = [(step.seconds or 0.0) * scale for step in inside]
        _draw_marks(axes, _mark(reason), [s.step for s in inside], seconds, 2.6 if len(inside) > 250 else 4.6)
    out = beyond(groups, low, high)
    room = 0.05 * (high - low)
    for step in out:  # at the rim
        place = (high - room if (step.seconds or 0.0) > high else low + room) * scale
        _draw_marks(axes, _mark(step.excluded_because), [step.step], [place], 6)


def _mark(reason: str | None) -> Mark:
    return COUNTED if reason is None else MARKS.get(reason, OTHER)


def _draw_marks(axes: "Axes", mark: Mark, places: Sequence[int], heights: Sequence[float], size: float) -> None:
    face, edge = ("none", 1.2) if mark.hollow else (mark.colour, 0.0)
    options = {"markerfacecolor": face, "markeredgecolor": mark.colour, "markeredgewidth": edge, "markersize": size}
    axes.plot(places, heights, linestyle="none", marker=mark.marker, zorder=3, **options)  # type: ignore[arg-type]


def _step_keys(result: Result, steps: Sequence[Step]) -> list[Key]:
    """Every reason with its count: those of the window, and those that it does not hold, as of earlier attempts."""
    window, spread = result.window, result.seconds_per_step
    keys = [Key(COUNTED.sign, COUNTED.colour, f"counted ({window.counted:,})")] if window.counted else []
    marked = Counter(step.excluded_because for step in steps if step.rank == 0 and step.excluded_because is not None)
    for reason, count in {**marked, **window.excluded}.items():
        mark = _mark(reason)
        meaning = f": {mark.meaning}" if mark.meaning else ""
        keys.append(Key(mark.sign, mark.colour, f"{reason} ({count:,}){meaning}"))
    if spread.median is not None:
        keys.append(Key("━", BLUE, "median and its 95% interval" if spread.ci95 else "median"))
    return keys


def _steps_in_words(result: Result, groups: Groups, out: Sequence[Step]) -> str:
    window = result.window
    words = ["No step is counted."]
    if window.counted:
        steps = f"{plural(window.counted, 'step')} counted, from {window.first_step} to {window.last_step}"
        words = [f"{steps} (window: {window.rule}, {WORDS[window.settling]})."]
    if out:
        named = ", ".join(f"step {step.step} took {seconds_text(step.seconds or 0.0)}" for step in out[:4])
        words.append(f"Off the axis: {named}{f', and {len(out) - 4} more' if len(out) > 4 else ''}.")
    if any(len(group) > MOST_POINTS for group in groups.values()):
        words.append("Of very many steps, every few are drawn.")
    return " ".join(words)
