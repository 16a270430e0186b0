"""A sweep on a page: how it scales beside the ideal, its table, what PGLE gains, what was left out. Pure."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.pages.drawing import BLUE, MUTED, Interval, Margins, forest_plot, plot
from benchmarks.pages.page import (
    UNKNOWN,
    Block,
    Box,
    Cell,
    Key,
    Part,
    Plot,
    Plots,
    Section,
    Table,
    Tone,
    Words,
    change_text,
    interval_text,
)
from benchmarks.rendering.columns import plural
from benchmarks.rendering.report import count_text, seconds_text
from benchmarks.sweeps.gain import Gain
from benchmarks.sweeps.scaling import KINDS, NO_PGLE, Point, Series, Spread, unknown
from benchmarks.sweeps.sweep_report import SweepReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Known = list[tuple[Point, Spread]]

TONES: dict[str, Tone] = {"improvement": "good", "regression": "bad", "inconclusive": "warm", "no verdict": "muted"}
HEIGHT, MARGINS = 300, Margins(left=70)
DASHED = (0, (4, 3))


def sweep_part(report: SweepReport, key: str = "sweep") -> Part:
    points = [point for one in report.series for point in one.points]
    runs, valid = sum(point.runs for point in points), sum(point.valid for point in points)
    names = list(dict.fromkeys(f"{one.model} {one.task} {one.dtype}" for one in report.series))
    heading = f"Sweep of {names[0]}" if len(names) == 1 else f"Sweep of {len(names)} benchmarks"
    under = f"{len(report.series)} series · {plural(report.repeats, 'repeat')} of each cell"
    gains = report.gains
    blocks: list[Block] = [
        Words([" ".join(report.command)], "code"),
        Box("warm", "Refused cells", report.refused),
        *(_series(one, f"{key}-series-{number}") for number, one in enumerate(report.series)),
        Section("Speedups from PGLE", [
            Plots(_gain_plot(gains, f"{key}-gains")),
            _gain_table(gains),
            Words([f"{_name(one)}: {one.verdict}: {one.why}" for one in gains], "list"),
            Words([f"{_name(one)}: {text}" for one in gains for text in [*one.notes, *one.left_out]], "list"),
        ]),
    ]  # fmt: skip
    title, verdict = f"sweep {report.sweep_id}", f"{valid} of {runs} runs valid"
    tone: Tone = "good" if valid == runs else "warm"
    return Part(key, "Sweep", title, verdict, tone, heading, under, report.sweep_id, blocks)


# --- how it scales ------------------------------------------------------------------------------


def _series(series: Series, key: str) -> Section:
    pgle = f" · PGLE {series.pgle}" if series.pgle != NO_PGLE else ""
    under = (
        f"{series.backend} ({series.engine}) · {series.hardware} · "
        f"{series.sequence_length} tokens a sequence{pgle} · {KINDS[series.scaling]}"
    )
    plots = [*_speed_plot(series, key), *_efficiency_plot(series, key)]
    blocks: list[Block] = [
        Words([under], "muted"),
        Plots(plots),
        Words([] if plots else ["No scaling plot: fewer than two scales have a speed."]),
        _table(series),
        Words([*series.notes, *(f"unknown: {text}" for text in unknown(series.points))], "muted"),
        Section("Excluded runs", [
            Words([text for point in series.points for text in point.left_out], "list")
        ]),
    ]  # fmt: skip
    return Section(f"{series.model} {series.task} {series.dtype}", blocks)


def _known(series: Series, spread: Callable[[Point], Spread | None]) -> Known:
    """Of the scales that have the figure; nothing where that is fewer than two."""
    known = [(point, found) for point in series.points if (found := spread(point)) is not None]
    return known if len({point.gpus for point, _ in known}) > 1 else []


def _speed_plot(series: Series, key: str) -> list[Plot]:
    known = _known(series, lambda point: point.tokens_per_second)
    if not known:
        return []
    said = ", ".join(f"{count_text(spread.median)} tokens/s on {point.gpus}" for point, spread in known)
    base = f"The ideal line goes through {known[0][0].gpus}: the same tokens/s a device at every scale."
    shows = "Across: devices. Up: tokens per second with the range over runs, and the ideal line; logarithmic axes."
    keys = _keys("the same speed a device as the smallest scale")
    draw = lambda axes: _draw_speed(axes, known)  # noqa: E731
    return [plot(f"{key}-speed", "Tokens per second", shows, f"{said} devices. {base}", draw, HEIGHT, MARGINS, keys)]


def _efficiency_plot(series: Series, key: str) -> list[Plot]:
    known = _known(series, lambda point: point.efficiency)
    if not known:
        return []
    said = ", ".join(f"{spread.median:.1%} on {point.gpus}" for point, spread in known)
    of = "A range is that of all pairs of a run here and one at the smallest scale."
    shows = "Across: devices. Up: tokens per second and device over that of the smallest scale, in percent."
    draw = lambda axes: _draw_efficiency(axes, known)  # noqa: E731
    return [
        plot(f"{key}-efficiency", "Efficiency", shows, f"{said} devices. {of}", draw, HEIGHT, MARGINS, _keys("100%"))
    ]


def _keys(ideal: str) -> list[Key]:
    return [Key("●", BLUE, "median over runs, with lowest and highest"), Key("╌", MUTED, f"ideal: {ideal}")]


def _draw_speed(axes: "Axes", known: Known) -> None:
    from matplotlib.ticker import LogLocator

    base, speed = known[0]
    ideal = [speed.median * point.gpus / base.gpus for point, _ in known]
    axes.set_yscale("log")
    axes.plot([point.gpus for point, _ in known], ideal, color=MUTED, linestyle=DASHED, linewidth=1.3, zorder=1)
    _draw_spreads(axes, known, 1.0, count_text)
    highest = max([*ideal, *(spread.highest for _, spread in known)])
    axes.set_ylim(min(spread.lowest for _, spread in known) / 1.3, highest * 1.3)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def _draw_efficiency(axes: "Axes", known: Known) -> None:
    axes.axhline(100, color=MUTED, linestyle=DASHED, linewidth=1.3, zorder=1)
    _draw_spreads(axes, known, 100.0, lambda value: f"{value:g}%")
    axes.set_ylim(0, max(112.0, *(105 * spread.highest for _, spread in known)))
    axes.set_title("of the smallest scale's")


def _draw_spreads(axes: "Axes", known: Known, scale: float, text: Callable[[float], str]) -> None:
    """The medians and ranges, above the devices on a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter

    places = [point.gpus for point, _ in known]
    lows, highs = (
        [end * scale for end in ends] for ends in zip(*((s.lowest, s.highest) for _, s in known), strict=True)
    )
    axes.set_xscale("log", base=2)
    axes.vlines(places, lows, highs, color=BLUE, linewidth=5, alpha=0.35, zorder=2)
    axes.plot(places, [s.median * scale for _, s in known], color=BLUE, marker="o", markersize=6, zorder=3)
    ticks = sorted(set(places))
    axes.set_xticks(ticks, [str(place) if _has_room(place, ticks) else "" for place in ticks])
    axes.set_xlim(ticks[0] / 1.25, ticks[-1] * 1.25)
    axes.set_xlabel("devices")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axes.minorticks_off()


def _has_room(place: int, places: Sequence[int]) -> bool:
    """Of scales that lie close together, the first and the last are named."""
    closest = min(b / a for a, b in pairwise(places))
    return closest > (places[-1] / places[0]) ** 0.06 or place in (places[0], places[-1])


def _table(series: Series) -> Table:
    conventions = list(dict.fromkeys(point.mfu_convention for point in series.points if point.mfu_convention))
    rows = [
        [
            Cell(plural(point.gpus, "device")),
            Cell(str(point.nodes)),
            Cell(str(point.global_batch_size)),
            Cell(point.layout),
            Cell(f"{point.valid} of {point.runs}", "" if point.valid == point.runs else "warm"),
            _cell(point.seconds_per_step, seconds_text, "seconds_per_step"),
            _cell(point.tokens_per_second, count_text, "tokens_per_second"),
            _cell(point.tokens_per_second_per_gpu, count_text, "tokens_per_second_per_gpu"),
            _cell(point.mfu_percent, "{:.2f}%".format, "mfu_percent"),
            _cell(point.efficiency, "{:.1%}".format, "efficiency"),
        ]
        for point in series.points
    ]
    titles = [
        "scale", "#nodes", "#batch", "layout", "#valid runs", "#seconds per step", "#tokens/s",
        "#tokens/s per device", "#MFU", "#efficiency",
    ]  # fmt: skip
    of = f"; MFU by {', '.join(conventions)}" if conventions else ""
    return Table(f"Median over the valid runs of each scale, with their range{of}", titles, rows)


def _cell(spread: Spread | None, text: Callable[[float], str], field: str) -> Cell:
    if spread is None:
        return Cell(UNKNOWN, "muted")
    reach = f"{text(spread.lowest)} to {text(spread.highest)}" if spread.n > 1 else ""
    return Cell(text(spread.median), value=spread.median, field=field, detail=reach)


# --- what PGLE gains ------------------------------------------------------------------------------


def _name(gain: Gain) -> str:
    return f"{gain.cell}: PGLE {gain.way} over {gain.base}"


def _gain_plot(gains: Sequence[Gain], name: str) -> list[Plot]:
    rows = [
        Interval(f"{_name(one)}, {one.verdict}", found.value, found.low, found.high, TONES[one.verdict])
        for one in gains
        if (found := one.speedup_percent) is not None
    ]
    says = "A dot is the speedup over the pairs of runs, the bar through it the 95% interval."
    return forest_plot(rows, name, "Speedup over pairs of runs", says, "speedup in percent")


def _gain_table(gains: Sequence[Gain]) -> Table:
    rows = []
    for one in gains:
        found, least = one.speedup_percent, one.smallest_detectable_percent
        rows.append(
            [
                Cell(_name(one)),
                Cell(f"{len(one.pairs)} of {one.wanted}"),
                Cell(change_text(found.value) if found else UNKNOWN),
                Cell(interval_text(found.low, found.high) if found else UNKNOWN),
                Cell(f"{least:.2f}%" if least is not None else UNKNOWN),
                Cell(one.verdict, TONES[one.verdict]),
            ]
        )
    titles = ["gain", "#pairs", "#speedup", "#95% interval", "#smallest effect seen", "verdict"]
    return Table("Each way against the other, in pairs of runs", titles, rows)
