"""A night of a suite on a page: its verdict, a table of cells and metrics, and each cell's history. Pure."""

import datetime
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.dashboard.runs import parsed_time
from benchmarks.nightly.report_text import details, end, first_verdicts, is_short, slowed_text, value_text
from benchmarks.nightly.values import CellReport, MetricJudgement, NightPoint, NightReport
from benchmarks.pages.drawing import BAD, BLUE, GOOD, INK, VIOLET, WARM, plot, seconds_axis
from benchmarks.pages.page import (
    UNKNOWN,
    Block,
    Box,
    Cell,
    Facts,
    Fold,
    Key,
    Overview,
    Part,
    Plot,
    Plots,
    Section,
    Table,
    Tone,
    Words,
    change_text,
)
from benchmarks.text import plural, reasons_text
from benchmarks.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Style(NamedTuple):
    tone: Tone
    sign: str
    colour: str


STYLES = {  # what needs an action comes first
    Verdict.WORSE: Style("bad", "▼", BAD),
    Verdict.NOT_TESTED: Style("warm", "!", WARM),
    Verdict.BETTER: Style("good", "▲", GOOD),
    Verdict.INCONCLUSIVE: Style("warm", "?", WARM),
    Verdict.SAME: Style("good", "=", BLUE),
}
ORDER = tuple(STYLES)
QUIET = (Verdict.INCONCLUSIVE, Verdict.SAME)
MOST_OPEN = 4  # cells; of more, the quiet ones are folded
MOST_DATES = 5  # on the axis of a history
SIGNS_TEXT = (
    "▼ worse, ▲ better, = same, ? inconclusive, ! not tested. A watched metric and the control cell do not decide "
    "the exit code."
)


def night_part(report: NightReport, key: str = "night") -> Part:
    cells = sorted(enumerate(report.cells), key=lambda pair: (ORDER.index(pair[1].verdict), pair[0]))
    tone = STYLES[report.verdict].tone
    blocks: list[Block] = [
        Box(tone if tone != "good" else "warm", "What decided the verdict", _found(report)),
        Box("warm", "A trial", [slowed_text(report)] if report.slowed_by else []),
        Box("warm", "No verdict yet", first_verdicts(report)),
        Section("Cells and metrics", [
            _overview(report, key),
            Words([SIGNS_TEXT if report.cells else "The suite has no cells."], "muted"),
        ]),
        *(_cell(cell, f"{key}-cell-{number}", len(cells) > MOST_OPEN) for number, cell in cells),
        Section("The night", [Facts(end(report))]),
    ]  # fmt: skip
    title = f"{report.title}: night {report.night}"
    kind = f"Night {report.night} of {report.suite}"
    overview = Overview(report.title, f"night of {report.suite}", when=report.started)
    return Part(key, kind, title, report.verdict, tone, report.title, _under(report), "", blocks, overview)


def _under(report: NightReport) -> str:
    began, ended = (time[:16].replace("T", " ") for time in (report.started, report.finished or ""))
    until = f"{began} to {ended.removeprefix(began[:11])} UTC" if ended else f"began {began} UTC, not finished"
    counts = {verdict: sum(cell.verdict == verdict for cell in report.cells) for verdict in ORDER}
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "none"
    return f"{plural(len(report.cells), 'cell')} on {report.site}: {words} · {until}"


def _found(report: NightReport) -> list[str]:
    """What decided the verdict: each regression, and each cell without a valid run."""
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
    """A row for each cell, a column for each metric that any of them has."""
    titles = {one.metric.name: one.metric.title for cell in report.cells for one in cell.judgements}
    rows = []
    for number, cell in enumerate(report.cells):
        found = {one.metric.name: one for one in cell.judgements}
        row = [Cell(cell.title, link=f"{key}-cell-{number}"), Cell(cell.verdict, STYLES[cell.verdict].tone)]
        rows.append([*row, *(_judged(found.get(name)) for name in titles)])
    heads = ["cell", "verdict", *(f"#{title}" for title in titles.values())]
    return Table("Each cell: how far its latest night is from the baseline, and both values", heads, rows)


def _judged(one: MetricJudgement | None) -> Cell:
    if one is None or is_short(one):
        return Cell(UNKNOWN, "muted")
    tone = STYLES[one.verdict].tone if one.gates or one.verdict is not Verdict.WORSE else "warm"
    effect = change_text(one.effect_percent) if one.effect_percent is not None else one.verdict
    values = f"{value_text(one.metric, one.now)}, baseline {value_text(one.metric, one.baseline)}"
    return Cell(f"{STYLES[one.verdict].sign} {effect}", tone, values if one.gates else f"{values} (watched)")


# --- one cell -----------------------------------------------------------------------------------


def _cell(cell: CellReport, key: str, many: bool) -> Section | Fold:
    """Of many cells, those that ask for nothing are folded; the table leads to them all the same."""
    plots = [_history_plot(one, f"{key}-{number}") for number, one in enumerate(cell.judgements)]
    confirmed = [("confirmation runs", "\n".join(cell.rerun_ids))] if cell.rerun_ids else []
    blocks: list[Block] = [
        Plots([one for drawn in plots for one in drawn]),
        Facts([*details(cell), *confirmed]),
    ]
    section = Section(cell.title, blocks, key, f"Cell {cell.cell}", cell.verdict, STYLES[cell.verdict].tone)
    return Fold(f"{cell.title}: {cell.verdict}", [section]) if many and cell.verdict in QUIET else section


# --- the history of a metric ----------------------------------------------------------------------


def _history_plot(one: MetricJudgement, name: str) -> list[Plot]:
    """None where fewer than two nights have a value: one dot says no more than its figure."""
    points = [point for point in one.points if point.used_as != "left out"]
    if len(points) < 2:
        return []
    title = one.metric.title
    shows = f"Across: {len(points)} nights, oldest first. Up: {title}; the axis does not begin at 0."
    now, level = (value_text(one.metric, value) for value in (one.now, one.baseline))
    nights = plural(one.baseline_nights, "night")
    says = f"{one.verdict.capitalize()}: now {now}, baseline {level} over {nights}."
    return [plot(name, title, shows, says, lambda axes: _draw(axes, one, points), 250, keys=_keys(one))]


def _draw(axes: "Axes", one: MetricJudgement, points: Sequence[NightPoint]) -> None:
    """Draw the baseline with two standard deviations of a night around it, the nights, and when the change began."""
    from matplotlib.ticker import MaxNLocator

    colour, typical = STYLES[one.verdict].colour, max(point.value for point in points)
    scale, unit = 1.0, one.metric.unit
    if unit == "s":
        scale, unit = seconds_axis(typical)
    elif unit == "bytes":
        scale, unit = (1e-9, "GB") if typical >= 1e9 else (1e-6, "MB")
    last = len(points) - 1
    baseline = [n for n, point in enumerate(points) if point.used_as == "baseline"]
    if one.baseline is not None and baseline:
        middle, ends = one.baseline * scale, (baseline[0], last)
        half = middle * 2 * (one.noise_percent or 0.0) / 100
        axes.fill_between(ends, middle - half, middle + half, color=BLUE, alpha=0.14, linewidth=0, zorder=1)
        axes.plot(ends, (middle, middle), color=BLUE, linewidth=1.2, zorder=1)
    marks = {"baseline": ("o", BLUE, 4.5), "recent": ("o", INK, 4.5)}
    for place, point in enumerate(points):
        marker, of_mark, size = marks.get(point.used_as, ("D", colour, 8))
        axes.plot([place], [point.value * scale], marker, markersize=size, color=of_mark, zorder=3)
    again = [value * scale for value in one.confirmations]
    axes.plot([last] * len(again), again, "D", markersize=7, markerfacecolor="none", markeredgecolor=colour, zorder=4)
    places = {point.night: n for n, point in enumerate(points)}
    if one.since in places:
        axes.axvline(places[one.since] - 0.5, color=VIOLET, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlim(-0.7, last + 0.7)
    axes.margins(y=0.18)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 0.0))  # a band of much noise would reach below nothing
    axes.set_title(unit)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    dates, unit = night_dates([point.night for point in points])
    ticks = list(range(last, -1, -max(math.ceil(last / (MOST_DATES - 1)), 1)))  # evenly, from the latest back
    axes.set_xticks(ticks, [dates[place] for place in ticks])
    axes.set_xlabel(unit)


def night_dates(nights: Sequence[str]) -> tuple[list[str], str]:
    """What an axis says of each night, and what it says below: of nights of one day their times, else their days."""
    times = [parsed_time(night) for night in nights]
    known = [datetime.datetime.fromtimestamp(time, datetime.UTC) for time in times if time is not None]
    if len(known) < len(nights):  # somebody has named them otherwise
        return [night[:12] for night in nights], "night"
    days = [f"{time:%Y-%m-%d}" for time in known]
    if len(set(days)) == 1 and len(days) > 1:
        return [f"{time:%H:%M}" for time in known], f"night of {days[0]}, UTC"
    return [f"{time:%b} {time.day}" for time in known], f"night, {days[0]} to {days[-1]}"


def _keys(one: MetricJudgement) -> Sequence[Key]:
    used, colour = {point.used_as for point in one.points}, STYLES[one.verdict].colour
    keys = {
        Key("●", BLUE, "baseline"): "baseline" in used,
        Key("●", INK, "recent"): "recent" in used,
        Key("◆", colour, "latest night"): "latest" in used,
        Key("◇", colour, "confirmation"): bool(one.confirmations),
        Key("┆", VIOLET, "first night of the change"): one.since is not None,
        Key("▒", BLUE, "two standard deviations of a night"): one.noise_percent is not None,
    }
    return [key for key, there in keys.items() if there]
