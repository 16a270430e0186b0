"""A sweep on a page: how it scales beside the ideal, its table, what PGLE gains, what was left out. Pure."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarks.pages.drawing import BLUE, MUTED, Interval, Margins, forest_plot, plot
from benchmarks.pages.page import (
    UNKNOWN,
    VERDICT_TONES,
    Block,
    Box,
    Cell,
    Key,
    Overview,
    Part,
    Plot,
    Plots,
    Section,
    Table,
    Tone,
    Words,
)
from benchmarks.runs.finished_run import started_of
from benchmarks.sweeps.gain import Gain
from benchmarks.sweeps.scaling import KINDS, NO_PGLE, Point, Series, Spread, unknown
from benchmarks.sweeps.sweep_report import SweepReport
from benchmarks.text import count_text, plural, seconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Known = list[tuple[Point, Spread]]


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
        Section("Step times with PGLE", [
            Plots(_gain_plot(gains, f"{key}-gains")),
            Words([f"{_name(one)}: {one.verdict}: {one.why}" for one in gains], "list"),
            Words([f"{_name(one)}: {text}" for one in gains for text in [*one.notes, *one.left_out]], "list"),
        ]),
    ]  # fmt: skip
    title, verdict = f"sweep {report.sweep_id}", f"{valid} of {runs} runs valid"
    tone: Tone = "good" if valid == runs else "warm"
    overview = Overview(heading, under, when=started_of(f"{report.sweep_id[:15]}Z"))
    return Part(key, "Sweep", title, verdict, tone, heading, under, report.sweep_id, blocks, overview)


# --- how it scales ------------------------------------------------------------------------------


def _series(series: Series, key: str) -> Section:
    pgle = f" · PGLE {series.pgle}" if series.pgle != NO_PGLE else ""
    under = (
        f"{series.backend} ({series.engine}) · {series.hardware} · "
        f"{series.sequence_length} tokens a sequence{pgle} · {KINDS[series.scaling]}"
    )
    plots = _speed_plot(series, key)
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


def _speed_plot(series: Series, key: str) -> list[Plot]:
    """None where fewer than two scales have a speed."""
    known = [(point, point.tokens_per_second) for point in series.points if point.tokens_per_second is not None]
    if len({point.gpus for point, _ in known}) < 2:
        return []
    said = ", ".join(f"{count_text(spread.median)} tokens/s on {point.gpus}" for point, spread in known)
    says = (
        f"{said} devices. The ideal line goes through {known[0][0].gpus}: the same tokens/s a device at every scale."
    )
    shows = "Across: devices. Up: tokens per second with the range over runs, and the ideal line; logarithmic axes."
    keys = [
        Key("●", BLUE, "median over runs, with lowest and highest"),
        Key("╌", MUTED, "ideal: the same speed a device as the smallest scale"),
    ]
    margins = Margins(left=70)
    return [plot(key, "Tokens per second", shows, says, lambda axes: _draw_speed(axes, known), 300, margins, keys)]


def _draw_speed(axes: "Axes", known: Known) -> None:
    """The medians and ranges, and the ideal line, on logarithmic axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    base, speed = known[0]
    places = [point.gpus for point, _ in known]
    ideal = [speed.median * place / base.gpus for place in places]
    lows, highs = [spread.lowest for _, spread in known], [spread.highest for _, spread in known]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.plot(places, ideal, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.3, zorder=1)
    axes.vlines(places, lows, highs, color=BLUE, linewidth=5, alpha=0.35, zorder=2)
    axes.plot(places, [spread.median for _, spread in known], color=BLUE, marker="o", markersize=6, zorder=3)
    axes.set_ylim(min(lows) / 1.3, max([*ideal, *highs]) * 1.3)
    axes.set_xlim(min(places) / 1.25, max(places) * 1.25)
    axes.set_xticks(sorted(set(places)), [str(place) for place in sorted(set(places))])
    axes.set_xlabel("devices")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
    axes.minorticks_off()


def _table(series: Series) -> Table:
    conventions = list(dict.fromkeys(point.mfu_convention for point in series.points if point.mfu_convention))
    rows = [
        [
            Cell(plural(point.gpus, "device")),
            Cell(str(point.nodes)),
            Cell(str(point.global_batch_size)),
            Cell(point.layout),
            Cell(f"{point.valid} of {point.runs}", "" if point.valid == point.runs else "warm"),
            _cell(point.seconds_per_step, seconds_text),
            _cell(point.tokens_per_second, count_text),
            _cell(point.tokens_per_second_per_gpu, count_text),
            _cell(point.mfu_percent, "{:.2f}%".format),
            _cell(point.efficiency, "{:.1%}".format),
        ]
        for point in series.points
    ]
    titles = [
        "scale", "#nodes", "#batch", "layout", "#valid runs", "#seconds per step", "#tokens/s",
        "#tokens/s per device", "#MFU", "#efficiency",
    ]  # fmt: skip
    of = f"; MFU by {', '.join(conventions)}" if conventions else ""
    return Table(f"Median over the valid runs of each scale, with their range{of}", titles, rows)


def _cell(spread: Spread | None, text: Callable[[float], str]) -> Cell:
    if spread is None:
        return Cell(UNKNOWN, "muted")
    reach = f"{text(spread.lowest)} to {text(spread.highest)}" if spread.n > 1 else ""
    return Cell(text(spread.median), detail=reach)


# --- what PGLE gains ------------------------------------------------------------------------------


def _name(gain: Gain) -> str:
    return f"{gain.cell}: PGLE {gain.way} over {gain.base}"


def _gain_plot(gains: Sequence[Gain], name: str) -> list[Plot]:
    rows = [
        Interval(f"{_name(one)}, {one.verdict}", one.percent, one.low, one.high, VERDICT_TONES[one.verdict])
        for one in gains
        if one.percent is not None
    ]
    says = "A dot is the step time against the base over the pairs of runs, the bar the 95% interval."
    return forest_plot(rows, name, "Step time over pairs of runs", says, "percent of the base")
