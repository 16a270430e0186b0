"""A night of a suite, judged: each cell by each figure, and what all of them come to. Pure.

The rule is rule.py, which nights are held against which nights.py, the earlier nights of a cell series.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID
from benchmarks.gate.nights import Division, PastNight, divide
from benchmarks.gate.rule import G3, Judged, Rule, judge, stands
from benchmarks.gate.series import MOST_SHOWN, Series, left_out_points
from benchmarks.gate.suites import Cell, Watched, value_of
from benchmarks.gate.values import (
    CellReport,
    ChangePoint,
    Metric,
    MetricJudgement,
    NightPoint,
    NightReport,
    UsedAs,
    Verdict,
)
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Value

# The later, the worse. A cell that could not be judged is worse than one that has too little history yet.
BADNESS: tuple[Verdict, ...] = ("no change", "improvement", "inconclusive", "invalid", "regression")
RUNNING, MISSING = "running", "missing"
SAME_SHIFT_NIGHTS = 3  # with more nights the same shift is found a night or two beside

Shift = tuple[int, float, float]  # place in the series, percent, p
Sweep = Callable[[Sequence[float]], Sequence[Shift]]


class Memory(Value, frozen=True):
    """What earlier nights were judged to be, and what people have said of them since."""

    verdicts: dict[tuple[str, str, str], Verdict] = {}  # by cell, metric and night
    accepted: list[tuple[str, str]] = []  # cell and night
    suspects: list[tuple[str, str, str]] = []  # cell, metric and night: neither confirmed nor refuted
    told: list[tuple[str, str, str]] = []  # cell, metric and night of a change point that was reported

    def past(self, cell: str, metric: str, night: str, value: float, left_out: str) -> PastNight:
        return PastNight(
            value=value,
            verdict=self.verdicts.get((cell, metric, night)),
            accepted=(cell, night) in self.accepted,
            left_out=left_out,
            suspect=(cell, metric, night) in self.suspects,
        )


def memory_of(reports: Sequence[NightReport], accepted: Sequence[tuple[str, str]], before: str) -> Memory:
    """Of the nights before one."""
    judged = [
        (cell.cell, report.night, one)
        for report in reports
        if report.night < before and not report.slowed_by
        for cell in report.cells
        for one in cell.judgements
    ]
    return Memory(
        verdicts={(cell, one.metric.name, night): one.verdict for cell, night, one in judged},
        accepted=list(accepted),
        suspects=[(cell, one.metric.name, night) for cell, night, one in judged if one.suspect],
        told=[(cell, one.metric.name, shift.night) for cell, _, one in judged for shift in one.change_points],
    )


class Tonight(NamedTuple):
    """What a cell has to show tonight."""

    cell: Cell
    night: str
    entry: FinishedRun
    series: Series
    reruns: Sequence[FinishedRun] | None  # None: none was made yet
    notes: Sequence[str] = ()


class Suspicion(NamedTuple):
    """What wants re-runs, the most urgent smallest: what decides the exit code before what is watched."""

    order: int
    p: float


GATES, WATCHED = range(2)


# --- one figure -----------------------------------------------------------------------------------


def _line(tonight: Tonight, metric: Metric, memory: Memory, value: float) -> list[tuple[NightPoint, PastNight]]:
    """The nights of one figure, tonight last; what each is used as is not known yet."""
    line = []
    for past in tonight.series.nights:
        found = value_of(past.entry, metric)
        if found is not None:  # else it has no such figure, and series.py or the run's own reasons say why
            seen = memory.past(tonight.cell.name, metric.name, past.night, found, past.left_out)
            line.append((_point(past.night, past.entry, found, past.left_out), seen))
    return [*line, (_point(tonight.night, tonight.entry, value, ""), PastNight(value=value))]


def _point(night: str, entry: FinishedRun, value: float, left_out: str) -> NightPoint:
    return NightPoint(night=night, run_id=entry.run_id, value=value, used_as="recent", why=left_out)


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
    reruns = _values(tonight.reruns, metric)
    seen = judge(baseline, recent, metric.direction, None, since, rule)
    judged = judge(baseline, recent, metric.direction, reruns, since, rule)
    if not reruns:  # those that another figure has caused say more
        before = _verdict_before(nights)
        judged = _standing(seen, stands(baseline, value, metric.direction, before, rule)) or judged
    if divided.alarm is not None and judged.outcome == "inconclusive":
        why = f"{judged.why}; the alarm of night {points[divided.alarm].night} is open"
        judged = msgspec.structs.replace(judged, why=why)
    undecided = seen.outcome == "suspect" and judged.outcome in ("suspect", "inconclusive")
    told = [night for *about, night in memory.told if about == [tonight.cell.name, metric.name]]
    judgement = msgspec.structs.replace(
        _judgement(watched, judged, value, _used(points, divided), reruns or []),
        suspect=undecided and len(reruns or []) < rule.confirmations,
        change_points=_shifts([point for point, night in line if not night.left_out], sweep, told),
    )
    if judged.outcome != "suspect":
        return judgement, None
    return judgement, Suspicion(GATES if watched.gates else WATCHED, judged.p or 0.0)


def _verdict_before(nights: Sequence[PastNight]) -> Verdict | None:
    """Of the newest earlier night that counts, unless its level was accepted."""
    newest = next((night for night in reversed(nights[:-1]) if not night.left_out), None)
    return newest.verdict if newest and not newest.accepted else None


def _standing(seen: Judged, stands: Verdict | None) -> Judged | None:
    if seen.outcome != "suspect" or stands not in ("regression", "improvement"):
        return None
    why = f"{seen.why.partition(': ')[0]}: it stands, as confirmed before"
    return msgspec.structs.replace(seen, outcome=stands, why=why)


def _used(points: Sequence[NightPoint], divided: Division) -> list[NightPoint]:
    used: dict[int, UsedAs] = dict.fromkeys(divided.baseline, "baseline")
    used |= dict.fromkeys(divided.left_out, "left out")
    used[len(points) - 1] = "tonight"
    return [
        msgspec.structs.replace(point, used_as=used.get(place, "recent"), why=divided.left_out.get(place, ""))
        for place, point in enumerate(points)
    ][-MOST_SHOWN:]


def _values(entries: Sequence[FinishedRun] | None, metric: Metric) -> list[float] | None:
    if entries is None:
        return None
    found = (value_of(entry, metric) for entry in entries if entry.status == "valid")
    return [value for value in found if value is not None]


def _shifts(kept: Sequence[NightPoint], sweep: Sweep | None, told: Sequence[str]) -> list[ChangePoint]:
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


def _judgement(
    watched: Watched, judged: Judged, value: float, points: list[NightPoint], reruns: list[float]
) -> MetricJudgement:
    return MetricJudgement(
        metric=watched.metric,
        gates=watched.gates,
        verdict="inconclusive" if judged.outcome == "suspect" else judged.outcome,
        why=judged.why,
        tonight=value,
        baseline=judged.baseline,
        baseline_nights=judged.baseline_nights,
        effect_percent=_percent(judged.effect),
        low_percent=_percent(judged.low),
        high_percent=_percent(judged.high),
        p=judged.p,
        noise_percent=_percent(judged.noise),
        smallest_detectable_percent=_percent(judged.smallest_detectable),
        nights_needed=judged.nights_needed,
        unreachable=judged.unreachable,
        confirmations=reruns,
        points=points,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


# --- one cell -------------------------------------------------------------------------------------


def judge_cell(
    tonight: Tonight, watched: Sequence[Watched], memory: Memory, rule: Rule = G3, sweep: Sweep | None = None
) -> tuple[CellReport, Suspicion | None]:
    """The report, and where re-runs are wanted, how urgent they are."""
    entry, cell = tonight.entry, tonight.cell
    report = CellReport(
        cell=cell.name,
        title=cell.title,
        run_id=entry.run_id,
        status=entry.status,
        reasons=entry.reasons,
        new_baseline=tonight.series.new_baseline,
        rerun_ids=[rerun.run_id for rerun in tonight.reruns or ()],
        notes=[*tonight.notes, *_rerun_notes(tonight.reruns or ())],
        left_out=left_out_points(tonight.series),
    )
    if entry.status != "valid":
        return report, None
    if entry.not_comparable:
        return msgspec.structs.replace(report, reasons=[*entry.reasons, *entry.not_comparable]), None
    judged = [judge_metric(tonight, one, memory, rule, sweep) for one in watched]
    judgements = [judgement for judgement, _ in judged]
    suspicions = [suspicion for _, suspicion in judged if suspicion is not None]
    verdict = worst([one.verdict for one in judgements if one.gates])
    unconfirmed = any(one.gates and one.suspect for one in judgements)
    failed = [rerun.run_id for rerun in tonight.reruns or () if rerun.status != "valid"] if unconfirmed else []
    report = msgspec.structs.replace(report, judgements=judgements, verdict=verdict, failed_reruns=failed)
    return report, min(suspicions, default=None)


def _rerun_notes(reruns: Sequence[FinishedRun]) -> list[str]:
    return [
        f"re-run {one.run_id} confirms nothing: it is {': '.join([one.status, '; '.join(one.reasons)])}"
        for one in reruns
        if one.status != "valid"
    ]


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
