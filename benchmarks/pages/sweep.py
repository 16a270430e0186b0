"""A sweep on a page: how it scales beside the ideal, its table, what PGLE gains, what was left out. Pure."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.pages.drawing import BLUE, MUTED, VARIABLES, Canvas, Key, Plot, Size, plot
from benchmarks.pages.elements import UNKNOWN, Cell, Table, Tone, plural, table
from benchmarks.pages.forest import Row, forest_plot, interval_text, percent_text
from benchmarks.pages.page import Part, page, render
from benchmarks.rendering.report import count_text, seconds_text
from benchmarks.sweeps.gain import Gain
from benchmarks.sweeps.scaling import FIGURES, KINDS, NO_PGLE, Point, Series, Spread
from benchmarks.sweeps.sweep_report import SweepReport

if TYPE_CHECKING:
    from matplotlib.ticker import FuncFormatter

TONES: dict[str, Tone] = {"improvement": "good", "regression": "bad", "inconclusive": "warm", "no verdict": "muted"}
SIZE = Size(420, 280, left=64, right=16, top=30, bottom=46)


def sweep_page(report: SweepReport) -> str:
    return page([sweep_part(report)])


def sweep_part(report: SweepReport, key: str = "sweep") -> Part:
    runs = sum(point.runs for one in report.series for point in one.points)
    valid = sum(point.valid for one in report.series for point in one.points)
    html = render(
        "sweep.html.j2",
        report=report,
        title=_title(report),
        command=" ".join(report.command),
        verdict=f"{valid} of {runs} runs valid",
        tone="good" if valid == runs else "warm",
        under=f"{len(report.series)} series · {plural(report.repeats, 'repeat')} of each cell",
        series=[_series(one, f"{key}-series-{number}") for number, one in enumerate(report.series)],
        gain_plot=_gain_plot(report.gains, f"{key}-gains"),
        gain_table=_gain_table(report.gains),
        gain_words=_gain_words(report.gains),
    )
    return Part(key, f"sweep {report.sweep_id}", "sweep", html)


def _title(report: SweepReport) -> str:
    """What was swept: one benchmark, or how many."""
    names = list(dict.fromkeys(f"{one.model} {one.task} {one.dtype}" for one in report.series))
    return f"Sweep of {names[0]}" if len(names) == 1 else f"Sweep of {len(names)} benchmarks"


# --- how it scales ------------------------------------------------------------------------------


def _series(series: Series, key: str) -> dict[str, object]:
    pgle = f" · PGLE {series.pgle}" if series.pgle != NO_PGLE else ""
    return {
        "title": f"{series.model} {series.task} {series.dtype}",
        "under": f"{series.backend} ({series.engine}) · {series.hardware} · "
        f"{series.sequence_length} tokens a sequence{pgle} · {KINDS[series.scaling]}",
        "plots": [one for one in (_speed_plot(series, key), _efficiency_plot(series, key)) if one is not None],
        "table": _table(series),
        "notes": [*series.notes, *_unknown(series)],
        "left_out": [text for point in series.points for text in point.left_out],
    }


def _known(series: Series, spread: Callable[[Point], Spread | None]) -> list[tuple[Point, Spread]]:
    return [(point, found) for point in series.points if (found := spread(point)) is not None]


def _speed_plot(series: Series, key: str) -> Plot | None:
    known = _known(series, lambda point: point.tokens_per_second)
    if len({point.gpus for point, _ in known}) < 2:
        return None
    first = known[0]
    said = [f"{count_text(spread.median)} tokens/s on {point.gpus}" for point, spread in known]
    base = f"The ideal line goes through {first[0].gpus}: the same tokens/s a device at every scale."
    return plot(
        f"{key}-speed",
        "Tokens per second",
        "Across: devices. Up: tokens per second with the range over runs, and the ideal line; logarithmic axes.",
        f"{', '.join(said)} devices. {base}",
        lambda canvas: _draw_speed(canvas, known),
        SIZE,
        _keys("the same speed a device as the smallest scale"),
    )


def _keys(ideal: str) -> list[Key]:
    return [
        Key("●", VARIABLES[BLUE], "median over runs, with lowest and highest"),
        Key("╌", VARIABLES[MUTED], f"ideal: {ideal}"),
    ]


def _draw_speed(canvas: Canvas, known: Sequence[tuple[Point, Spread]]) -> None:
    from matplotlib.ticker import LogLocator

    axes = canvas.axes
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    base, speed = known[0]
    ideal = [speed.median * point.gpus / base.gpus for point, _ in known]
    axes.plot([point.gpus for point, _ in known], ideal, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.3, zorder=1)
    _draw_spreads(canvas, known, 1.0)
    lows = [spread.lowest for _, spread in known]
    axes.set_ylim(min(lows) / 1.3, max([*ideal, *(spread.highest for _, spread in known)]) * 1.3)
    _across(canvas, known)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(_formatter(count_text))


def _efficiency_plot(series: Series, key: str) -> Plot | None:
    known = _known(series, lambda point: point.efficiency)
    if len({point.gpus for point, _ in known}) < 2:
        return None
    said = [f"{spread.median:.1%} on {point.gpus}" for point, spread in known]
    return plot(
        f"{key}-efficiency",
        "Efficiency",
        "Across: devices. Up: tokens per second and device over that of the smallest scale, in percent.",
        f"{', '.join(said)} devices. A range is that of all pairs of a run here and one at the smallest scale.",
        lambda canvas: _draw_efficiency(canvas, known),
        SIZE,
        _keys("100%"),
    )


def _draw_efficiency(canvas: Canvas, known: Sequence[tuple[Point, Spread]]) -> None:
    axes = canvas.axes
    axes.set_xscale("log", base=2)
    axes.axhline(100, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.3, zorder=1)
    _draw_spreads(canvas, known, 100.0)
    axes.set_ylim(0, max(112.0, *(105 * spread.highest for _, spread in known)))
    _across(canvas, known)
    axes.yaxis.set_major_formatter(_formatter(lambda value: f"{value:g}%"))
    axes.set_title("of the smallest scale's", loc="left", fontsize=12, color=MUTED)


def _draw_spreads(canvas: Canvas, known: Sequence[tuple[Point, Spread]], scale: float) -> None:
    places = [point.gpus for point, _ in known]
    canvas.axes.vlines(
        places,
        [spread.lowest * scale for _, spread in known],
        [spread.highest * scale for _, spread in known],
        color=BLUE,
        linewidth=5,
        alpha=0.35,
        zorder=2,
    )
    canvas.axes.plot(
        places, [spread.median * scale for _, spread in known], color=BLUE, marker="o", markersize=6, zorder=3
    )


def _across(canvas: Canvas, known: Sequence[tuple[Point, Spread]]) -> None:
    places = sorted({point.gpus for point, _ in known})
    canvas.axes.set_xticks(places, [str(place) if _has_room(place, places) else "" for place in places])
    canvas.axes.minorticks_off()
    canvas.axes.set_xlim(places[0] / 1.25, places[-1] * 1.25)
    canvas.axes.set_xlabel("devices")


def _has_room(place: int, places: Sequence[int]) -> bool:
    """Of scales that lie close together, the first is named."""
    closest = min((b / a for a, b in pairwise(places)), default=2.0)
    return closest > (places[-1] / places[0]) ** 0.06 or place in (places[0], places[-1])


def _formatter(text: Callable[[float], str]) -> "FuncFormatter":
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: text(value))


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
        "#tokens/s a device", "#MFU", "#efficiency",
    ]  # fmt: skip
    of = f"; MFU by {', '.join(conventions)}" if conventions else ""
    return table(f"The median over the valid runs of each scale and the range over runs{of}", titles, rows)


def _cell(spread: Spread | None, text: Callable[[float], str], field: str) -> Cell:
    if spread is None:
        return Cell(UNKNOWN, "muted")
    spread_text = f"{text(spread.lowest)} to {text(spread.highest)}" if spread.n > 1 else ""
    return Cell(text(spread.median), value=spread.median, field=field, detail=spread_text)


def _unknown(series: Series) -> list[str]:
    """What is missing for one reason at several scales is said once."""
    sizes: dict[tuple[str, str], list[str]] = {}
    for point in series.points:
        for figure, why in point.null_because.items():
            sizes.setdefault((FIGURES[figure], why), []).append(str(point.gpus))
    return [f"{figure} on {', '.join(found)} devices is unknown: {why}" for (figure, why), found in sizes.items()]


# --- what one way gains -------------------------------------------------------------------------


def _name(gain: Gain) -> str:
    return f"{gain.cell}: PGLE {gain.way} over {gain.base}"


def _gain_plot(gains: Sequence[Gain], name: str) -> Plot | None:
    rows = [
        Row(f"{_name(one)}, {one.verdict}", found.value, found.low, found.high, TONES[one.verdict])
        for one in gains
        if (found := one.speedup_percent) is not None
    ]
    says = "A dot is the speedup over the pairs of runs, the bar through it the 95% interval."
    return forest_plot(rows, name, "What it gains, run against run", says, "speedup in percent")


def _gain_table(gains: Sequence[Gain]) -> Table | None:
    rows = []
    for one in gains:
        found, least = one.speedup_percent, one.smallest_detectable_percent
        rows.append(
            [
                Cell(_name(one)),
                Cell(f"{len(one.pairs)} of {one.wanted}"),
                Cell(percent_text(found.value) if found else UNKNOWN),
                Cell(interval_text(found.low, found.high) if found else UNKNOWN),
                Cell(f"{least:.2f}%" if least is not None else UNKNOWN),
                Cell(one.verdict, TONES[one.verdict]),
            ]
        )
    titles = ["gain", "#pairs", "#speedup", "#95% interval", "#smallest effect seen", "verdict"]
    return table("Each way against the other, in pairs of runs", titles, rows) if rows else None


def _gain_words(gains: Sequence[Gain]) -> list[str]:
    lines = [f"{_name(one)}: {one.verdict}: {one.why}" for one in gains]
    return lines + [f"{_name(one)}: {text}" for one in gains for text in [*one.notes, *one.left_out]]
