"""Judge a night: a verdict for each metric of each cell, and the verdict and exit code of the night. No I/O."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import asdict, replace

from benchmarks import statistics
from benchmarks.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID
from benchmarks.nightly.rule import judge, screen_distance
from benchmarks.nightly.series import MOST_SHOWN, Division, PastNight, Series, divide, left_out_points
from benchmarks.nightly.suites import CONTROLLED, Cell, WatchedMetric, value_of
from benchmarks.nightly.values import (
    CellReport,
    Metric,
    MetricJudgement,
    NightPoint,
    NightReport,
    RuleVerdict,
    Suspicion,
    UsedAs,
)
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.text import reasons_text
from benchmarks.verdict import Verdict

# From the best verdict to the worst.
BADNESS = (Verdict.SAME, Verdict.BETTER, Verdict.INCONCLUSIVE, Verdict.NOT_TESTED, Verdict.WORSE)
MUST_DETECT = 10.0  # in percent; the default if the suite does not set `must_detect`
RUNNING, MISSING = "running", "missing"

Urgency = tuple[bool, float]  # (whether the metric is only watched, its p); the smallest pair gets re-runs first


class Memory(NamedTuple):
    """The verdicts of earlier nights, and the nights whose level the user accepted as the new one."""

    judged: Mapping[tuple[str, str, str], MetricJudgement] = {}  # by (cell, metric, night)
    accepted: Collection[tuple[str, str]] = ()  # (cell, night) pairs


def memory_of(reports: Sequence[NightReport], accepted: Collection[tuple[str, str]], before: str) -> Memory:
    """Return the verdicts of the nights before the night `before`, and the user's decisions."""
    judged = {
        (cell.cell, one.metric.name, report.night): one
        for report in reports
        if report.night < before and not report.slowed_by
        for cell in report.cells
        for one in cell.judgements
    }
    return Memory(judged, accepted)


class CellRuns(NamedTuple):
    """The runs of one cell in the latest night, and the cell's earlier nights."""

    cell: Cell
    night: str
    entry: FinishedRun
    series: Series
    reruns: Sequence[FinishedRun] | None  # None: no re-run has started yet
    notes: Sequence[str] = ()


# --- one metric -----------------------------------------------------------------------------------


class _Line(NamedTuple):
    """The values of one metric, one per night; the last value belongs to the latest night."""

    points: list[NightPoint]
    values: list[float]
    divided: Division

    @property
    def baseline(self) -> list[float]:
        return [self.values[n] for n in self.divided.baseline]


def _line(cell_runs: CellRuns, metric: Metric, memory: Memory, value: float) -> _Line:
    cell, points, nights = cell_runs.cell.name, [], []
    for past in cell_runs.series.nights:
        found = value_of(past.entry, metric)
        if found is None:  # the run's reasons explain why the value is missing
            continue
        known = memory.judged.get((cell, metric.name, past.night))
        verdict, suspicion = (known.verdict, known.suspicion) if known else (None, Suspicion.NONE)
        nights.append(
            PastNight(
                value=found,
                verdict=verdict,
                suspicion=suspicion,
                accepted=(cell, past.night) in memory.accepted,
                left_out=past.left_out,
            )
        )
        points.append(NightPoint(night=past.night, run_id=past.entry.run_id, value=found, used_as="recent"))
    divided = divide([*nights, PastNight(value=value)])
    used: dict[int, UsedAs] = dict.fromkeys(divided.baseline, "baseline")
    used |= dict.fromkeys(divided.left_out, "left out")
    points = [
        replace(point, used_as=used.get(place, "recent"), why=divided.left_out.get(place, ""))
        for place, point in enumerate(points)
    ]
    latest = NightPoint(night=cell_runs.night, run_id=cell_runs.entry.run_id, value=value, used_as="latest")
    return _Line([*points, latest], [*(night.value for night in nights), value], divided)


def control_moves(cell_runs: CellRuns, watched: Sequence[WatchedMetric], memory: Memory) -> dict[str, float]:
    """Return metric -> how far the control cell is from its baseline, as a logarithm, if its first run is suspect."""
    found: dict[str, float] = {}
    for metric in (one.metric for one in watched if one.metric.name in CONTROLLED):
        value = value_of(cell_runs.entry, metric)
        if value is not None:
            distance = screen_distance(_line(cell_runs, metric, memory, value).baseline, value)
            found |= {} if distance is None else {metric.name: distance}
    return found


def judge_metric(
    cell_runs: CellRuns, watched: WatchedMetric, memory: Memory, control: Mapping[str, float]
) -> tuple[MetricJudgement, Urgency | None]:
    """Return the judgement of a metric, and how urgently it needs re-runs (None: it needs no re-runs)."""
    metric = watched.metric
    value = value_of(cell_runs.entry, metric)
    if value is None:
        why = f"the latest run has no {metric.title}"
        return MetricJudgement(metric=metric, gates=watched.gates, verdict=Verdict.NOT_TESTED, why=why), None
    line = _line(cell_runs, metric, memory, value)
    alarm = line.divided.alarm
    valid = [value_of(entry, metric) for entry in cell_runs.reruns or () if entry.status == "valid"]
    reruns = None if cell_runs.reruns is None else [value for value in valid if value is not None]
    recent = [line.values[n] for n in line.divided.recent]
    of_alarm = alarm.verdict if alarm else None
    judged = judge(line.baseline, recent, metric.direction, reruns, of_alarm, control.get(metric.name))
    judged = _withhold(judged, cell_runs, [line.points[n].run_id for n in line.divided.baseline])
    since = line.points[alarm.first].night if alarm and judged.verdict is not Verdict.SAME else None
    if judged.suspicion is Suspicion.CONFIRMED and judged.verdict is not of_alarm:
        since = cell_runs.night
    wanted = judged.suspicion is Suspicion.OPEN and cell_runs.reruns is None
    return MetricJudgement(
        **asdict(judged),
        metric=metric,
        gates=watched.gates,
        latest=value,
        confirmations=reruns or [],
        points=line.points[-MOST_SHOWN:],
        since=since,
    ), (not watched.gates, judged.p or 0.0) if wanted else None


def _withhold(judged: RuleVerdict, cell_runs: CellRuns, baseline: Sequence[str]) -> RuleVerdict:
    """Change the verdict to `inconclusive` if drifting step times may explain it.

    Drift may explain it if step times moved in most of the latest runs or in most baseline runs, but not in both.
    """
    deciding = [one for one in cell_runs.reruns or () if one.status == "valid"] or [cell_runs.entry]
    before = [past.entry for past in cell_runs.series.nights if past.entry.run_id in baseline]
    moving = [[one for one in runs if one.window.settling == "still moving"] for runs in (deciding, before)]
    now, then = (2 * len(some) > len(runs) for some, runs in zip(moving, (deciding, before), strict=True))
    if now == then or judged.verdict not in (Verdict.SAME, Verdict.BETTER, Verdict.WORSE):
        return judged
    off = statistics.median([one.window.median_off_percent or 0.0 for one in moving[0 if now else 1]]) or 0.0
    if judged.verdict is not Verdict.SAME and 0 < off < abs(judged.effect_percent or 0.0):
        return judged
    who = "the latest run" if now else "the baseline"
    why = f"{judged.why}; but the step time of {who} was still moving (up to {off:.2g}%), which may explain it"
    return replace(judged, verdict=Verdict.INCONCLUSIVE, suspicion=Suspicion.NONE, why=why)


# --- one cell -------------------------------------------------------------------------------------


def judge_cell(
    cell_runs: CellRuns, watched: Sequence[WatchedMetric], memory: Memory, control: Mapping[str, float] | None = None
) -> tuple[CellReport, Urgency | None]:
    """Return a cell's report, and how urgently it needs re-runs. `control` is the result of `control_moves`."""
    entry, cell, reruns = cell_runs.entry, cell_runs.cell, cell_runs.reruns or ()
    failed = [one for one in reruns if one.status != "valid"]
    notes = [f"re-run {one.run_id} is {one.status}: {reasons_text(one.reasons)}" for one in failed]
    report = replace(
        unjudged(cell, entry.run_id, entry.status, entry.reasons),
        new_baseline=cell_runs.series.new_baseline,
        rerun_ids=[rerun.run_id for rerun in reruns],
        notes=[*cell_runs.notes, *notes],
        left_out=left_out_points(cell_runs.series),
    )
    if entry.status != "valid":
        return report, None
    if entry.not_comparable:
        return replace(report, reasons=[*entry.reasons, *entry.not_comparable]), None
    judged = [judge_metric(cell_runs, one, memory, {} if cell.is_control else control or {}) for one in watched]
    gating = [judgement for judgement, _ in judged if judgement.gates]
    unconfirmed = any(one.suspicion is Suspicion.OPEN for one in gating)
    report = replace(
        report,
        judgements=[judgement for judgement, _ in judged],
        verdict=worst([one.verdict for one in gating]),
        failed_reruns=[one.run_id for one in failed] if unconfirmed else [],
    )
    return report, min((urgency for _, urgency in judged if urgency), default=None)


def unjudged(cell: Cell, run_id: str | None, status: str, reasons: Sequence[str]) -> CellReport:
    """Return the report of a cell that cannot be judged: it has not started, is still running, or has no result."""
    return CellReport(
        cell=cell.name,
        title=cell.title,
        run_id=run_id,
        status=status,
        reasons=list(reasons),
        is_control=cell.is_control,
    )


# --- the whole night ------------------------------------------------------------------------------


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    return max(verdicts, key=BADNESS.index, default=Verdict.NOT_TESTED)


def exit_code(cells: Sequence[CellReport]) -> int:
    """Return the exit code of the night. A failed or missing run outranks a regression, because its speed is unknown.

    A failed re-run that leaves a suspicion open also outranks a regression.
    """
    if any(cell.status not in ("valid", "invalid") or cell.failed_reruns for cell in cells):
        return EXIT_FAILED
    if any(cell.is_regression or not cell.judgements for cell in cells):
        return EXIT_INVALID
    return EXIT_VALID


def blind_below(cells: Sequence[CellReport], must_detect: float | None) -> float | None:
    """Return the smallest change in percent that every cell can detect; None if it is small enough for the suite."""
    gating = [one for cell in cells if not cell.is_control for one in cell.judgements if one.gates]
    worst = max((one.smallest_detectable_percent or 0.0 for one in gating), default=0.0)
    return worst if worst > (must_detect or MUST_DETECT) else None


def grant(suspicions: Mapping[str, Urgency], each: int, left: int) -> tuple[list[str], list[str]]:
    """Return the cells that get re-runs, the most urgent first, then the cells for which the budget is too small."""
    order = sorted(suspicions, key=lambda name: (suspicions[name], name))
    affordable = max(left, 0) // each
    return order[:affordable], order[affordable:]
