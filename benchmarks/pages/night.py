"""Make the page of a night: its verdict, a table of cells and metrics, and the history of each cell. No I/O."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.nightly.report_text import (
    HEAD,
    blind_rows,
    details,
    end,
    first_verdicts,
    headline,
    rows,
    slowed_text,
    value_text,
)
from benchmarks.nightly.values import CellReport, MetricJudgement, NightPoint, NightReport
from benchmarks.pages.drawing import BLUE, INK, TONE_COLOURS, VIOLET, plot, seconds_axis
from benchmarks.pages.page import (
    VERDICT_TONES,
    Block,
    Box,
    Cell,
    Facts,
    Key,
    Part,
    Plot,
    Plots,
    Section,
    Table,
    Words,
)
from benchmarks.text import plural, reasons_text
from benchmarks.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The order of cells: verdicts that need an action come first.
ORDER = (Verdict.WORSE, Verdict.NOT_TESTED, Verdict.BETTER, Verdict.INCONCLUSIVE, Verdict.SAME)
MOST_OPEN = 4  # if there are more cells, those that need no action are folded
MOST_DATES = 5  # the most labels on the time axis of a history


def night_part(report: NightReport, key: str = "night") -> Part:
    cells = sorted(enumerate(report.cells), key=lambda pair: (ORDER.index(pair[1].verdict), pair[0]))
    many = len(cells) > MOST_OPEN
    tone = VERDICT_TONES[report.verdict]
    blocks: list[Block] = [
        Box(tone if tone != "good" else "warm", "What decided the verdict", _verdict_causes(report)),
        Box("warm", "This night is blind", [f"{name}: {text}" for name, text in blind_rows(report)]),
        Box("warm", "A trial", [slowed_text(report)] if report.slowed_by else []),
        Box("warm", "No verdict yet", first_verdicts(report)),
        Section("Cells and metrics", [
            _overview(report, key),
            Words(["A watched metric and the control cell do not decide the exit code."], "muted"),
        ]),
        *(_cell(cell, f"{key}-cell-{number}", many and cell.verdict in ORDER[3:]) for number, cell in cells),
        Section("The night", [Facts(end(report))]),
    ]  # fmt: skip
    began, ended = (time[:16].replace("T", " ") for time in (report.started, report.finished or ""))
    return Part(
        key=key,
        kind="Night",
        verdict=report.verdict,
        tone=tone,
        heading=report.title,
        under=f"{headline(report)} · on {report.site}, {began} to {ended or 'now'} UTC",
        name="",
        blocks=blocks,
        when=report.started,
    )


def _verdict_causes(report: NightReport) -> list[str]:
    """Return what decided the verdict: each regression, and each cell without a valid run."""
    lines = []
    for cell in report.cells:
        if cell.status not in ("valid", "running"):
            why = reasons_text(cell.reasons) or "no reason is known"
            lines.append(f"{cell.title}: the latest run is {cell.status}: {why}")
        lines += [
            f"{cell.title}: {one.metric.title}: {one.why}"
            for one in cell.judgements
            if one.is_regression and one.gates and not cell.is_control
        ]
    return lines


def _overview(report: NightReport, key: str) -> Table:
    """Return the table of the text report. The name of each cell is a link to its section."""
    found = []
    for number, cell in enumerate(report.cells):
        tones = [VERDICT_TONES[one.verdict] for one in cell.judgements] or ["warm"]
        for tone, (_, *texts, verdict) in zip(tones, rows(cell), strict=True):
            found.append([Cell(cell.title, link=f"{key}-cell-{number}"), *map(Cell, texts), Cell(verdict, tone)])
    return Table("All cells and metrics", [title.lower() for title in HEAD], found)


# --- one cell -----------------------------------------------------------------------------------


def _cell(cell: CellReport, key: str, folded: bool) -> Section:
    plots = [plot for number, one in enumerate(cell.judgements) for plot in _history_plot(one, f"{key}-{number}")]
    confirmed = [("confirmation runs", "\n".join(cell.rerun_ids))] if cell.rerun_ids else []
    return Section(f"{cell.title}: {cell.verdict}", [Plots(plots), Facts([*details(cell), *confirmed])], key, folded)


def _history_plot(one: MetricJudgement, name: str) -> list[Plot]:
    """Return the plot of a metric's history; an empty list if fewer than two nights have a value."""
    points = [point for point in one.points if point.used_as != "left out"]
    if len(points) < 2:
        return []
    now, level = (value_text(one.metric, value) for value in (one.now, one.baseline))
    nights = plural(one.baseline_nights, "night")
    says = f"{one.verdict.capitalize()}: now {now}, baseline {level} over {nights}."
    return [plot(name, one.metric.title, says, lambda axes: _draw(axes, one, points), 250, keys=_keys(one))]


def _draw(axes: "Axes", one: MetricJudgement, points: Sequence[NightPoint]) -> None:
    """Draw the baseline with a band of two standard deviations, the nights, and where the change began."""
    from matplotlib.ticker import MaxNLocator

    colour, typical = TONE_COLOURS[VERDICT_TONES[one.verdict]], max(point.value for point in points)
    scale, unit = 1.0, one.metric.unit
    if unit == "s":
        scale, unit = seconds_axis(typical)
    elif unit == "bytes":
        scale, unit = 1e-9, "GB"
    last = len(points) - 1
    baseline = [n for n, point in enumerate(points) if point.used_as == "baseline"]
    if one.baseline is not None and baseline:
        middle, ends = one.baseline * scale, (baseline[0], last)
        half = middle * 2 * (one.noise_percent or 0.0) / 100
        axes.fill_between(ends, middle - half, middle + half, color=BLUE, alpha=0.14, linewidth=0, zorder=1)
        axes.plot(ends, (middle, middle), color=BLUE, linewidth=1.2, zorder=1)
    colours = {"baseline": BLUE, "recent": INK}
    for place, point in enumerate(points):
        of_mark = colours.get(point.used_as, colour)
        axes.plot([place], [point.value * scale], "o", markersize=4.5, color=of_mark, zorder=3)
    again = [value * scale for value in one.confirmations]
    axes.plot([last] * len(again), again, "D", markersize=7, markerfacecolor="none", markeredgecolor=colour, zorder=4)
    places = {point.night: n for n, point in enumerate(points)}
    if one.since in places:
        axes.axvline(places[one.since] - 0.5, color=VIOLET, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlim(-0.7, last + 0.7)
    axes.margins(y=0.18)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 0.0))  # a wide band would reach below 0
    axes.set_title(unit)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    ticks = list(range(last, -1, -max(math.ceil(last / (MOST_DATES - 1)), 1)))  # evenly, from the latest back
    days = [point.run_id[:8] for point in points]
    axes.set_xticks(ticks, [f"{days[place][4:6]}-{days[place][6:]}" for place in ticks])
    axes.set_xlabel("date of the night")


def _keys(one: MetricJudgement) -> list[Key]:
    colour = TONE_COLOURS[VERDICT_TONES[one.verdict]]
    keys = [
        Key("●", BLUE, "baseline ± two standard deviations between nights"),
        Key("●", INK, "recent"),
        Key("●", colour, "latest night"),
    ]
    keys += [Key("◇", colour, "confirmation")] if one.confirmations else []
    return keys + ([Key("┆", VIOLET, "first night of the change")] if one.since else [])
