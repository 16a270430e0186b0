"""Two sides of runs -> every figure's difference, its interval and its verdict, or why there is none. Pure.

What a verdict rests on is in intervals.py, what may be compared in admission.py and figures.py, the causes in
explain.py.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from benchmarks.comparing import admission, by_far, explain
from benchmarks.comparing.context import Context, History
from benchmarks.comparing.days import left_out
from benchmarks.comparing.figures import FigureKind, figure_kinds
from benchmarks.comparing.intervals import (
    FEWEST_RUNS,
    TAKE_TURNS,
    Estimate,
    Level,
    between_pairs,
    between_sets_of_days,
    between_windows,
    level,
    verdict_of,
    with_noise,
)  # fmt: skip
from benchmarks.comparing.names import names_of
from benchmarks.comparing.narrowing import narrowed
from benchmarks.comparing.runs import Chosen, ComparedRun, Runs
from benchmarks.comparing.summary import figures_together, sentence, slower, speed_of
from benchmarks.comparing.together import adjusted
from benchmarks.comparing.values import Comparison, Difference, Figure
from benchmarks.measuring.clipped_mean import CONFIDENCE, quantile
from benchmarks.rendering.columns import some

DEFAULT_MARGIN_PERCENT = 1.0
EXACT_DIGITS = 9  # of a logarithm: less is rounding of floats


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
        refused = refused or _reasons([kind for kind in kinds if kind.window and not kind.absent])
        instead = narrowed((a.label, b.label), (runs_a, runs_b))
        return Comparison(a=side_a, b=side_b, refused=refused, instead=instead, margin_percent=margin_percent)
    context = Context(runs_a, runs_b, history)
    differences = _differences(kinds, context, margin_percent)
    speed = speed_of(kinds, differences)
    names = names_of(runs_a, runs_b, (a.label, b.label))
    found = explain.causes(runs_a, runs_b, slower(speed)) if explained else None
    return Comparison(
        a=replace(side_a, name=names.a.removeprefix("on ")),
        b=replace(side_b, name=names.b.removeprefix("on ")),
        refused=[],
        summary=sentence(speed, names, (len(runs_a), len(runs_b)), margin_percent),
        together=figures_together(kinds, differences),
        differences=differences,
        causes=found.causes if found else None,
        same=found.same if found else [],
        notes=[
            *admission.remarks(runs_a, runs_b, order=not any(TAKE_TURNS in one.why for one in differences)),
            *context.notes,
        ],
        asked=admission.asked(runs_a, runs_b),
        not_known=found.not_known if found else [],
        margin_percent=margin_percent,
    )


def _reasons(kinds: Sequence[FigureKind]) -> list[str]:
    """Why none of these figures is compared, each reason once; the first is of what the others follow from."""
    names: dict[str, list[str]] = {}
    for kind in kinds:
        names.setdefault(kind.refused or "", []).append(kind.name)
    first, *others = names
    return [first, *(f"{', '.join(names[why])}: {why}" for why in others)]


# --- one figure -----------------------------------------------------------------------------------


class _Compared(NamedTuple):
    """A figure before its verdict, which depends on the other figures."""

    kind: FigureKind
    difference: Difference
    estimate: Estimate | None = None


def _differences(kinds: Sequence[FigureKind], context: Context, margin_percent: float) -> list[Difference]:
    compared = [_compared(kind, context) for kind in kinds]
    chances: dict[str, float] = {}  # of the first figure of each family
    for one in compared:
        chance = one.estimate.chance if one.estimate else None
        if chance is not None:
            chances.setdefault(one.kind.family, chance)
    together = adjusted(chances)
    return [_with_verdict(one, together.get(one.kind.family), margin_percent) for one in compared]


def _compared(kind: FigureKind, context: Context) -> _Compared:
    a, b = _known(kind, context.a), _known(kind, context.b)
    found = Difference(
        name=kind.name,
        unit=kind.unit,
        direction=kind.direction,
        a=_figure(kind, a, context.a) if a else None,
        b=_figure(kind, b, context.b) if b else None,
        why=f"not compared: {kind.refused}",
        absent=kind.absent,
    )
    if kind.refused:
        return _Compared(kind, found)
    if a is None or b is None:
        without = [run.short for run in context.every if kind.value(run) is None]
        why = "no run has it" if len(without) == len(context.every) else f"not known of {some(without)}"
        why = why if without else f"it is 0 or less, and has no ratio: {kind.name}"
        return _Compared(kind, replace(found, why=why, absent=bool(without) and a is None and b is None))
    if kind.window == 1:
        context.notes += [
            f"{runs[place].short} lies far from the other runs of its side, and counts as less far"
            for runs, one in ((context.a, a), (context.b, b))
            for place in one.clipped
        ]
    return _Compared(kind, found, _estimate(kind, context, a, b))


def _with_verdict(one: _Compared, together: float | None, margin_percent: float) -> Difference:
    estimate = one.estimate
    if estimate is None:
        return one.difference
    verdict, why = verdict_of(estimate, one.kind.direction, margin_percent, together)
    low, high = (None if end is None else 100 * math.expm1(end) for end in (estimate.low, estimate.high))
    return replace(
        one.difference,
        percent=100 * math.expm1(estimate.centre),
        low=low,
        high=high,
        chance=estimate.chance,
        chance_together=None if estimate.chance is None else together,
        verdict=verdict,
        why=why,
        note=one.kind.note,
    )


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


def _estimate(kind: FigureKind, context: Context, a: Level, b: Level) -> Estimate:
    found = _by_noise(kind, context, a, b)
    if not kind.of_seconds:
        return found
    found = found.moved(kind.of_seconds * context.moves)
    if found.lacks and (enough := context.far_enough(kind, a, b)) and abs(found.centre) - abs(found.moves) > enough:
        return found._replace(lacks="", by_far=by_far.reason(len(context.a), len(context.b)))
    return found


def _by_noise(kind: FigureKind, context: Context, a: Level, b: Level) -> Estimate:
    if context.pairs:
        return between_pairs([b.logs[y] - a.logs[x] for x, y in context.pairs])
    if min(len(context.a), len(context.b)) >= FEWEST_RUNS:
        noise = context.noise(kind, a.logs, b.logs) if left_out(*context.days) else None
        return between_sets_of_days(a.logs, b.logs, context.days, context.times, noise, of_ratio=kind.of_ratio)
    windows = between_windows(a, b) if len(context.a) == len(context.b) == 1 else None
    found = with_noise(a.logs, b.logs, context.days, context.noise(kind, a.logs, b.logs))
    if found.half_width is None:
        return windows._replace(lacks=found.lacks) if windows else found
    # A run whose own steps say less than its fellows do is known no better than they say.
    if windows and windows.half_width and windows.half_width > found.half_width:
        error = windows.half_width / quantile(CONFIDENCE, found.freedom)
        by = f"{found.by}; the windows' own intervals are wider, and taken"
        return windows._replace(lacks="", by=by, error=error, freedom=found.freedom)
    return found
