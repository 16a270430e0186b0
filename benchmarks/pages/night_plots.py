"""The history of one metric of one cell: nights, the baseline's band, tonight, its confirmations, change points."""

from collections.abc import Sequence

from benchmarks.gate.values import MetricJudgement, NightPoint
from benchmarks.pages.drawing import (
    BAD,
    BLUE,
    GOOD,
    INK,
    MUTED,
    VARIABLES,
    VIOLET,
    WARM,
    Canvas,
    Key,
    Plot,
    Size,
    plot,
)  # fmt: skip
from benchmarks.pages.elements import plural, sentence
from benchmarks.pages.forest import percent_text
from benchmarks.pages.units import axis_unit, value_text

SIZE = Size(420, 220, left=56, right=14, top=28, bottom=40)
COLOURS = {"regression": BAD, "improvement": GOOD, "no change": BLUE, "inconclusive": WARM, "invalid": WARM}


def history_plot(one: MetricJudgement, name: str) -> Plot | None:
    """None where fewer than two nights have a value: one dot says no more than its figure."""
    if len(one.points) < 2:
        return None
    return plot(
        name,
        one.metric.title,
        f"Across: {len(one.points)} nights, oldest first. Up: {one.metric.title}; the axis does not begin at 0.",
        _in_words(one),
        lambda canvas: _draw(canvas, one),
        SIZE,
        _keys(one),
    )


def _draw(canvas: Canvas, one: MetricJudgement) -> None:
    axes, points = canvas.axes, one.points
    scale, unit = _scale(one)
    _draw_band(canvas, one, scale)
    low, high = _reach(one)
    axes.set_ylim(low * scale, high * scale)
    for used, marker, colour in (("baseline", "o", BLUE), ("recent", "o", INK), ("left out", "x", MUTED)):
        places = [n for n, point in enumerate(points) if point.used_as == used and low <= point.value <= high]
        values = [points[n].value * scale for n in places]
        axes.plot(places, values, linestyle="none", marker=marker, markersize=4.5, color=colour)
    tonight = [n for n, point in enumerate(points) if point.used_as == "tonight"]
    colour = COLOURS[one.verdict]
    values = [points[n].value * scale for n in tonight]
    axes.plot(tonight, values, linestyle="none", marker="D", markersize=8, color=colour, zorder=4)
    if tonight and one.confirmations:
        axes.plot(
            [tonight[-1]] * len(one.confirmations),
            [value * scale for value in one.confirmations],
            linestyle="none",
            marker="D",
            markersize=7,
            markerfacecolor="none",
            markeredgecolor=colour,
            zorder=4,
        )
    _draw_beyond(canvas, one, scale)
    _draw_change_points(canvas, one)
    _axes_of(canvas, points, unit)


def _reach(one: MetricJudgement) -> tuple[float, float]:
    """Of the axis: what is judged is inside; a night that was left out may lie beyond."""
    values = [point.value for point in one.points if point.used_as != "left out"] + one.confirmations
    values = values or [point.value for point in one.points]
    low, high = min(values), max(values)
    if one.baseline is not None and one.noise_percent is not None:
        half = one.baseline * 2 * one.noise_percent / 100
        low, high = min(low, one.baseline - half), max(high, one.baseline + half)
    pad = 0.18 * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad


def beyond(one: MetricJudgement) -> list[tuple[int, NightPoint]]:
    """Nights outside of the axis, with their places."""
    low, high = _reach(one)
    return [(n, point) for n, point in enumerate(one.points) if not low <= point.value <= high]


def _draw_beyond(canvas: Canvas, one: MetricJudgement, scale: float) -> None:
    """At the rim, pointing to where they are."""
    low, high = (end * scale for end in _reach(one))
    for place, point in beyond(one):
        above = point.value * scale > high
        rim = high - 0.04 * (high - low) if above else low + 0.04 * (high - low)
        marker = "^" if above else "v"
        canvas.axes.plot([place], [rim], marker=marker, markersize=6, color=MUTED, linestyle="none", zorder=3)


def _draw_band(canvas: Canvas, one: MetricJudgement, scale: float) -> None:
    """The baseline's level, and two standard deviations of one night around it."""
    baseline = [n for n, point in enumerate(one.points) if point.used_as == "baseline"]
    if one.baseline is None or not baseline:
        return
    middle, ends = one.baseline * scale, (baseline[0], len(one.points) - 1)
    if one.noise_percent is not None:
        half = middle * 2 * one.noise_percent / 100
        canvas.axes.fill_between(ends, middle - half, middle + half, color=BLUE, alpha=0.14, linewidth=0, zorder=1)
    canvas.axes.plot(ends, (middle, middle), color=BLUE, linewidth=1.2, zorder=1)


def _draw_change_points(canvas: Canvas, one: MetricJudgement) -> None:
    places = {point.night: n for n, point in enumerate(one.points)}
    for found in one.change_points:
        if found.night not in places:
            continue
        place = places[found.night] - 0.5
        canvas.axes.axvline(place, color=VIOLET, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        canvas.axes.annotate(
            percent_text(found.percent),
            (place, 1),
            xycoords=canvas.axes.get_xaxis_transform(),
            xytext=(-4 if place > len(one.points) / 2 else 4, 0),
            textcoords="offset points",
            ha="right" if place > len(one.points) / 2 else "left",
            va="top",
            color=VIOLET,
            fontsize=11.5,
        )


def _axes_of(canvas: Canvas, points: Sequence[NightPoint], unit: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes = canvas.axes
    axes.set_xlim(-0.7, len(points) - 0.3)
    axes.set_title(unit, loc="left", fontsize=12, color=MUTED)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    last = len(points) - 1
    axes.set_xticks([0, last], [_short(points[0].night), _short(points[last].night)])
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[1].set_horizontalalignment("right")


def _short(night: str) -> str:
    return night if len(night) <= 20 else night[:19] + "…"


def _scale(one: MetricJudgement) -> tuple[float, str]:
    return axis_unit(one.metric.unit, max(point.value for point in one.points))


def _keys(one: MetricJudgement) -> list[Key]:
    used = {point.used_as for point in one.points}
    keys = [
        Key("●", VARIABLES[BLUE], "baseline") if "baseline" in used else None,
        Key("●", VARIABLES[INK], "recent") if "recent" in used else None,
        Key("◆", VARIABLES[COLOURS[one.verdict]], "tonight") if "tonight" in used else None,
        Key("◇", VARIABLES[COLOURS[one.verdict]], "confirmation") if one.confirmations else None,
        Key("✕", VARIABLES[MUTED], "left out") if "left out" in used else None,
        Key("┆", VARIABLES[VIOLET], "change point") if one.change_points else None,
        Key("▒", VARIABLES[BLUE], "two standard deviations of a night") if one.noise_percent is not None else None,
    ]
    return [key for key in keys if key is not None]


def _in_words(one: MetricJudgement) -> str:
    words = [sentence(f"{one.verdict.capitalize()}: {one.why}")]
    if one.tonight is not None and one.baseline is not None:
        tonight, level = (value_text(value, one.metric.unit) for value in (one.tonight, one.baseline))
        words.append(f"Tonight {tonight}, baseline {level} over {plural(one.baseline_nights, 'night')}.")
    if one.confirmations:
        shown = ", ".join(value_text(value, one.metric.unit) for value in one.confirmations)
        words.append(f"Confirmations: {shown}.")
    if out := beyond(one):
        shown = ", ".join(f"{point.night} with {value_text(point.value, one.metric.unit)}" for _, point in out)
        words.append(f"Outside of the axis, ▲ above or ▼ below: {shown}.")
    return " ".join(words)
