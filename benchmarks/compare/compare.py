"""Compare two sides: their difference in every metric, and the verdict on the step time. No I/O.

intervals.py contains the statistics. admission.py and metrics.py decide what is comparable. explain.py finds causes.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from msgspec.structs import replace

from benchmarks.compare import admission, explain, intervals
from benchmarks.compare.intervals import DEFAULT_MARGIN_PERCENT, FEWEST_RUNS, Interval, Noise
from benchmarks.compare.metrics import ComparedMetric, compared_metrics
from benchmarks.compare.runs import Chosen, Runs
from benchmarks.compare.text import names_of, sentence
from benchmarks.compare.values import Comparison, Difference
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.text import first_few
from benchmarks.verdict import Verdict

EXACT_DIGITS = 9  # decimals of a logarithm; smaller differences are rounding errors
History = Callable[[], Sequence[FinishedRun]]


def compare(
    a: Chosen,
    b: Chosen,
    *,
    explained: bool = False,
    margin_percent: float = DEFAULT_MARGIN_PERCENT,
    history: History = list,
) -> Comparison:
    """Compare B with A. `history` returns earlier runs; it is called only if a side has fewer than 3 runs."""
    side_a, runs_a = admission.admitted(a, baseline=True)
    side_b, runs_b = admission.admitted(b, baseline=False)
    refused = admission.refusals((side_a, side_b), (runs_a, runs_b))
    metrics = [] if refused else compared_metrics(runs_a, runs_b)
    speeds = [metric for metric in metrics if metric.step_time]
    if all(metric.refused for metric in speeds):
        refused = refused or [speeds[0].refused or ""]
        return Comparison(a=side_a, b=side_b, refused=refused, margin_percent=margin_percent)
    pairs = _pairs(runs_a, runs_b)
    differences = _differences(metrics, (runs_a, runs_b), pairs, margin_percent, history)
    tested = next((one for one in differences if one.verdict != Verdict.NOT_TESTED), None)
    names = names_of(runs_a, runs_b, (a.label, b.label))
    slower = None  # as a logarithm
    if tested is not None and tested.percent is not None:
        slower = math.log1p(tested.percent / 100) * (1 if tested.unit == "s" else -1)
    found = explain.causes(runs_a, runs_b, slower)
    return Comparison(
        a=replace(side_a, name=names.a),
        b=replace(side_b, name=names.b),
        refused=[],
        summary=sentence(tested, names, (len(runs_a), len(runs_b))),
        verdict=tested.verdict if tested else Verdict.NOT_TESTED,
        warnings=admission.cautions(runs_a, runs_b),
        differences=differences,
        causes=found.causes if explained else None,
        same=found.same if explained else [],
        asked=explain.requested(found.causes),
        not_known=found.not_known if explained else [],
        margin_percent=margin_percent,
    )


def _pairs(a: Runs, b: Runs) -> list[tuple[int, int]]:
    """Return the positions in A and B of runs of the same repeat; empty if A and B are not two cells of one sweep."""
    places = [{run.pair: place for place, run in enumerate(runs) if run.pair} for runs in (a, b)]
    cells = [{(pair.sweep, pair.cell) for pair in found} for found in places]
    sweeps = {sweep for found in cells for sweep, _ in found}
    whole = all(run.pair for run in (*a, *b)) and len(cells[0]) == len(cells[1]) == len(sweeps) == 1
    if not whole or cells[0] == cells[1]:
        return []
    others = {pair.repeat: place for pair, place in places[1].items()}
    found = [(place, others[pair.repeat]) for pair, place in places[0].items() if pair.repeat in others]
    return found if len(found) >= FEWEST_RUNS else []


# --- one metric -----------------------------------------------------------------------------------


def _differences(
    metrics: Sequence[ComparedMetric],
    sides: tuple[Runs, Runs],
    pairs: Sequence[tuple[int, int]],
    margin_percent: float,
    history: History,
) -> list[Difference]:
    """Return the difference in each metric that a run has. The first comparable step-time metric gets the verdict."""
    noise = _noise(sides, history) if min(map(len, sides)) < FEWEST_RUNS else None
    found: list[Difference] = []
    tested = False
    for metric in metrics:
        one, interval = _difference(metric, sides, pairs, noise)
        if not any(_logs(metric, [run]) for side in sides for run in side):
            continue
        if interval is not None and metric.step_time and not tested:
            tested = True
            lower = metric.step_time == 1
            verdict, why = intervals.verdict_of(interval, margin_percent, lower_is_better=lower)
            one = replace(one, verdict=verdict, why=why)
        moved = metric.flagged and one.percent is not None and abs(one.percent) > margin_percent
        found.append(replace(one, moved=moved))
    return found


def _difference(
    metric: ComparedMetric, sides: tuple[Runs, Runs], pairs: Sequence[tuple[int, int]], noise: Noise | None
) -> tuple[Difference, Interval | None]:
    logs = [_logs(metric, runs) for runs in sides]
    means = [fmean(own) if own else None for own in logs]
    found = Difference(
        name=metric.name,
        unit=metric.unit,
        a=None if means[0] is None else math.exp(means[0]),
        b=None if means[1] is None else math.exp(means[1]),
        note=metric.note,
    )
    if means[0] is None or means[1] is None:
        without = [run.name for run in (*sides[0], *sides[1]) if not _logs(metric, [run])]
        return replace(found, why=f"not known for {first_few(without)}"), None
    if metric.refused:
        return replace(found, why=f"not compared: {metric.refused}"), None
    if pairs:
        interval = intervals.of_pairs([logs[0][x] for x, _ in pairs], [logs[1][y] for _, y in pairs])
    elif min(map(len, sides)) >= FEWEST_RUNS:
        interval = intervals.of_sets(*logs)
    elif metric.step_time:
        levels = [_level(metric, runs, own) for runs, own in zip(sides, logs, strict=True)]
        interval = intervals.of_few(levels[0], levels[1], (len(sides[0]), len(sides[1])), noise)
    else:
        interval = Interval(means[1] - means[0])
    if metric.step_time:
        moves = [fmean(intervals.still_moves(run.result.window) for run in runs) for runs in sides]
        interval = interval.widened(metric.step_time * (moves[1] - moves[0]))  # a drift that A and B share cancels
    low, high = (None if end is None else intervals.percent(end) for end in (interval.low, interval.high))
    return replace(found, percent=intervals.percent(interval.centre), low=low, high=high), interval


def _logs(metric: ComparedMetric, runs: Runs) -> list[float]:
    """Return the logarithm of a metric for each run; empty if one run lacks the metric, because a mean needs all."""
    values = [metric.value(run) for run in runs]
    known = [value for value in values if value is not None and value > 0 and math.isfinite(value)]
    return [round(math.log(value), EXACT_DIGITS) for value in known] if len(known) == len(runs) else []


def _level(metric: ComparedMetric, runs: Runs, logs: Sequence[float]) -> Interval:
    """Return the mean of a metric over a side's runs. A single run also has the interval of its median step time."""
    mean = fmean(logs)
    spread = runs[0].result.seconds_per_step
    if len(runs) > 1:
        return Interval(mean, mean, mean)
    if not spread.ci95 or not spread.median or spread.ci95[0] <= 0:
        return Interval(mean)
    low, high = (math.log(end / spread.median) for end in spread.ci95)
    ends = (low, high) if metric.step_time == 1 else (-high, -low)
    return Interval(mean, mean + ends[0], mean + ends[1])


def _noise(sides: tuple[Runs, Runs], history: History) -> Noise | None:
    """Return how much step times vary between equal runs: between similar earlier runs, and within each side."""
    named = {run.result.run_id for runs in sides for run in runs}
    entries = history()
    own = [one.origin.identity for one in entries if one.run_id in named]
    identities = {frozenset(identity.items()) for identity in own if identity}
    groups: dict[frozenset[tuple[str, str]], list[float]] = {identity: [] for identity in identities}
    for one in entries:
        usable = one.status == "valid" and not (one.not_comparable or one.slowed_by or one.run_id in named)
        found = groups.get(frozenset(one.origin.identity.items()))
        if usable and one.metrics.seconds_per_step and found is not None:
            found.append(math.log(one.metrics.seconds_per_step))
    of_sides = ([math.log(run.result.seconds_per_step.median or 1.0) for run in runs] for runs in sides)
    return intervals.noise_of([*groups.values(), *of_sides])
