"""A night for people: the table on the screen, Markdown for a summary page, and what the night could not see. Pure.

HTML is benchmarks/pages, machines read the record itself or junit.py.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta

from benchmarks.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID
from benchmarks.gate.noise import FEWEST_IN_COURSE, FEWEST_NIGHTS, false_alarms, tells
from benchmarks.gate.rule import G3
from benchmarks.gate.values import (
    CellReport,
    Estimate,
    Metric,
    MetricJudgement,
    NightCourse,
    NightReport,
    SharedNoise,
)
from benchmarks.text import (
    Rows,
    aligned,
    bytes_text,
    columns,
    count_text,
    folded,
    headed,
    percent_text,
    plural,
    seconds_text,
)

SHOWN_LEFT_OUT = 4
USUAL_PLACE = "results"  # of runs, without --output_dir
NO_VERDICT = "no verdict yet"
CODES = {
    EXIT_VALID: "nothing to act on",
    EXIT_INVALID: "a regression, or a run that proves nothing",
    EXIT_FAILED: "a run failed or could not be started",
}
_HEAD = ("CELL", "FIGURE", "NOW", "BASELINE", "CHANGE (90% INTERVAL)", "VERDICT")


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


def slowed_text(report: NightReport) -> str:
    """Empty where nobody has slowed the night."""
    return f"slowed on purpose by {report.slowed_by:.0%}: a trial of the gate" if report.slowed_by else ""


def refused_text(cell: str) -> str:
    return f"{cell}: suspect, and no re-runs were left for it"


def headline(report: NightReport) -> str:
    """The whole night in one line."""
    if report.cells and all(map(_waits, report.cells)):
        return f"suite {report.suite}, night {report.night}: {NO_VERDICT}"
    counts = Counter(NO_VERDICT if _waits(cell) else cell.verdict for cell in report.cells)
    same = counts.pop(report.verdict, 0)
    where = f" in {same} of {plural(len(report.cells), 'cell')}" if same else ""
    others = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or ("" if same else "no cell")
    return f"suite {report.suite}, night {report.night}: {report.verdict}{where}{f' ({others})' if others else ''}"


def screen_text(report: NightReport) -> str:
    lines = [headline(report), *([slowed_text(report)] if report.slowed_by else []), *first_verdicts(report), ""]
    shown = _HEAD[:3] if all(map(_waits, report.cells)) else _HEAD  # there is nothing to say in the others
    lines += columns([shown, *(row[: len(shown)] for cell in report.cells for row in _rows(cell))])
    for cell in report.cells:
        lines += ["", cell.cell, *aligned(details(cell))]
    lines += ["", *aligned(end(report))]
    return "\n".join(lines)


def _rows(cell: CellReport) -> list[tuple[str, ...]]:
    if not cell.judgements:
        what = "not comparable" if cell.status == "valid" else cell.status
        return [(cell.cell, "-", "-", "-", "-", f"{cell.verdict}: run {what}")]
    return [
        (
            cell.cell if place == 0 else "",
            one.metric.title,
            value_text(one.metric, one.now),
            value_text(one.metric, one.baseline),
            change_text(one),
            "-" if _waits(cell) else one.verdict if one.gates else f"{one.verdict} (watched)",
        )
        for place, one in enumerate(cell.judgements)
    ]


def details(cell: CellReport) -> Rows:
    """What is to be known of a cell beside its figures; also on the page of a night."""
    rows = _under(
        "run", [f"{cell.run_id or 'none'}, {cell.status}", *(f"- {reason}" for reason in folded(cell.reasons))]
    )
    rows += _under("new baseline", cell.new_baseline)
    for one in cell.judgements:
        if _waits(cell) and is_short(one):
            continue  # first_verdicts says it of all figures at once
        rows += _under(one.metric.title, [one.why, *_runs_text(one), *control_text(one)])
    left_out = [f"{point.night}: {point.why}" for point in cell.left_out]
    more = len(left_out) - SHOWN_LEFT_OUT
    earlier = [f"{more} earlier ones, in the night's record"] if more > 0 else []
    rows += _under("left out", [*earlier, *left_out[-SHOWN_LEFT_OUT:]])
    return rows + _under("note", cell.notes)


def _runs_text(one: MetricJudgement) -> list[str]:
    """The figure of each run, where the change is not of tonight's alone."""
    first, *again = (value_text(one.metric, value) for value in (one.tonight, *one.confirmations))
    if again:
        return [f"first run: {first}; re-runs: {', '.join(again)}"]
    return [] if first == value_text(one.metric, one.now) else [f"tonight: {first}"]


def control_text(one: MetricJudgement) -> list[str]:
    if one.control_percent is None or one.control_p is None:
        return []
    found = f"control: {one.control_percent:+.2f}% from its usual level (p = {one.control_p:.2g})"
    return [f"{found}: the night or its nodes are off" if _control_is_off(one) else found]


def _control_is_off(one: MetricJudgement) -> bool:
    far = one.control_percent is not None and abs(one.control_percent) >= 100 * G3.relevant
    return far and one.control_p is not None and one.control_p < G3.confirm_p


def end(report: NightReport) -> Rows:
    """What is to be known of the night as a whole."""
    budget = report.budget
    used = f"{budget.used} of {budget.allowed} that were allowed"
    return [
        *_under("could not see", report.could_not_see),
        *_under("re-runs", [used, *map(refused_text, budget.refused)]),
        ("errors", report.false_alarms),
        *_under("history", report.history),
        *_under("note", report.notes),
        ("exit code", f"{report.exit_code}: {CODES[report.exit_code]}"),
        *_under("next", next_commands(report)),
    ]


def next_commands(report: NightReport) -> list[str]:
    """Of a regression, what compares the night with its baseline; of a failed run, what finds the cause."""
    place = report.history[0] if report.history else USUAL_PLACE
    where = "" if place == USUAL_PLACE else f" --output_dir={place}"
    found = []
    for cell in report.cells:
        used = [point.night for one in cell.judgements for point in one.points if point.used_as == "baseline"]
        if cell.verdict == "regression" and used:
            which = f"suite={report.suite},cell={cell.cell}"
            a, b = f"'{which},night>={min(used)},night<={max(used)}'", f"{which},night={report.night}"
            found.append(f"python launch/compare.py {a} {b}{where} --explain")
        if cell.run_id and cell.status == "failed":
            found.append(f"python launch/doctor.py logs {place}/{cell.run_id}")
    return found


def first_verdicts(report: NightReport) -> list[str]:
    """Of cells with too few nights: what is missing, and when there will be a verdict."""
    waiting: dict[tuple[int, int], list[str]] = {}  # nights that count, nights until there is a verdict -> cells
    for cell in filter(_waits, report.cells):
        needed = max(one.nights_needed or 0 for one in cell.judgements)
        tonight = int(cell.status == "valid" and not report.slowed_by)
        nights = (G3.fewest_baseline_nights - needed + tonight, needed + 1 - tonight)
        waiting.setdefault(nights, []).append(cell.cell)
    return [
        f"{'' if len(cells) == len(report.cells) else 'no verdict yet on ' + ', '.join(cells) + ': '}"
        f"{count} of the {G3.fewest_baseline_nights} nights that a baseline needs; "
        f"the first verdict comes {plural(left, 'night')} from now, on "
        f"{date.fromisoformat(report.started[:10]) + timedelta(days=left)} at one a day"
        for (count, left), cells in sorted(waiting.items(), key=lambda one: one[0][1])
    ]


def _waits(cell: CellReport) -> bool:
    """Whether it has too few nights for any verdict on what it gates."""
    return bool(cell.judgements) and all(is_short(one) for one in cell.judgements if one.gates)


def is_short(one: MetricJudgement) -> bool:
    """Whether it has too few nights for any verdict."""
    return one.baseline is None and one.nights_needed is not None


def _under(label: str, texts: Sequence[str]) -> Rows:
    return [(label, "\n".join(texts))] if texts else []


def markdown(report: NightReport) -> str:
    return headed(screen_text(report))


# --- what the night could not see -------------------------------------------------------------------

SLOW_NODES_SHARE = 0.005  # at most, where up to 40% of the runs meet nodes that are 2% slow (docs/gate.md)
NO_NIGHTS_WOULD_DO = "at this noise no number of nights shows that nothing changed by 1%"
WEAK_POINTS = [
    "without a control, a night on which everything is slow looks like a regression, a whole slow week like a level",
    "re-runs on the nodes of the first run share what is wrong with these nodes: no proof against the software",
    "a shift below 0.5% is left to the weekly search for change points, which needs nights on both sides of it",
]


def false_alarms_text(
    gated: int,
    shared: SharedNoise | None = None,
    course: NightCourse | None = None,
    sees: Estimate | None = None,
    *,
    controlled: bool,
) -> str:
    """`gated`: cells times gating figures; `controlled`: whether each has a control."""
    if not gated:
        return "nothing was judged, so nothing could be a false alarm"
    usual, worse = (false_alarms(shared, course, sees, worse=end) for end in (False, True))
    nights = [f"{1 / (1 - (1 - rate) ** gated):,.0f}" for rate in (worse.usual, usual.usual)]
    shown = [_shared_text(shared), _course_text(course), *([_sees_text(sees)] if controlled else [])]
    return (
        f"false alarms: {_range_text(usual.usual, worse.usual)} a cell and night (simulated; ranges end at the worse "
        f"ends of the intervals below); with {plural(gated, 'gated figure')} one false regression in "
        f"{' to '.join(dict.fromkeys(nights))} nights. "
        f"{_range_text(usual.skewed, worse.skewed)} if the noise is skewed, "
        f"{_range_text(usual.slow_nights, worse.slow_nights)} if 3% of whole nights are 2% slow, "
        f"{SLOW_NODES_SHARE:.1%} if some nodes are. By the site's own nights: {'; '.join(shown)}"
    )


def _range_text(usual: float, worse: float) -> str:
    low, high = (f"{100 * rate:.2g}" for rate in (usual, worse))
    return f"{high}%" if low == high else f"{low} to {high}%"


def _shared_text(noise: SharedNoise | None) -> str:
    if noise is None:
        return f"re-runs are assumed to share all noise with the first run until {FEWEST_NIGHTS} nights have had some"
    nodes = "" if noise.nodes is None else f"; {noise.nodes:.0%} more if they run on its nodes"
    return (
        f"re-runs share {noise.share:.0%} of the night-to-night variance with the first run "
        f"({noise.low:.0%} to {noise.high:.0%}, {plural(noise.nights, 'night')} with re-runs{nodes})"
    )


def _course_text(course: NightCourse | None) -> str:
    if course is None:
        return f"independent nights without drift are assumed until there are {FEWEST_IN_COURSE}"
    memory, drift, sees = course.memory, course.drift_percent, course.control_sees
    control = ""
    if sees is not None and tells(sees):
        control = f"; the control shows {sees.value:.0%} of both ({sees.low:.0%} to {sees.high:.0%})"
    return (
        f"the last {plural(memory.nights, 'night')} have a lag-1 autocorrelation of {memory.value:.2f} "
        f"({memory.low:.2f} to {memory.high:.2f}) and drift by {drift.value:+.2f}% a month "
        f"({drift.low:+.2f} to {drift.high:+.2f}){control}"
    )


def _sees_text(sees: Estimate | None) -> str:
    if sees is None:
        return f"the control is assumed to see no slow night until {FEWEST_NIGHTS} nights have had re-runs with it"
    if not tells(sees):
        return "the control is assumed to see no slow night: none was slow enough to tell"
    return (
        f"the control shows {sees.value:.0%} of slow nights "
        f"({sees.low:.0%} to {sees.high:.0%}, {plural(sees.nights, 'night')} with re-runs)"
    )


def could_not_see(cells: Sequence[CellReport]) -> list[str]:
    found, seeing = [], False
    for cell in cells:
        if not cell.judgements:
            found.append(f"{cell.cell}: anything, tonight's run is {cell.status}")
        for one in (one for one in cell.judgements if one.gates and not _waits(cell)):
            if one.baseline is None:
                found.append(f"{cell.cell}: any change of {one.metric.title}: {one.why}")
            elif one.smallest_detectable_percent is not None:
                seeing = True
                found.append(
                    f"{cell.cell}: in the first night, a change of {one.metric.title} below "
                    f"{percent_text(one.smallest_detectable_percent)} "
                    f"(noise {percent_text(one.noise_percent)} from night to night)"
                )
                found[-1] += f", and {NO_NIGHTS_WOULD_DO}" if one.unreachable else ""
    return [*found, *(WEAK_POINTS if seeing else [])]


def night_notes(cells: Sequence[CellReport]) -> list[str]:
    """What only shows when all cells are looked at together."""
    judged = [cell for cell in cells if cell.judgements]
    notes = []
    if len(judged) > 1 and all(cell.verdict == "regression" for cell in judged):
        notes.append("every cell is a regression: look first at what all share (machine, network, container)")
    off = [cell.cell for cell in judged if any(map(_control_is_off, cell.judgements))]
    if off:
        notes.append(f"the control was off too for {', '.join(off)}: look first at the night and the nodes")
    for cell in cells:
        for one in cell.judgements:
            notes += [
                f"change point: {cell.cell}, {one.metric.title} {shift.percent:+.2f}% from night {shift.night} on "
                f"(p = {shift.p:.2g}{', told before' if shift.told_before else ''})"
                for shift in one.change_points
            ]
    return notes
