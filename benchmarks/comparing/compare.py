"""Two sides of runs -> every figure's difference, its interval and its verdict, or why there is none. Pure.

What a verdict rests on is in intervals.py, what may be compared in admission.py and figures.py, the causes in
explain.py.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec.structs import replace

from benchmarks.comparing import admission, explain
from benchmarks.comparing.days import Noise, Timed, days_of, left_out, noise_of, started_at
from benchmarks.comparing.figures import FigureKind, figure_kinds
from benchmarks.comparing.intervals import (
    FEWEST_RUNS,
    Estimate,
    Level,
    between_pairs,
    between_sets_of_days,
    between_windows,
    level,
    verdict_of,
    with_noise,
)  # fmt: skip
from benchmarks.comparing.runs import Chosen, ComparedRun, Runs
from benchmarks.comparing.turns import in_turns, times_of
from benchmarks.comparing.values import Comparison, Difference, Figure
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.sweeps.pairs import FEWEST_PAIRS

DEFAULT_MARGIN_PERCENT = 1.0
EXACT_DIGITS = 9  # of a logarithm: less is rounding of floats

History = Callable[[], Sequence[FinishedRun]]


def compare(
    a: Chosen,
    b: Chosen,
    *,
    explained: bool = False,
    margin_percent: float = DEFAULT_MARGIN_PERCENT,
    history: History = list,
) -> Comparison:
    """B against A. `history` gives earlier runs, and is asked only where the sides' own do not say enough."""
    side_a, runs_a = admission.admitted(a, baseline=True)
    side_b, runs_b = admission.admitted(b, baseline=False)
    refused = admission.refusals((side_a, side_b), (runs_a, runs_b))
    kinds = [] if refused else figure_kinds(runs_a, runs_b)
    if all(kind.refused for kind in kinds if kind.window):  # no figure of speed is left
        refused = refused or [f"{kind.name}: {kind.refused}" for kind in kinds if kind.window]
        return Comparison(a=side_a, b=side_b, refused=refused, margin_percent=margin_percent)
    context = _Context(runs_a, runs_b, history, margin_percent)
    differences = [_difference(kind, context) for kind in kinds]
    found = explain.causes(runs_a, runs_b, _slower(kinds, differences)) if explained else None
    return Comparison(
        a=side_a,
        b=side_b,
        refused=[],
        differences=differences,
        causes=found.causes if found else None,
        same=found.same if found else [],
        notes=[*admission.remarks(runs_a, runs_b), *context.notes],
        asked=admission.asked(runs_a, runs_b),
        not_known=found.not_known if found else [],
        margin_percent=margin_percent,
    )


def _slower(kinds: Sequence[FigureKind], differences: Sequence[Difference]) -> float | None:
    """How much slower B is, as a logarithm, by the first figure of speed that can be compared."""
    for kind, one in zip(kinds, differences, strict=True):
        if kind.window and one.percent is not None:
            return math.log1p(one.percent / 100) * (1 if kind.direction == "lower" else -1)
    return None


# --- what all figures share -----------------------------------------------------------------------


class _Context:
    """The two sides, and what else is known: their pairs, and the noise of earlier runs."""

    def __init__(self, a: Runs, b: Runs, history: History, margin_percent: float) -> None:
        self.a, self.b, self.every = a, b, [*a, *b]
        self.margin_percent = margin_percent
        began = [run.began for run in self.every]
        days = days_of(began)
        times = times_of(began, days)
        self.days = (days[: len(a)], days[len(a) :])
        self.times = (times[: len(a)], times[len(a) :])
        self.pairs = _pairs(a, b) if in_turns(self.times) else []  # cells that were run again later are no pairs
        self.notes = [f"{len(self.pairs)} pairs of one sweep: compared run against run"] if self.pairs else []
        self._history = history

    @cached_property
    def _earlier(self) -> list[list[FinishedRun]]:
        """Runs of the sides' own identities that are comparable and not of the sides."""
        named = {run.result.run_id for run in self.every}
        entries = self._history()
        identities = {frozenset(one.identity.items()) for one in entries if one.run_id in named and one.identity}
        usable = [
            one
            for one in entries
            if one.run_id not in named and one.status == "valid" and not (one.not_comparable or one.slowed_by)
        ]
        return [
            [one for one in usable if one.identity == dict(identity)] for identity in sorted(identities, key=sorted)
        ]

    def noise(self, kind: FigureKind, logs_a: Sequence[float], logs_b: Sequence[float]) -> Noise:
        """From earlier runs of the sides' own identities, and from a side that is a set."""
        groups = []
        for entries in self._earlier:
            values = [(kind.of_history(one), started_at(one.run_id)) for one in entries]
            groups.append([Timed(math.log(value), started) for value, started in values if value and value > 0])
        for logs, runs in ((logs_a, self.a), (logs_b, self.b)):
            groups.append([Timed(log, run.began) for log, run in zip(logs, runs, strict=True)])
        return noise_of([group for group in groups if len(group) >= FEWEST_RUNS])


def _pairs(a: Runs, b: Runs) -> list[tuple[int, int]]:
    """The places of the runs of one repeat; none where the sides are not two cells of one sweep."""
    places = [{run.pair: place for place, run in enumerate(runs) if run.pair} for runs in (a, b)]
    cells = [{(pair.sweep, pair.cell) for pair in found} for found in places]
    sweeps = {sweep for found in cells for sweep, _ in found}
    whole = all(run.pair for run in (*a, *b)) and len(cells[0]) == len(cells[1]) == len(sweeps) == 1
    if not whole or cells[0] == cells[1]:
        return []
    others = {pair.repeat: place for pair, place in places[1].items()}
    found = [(place, others[pair.repeat]) for pair, place in places[0].items() if pair.repeat in others]
    return found if len(found) >= FEWEST_PAIRS else []


# --- one figure -----------------------------------------------------------------------------------


def _difference(kind: FigureKind, context: _Context) -> Difference:
    a, b = _known(kind, context.a), _known(kind, context.b)
    found = Difference(
        name=kind.name,
        unit=kind.unit,
        direction=kind.direction,
        a=_figure(kind, a, context.a) if a else None,
        b=_figure(kind, b, context.b) if b else None,
        why=f"not compared: {kind.refused}",
    )
    if kind.refused:
        return found
    if a is None or b is None:
        without = [run.name for run in context.every if kind.value(run) is None]
        why = "no run has it" if len(without) == len(context.every) else f"not known of {', '.join(without)}"
        return replace(found, why=why if without else f"it is 0 or less, and has no ratio: {kind.name}")
    if kind.window == 1:
        context.notes += [
            f"{runs[place].name} lies far from the other runs of its side, and counts as less far"
            for runs, one in ((context.a, a), (context.b, b))
            for place in one.clipped
        ]
    estimate = _estimate(kind, context, a, b)
    verdict, why = verdict_of(estimate, kind.direction, context.margin_percent)
    low, high = (None if end is None else 100 * math.expm1(end) for end in (estimate.low, estimate.high))
    why = f"{why} ({kind.note})" if kind.note else why
    return replace(found, percent=100 * math.expm1(estimate.centre), low=low, high=high, verdict=verdict, why=why)


def _known(kind: FigureKind, runs: Runs) -> Level | None:
    """None where a run does not have the figure: the others alone would be another set."""
    values = [kind.value(run) for run in runs]
    logs = [None if value is None else kind.log(value) for value in values]
    whole = [round(log, EXACT_DIGITS) for log in logs if log is not None]
    if len(whole) < len(runs):
        return None
    return level(whole, _window(kind, runs[0], whole[0]) if len(runs) == 1 else None)


def _window(kind: FigureKind, run: ComparedRun, log: float) -> tuple[float, float] | None:
    """The interval of one run's figure, from that of its median step."""
    spread = run.result.seconds_per_step
    if not kind.window or not spread.ci95 or not spread.median or spread.ci95[0] <= 0:
        return None
    low, high = (math.log(end / spread.median) for end in spread.ci95)
    return (log + low, log + high) if kind.window == 1 else (log - high, log - low)


def _figure(kind: FigureKind, found: Level, runs: Runs) -> Figure:
    low, high = (None if end is None else kind.shown(end) for end in (found.low, found.high))
    single = len(runs) == 1
    n = runs[0].result.window.counted if single else len(runs)
    return Figure(value=kind.shown(found.centre), low=low, high=high, n=n, of="steps" if single else "runs")


def _estimate(kind: FigureKind, context: _Context, a: Level, b: Level) -> Estimate:
    if context.pairs:
        return between_pairs([b.logs[y] - a.logs[x] for x, y in context.pairs])
    if min(len(context.a), len(context.b)) >= FEWEST_RUNS:
        noise = context.noise(kind, a.logs, b.logs) if left_out(*context.days) else None
        return between_sets_of_days(a.logs, b.logs, context.days, context.times, noise)
    windows = between_windows(a, b) if len(context.a) == len(context.b) == 1 else None
    found = with_noise(a.logs, b.logs, context.days, context.noise(kind, a.logs, b.logs))
    if found.half_width is None:
        return windows._replace(lacks=found.lacks) if windows else found
    # A run whose own steps say less than its fellows do is known no better than they say.
    if windows and windows.half_width and windows.half_width > found.half_width:
        return windows._replace(lacks="", by=f"{found.by}; the windows' own intervals are wider, and taken")
    return found
