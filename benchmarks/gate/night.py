"""A night of a suite, judged: each cell by each figure, and what all of them come to. Pure.

The rule is rule.py, which nights are held against which nights.py, the earlier nights of a cell series.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID
from benchmarks.gate.nights import Division, PastNight, divide
from benchmarks.gate.rule import G3, Judged, Rule, judge
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
from benchmarks.history.entry import Entry
from benchmarks.values import Value

# The later, the worse. A cell that could not be judged is worse than one that has too little history yet.
BADNESS: tuple[Verdict, ...] = ("no change", "improvement", "inconclusive", "invalid", "regression")
RUNNING, MISSING = "running", "missing"

Shift = tuple[int, float, float]  # place in the series, percent, p
Sweep = Callable[[Sequence[float]], Sequence[Shift]]


class Memory(Value, frozen=True):
    """What earlier nights were judged to be, and what people have said of them since."""

    verdicts: dict[tuple[str, str, str], Verdict] = {}  # by cell, metric and night
    accepted: list[tuple[str, str]] = []  # cell and night

    def past(self, cell: str, metric: str, night: str, value: float, left_out: str) -> PastNight:
        return PastNight(
            value=value,
            verdict=self.verdicts.get((cell, metric, night)),
            accepted=(cell, night) in self.accepted,
            left_out=left_out,
        )


def memory_of(reports: Sequence[NightReport], accepted: Sequence[tuple[str, str]], before: str) -> Memory:
    """Of the nights before one."""
    found: dict[tuple[str, str, str], Verdict] = {}
    for report in reports:
        if report.night < before and not report.slowed_by:
            for cell in report.cells:
                found |= {(cell.cell, one.metric.name, report.night): one.verdict for one in cell.judgements}
    return Memory(verdicts=found, accepted=list(accepted))


class Tonight(NamedTuple):
    """What a cell has to show tonight."""

    cell: Cell
    night: str
    entry: Entry
    series: Series
    reruns: Sequence[Entry] | None  # None: none was made yet
    notes: Sequence[str] = ()


# --- one figure -----------------------------------------------------------------------------------


class _Line(NamedTuple):
    """The nights of one figure, tonight last."""

    points: list[NightPoint]  # as they were found; what each is used as is not known yet
    nights: list[PastNight]


def _line(tonight: Tonight, metric: Metric, memory: Memory, value: float) -> _Line:
    line = _Line([], [])
    for past in tonight.series.nights:
        found = value_of(past.entry, metric)
        if found is not None:  # else it has no such figure, and series.py or the run's own reasons say why
            line.points.append(_point(past.night, past.entry, found, past.left_out))
            line.nights.append(memory.past(tonight.cell.name, metric.name, past.night, found, past.left_out))
    line.points.append(_point(tonight.night, tonight.entry, value, ""))
    line.nights.append(PastNight(value=value))
    return line


def _point(night: str, entry: Entry, value: float, left_out: str) -> NightPoint:
    return NightPoint(night=night, run_id=entry.run_id, value=value, used_as="recent", why=left_out)


def judge_metric(
    tonight: Tonight, watched: Watched, memory: Memory, rule: Rule = G3, sweep: Sweep | None = None
) -> tuple[MetricJudgement, bool]:
    """The judgement, and whether it is a suspicion that re-runs must confirm or refute."""
    metric = watched.metric
    value = value_of(tonight.entry, metric)
    if value is None:
        return _nothing(watched, f"tonight's run has no {metric.title}"), False
    line = _line(tonight, metric, memory, value)
    divided = divide(line.nights, rule)
    # For a figure that is only watched no re-run is started; it has those that another figure has caused.
    reruns = _values(tonight.reruns, metric) if watched.gates or tonight.reruns is not None else []
    judged = judge(
        [line.nights[n].value for n in divided.baseline],
        [line.nights[n].value for n in divided.recent],
        metric.direction,
        reruns,
        [line.nights[n].value for n in divided.since],
        rule,
    )
    judgement = _judgement(watched, judged, value, _used(line.points, divided), reruns or [])
    if sweep is not None:
        judgement = msgspec.structs.replace(judgement, change_points=_shifts(line, sweep))
    return judgement, judged.outcome == "suspect"


def _used(points: Sequence[NightPoint], divided: Division) -> list[NightPoint]:
    used: dict[int, UsedAs] = dict.fromkeys(divided.baseline, "baseline")
    used |= dict.fromkeys(divided.left_out, "left out")
    used[len(points) - 1] = "tonight"
    return [
        msgspec.structs.replace(point, used_as=used.get(place, "recent"), why=divided.left_out.get(place, ""))
        for place, point in enumerate(points)
    ][-MOST_SHOWN:]


def _values(entries: Sequence[Entry] | None, metric: Metric) -> list[float] | None:
    if entries is None:
        return None
    found = (value_of(entry, metric) for entry in entries if entry.status == "valid")
    return [value for value in found if value is not None]


def _shifts(line: _Line, sweep: Sweep) -> list[ChangePoint]:
    """Over all nights that could be compared, those of a level that was given up too."""
    kept = [point for point, night in zip(line.points, line.nights, strict=True) if not night.left_out]
    return [
        ChangePoint(night=kept[place].night, percent=percent, p=p)
        for place, percent, p in sweep([point.value for point in kept])
    ]


def _nothing(watched: Watched, why: str) -> MetricJudgement:
    return MetricJudgement(
        metric=watched.metric, gates=watched.gates, verdict="inconclusive", why=why, tonight=None, baseline=None,
        baseline_nights=0, effect_percent=None, low_percent=None, high_percent=None, p=None, noise_percent=None,
        smallest_detectable_percent=None, nights_needed=None, unreachable=False, confirmations=[], points=[],
        change_points=[],
    )  # fmt: skip


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
        change_points=[],
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


# --- one cell -------------------------------------------------------------------------------------


def judge_cell(
    tonight: Tonight, watched: Sequence[Watched], memory: Memory, rule: Rule = G3, sweep: Sweep | None = None
) -> tuple[CellReport, float | None]:
    """The report, and where re-runs are wanted, how little chance alone would explain what is seen."""
    entry, cell = tonight.entry, tonight.cell
    report = CellReport(
        cell=cell.name,
        title=cell.title,
        run_id=entry.run_id,
        status=entry.status,
        reasons=entry.reasons,
        verdict="invalid",
        new_baseline=tonight.series.new_baseline,
        rerun_ids=[rerun.run_id for rerun in tonight.reruns or ()],
        judgements=[],
        notes=[*tonight.notes, *_rerun_notes(tonight.reruns or ())],
        left_out=left_out_points(tonight.series),
    )
    if entry.status != "valid":
        return report, None
    if entry.not_comparable:
        return msgspec.structs.replace(report, reasons=[*entry.reasons, *entry.not_comparable]), None
    judged = [judge_metric(tonight, one, memory, rule, sweep) for one in watched]
    judgements = [judgement for judgement, _ in judged]
    suspicions = [judgement.p or 0.0 for judgement, suspect in judged if suspect]
    verdict = worst([one.verdict for one in judgements if one.gates])
    return msgspec.structs.replace(report, judgements=judgements, verdict=verdict), min(suspicions, default=None)


def _rerun_notes(reruns: Sequence[Entry]) -> list[str]:
    return [
        f"re-run {one.run_id} confirms nothing, it is {': '.join([one.status, '; '.join(one.reasons)])}"
        for one in reruns
        if one.status != "valid"
    ]


def unjudged(cell: Cell, run_id: str | None, status: str, reasons: Sequence[str]) -> CellReport:
    """A cell that has nothing to judge: not started yet, going on, or gone without a result."""
    return CellReport(
        cell=cell.name, title=cell.title, run_id=run_id, status=status, reasons=list(reasons), verdict="invalid",
        new_baseline=[], rerun_ids=[], judgements=[], notes=[],
    )  # fmt: skip


# --- all of them ----------------------------------------------------------------------------------


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    return max(verdicts, key=BADNESS.index, default="inconclusive")


def exit_code(cells: Sequence[CellReport]) -> int:
    """A run that failed, or never ran, outranks a regression: what it would have shown is not known."""
    if any(cell.status not in ("valid", "invalid") for cell in cells):
        return EXIT_FAILED
    if any(cell.verdict in ("invalid", "regression") for cell in cells):
        return EXIT_INVALID
    return EXIT_VALID


def grant(suspicions: Mapping[str, float], each: int, left: int) -> tuple[list[str], list[str]]:
    """Which cells are re-run and which are not: the least likely chance first, as far as the budget goes."""
    order = sorted(suspicions, key=lambda name: (suspicions[name], name))
    affordable = max(left, 0) // each
    return order[:affordable], order[affordable:]
