"""The plots of a run: the seconds of each step, how the counted ones spread, and its rate beside the peaks. Pure.

The axis of seconds is that of the counted steps, so that what matters is seen; a step far outside, such as one that
compiles, is drawn at the rim with its seconds. Where the counted steps themselves differ many times over, the axis is
logarithmic and everything is inside.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.measuring.figures import usable_seconds
from benchmarks.measuring.summary import Result
from benchmarks.measuring.utilisation import MIXED, Mfu
from benchmarks.pages.drawing import BLUE, INK, LINE, MUTED, VIOLET, WARM, Margins, label, plot, seconds_axis
from benchmarks.pages.page import Key, Plot
from benchmarks.planning.bounds import Bound
from benchmarks.rendering.columns import plural
from benchmarks.rendering.report import seconds_text
from benchmarks.values import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Groups = dict[str | None, list[Step]]  # rank 0's steps that have a time, by why they are left out; None: they count

HEIGHT = 280
MOST_POINTS = 1500  # beyond that a mark stands for several steps: the middle one, with a line from lowest to highest
COLUMNS = 200
FAR = 4.0  # widths of the middle half; a counted step beyond does not set the scale
LEAST_SPREAD = 0.002  # of the median, where that width is next to nothing
LOG_ABOVE = 20.0  # the highest of the others over the lowest
MOST_RIM_LABELS = 4
EARLIER = "earlier_attempt"
QUANTILES = ((0, "lowest"), (5, "5%"), (25, "25%"), (50, "median"), (75, "75%"), (95, "95%"), (100, "highest"))


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
    EARLIER: Mark("v", "▽", MUTED, "of an earlier attempt", hollow=True),
}
NOT_DRAWN = {
    "no_time": "it has no time, and is not drawn",
    "not_on_rank_0": "only other ranks reported it: not drawn",
}
OTHER = Mark("P", "✚", VIOLET)


# --- which step goes where ----------------------------------------------------------------------


class View(NamedTuple):
    """The part of the axis of seconds that is shown."""

    low: float
    high: float
    log: bool


def drawable(steps: Sequence[Step]) -> Groups:
    found: Groups = {}
    for step in steps:
        if step.rank == 0 and usable_seconds([step]):
            found.setdefault(step.excluded_because, []).append(step)
    return found


def left_out(result: Result, steps: Sequence[Step]) -> dict[str, int]:
    """Every reason with its count: those of the window, and those that it does not hold, as of earlier attempts."""
    found = Counter(step.excluded_because for step in steps if step.rank == 0 and step.excluded_because is not None)
    return {**found, **result.window.excluded}


def view(groups: Groups) -> View:
    """As wide as nearly all counted steps need, and what lies near them."""
    everything = [seconds for group in groups.values() for seconds in usable_seconds(group)]
    low, high = core(usable_seconds(groups.get(None, [])) or everything)
    if low > 0 and high / low > LOG_ABOVE:
        return View(min(s for s in everything if s > 0) / 1.25, max(everything) * 1.25, log=True)
    span = max(high - low, 0.01 * high) or 1.0
    inside = [s for s in everything if low - span <= s <= high + span]
    room = 0.55 if max(everything) > max(inside) else 0.25
    return View(max(min(inside) - 0.25 * span, 0.0), max(inside) + room * span, log=False)


def core(seconds: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest that are not far from the middle half: a slow step must not flatten the others."""
    import numpy as np

    quarter, middle, three_quarters = (float(one) for one in np.percentile(seconds, (25, 50, 75)))
    reach = FAR * max(three_quarters - quarter, LEAST_SPREAD * middle)
    inside = [one for one in seconds if quarter - reach <= one <= three_quarters + reach]
    return min(inside), max(inside)


def beyond(groups: Groups, seen: View) -> list[Step]:
    """Steps that lie outside of what the axis shows, the first ones first."""
    out = [s for group in groups.values() for s in group if not seen.low <= (s.seconds or 0.0) <= seen.high]
    return sorted(out, key=lambda step: (step.step, step.attempt))


# --- seconds against step -----------------------------------------------------------------------


def step_plot(result: Result, steps: Sequence[Step], name: str) -> list[Plot]:
    """None where no step has a time."""
    groups = drawable(steps)
    if not groups:
        return []
    seen = view(groups)
    axis = "is logarithmic" if seen.log else "does not start at 0" if seen.low > 0 else "starts at 0"
    return [
        plot(
            name,
            "Seconds of each step",
            f"Across: the step. Up: its seconds; that axis {axis}. A line and a band: median, 95% interval.",
            f"{_steps_in_words(result, groups, seen)} The y-axis {axis}.",
            lambda axes: _draw_steps(axes, result, groups, seen),
            HEIGHT,
            keys=_step_keys(result, steps),
        )
    ]


def _draw_steps(axes: "Axes", result: Result, groups: Groups, seen: View) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    spread = result.seconds_per_step
    scale, unit = seconds_axis(spread.median or seen.low or seen.high)
    if seen.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(max(seen.low, 1e-9) * scale if seen.log else seen.low * scale, seen.high * scale)
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
        inside = [step for step in group if seen.low <= (step.seconds or 0.0) <= seen.high]
        if len(inside) > MOST_POINTS:
            _draw_columns(axes, _mark(reason), inside, scale)
        else:
            seconds = [(step.seconds or 0.0) * scale for step in inside]
            _draw_marks(axes, _mark(reason), [s.step for s in inside], seconds, 2.6 if len(inside) > 250 else 4.6)
    _draw_beyond(axes, beyond(groups, seen), seen, scale)


def _mark(reason: str | None) -> Mark:
    return COUNTED if reason is None else MARKS.get(reason, OTHER)


def _draw_marks(axes: "Axes", mark: Mark, places: Sequence[int], heights: Sequence[float], size: float) -> None:
    face, edge = ("none", 1.2) if mark.hollow else (mark.colour, 0.0)
    options = {"markerfacecolor": face, "markeredgecolor": mark.colour, "markeredgewidth": edge, "markersize": size}
    axes.plot(places, heights, linestyle="none", marker=mark.marker, zorder=3, **options)  # type: ignore[arg-type]


def _draw_columns(axes: "Axes", mark: Mark, steps: Sequence[Step], scale: float) -> None:
    """Many steps: a line from the lowest to the highest of neighbours, and a dot at their middle."""
    import numpy as np

    chunks = np.array_split(np.array([(step.step, (step.seconds or 0.0) * scale) for step in steps]), COLUMNS)
    places = [float(chunk[len(chunk) // 2, 0]) for chunk in chunks]
    ends = [(float(chunk[:, 1].min()), float(chunk[:, 1].max())) for chunk in chunks]
    axes.vlines(places, *zip(*ends, strict=True), color=mark.colour, alpha=0.45, linewidth=1, zorder=3)
    middles = [float(np.median(chunk[:, 1])) for chunk in chunks]
    axes.plot(places, middles, linestyle="none", marker=".", markersize=2.5, color=mark.colour, zorder=3)


def _draw_beyond(axes: "Axes", out: Sequence[Step], seen: View, scale: float) -> None:
    """At the rim, with their seconds where there is room for them."""
    room = 0.05 * (seen.high - seen.low)
    low, high = axes.get_xlim()
    for step in out:
        above = (step.seconds or 0.0) > seen.high
        place = (seen.high - room if above else seen.low + room) * scale
        _draw_marks(axes, _mark(step.excluded_because), [step.step], [place], 6)
        if len(out) <= MOST_RIM_LABELS:
            right = step.step > low + 0.75 * (high - low)
            text = f"{seconds_text(step.seconds or 0.0)} {'↑' if above else '↓'}"
            label(
                axes, text, (step.step, place), (-9 if right else 9, 0), ha="right" if right else "left", va="center"
            )


def _step_keys(result: Result, steps: Sequence[Step]) -> list[Key]:
    keys = (
        [Key(COUNTED.sign, COUNTED.colour, f"counted ({result.window.counted:,})")] if result.window.counted else []
    )
    for reason, count in left_out(result, steps).items():
        mark = Mark("", "·", MUTED, NOT_DRAWN[reason]) if reason in NOT_DRAWN else _mark(reason)
        meaning = f": {mark.meaning}" if mark.meaning else ""
        keys.append(Key(mark.sign, mark.colour, f"{reason} ({count:,}){meaning}"))
    if result.seconds_per_step.median is not None:
        keys.append(Key("━", BLUE, "median and its 95% interval" if result.seconds_per_step.ci95 else "median"))
    return keys


def _steps_in_words(result: Result, groups: Groups, seen: View) -> str:
    window = result.window
    words = ["No step is counted."]
    if window.counted:
        settled = "settled" if window.settled else "not settled"
        steps = f"{plural(window.counted, 'step')} counted, from {window.first_step} to {window.last_step}"
        words = [f"{steps} (window: {window.rule}, {settled})."]
    if counted := usable_seconds(groups.get(None, [])):
        words.append(f"They took {seconds_text(min(counted))} to {seconds_text(max(counted))}.")
    if out := beyond(groups, seen):
        named = ", ".join(f"step {step.step} took {seconds_text(step.seconds or 0.0)}" for step in out[:4])
        words.append(f"Off the axis: {named}{f', and {len(out) - 4} more' if len(out) > 4 else ''}.")
    if any(len(group) > MOST_POINTS for group in groups.values()):
        words.append("Each line covers several steps, from the lowest to the highest.")
    return " ".join(words)


# --- how the counted steps spread ---------------------------------------------------------------


def spread_plot(result: Result, steps: Sequence[Step], name: str) -> list[Plot]:
    """None where fewer than three steps count: there is nothing to be seen."""
    counted = usable_seconds(drawable(steps).get(None, []))
    if len(counted) < 3 or result.seconds_per_step.median is None:
        return []
    interval = [Key("▒", BLUE, "its 95% interval")] if result.seconds_per_step.ci95 else []
    return [
        plot(
            name,
            "Distribution of counted step times",
            "Across: seconds a step. Up: how many counted steps took so long.",
            _spread_in_words(counted),
            lambda axes: _draw_spread(axes, result, counted),
            HEIGHT,
            keys=[Key("━", INK, "median"), *interval],
        )
    ]


def _draw_spread(axes: "Axes", result: Result, counted: Sequence[float]) -> None:
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    spread = result.seconds_per_step
    scale, unit = seconds_axis(spread.median or 0.0)
    low, high = core(counted)
    values = np.asarray([seconds for seconds in counted if low <= seconds <= high]) * scale
    bins = min(max(len(np.histogram_bin_edges(values, bins="auto")) - 1, 5), 40)
    axes.hist(values, bins=bins, rwidth=0.94, color=BLUE, alpha=0.55, linewidth=0, zorder=2)
    if spread.ci95:
        axes.axvspan(spread.ci95[0] * scale, spread.ci95[1] * scale, color=BLUE, alpha=0.16, linewidth=0, zorder=1)
    axes.axvline((spread.median or 0.0) * scale, color=INK, linewidth=1.4, zorder=4)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.set_title("counted steps")
    axes.set_xlabel(f"{unit} per step")


def quantiles(counted: Sequence[float]) -> dict[str, float]:
    import numpy as np

    return {name: float(np.percentile(counted, share)) for share, name in QUANTILES}


def _spread_in_words(counted: Sequence[float]) -> str:
    of = quantiles(counted)
    middle = f"{seconds_text(of['25%'])} to {seconds_text(of['75%'])}"
    wide = f"{seconds_text(of['5%'])} to {seconds_text(of['95%'])}"
    widest = of["highest"] / of["lowest"] - 1 if of["lowest"] > 0 else math.inf
    slower = f" The slowest took {widest:.1%} longer than the fastest." if math.isfinite(widest) else ""
    low, high = core(counted)
    out = [seconds for seconds in counted if not low <= seconds <= high]
    more = f" Off the axis: {plural(len(out), 'step')}, up to {seconds_text(max(out))}." if out else ""
    return f"Half of the {len(counted):,} counted steps took {middle}, nine in ten {wide}.{slower}{more}"


# --- under the roof -----------------------------------------------------------------------------


def achieved_tflops(result: Result, seconds: float | None) -> float | None:
    """Of a device, counted as the recipe counts, if a step takes so long; None where that is not known."""
    if not seconds or result.model_flops_per_step is None:
        return None
    return result.model_flops_per_step / seconds / result.benchmark.gpus / 1e12


def rates(result: Result, bound: Bound | None) -> dict[str, float]:
    """TFLOP/s of a device: the run's, what the lower bound of a step allows, the peaks; none without a speed."""
    achieved = achieved_tflops(result, result.seconds_per_step.median)
    if achieved is None:
        return {}
    allowed = achieved_tflops(result, bound.seconds if bound else None)
    found = {"this run": achieved} | ({"at the lower bound of a step": allowed} if allowed else {})
    return found | {f"{m.precision_peak} peak, {m.table}": m.peak_tflops for m in _peaks(result)}


def _peaks(result: Result) -> list[Mfu]:
    entries = result.mfu or []
    return [m for m in entries if m.counted_by == entries[0].counted_by and m.precision_peak != MIXED]


def roof_plot(result: Result, bound: Bound | None, name: str) -> list[Plot]:
    """None where there is nothing but the run itself to show."""
    rows = rates(result, bound)
    if len(rows) < 2:
        return []
    return [
        plot(
            name,
            "Compared with the peaks",
            "A bar for each rate in TFLOP/s per device: the run's, what a step's lower bound allows, and the peaks.",
            roof_in_words(result, bound),
            lambda axes: _draw_roof(axes, rows),
            44 * len(rows) + 58,
            Margins(left=14, right=70, top=8, bottom=50),
        )
    ]


def _draw_roof(axes: "Axes", rows: dict[str, float]) -> None:
    for place, (name, tflops) in enumerate(rows.items()):
        colour = BLUE if name == "this run" else LINE if "peak" in name else MUTED
        axes.barh(-place, tflops, height=0.34, color=colour, zorder=2)
        label(axes, name, (0, -place + 0.2), (0, 3), va="bottom")
        label(axes, _rate_text(tflops), (tflops, -place), (6, 0), va="center", annotation_clip=False)
    axes.axvline(rows["this run"], color=BLUE, linewidth=1, linestyle=(0, (2, 3)), zorder=1)
    axes.set_xlim(0, max(rows.values()))
    axes.set_ylim(-len(rows) + 0.5, 0.75)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_xlabel("TFLOP/s per device")


def _rate_text(tflops: float) -> str:
    return f"{tflops:,.0f}" if tflops >= 1000 else f"{tflops:.4g}"


def roof_in_words(result: Result, bound: Bound | None) -> str:
    """The same as the plot, and why a part of it is missing."""
    seconds = result.seconds_per_step.median
    achieved = achieved_tflops(result, seconds)
    if achieved is None or not seconds:
        why = result.null_because.get("seconds_per_step", "unknown")
        return f"No speed is claimed: {why}"
    words = [f"The run reaches {_rate_text(achieved)} TFLOP/s per device, by the recipe's FLOP count."]
    if result.mfu:
        shares = (
            f"{m.percent:.1f}% of the {m.precision_peak} peak of {_rate_text(m.peak_tflops)} ({m.table})"
            for m in _peaks(result)
        )
        words.append(f"That is {', '.join(shares)}.")
    else:
        words.append(f"No peak is known: {result.null_because.get('mfu', 'unknown')}.")
    if bound is not None and bound.seconds is None:
        words.append(f"The lower bound of a step is not known: {'; '.join(bound.unknown[:1])}.")
    elif bound is not None and bound.seconds:
        times = f"the run took {seconds / bound.seconds:.2f} times as long"
        words.append(f"The lower bound of a step is {seconds_text(bound.seconds)}; {times}.")
        words += [f"Not in the bound, because unknown: {'; '.join(bound.unknown)}."] if bound.unknown else []
    return " ".join(words)
