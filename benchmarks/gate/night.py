"""A night of a suite, judged: each cell by each figure, and what all of them come to. Pure.

The rule is rule.py, which nights are held against which nights.py, the earlier nights of a cell series.py.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import asdict, replace

from benchmarks.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID
from benchmarks.gate.change_points import Change
from benchmarks.gate.control import Control, own_change
from benchmarks.gate.nights import Division, PastNight, divide
from benchmarks.gate.rule import G3, Rule, judge, stands
from benchmarks.gate.series import MOST_SHOWN, Series, left_out_points
from benchmarks.gate.suites import CONTROLLED, Cell, Watched, value_of
from benchmarks.gate.values import (
    CellReport,
    ChangePoint,
    Judged,
    Metric,
    MetricJudgement,
    NightPoint,
    NightReport,
    UsedAs,
    Verdict,
)
from benchmarks.measuring import statistics
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.text import reasons_text

# The later, the worse. A cell that could not be judged is worse than one that has too little history yet.
BADNESS: tuple[Verdict, ...] = ("no change", "improvement", "inconclusive", "invalid", "regression")
RUNNING, MISSING = "running", "missing"
SAME_SHIFT_NIGHTS = 3  # with more nights the same shift is found a night or two beside

Sweep = Callable[[Sequence[float]], Sequence[Change]]
Suspicion = tuple[bool, float]  # of what wants re-runs: whether it is only watched, and p; the smallest comes first


class Memory(NamedTuple):
    """What earlier nights were judged to be, and what people have said of them since."""

    judged: Mapping[tuple[str, str, str], MetricJudgement] = {}  # by cell, metric and night
    accepted: Collection[tuple[str, str]] = ()  # cell and night


def memory_of(reports: Sequence[NightReport], accepted: Collection[tuple[str, str]], before: str) -> Memory:
    """Of the nights before one."""
    judged = {
        (cell.cell, one.metric.name, report.night): one
        for report in reports
        if report.night < before and not report.slowed_by
        for cell in report.cells
        for one in cell.judgements
    }
    return Memory(judged, accepted)


class Tonight(NamedTuple):
    """What a cell has to show tonight."""

    cell: Cell
    night: str
    entry: FinishedRun
    series: Series
    reruns: Sequence[FinishedRun] | None  # None: none was made yet
    notes: Sequence[str] = ()
    control: FinishedRun | None = None  # tonight's
    rerun_controls: Mapping[str, FinishedRun] = {}  # by the re-run that each is beside


# --- one figure -----------------------------------------------------------------------------------


def _line(tonight: Tonight, metric: Metric, memory: Memory, value: float) -> list[tuple[NightPoint, PastNight]]:
    """The nights of one figure, tonight last; what each is used as is not known yet."""
    cell, line = tonight.cell.name, []
    for past in tonight.series.nights:
        found = value_of(past.entry, metric)
        if found is not None:  # else it has no such figure, and series.py or the run's own reasons say why
            told = memory.judged.get((cell, metric.name, past.night))
            seen = PastNight(
                value=found,
                verdict=told.verdict if told else None,
                accepted=(cell, past.night) in memory.accepted,
                left_out=past.left_out,
                suspect=told is not None and told.suspect,
                control=_control_value(past.control, metric),
            )
            line.append((_point(past.night, past.entry, seen), seen))
    now = PastNight(value=value, control=_control_value(tonight.control, metric))
    return [*line, (_point(tonight.night, tonight.entry, now), now)]


def _point(night: str, entry: FinishedRun, seen: PastNight) -> NightPoint:
    return NightPoint(night=night, run_id=entry.run_id, value=seen.value, used_as="recent", control=seen.control)


def _control_value(entry: FinishedRun | None, metric: Metric) -> float | None:
    if entry is None or entry.status != "valid" or metric.name not in CONTROLLED:
        return None
    return value_of(entry, metric)


def judge_metric(
    tonight: Tonight, watched: Watched, memory: Memory, rule: Rule = G3, sweep: Sweep | None = None
) -> tuple[MetricJudgement, Suspicion | None]:
    """The judgement, and where re-runs must confirm or refute a suspicion, how urgent they are.

    What was confirmed the night before needs no re-runs: as long as the screen sees it, it stands.
    """
    metric = watched.metric
    value = value_of(tonight.entry, metric)
    if value is None:
        why = f"tonight's run has no {metric.title}"
        return MetricJudgement(metric=metric, gates=watched.gates, verdict="inconclusive", why=why), None
    line = _line(tonight, metric, memory, value)
    points, nights = [point for point, _ in line], [night for _, night in line]
    divided = divide(nights, rule)
    baseline, recent, since = ([nights[n].value for n in part] for part in divided[:3])
    again = _values(tonight, metric)
    reruns = None if again is None else [value for value, _ in again]
    others = [other for _, other in again or []]
    control = Control([nights[n].control for n in divided.baseline], nights[-1].control, others)
    seen = judge(baseline, recent, metric.direction, None, since, rule, control)
    judged = judge(baseline, recent, metric.direction, reruns, since, rule, control)
    if not reruns and seen.verdict == "suspect":  # those that another figure has caused say more
        found = stands(baseline, value, metric.direction, _verdict_before(nights), rule, control)
        why = f"{seen.why.partition(': ')[0]}, as confirmed on an earlier night"
        judged = replace(seen, verdict=found, why=why) if found else judged
    if divided.alarm is not None and judged.verdict == "inconclusive":
        judged = replace(judged, why=f"{judged.why}; the alarm of night {points[divided.alarm].night} is open")
    judged = _withheld(judged, _settling(tonight, divided.baseline, points))
    moved = own_change(control, rule)
    open_yet = judged.verdict in ("suspect", "inconclusive")
    told = {
        shift.night
        for (cell, name, _), one in memory.judged.items()
        if (cell, name) == (tonight.cell.name, metric.name)
        for shift in one.change_points
    }
    verdict: Verdict = "inconclusive" if judged.verdict == "suspect" else judged.verdict
    return MetricJudgement(
        **{**asdict(judged), "verdict": verdict},
        metric=metric,
        gates=watched.gates,
        tonight=value,
        confirmations=reruns or [],
        confirmation_controls=others,
        points=_used(points, divided),
        control_percent=moved and 100 * math.expm1(moved.distance),
        control_p=moved and moved.p,
        change_points=_shifts([point for point, night in line if not night.left_out], sweep, told),
        suspect=seen.verdict == "suspect" and open_yet and len(reruns or []) < rule.confirmations,
    ), (not watched.gates, judged.p or 0.0) if judged.verdict == "suspect" else None


class _Settling(NamedTuple):
    """Of the runs that decide tonight, and of the baseline."""

    tonight_moves: bool
    baseline_moves: bool
    off_percent: float | None  # how far the drift of those that move may have put the medians off; None: not known


def _settling(tonight: Tonight, baseline: Sequence[int], points: Sequence[NightPoint]) -> _Settling:
    deciding = [one for one in tonight.reruns or () if one.status == "valid"] or [tonight.entry]
    of_nights = {past.entry.run_id: past.entry for past in tonight.series.nights}
    before = [of_nights[points[n].run_id] for n in baseline]
    now, then = (2 * sum(map(_moves, runs)) > len(runs) for runs in (deciding, before))
    known = [one.median_off_percent for one in (deciding if now else before) if _moves(one)]
    off = None if not known or None in known else statistics.median([one for one in known if one is not None])
    return _Settling(now, then, off)


def _moves(run: FinishedRun) -> bool:
    return run.settling == "still moving"


def _withheld(judged: Judged, settling: _Settling) -> Judged:
    """Inconclusive where a drift in one of the two may have made the verdict; not where both or neither drift."""
    if settling.tonight_moves == settling.baseline_moves or judged.verdict in ("suspect", "inconclusive"):
        return judged
    off = settling.off_percent
    if judged.verdict != "no change" and off is not None and abs(judged.effect_percent or 0.0) > off:
        return judged
    who, other = ("tonight's run", "the baseline") if settling.tonight_moves else ("the baseline", "tonight's run")
    by = "" if off is None else f" (its median may be off by {off:.2g}%)"
    why = f"{judged.why}; but {who} was still moving{by} and {other} was not, which may be all of the difference"
    return replace(judged, verdict="inconclusive", why=why)


def _verdict_before(nights: Sequence[PastNight]) -> Verdict | None:
    """Of the newest earlier night that counts, unless its level was accepted."""
    newest = next((night for night in reversed(nights[:-1]) if not night.left_out), None)
    return newest.verdict if newest and not newest.accepted else None


def _used(points: Sequence[NightPoint], divided: Division) -> list[NightPoint]:
    used: dict[int, UsedAs] = dict.fromkeys(divided.baseline, "baseline")
    used |= dict.fromkeys(divided.left_out, "left out")
    used[len(points) - 1] = "tonight"
    return [
        replace(point, used_as=used.get(place, "recent"), why=divided.left_out.get(place, ""))
        for place, point in enumerate(points)
    ][-MOST_SHOWN:]


def _values(tonight: Tonight, metric: Metric) -> list[tuple[float, float | None]] | None:
    """Of the re-runs, each with the control's beside it."""
    if tonight.reruns is None:
        return None
    found = [
        (value_of(entry, metric), _control_value(tonight.rerun_controls.get(entry.run_id), metric))
        for entry in tonight.reruns
        if entry.status == "valid"
    ]
    return [(value, control) for value, control in found if value is not None]


def _shifts(kept: Sequence[NightPoint], sweep: Sweep | None, told: Collection[str]) -> list[ChangePoint]:
    """Over all nights that could be compared, those of a level that was given up too."""
    known = [place for place, point in enumerate(kept) if point.night in told]
    return [
        ChangePoint(
            night=kept[place].night,
            percent=percent,
            p=p,
            told_before=any(abs(place - other) <= SAME_SHIFT_NIGHTS for other in known),
        )
        for place, percent, p in (sweep([point.value for point in kept]) if sweep else ())
    ]


# --- one cell -------------------------------------------------------------------------------------


def judge_cell(
    tonight: Tonight, watched: Sequence[Watched], memory: Memory, rule: Rule = G3, sweep: Sweep | None = None
) -> tuple[CellReport, Suspicion | None]:
    """The report, and where re-runs are wanted, how urgent they are."""
    entry, cell, reruns = tonight.entry, tonight.cell, tonight.reruns or ()
    failed = [one for one in reruns if one.status != "valid"]
    notes = [
        f"re-run {one.run_id} confirms nothing: it is {one.status}: {reasons_text(one.reasons)}" for one in failed
    ]
    report = CellReport(
        cell=cell.name,
        title=cell.title,
        run_id=entry.run_id,
        status=entry.status,
        reasons=entry.reasons,
        new_baseline=tonight.series.new_baseline,
        rerun_ids=[rerun.run_id for rerun in reruns],
        notes=[*dict.fromkeys([*tonight.notes, *notes])],  # a night judged again has said them before
        left_out=left_out_points(tonight.series),
    )
    if entry.status != "valid":
        return report, None
    if entry.not_comparable:
        return replace(report, reasons=[*entry.reasons, *entry.not_comparable]), None
    judged = [judge_metric(tonight, one, memory, rule, sweep) for one in watched]
    gating = [judgement for judgement, _ in judged if judgement.gates]
    report = replace(
        report,
        judgements=[judgement for judgement, _ in judged],
        verdict=worst([one.verdict for one in gating]),
        failed_reruns=[one.run_id for one in failed] if any(one.suspect for one in gating) else [],
    )
    return report, min((suspicion for _, suspicion in judged if suspicion), default=None)


def unjudged(cell: Cell, run_id: str | None, status: str, reasons: Sequence[str]) -> CellReport:
    """A cell that has nothing to judge: not started yet, going on, or gone without a result."""
    return CellReport(cell=cell.name, title=cell.title, run_id=run_id, status=status, reasons=list(reasons))


def verdicts_of(report: NightReport, cell: str) -> list[Verdict]:
    """Of every figure of a cell that was judged that night."""
    return [one.verdict for found in report.cells if found.cell == cell for one in found.judgements]


# --- all of them ----------------------------------------------------------------------------------


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    return max(verdicts, key=BADNESS.index, default="inconclusive")


def exit_code(cells: Sequence[CellReport]) -> int:
    """A run that failed, or never ran, outranks a regression: what it would have shown is not known. So does a re-run
    that failed where it had to confirm something.
    """
    if any(cell.status not in ("valid", "invalid") or cell.failed_reruns for cell in cells):
        return EXIT_FAILED
    if any(cell.verdict in ("invalid", "regression") for cell in cells):
        return EXIT_INVALID
    return EXIT_VALID


def grant(suspicions: Mapping[str, Suspicion], each: int, left: int) -> tuple[list[str], list[str]]:
    """Which cells are re-run and which are not: the most urgent first, as far as the budget goes."""
    order = sorted(suspicions, key=lambda name: (suspicions[name], name))
    affordable = max(left, 0) // each
    return order[:affordable], order[affordable:]
