"""A night for people: the table on the screen, and Markdown for a summary page. Pure.

HTML is benchmarks/pages, machines read the record itself or junit.py.
"""

import re
from collections import Counter
from collections.abc import Sequence

from benchmarks.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID
from benchmarks.gate.values import CellReport, Metric, MetricJudgement, NightReport
from benchmarks.rendering.columns import aligned, columns
from benchmarks.rendering.report import bytes_text, count_text, seconds_text

SHOWN_LEFT_OUT = 4
CODES = {
    EXIT_VALID: "nothing to act on",
    EXIT_INVALID: "a regression, or a run that proves nothing",
    EXIT_FAILED: "a run failed or could not be started",
}
_HEAD = ("CELL", "FIGURE", "TONIGHT", "BASELINE", "CHANGE (90% INTERVAL)", "VERDICT")


def value_text(metric: Metric, value: float | None) -> str:
    """A value with its unit; the mean over the median as the excess that it is."""
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


def run_text(cell: CellReport) -> str:
    """What became of a run that was not judged. One that is valid may still be none to compare."""
    return "run not comparable" if cell.status == "valid" else f"run {cell.status}"


def slowed_text(report: NightReport) -> str:
    """Empty where nobody has slowed the night."""
    return f"slowed on purpose by {report.slowed_by:.0%}: a trial of the gate" if report.slowed_by else ""


def refused_text(cell: str) -> str:
    return f"{cell}: suspect, and no re-runs were left for it"


def headline(report: NightReport) -> str:
    """The whole night in one line."""
    counts = Counter(cell.verdict for cell in report.cells)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"suite {report.suite}, night {report.night}: {report.verdict} ({words or 'no cell'})"


# --- the screen -----------------------------------------------------------------------------------


def screen_text(report: NightReport) -> str:
    lines = [headline(report), *([slowed_text(report)] if report.slowed_by else []), ""]
    lines += columns([_HEAD, *(row for cell in report.cells for row in _rows(cell))])
    for cell in report.cells:
        lines += ["", cell.cell, *aligned(_details(cell))]
    lines += ["", *aligned(_end(report))]
    return "\n".join(lines)


def _rows(cell: CellReport) -> list[tuple[str, ...]]:
    if not cell.judgements:
        return [(cell.cell, "-", "-", "-", "-", f"{cell.verdict}: {run_text(cell)}")]
    return [
        (
            cell.cell if place == 0 else "",
            one.metric.title,
            value_text(one.metric, one.tonight),
            value_text(one.metric, one.baseline),
            change_text(one),
            one.verdict if one.gates else f"{one.verdict} (watched)",
        )
        for place, one in enumerate(cell.judgements)
    ]


def _details(cell: CellReport) -> list[tuple[str, str]]:
    rows = [("run", f"{cell.run_id or 'none'}, {cell.status}")]
    rows += [("", f"- {reason}") for reason in cell.reasons]
    rows += _under("new baseline", cell.new_baseline)
    for one in cell.judgements:
        rows.append((one.metric.title, one.why))
        if one.confirmations:
            rows.append(("", "re-runs: " + ", ".join(value_text(one.metric, value) for value in one.confirmations)))
    left_out = [f"{point.night}: {point.why}" for point in cell.left_out]
    rows += _under("left out", _newest(left_out))
    return rows + _under("note", cell.notes)


def _newest(lines: Sequence[str]) -> list[str]:
    more = len(lines) - SHOWN_LEFT_OUT
    return [*([f"{more} earlier ones, in the night's record"] if more > 0 else []), *lines[-SHOWN_LEFT_OUT:]]


def _end(report: NightReport) -> list[tuple[str, str]]:
    budget = report.budget
    rows = _under("could not see", report.could_not_see)
    rows.append(("re-runs", f"{budget.used} of {budget.allowed} that were allowed"))
    rows += [("", refused_text(cell)) for cell in budget.refused]
    rows.append(("errors", report.false_alarms))
    rows += _under("history", report.history)
    rows += _under("note", report.notes)
    rows.append(("exit code", f"{report.exit_code}: {CODES[report.exit_code]}"))
    return rows


def _under(label: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(label if place == 0 else "", text) for place, text in enumerate(texts)]


# --- Markdown -------------------------------------------------------------------------------------


def markdown(report: NightReport) -> str:
    """The same text: its first line as the heading, the rest as it is."""
    first, _, rest = screen_text(report).partition("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", rest)), default=0))  # what came from logs is no markup
    return f"## {first}\n\n{fence}text\n{rest.strip()}\n{fence}\n"
