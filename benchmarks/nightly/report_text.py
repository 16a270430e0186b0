"""Format the report of a night for the screen and as Markdown, with the changes that it could not detect. No I/O."""

import shlex
from collections import Counter
from collections.abc import Sequence

from benchmarks.errors import EXIT_VALID
from benchmarks.nightly.rule import FEWEST_BASELINE_NIGHTS
from benchmarks.nightly.values import CellReport, Metric, MetricJudgement, NightReport, Suspicion
from benchmarks.text import (
    Rows,
    aligned,
    bytes_text,
    columns,
    count_text,
    first_few,
    folded,
    headed,
    percent_text,
    plural,
    seconds_text,
)
from benchmarks.verdict import Verdict

SHOWN_LEFT_OUT = 4
USUAL_PLACE = "results"  # the default of --output_dir
NO_VERDICT = "no verdict yet"
COMPARED = "compare.py may show different figures, because it uses every run of this night and of earlier nights"
HEAD = ("CELL", "FIGURE", "NOW", "BASELINE", "CHANGE (90% INTERVAL)", "VERDICT")


def value_text(metric: Metric, value: float | None) -> str:
    """Return a value with its unit. A ratio is shown as percent above 1."""
    if value is None:
        return "-"
    if metric.unit == "s":
        return seconds_text(value)
    if metric.unit == "bytes":
        return bytes_text(value)
    if metric.unit == "ratio":
        return f"{100 * (value - 1):+.2f}%"
    return f"{value:.4g} {metric.unit}" if metric.unit != "tokens/s" else f"{count_text(value)} {metric.unit}"


def change_text(one: MetricJudgement) -> str:
    if one.effect_percent is None or one.low_percent is None or one.high_percent is None:
        return "-"
    return f"{one.effect_percent:+.2f}% ({one.low_percent:+.2f} to {one.high_percent:+.2f})"


def slowed_text(report: NightReport) -> str:
    """Return a note if the night was slowed on purpose, otherwise an empty text."""
    return f"slowed on purpose by {report.slowed_by:.0%}: a trial of the gate" if report.slowed_by else ""


def refused_text(cell: str) -> str:
    return f"{cell}: suspect, but the budget has no re-runs left"


def verdict_text(one: MetricJudgement | CellReport) -> str:
    """Return the verdict. A confirmed `worse` that decides the exit code is marked as a regression."""
    if one.is_regression and (isinstance(one, CellReport) or one.gates):
        return f"{one.verdict} (regression)"
    return str(one.verdict)


def headline(report: NightReport) -> str:
    """Return the verdict of the night and the counts of its cells in one line."""
    start = f"suite {report.suite}, night {report.night}"
    if report.blind_below_percent is not None:
        start = f"BLIND: changes below {percent_text(report.blind_below_percent)} cannot be seen · {start}"
    if report.slowed_by:
        start = f"TRIAL, slowed by {report.slowed_by:.0%} · {start}"
    if report.cells and all(map(_waits, report.cells)):
        nights = min(_nights_so_far(report, cell) for cell in report.cells)
        return f"{start}: {NO_VERDICT}, baseline {nights} of {FEWEST_BASELINE_NIGHTS} nights"
    counts = Counter(NO_VERDICT if _waits(cell) else verdict_text(cell) for cell in report.cells)
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) or "no cell"
    return f"{start}: {report.verdict} (of {plural(len(report.cells), 'cell')}: {shown})"


def blind_rows(report: NightReport) -> Rows:
    """Return rows about cells that cannot detect what the suite needs: why, what helps, and a command."""
    blind = report.blind_below_percent
    if blind is None:
        return []
    reasons = [
        f"{cell.cell}: {one.metric.title} varies by {percent_text(one.noise_percent)} from night to night"
        for cell in report.cells
        for one in cell.judgements
        if one.gates and not cell.is_control and one.smallest_detectable_percent == blind
    ]
    reasons += [f"the suite must detect {report.must_detect:g}%"] if report.must_detect else []
    command = f"python launch/nightly.py --suite={report.suite} --site={report.site}"
    command += " --dry_run" if report.site == "local" else " --exclusive"
    helps = "quieter nodes, or more `steps` in the suite"
    return [("reason", "\n".join(reasons)), ("helps", helps), ("next", command)]


def screen_text(report: NightReport) -> str:
    lines = [headline(report), *aligned(blind_rows(report)), *first_verdicts(report), ""]
    shown = HEAD[:3] if all(map(_waits, report.cells)) else HEAD  # the other columns would be empty
    lines += columns([shown, *(row[: len(shown)] for cell in report.cells for row in rows(cell))])
    for cell in report.cells:
        lines += ["", cell.cell, *aligned(details(cell))]
    lines += ["", *aligned(end(report))]
    return "\n".join(lines)


def rows(cell: CellReport) -> list[tuple[str, ...]]:
    if not cell.judgements:
        what = "not comparable" if cell.status == "valid" else cell.status
        return [(cell.cell, "-", "-", "-", "-", f"{cell.verdict}: run {what}")]
    watched = " (control)" if cell.is_control else " (watched)"
    return [
        (
            cell.cell if place == 0 else "",
            one.metric.title,
            value_text(one.metric, one.now),
            value_text(one.metric, one.baseline),
            change_text(one),
            NO_VERDICT
            if is_short(one)
            else verdict_text(one)
            if one.gates and not cell.is_control
            else f"{one.verdict}{watched}",
        )
        for place, one in enumerate(cell.judgements)
    ]


def details(cell: CellReport) -> Rows:
    """Return the facts about a cell that the table omits. The HTML page of a night shows them too."""
    rows = _labelled(
        "run", [f"{cell.run_id or 'none'}, {cell.status}", *(f"- {reason}" for reason in folded(cell.reasons))]
    )
    rows += _labelled("new baseline", cell.new_baseline)
    for one in cell.judgements:
        if _waits(cell) and is_short(one):
            continue  # first_verdicts reports in one line that all metrics need more nights
        since = [f"since night {one.since}"] if one.since else []
        first, *again = (value_text(one.metric, value) for value in (one.latest, *one.confirmations))
        runs = [f"first run: {first}; re-runs: {', '.join(again)}"] if again else []
        if not again and first != value_text(one.metric, one.now):
            runs = [f"latest run: {first}"]
        rows += _labelled(one.metric.title, [one.why, *since, *runs])
    left_out = [f"{point.night}: {point.why}" for point in cell.left_out]
    more = len(left_out) - SHOWN_LEFT_OUT
    earlier = [f"{more} earlier nights: see the night's record"] if more > 0 else []
    rows += _labelled("excluded", [*earlier, *left_out[-SHOWN_LEFT_OUT:]])
    return rows + _labelled("note", cell.notes)


def end(report: NightReport) -> Rows:
    """Return the facts about the whole night."""
    budget = report.budget
    used = f"{budget.used} used, {budget.allowed} allowed"
    return [
        *_labelled("could not see", report.could_not_see),
        *_labelled("re-runs", [used, *map(refused_text, budget.refused)]),
        *_labelled("history", report.history),
        *_labelled("note", report.notes),
        ("exit code", f"{report.exit_code}: {_why_exit_code(report)}"),
        *_labelled("next", next_commands(report)),
        *_labelled("figures", [COMPARED] if any(cell.is_regression for cell in report.cells) else []),
    ]


def _why_exit_code(report: NightReport) -> str:
    """Return why the night has its exit code, and the cells that decided it, in the order of night.exit_code."""
    if report.exit_code == EXIT_VALID:
        return "no regression was seen"
    cells = report.cells
    reasons = {
        "a run failed": [cell.cell for cell in cells if cell.status == "failed"],
        "a run did not end": [cell.cell for cell in cells if cell.status not in ("valid", "invalid")],
        "a re-run failed": [cell.cell for cell in cells if cell.failed_reruns],
        "regression": [cell.cell for cell in cells if cell.is_regression],
        "no comparable result": [cell.cell for cell in cells if not cell.judgements],
    }
    blind = f"blind, but the suite must detect a change of {report.must_detect or 0:g}%"
    return next((f"{why} ({first_few(found)})" for why, found in reasons.items() if found), blind)


def next_commands(report: NightReport) -> list[str]:
    """Return a command per regression, which compares it with earlier nights, and a command per failed run."""
    place = report.history[0] if report.history else USUAL_PLACE
    where = "" if place == USUAL_PLACE else f" --output_dir={shlex.quote(place)}"
    found = []
    for cell in report.cells:
        if cell.is_regression:
            which = f"suite={report.suite},cell={cell.cell},night"
            since = next((one.since for one in cell.judgements if one.since), report.night)
            found.append(f"python launch/compare.py '{which}<{since}' {which}={report.night}{where} --explain")
        if cell.run_id and cell.status == "failed":
            found.append(f"python launch/doctor.py logs {shlex.quote(f'{place}/{cell.run_id}')}")
    return found


def first_verdicts(report: NightReport) -> list[str]:
    """Return lines about cells with too few nights: how many they have, and when their first verdict comes."""
    waiting: dict[int, list[str]] = {}  # nights that count -> cells
    for cell in filter(_waits, report.cells):
        waiting.setdefault(_nights_so_far(report, cell), []).append(cell.cell)
    return [
        f"{'' if len(cells) == len(report.cells) else 'no verdict yet on ' + ', '.join(cells) + ': '}"
        f"{count} of the {FEWEST_BASELINE_NIGHTS} nights that a baseline needs; "
        f"the first verdict comes {plural(FEWEST_BASELINE_NIGHTS + 1 - count, 'night')} from now"
        for count, cells in sorted(waiting.items(), reverse=True)
    ]


def _nights_so_far(report: NightReport, cell: CellReport) -> int:
    """Return how many nights count for the baseline of a waiting cell, including the latest night if it counts."""
    needed = max(one.nights_needed or 0 for one in cell.judgements)
    return FEWEST_BASELINE_NIGHTS - needed + int(cell.status == "valid" and not report.slowed_by)


def _waits(cell: CellReport) -> bool:
    """Return whether the cell has too few nights for a verdict on any gating metric."""
    return bool(cell.judgements) and all(is_short(one) for one in cell.judgements if one.gates)


def is_short(one: MetricJudgement) -> bool:
    """Return whether the metric has too few nights for a verdict."""
    return one.baseline is None and one.nights_needed is not None


def _labelled(label: str, texts: Sequence[str]) -> Rows:
    return [(label, "\n".join(texts))] if texts else []


def markdown(report: NightReport) -> str:
    return headed(screen_text(report))


# --- changes that the night could not detect --------------------------------------------------------

WITHOUT_CONTROL = "without a control cell, a night on which everything is slow looks like a regression"


def could_not_see(cells: Sequence[CellReport]) -> list[str]:
    found, judged = [], False
    for cell in cells:
        if not cell.judgements:
            found.append(f"{cell.cell}: any change, because the latest run is {cell.status}")
        for one in (one for one in cell.judgements if one.gates and not _waits(cell)):
            if one.smallest_detectable_percent is None:
                found.append(f"{cell.cell}: any change of {one.metric.title}: {one.why}")
                continue
            judged = True
            found.append(
                f"{cell.cell}: on its first night, a change of {one.metric.title} below "
                f"{percent_text(one.smallest_detectable_percent)} "
                f"(noise {percent_text(one.noise_percent)} from night to night)"
            )
    return [*found, *([WITHOUT_CONTROL] if judged and not any(cell.is_control for cell in cells) else [])]


def night_notes(cells: Sequence[CellReport]) -> list[str]:
    """Return the notes that depend on several cells."""
    judged = [cell for cell in cells if cell.judgements]
    notes = []
    if len(judged) > 1 and all(cell.is_regression for cell in judged):
        notes.append("every cell is a regression: first check the shared machine, network and container")
    for cell in cells:
        if cell.is_control and cell.verdict in (Verdict.WORSE, Verdict.BETTER):
            notes.append(f"the control cell {cell.cell} is {cell.verdict}: first check the machine")
    shared = [
        cell.cell for cell in judged if any(one.suspicion is Suspicion.SHARED for one in cell.judgements if one.gates)
    ]
    if shared:
        notes.append(f"the control cell moved together with {', '.join(shared)}")
    return notes
