"""A night as a message for a chat: Slack's JSON, which Mattermost, Rocket.Chat and others take too. Pure."""

from typing import Any

from benchmarks.gate.report_text import change_text, headline, refused_text, run_text, slowed_text
from benchmarks.gate.values import CellReport, NightReport

MOST_CELLS = 20  # of 50 blocks that one message may have
MOST_CHARACTERS = 2900  # of 3000 that one section may have
_MARKS = {
    "regression": ":red_circle:",
    "invalid": ":red_circle:",
    "inconclusive": ":white_circle:",
    "improvement": ":large_green_circle:",
    "no change": ":large_green_circle:",
}


def message(report: NightReport) -> dict[str, Any]:
    """The payload: `text` for notifications and what knows no blocks, `blocks` for the eye."""
    title = headline(report)
    trouble = [cell for cell in report.cells if cell.verdict in ("regression", "invalid")]
    rest = [cell for cell in report.cells if cell not in trouble]
    shown = [*trouble, *rest][:MOST_CELLS]
    blocks = [_section(f"{_MARKS[report.verdict]} *{_escaped(title)}*")]
    blocks += [_section(_cell_text(cell)) for cell in shown]
    hidden = len(report.cells) - len(shown)
    ending = [f"and {hidden} more cells"] if hidden else []
    ending += [f"re-runs {report.budget.used} of {report.budget.allowed}", f"exit code {report.exit_code}"]
    ending += [slowed_text(report)] if report.slowed_by else []
    ending += map(refused_text, report.budget.refused)
    ending += report.notes
    text = _escaped(" · ".join(ending))[:MOST_CHARACTERS]
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": text}]})
    lines = [
        title,
        *filter(None, [slowed_text(report)]),
        *(f"{cell.cell}: {_first_reason(cell)}" for cell in trouble),
    ]
    return {"text": _escaped("\n".join(lines))[:MOST_CHARACTERS], "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:MOST_CHARACTERS]}}


def _cell_text(cell: CellReport) -> str:
    lines = [f"{_MARKS[cell.verdict]} `{_escaped(cell.cell)}` *{cell.verdict}*"]
    lines += [f"{one.metric.title} {change_text(one)}" for one in cell.judgements if one.gates and one.baseline]
    lines += [_escaped(_first_reason(cell))]
    lines += [_escaped(f"new baseline: {change}") for change in cell.new_baseline]
    return "\n".join(line for line in lines if line)


def _first_reason(cell: CellReport) -> str:
    if cell.reasons:
        return cell.reasons[0]
    gating = [one for one in cell.judgements if one.gates and one.verdict == cell.verdict]
    return gating[0].why if gating else run_text(cell)


def _escaped(text: str) -> str:
    """The three characters that mean something there."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
