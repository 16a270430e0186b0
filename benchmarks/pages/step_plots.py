"""Steps of a run -> seconds against step, with what is left out marked by reason. Pure.

The axis of seconds is that of the counted steps, so that what matters is seen; a step far outside, such as one that
compiles, is drawn at the rim with its seconds. Where the counted steps themselves differ many times over, the axis is
logarithmic and everything is inside.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.measuring.figures import usable_seconds
from benchmarks.measuring.summary import Result
from benchmarks.pages.drawing import BLUE, INK, MUTED, PAPER, VARIABLES, VIOLET, WARM, Canvas, Key, Plot, Size, plot
from benchmarks.pages.elements import plural
from benchmarks.pages.units import unit_of_seconds
from benchmarks.rendering.report import seconds_text
from benchmarks.values import Step

STEP_SIZES = (Size(1010, 300, left=50, top=30), Size(358, 270, left=44, right=8, top=30))
MOST_POINTS = 1500  # beyond that a mark stands for several steps: the middle one, with a line from lowest to highest
COLUMNS = 300
FAR = 4.0  # widths of the middle half; a counted step beyond does not set the scale
LEAST_SPREAD = 0.002  # of the median, where that width is next to nothing
LOG_ABOVE = 20.0  # the highest of the others over the lowest
NEAR = 1.0  # such spans to either side, within which a step is drawn where it belongs
MOST_RIM_LABELS = 4
EARLIER = "earlier_attempt"


class Mark(NamedTuple):
    """How the steps of one reason are drawn, and what the reason means."""

    marker: str
    sign: str
    colour: str
    meaning: str
    hollow: bool = False


COUNTED = Mark("o", "●", BLUE, "counted")
MARKS = {
    "compile": Mark("^", "▲", WARM, "the first step, which compiles"),
    "settling": Mark("o", "○", WARM, "before step times had settled", hollow=True),
    "outside_window": Mark("o", "○", MUTED, "outside the window", hollow=True),
    "profiler": Mark("D", "◆", VIOLET, "a profiler recorded it"),
    "pgle": Mark("s", "■", VIOLET, "PGLE recorded or compiled in it"),
    "artefact": Mark("X", "✖", MUTED, "an artefact of how it was printed"),
    EARLIER: Mark("v", "▽", MUTED, "of an earlier attempt", hollow=True),
}
NOT_DRAWN = {
    "no_time": "it has no time, and is not drawn",
    "not_on_rank_0": "only other ranks reported it: not drawn",
}
OTHER = Mark("P", "✚", VIOLET, "")


class View(NamedTuple):
    """What of the axis of seconds is shown."""

    low: float
    high: float
    log: bool


# --- which step goes where ----------------------------------------------------------------------


def drawable(steps: Sequence[Step]) -> dict[str | None, list[Step]]:
    """Rank 0's steps that have a time, by why they are left out; None: they count."""
    found: dict[str | None, list[Step]] = {}
    for step in steps:
        if step.rank == 0 and usable_seconds([step]):
            found.setdefault(step.excluded_because, []).append(step)
    return found


def left_out(result: Result, steps: Sequence[Step]) -> dict[str, int]:
    """Every reason with its count: those of the window, and those that it does not hold, as of earlier attempts."""
    found = Counter(step.excluded_because for step in steps if step.rank == 0 and step.excluded_because is not None)
    return {
        **result.window.excluded,
        **{name: count for name, count in found.items() if name not in result.window.excluded},
    }


def view(groups: dict[str | None, list[Step]]) -> View:
    """As wide as nearly all counted steps need, and what lies near them."""
    everything = [seconds for group in groups.values() for seconds in seconds_of(group)]
    low, high = core(seconds_of(groups.get(None, [])) or everything)
    if low > 0 and high / low > LOG_ABOVE:
        return View(min(s for s in everything if s > 0) / 1.25, max(everything) * 1.25, log=True)
    span = max(high - low, 0.01 * high) or 1.0
    inside = [s for s in everything if low - NEAR * span <= s <= high + NEAR * span]
    room = 0.55 if max(everything) > max(inside) else 0.25
    return View(max(min(inside) - 0.25 * span, 0.0), max(inside) + room * span, log=False)


def core(seconds: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest that are not far from the middle half: a slow step shall not flatten the others."""
    import numpy as np

    quarter, middle, three_quarters = (float(one) for one in np.percentile(seconds, (25, 50, 75)))
    reach = FAR * max(three_quarters - quarter, LEAST_SPREAD * middle)
    inside = [one for one in seconds if quarter - reach <= one <= three_quarters + reach]
    return min(inside), max(inside)


def seconds_of(steps: Sequence[Step]) -> list[float]:
    return usable_seconds(steps)


# --- seconds against step -----------------------------------------------------------------------


def step_plot(result: Result, steps: Sequence[Step], name: str) -> Plot | None:
    """None where no step has a time."""
    groups = drawable(steps)
    if not groups:
        return None
    seen = view(groups)
    return plot(
        name,
        "Seconds of each step",
        f"Across: the step. Up: its seconds; that axis {_axis_text(seen)}. A line and a band: median, 95% interval.",
        _steps_in_words(result, groups, seen),
        lambda canvas: _draw_steps(canvas, result, groups, seen),
        STEP_SIZES,
        _step_keys(result, steps),
    )


def _draw_steps(canvas: Canvas, result: Result, groups: dict[str | None, list[Step]], seen: View) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    axes = canvas.axes
    scale, unit = unit_of_seconds(result.seconds_per_step.median or seen.low or seen.high)
    if seen.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(max(seen.low, 1e-9) * scale if seen.log else seen.low * scale, seen.high * scale)
    numbers = [step.step for group in groups.values() for step in group]
    pad = max((max(numbers) - min(numbers)) * 0.012, 0.5)
    axes.set_xlim(min(numbers) - pad, max(numbers) + pad)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6 if canvas.narrow else 12, integer=True))
    axes.set_title(f"{unit} a step", loc="left", fontsize=12, color=MUTED)
    axes.set_xlabel("step")
    _draw_median(canvas, result, scale)
    for reason, group in groups.items():
        _draw_group(canvas, _mark(reason), group, seen, scale)
    _draw_beyond(canvas, groups, seen, scale)


def _draw_median(canvas: Canvas, result: Result, scale: float) -> None:
    spread = result.seconds_per_step
    if spread.ci95:
        canvas.axes.axhspan(
            spread.ci95[0] * scale, spread.ci95[1] * scale, color=BLUE, alpha=0.16, linewidth=0, zorder=1
        )
    if spread.median is not None:
        canvas.axes.axhline(spread.median * scale, color=BLUE, linewidth=1.4, zorder=2)


def _mark(reason: str | None) -> Mark:
    return COUNTED if reason is None else MARKS.get(reason, OTHER)


def _draw_group(canvas: Canvas, mark: Mark, steps: Sequence[Step], seen: View, scale: float) -> None:
    inside = [step for step in steps if seen.low <= (step.seconds or 0.0) <= seen.high]
    if len(inside) > MOST_POINTS:
        _draw_columns(canvas, mark, inside, scale)
        return
    many = len(inside) > (150 if canvas.narrow else 400)
    canvas.axes.plot(
        [step.step for step in inside],
        [(step.seconds or 0.0) * scale for step in inside],
        linestyle="none",
        marker=mark.marker,
        markersize=2.6 if many else 4.6,
        markerfacecolor="none" if mark.hollow else mark.colour,
        markeredgecolor=mark.colour,
        markeredgewidth=1.2 if mark.hollow else 0.0,
        zorder=3,
    )


def _draw_columns(canvas: Canvas, mark: Mark, steps: Sequence[Step], scale: float) -> None:
    """Many steps: a line from the lowest to the highest of neighbours, and a dot at their middle."""
    import numpy as np

    places, lows, middles, highs = [], [], [], []
    for chunk in np.array_split(np.arange(len(steps)), COLUMNS // 2 if canvas.narrow else COLUMNS):
        seconds = [steps[index].seconds or 0.0 for index in chunk]
        places.append(steps[chunk[len(chunk) // 2]].step)
        lows.append(min(seconds) * scale)
        middles.append(float(np.median(seconds)) * scale)
        highs.append(max(seconds) * scale)
    canvas.axes.vlines(places, lows, highs, color=mark.colour, alpha=0.45, linewidth=1, zorder=3)
    canvas.axes.plot(places, middles, linestyle="none", marker=".", markersize=2.5, color=mark.colour, zorder=3)


def beyond(groups: dict[str | None, list[Step]], seen: View) -> list[Step]:
    """Steps that lie outside of what the axis shows, the first ones first."""
    out = [s for group in groups.values() for s in group if not seen.low <= (s.seconds or 0.0) <= seen.high]
    return sorted(out, key=lambda step: (step.step, step.attempt))


def _draw_beyond(canvas: Canvas, groups: dict[str | None, list[Step]], seen: View, scale: float) -> None:
    """At the rim, with their seconds where there is room for them."""
    out = beyond(groups, seen)
    span = seen.high - seen.low
    for number, step in enumerate(out):
        mark = _mark(step.excluded_because)
        above = (step.seconds or 0.0) > seen.high
        place = (seen.high - 0.05 * span if above else seen.low + 0.05 * span) * scale
        canvas.axes.plot(
            [step.step],
            [place],
            marker=mark.marker,
            markersize=6,
            markerfacecolor="none" if mark.hollow else mark.colour,
            markeredgecolor=mark.colour,
            linestyle="none",
            zorder=4,
        )
        if number < MOST_RIM_LABELS and len(out) <= MOST_RIM_LABELS:
            _label_beyond(canvas, step, place, above=above)


def _label_beyond(canvas: Canvas, step: Step, place: float, *, above: bool) -> None:
    low, high = canvas.axes.get_xlim()
    right = step.step > low + 0.75 * (high - low)
    canvas.axes.annotate(
        f"{seconds_text(step.seconds or 0.0)} {'↑' if above else '↓'}",
        (step.step, place),
        xytext=(-9 if right else 9, 0),
        textcoords="offset points",
        ha="right" if right else "left",
        va="center",
        color=INK,
        fontsize=11.5,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5},
        zorder=4,
    )


def _step_keys(result: Result, steps: Sequence[Step]) -> list[Key]:
    keys = []
    if result.window.counted:
        keys.append(Key(COUNTED.sign, VARIABLES[COUNTED.colour], f"counted ({result.window.counted:,})"))
    for reason, count in left_out(result, steps).items():
        if reason in NOT_DRAWN:
            keys.append(Key("·", "--muted", f"{reason} ({count:,}): {NOT_DRAWN[reason]}"))
            continue
        mark = _mark(reason)
        meaning = f": {mark.meaning}" if mark.meaning else ""
        keys.append(Key(mark.sign, VARIABLES[mark.colour], f"{reason} ({count:,}){meaning}"))
    if result.seconds_per_step.median is not None:
        band = " and its 95% interval" if result.seconds_per_step.ci95 else ""
        keys.append(Key("━", "--blue", f"median{band}"))
    return keys


def _axis_text(seen: View) -> str:
    if seen.log:
        return "is logarithmic"
    return "does not begin at 0" if seen.low > 0 else "begins at 0"


def _steps_in_words(result: Result, groups: dict[str | None, list[Step]], seen: View) -> str:
    window = result.window
    words = [
        f"{plural(window.counted, 'step')} counted, from {window.first_step} to {window.last_step} "
        f"(window: {window.rule}, {'settled' if window.settled else 'not settled'})."
        if window.counted
        else "No step is counted."
    ]
    if counted := seconds_of(groups.get(None, [])):
        words.append(f"They took {seconds_text(min(counted))} to {seconds_text(max(counted))}.")
    if out := beyond(groups, seen):
        named = ", ".join(f"step {step.step} took {seconds_text(step.seconds or 0.0)}" for step in out[:4])
        words.append(f"Outside of the axis: {named}{f', and {len(out) - 4} more' if len(out) > 4 else ''}.")
    words.append(f"The axis of seconds {_axis_text(seen)}.")
    if any(len(group) > MOST_POINTS for group in groups.values()):
        words.append("So many steps that a line stands for several: from the lowest to the highest of them.")
    return " ".join(words)
