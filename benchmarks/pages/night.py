"""A night of a suite on a page: its verdict, a table of cells and metrics, and each cell's history. Pure."""

from benchmarks.gate.values import CellReport, MetricJudgement, NightReport
from benchmarks.pages.elements import UNKNOWN, Cell, Facts, Table, Tone, plural, table
from benchmarks.pages.forest import interval_text, percent_text
from benchmarks.pages.night_plots import history_plot
from benchmarks.pages.page import Part, page, render
from benchmarks.pages.units import value_text

TONES: dict[str, Tone] = {
    "regression": "bad",
    "improvement": "good",
    "no change": "good",
    "inconclusive": "warm",
    "invalid": "warm",
    "failed": "bad",
    "missing": "bad",
}
SIGNS = {"regression": "▼", "improvement": "▲", "no change": "=", "inconclusive": "?", "invalid": "!"}
# In the order in which somebody who is paged wants to see them.
ORDER = ("regression", "invalid", "improvement", "inconclusive", "no change")


def night_page(report: NightReport) -> str:
    return page([night_part(report)])


def night_part(report: NightReport, key: str = "night") -> Part:
    cells = sorted(enumerate(report.cells), key=lambda pair: (ORDER.index(pair[1].verdict), pair[0]))
    html = render(
        "night.html.j2",
        key=key,
        report=report,
        tone=TONES[report.verdict],
        tones=TONES,
        under=_under(report),
        found=_found(report),
        slowed=[f"every run of this night was slowed on purpose, by {report.slowed_by:.0%}"]
        if report.slowed_by
        else [],
        overview=_overview(report, key),
        cells=[_cell(cell, f"{key}-cell-{number}") for number, cell in cells],
        budget=_budget(report),
    )
    return Part(key, f"{report.title}: night {report.night}", "night", html)


def _under(report: NightReport) -> str:
    ended = f", ended {report.finished}" if report.finished else ", not finished"
    counts = {verdict: sum(cell.verdict == verdict for cell in report.cells) for verdict in ORDER}
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    cells = f"{plural(len(report.cells), 'cell')} on {report.site}: {said or 'none'}"
    return f"{cells} · begun {report.started}{ended}"


def _found(report: NightReport) -> list[str]:
    """What decided the verdict: each regression, and each cell without a valid run."""
    lines = []
    for cell in report.cells:
        if cell.status not in ("valid", "running"):
            lines.append(
                f"{cell.title}: tonight's run is {cell.status}: {'; '.join(cell.reasons) or 'no reason is known'}"
            )
        lines += [
            f"{cell.title}: {one.metric.title}: {one.why}"
            for one in cell.judgements
            if one.verdict == "regression" and one.gates
        ]
    return lines


def _overview(report: NightReport, key: str) -> Table | None:
    """A row for each cell, a column for each metric that any of them has."""
    metrics = list(dict.fromkeys(one.metric.name for cell in report.cells for one in cell.judgements))
    titles = {one.metric.name: one.metric.title for cell in report.cells for one in cell.judgements}
    if not report.cells:
        return None
    rows = []
    for number, cell in enumerate(report.cells):
        found = {one.metric.name: one for one in cell.judgements}
        row = [Cell(cell.title, link=f"{key}-cell-{number}"), Cell(cell.verdict, TONES[cell.verdict])]
        rows.append([*row, *(_judged(found.get(name)) for name in metrics)])
    caption = "Each cell, and how far tonight lies from its baseline"
    return table(caption, ["cell", "verdict", *(f"#{titles[name]}" for name in metrics)], rows)


def _judged(one: MetricJudgement | None) -> Cell:
    if one is None:
        return Cell(UNKNOWN, "muted")
    tone = TONES[one.verdict] if one.gates or one.verdict != "regression" else "warm"
    effect = percent_text(one.effect_percent) if one.effect_percent is not None else one.verdict
    field = f"{one.metric.name}.effect_percent"
    watched = "" if one.gates else "watched"
    return Cell(f"{SIGNS[one.verdict]} {effect}", tone, one.effect_percent, field, detail=watched)


# --- one cell -----------------------------------------------------------------------------------


def _cell(cell: CellReport, key: str) -> dict[str, object]:
    plots = [history_plot(one, f"{key}-{number}") for number, one in enumerate(cell.judgements)]
    undrawn = [one for one, plot in zip(cell.judgements, plots, strict=True) if plot is None]
    left_out = _left_out(cell)
    return {
        "key": key,
        "report": cell,
        "tone": TONES[cell.verdict],
        "sentences": [(one.metric.title, one.verdict, TONES[one.verdict], one.why) for one in undrawn],
        "plots": [plot for plot in plots if plot is not None],
        "table": _figures(cell),
        "change_points": _change_points(cell),
        "left_out": left_out,
        "left_out_words": f"{plural(len(left_out), 'run')} left out" if left_out else "",
        "runs": Facts("", _runs(cell)),
    }


def _figures(cell: CellReport) -> Table | None:
    if not cell.judgements:
        return None
    rows = [
        [
            Cell(one.metric.title + ("" if one.gates else " (watched)")),
            _shown(one, one.tonight, "tonight"),
            _shown(one, one.baseline, "baseline", plural(one.baseline_nights, "night")),
            Cell(_percent(one.effect_percent), detail=_interval(one)),
            Cell(f"{one.p:.2g}" if one.p is not None else UNKNOWN),
            Cell(_percent(one.noise_percent, signed=False)),
            Cell(_percent(one.smallest_detectable_percent, signed=False)),
            Cell(_needed(one)),
        ]
        for one in cell.judgements
    ]
    titles = [
        "metric", "#tonight", "#baseline", "#effect, 90% interval", "#p", "#noise, night to night",
        "#smallest effect seen", "nights still needed",
    ]  # fmt: skip
    return table("Tonight against the baseline", titles, rows)


def _interval(one: MetricJudgement) -> str:
    return interval_text(one.low_percent, one.high_percent) if one.low_percent is not None else ""


def _shown(one: MetricJudgement, value: float | None, which: str, detail: str = "") -> Cell:
    if value is None:
        return Cell("none", "muted", detail=detail)
    return Cell(value_text(value, one.metric.unit), "", value, f"{one.metric.name}.{which}", detail=detail)


def _percent(value: float | None, *, signed: bool = True) -> str:
    if value is None:
        return UNKNOWN
    return percent_text(value) if signed else percent_text(value).removeprefix("+")


def _needed(one: MetricJudgement) -> str:
    if one.unreachable:
        return "unreachable at this noise"
    return UNKNOWN if one.nights_needed is None else str(one.nights_needed)


def _change_points(cell: CellReport) -> Table | None:
    rows = [
        [Cell(found.night), Cell(one.metric.title), Cell(percent_text(found.percent)), Cell(f"{found.p:.2g}")]
        for one in cell.judgements
        for found in one.change_points
    ]
    return (
        table("Nights from which on the level is another one", ["from", "metric", "#change", "#p"], rows)
        if rows
        else None
    )


def _left_out(cell: CellReport) -> list[str]:
    """Runs that were not used, once, however many metrics they have."""
    points = [*cell.left_out, *(p for one in cell.judgements for p in one.points if p.used_as == "left out")]
    said = [f"{point.night} ({point.run_id}): {point.why or 'no reason is known'}" for point in points]
    return list(dict.fromkeys(said))


def _runs(cell: CellReport) -> list[tuple[str, str]]:
    rows = [("tonight's run", f"{cell.run_id or 'none'}, {cell.status}")]
    rows += [("confirmations", "\n".join(cell.rerun_ids))] if cell.rerun_ids else []
    return rows


def _budget(report: NightReport) -> list[str]:
    budget = report.budget
    return [
        f"{budget.used} of {budget.allowed} confirmation runs were used.",
        *(f"Suspect, and not confirmed for want of budget: {cell}" for cell in budget.refused),
    ]
