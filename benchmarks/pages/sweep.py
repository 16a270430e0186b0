"""Make the page of a sweep: scaling compared with the ideal, a table, the gain of PGLE, and refused cells. No I/O."""

from typing import TYPE_CHECKING

from benchmarks.pages.comparison import comparison_part
from benchmarks.pages.drawing import BLUE, MUTED, Margins, plot
from benchmarks.pages.page import (
    Block,
    Box,
    Cell,
    Key,
    Part,
    Plot,
    Plots,
    Section,
    Table,
    Words,
)
from benchmarks.runs.finished_run import started_of
from benchmarks.sweeps.scaling import HEADINGS, KINDS, NO_PGLE, Point, Series, Spread, row, unknown
from benchmarks.sweeps.sweep_report import SweepReport
from benchmarks.text import count_text, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Known = list[tuple[Point, Spread]]


def sweep_part(report: SweepReport, key: str = "sweep") -> Part:
    points = [point for one in report.series for point in one.points]
    runs, valid = sum(point.runs for point in points), sum(point.valid for point in points)
    names = list(dict.fromkeys(f"{one.model} {one.task} {one.dtype}" for one in report.series))
    blocks: list[Block] = [
        Words([" ".join(report.command)], "code"),
        Box("warm", "Refused cells", report.refused),
        *(_series(one, f"{key}-series-{number}") for number, one in enumerate(report.series)),
        *(
            Section("Step times with PGLE", comparison_part(one, f"{key}-gain-{number}").blocks)
            for number, one in enumerate(report.gains)
        ),
    ]  # fmt: skip
    return Part(
        key=key,
        kind="Sweep",
        verdict=f"{valid} of {runs} runs valid",
        tone="good" if valid == runs else "warm",
        heading=f"Sweep of {names[0] if len(names) == 1 else f'{len(names)} benchmarks'}",
        under=f"{len(report.series)} series · {plural(report.repeats, 'repeat')} of each cell",
        name=report.sweep_id,
        blocks=blocks,
        when=started_of(f"{report.sweep_id[:15]}Z"),
    )


# --- scaling ------------------------------------------------------------------------------------


def _series(series: Series, key: str) -> Section:
    pgle = f" · PGLE {series.pgle}" if series.pgle != NO_PGLE else ""
    under = (
        f"{series.backend} ({series.engine}) · {series.hardware} · "
        f"{series.sequence_length} tokens per sequence{pgle} · {KINDS[series.scaling]}"
    )
    plots = _speed_plot(series, key)
    conventions = dict.fromkeys(point.mfu_convention for point in series.points if point.mfu_convention)
    of = f"; MFU by {', '.join(conventions)}" if conventions else ""
    caption = f"Median over the valid runs (lowest to highest run){of}"
    titles = [HEADINGS[0], *(f"#{heading}" for heading in HEADINGS[1:])]
    rows = [[_cell(text) for text in row(point)] for point in series.points]
    blocks: list[Block] = [
        Words([under], "muted"),
        Plots(plots),
        Words([] if plots else ["No scaling plot: fewer than two scales have a speed."]),
        Table(caption, titles, rows),
        Words([*series.notes, *(f"unknown: {text}" for text in unknown(series.points))], "muted"),
        Section("Excluded runs", [
            Words([text for point in series.points for text in point.left_out], "list")
        ]),
    ]  # fmt: skip
    return Section(f"{series.model} {series.task} {series.dtype}", blocks)


def _cell(text: str) -> Cell:
    """Return a cell that shows a metric, and its range below it in smaller type."""
    figure, _, reach = text.partition(" (")
    return Cell(figure, detail=reach.removesuffix(")"))


def _speed_plot(series: Series, key: str) -> list[Plot]:
    """Return the plot of tokens per second; an empty list if fewer than two scales have a speed."""
    known = [(point, point.tokens_per_second) for point in series.points if point.tokens_per_second is not None]
    if len({point.gpus for point, _ in known}) < 2:
        return []
    speeds = ", ".join(f"{count_text(spread.median)} tokens/s on {point.gpus}" for point, spread in known)
    keys = [
        Key("●", BLUE, "median over runs, with lowest and highest"),
        Key("╌", MUTED, "ideal: the same speed per device as at the smallest scale"),
    ]
    margins = Margins(left=70)
    title, says = "Tokens per second", f"{speeds} devices. Both axes are logarithmic."
    return [plot(key, title, says, lambda axes: _draw_speed(axes, known), 300, margins, keys)]


def _draw_speed(axes: "Axes", known: Known) -> None:
    """Draw the medians, the ranges and the ideal line. Both axes are logarithmic."""
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
