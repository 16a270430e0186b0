"""Two ways to do PGLE, in pairs of runs -> how much faster one is, its interval, a verdict, the table. Pure.

A pair is one run of either way, one started after the other: an ordinary paired comparison (comparing/intervals.py).
"""

import math
from collections.abc import Sequence
from typing import Literal

from benchmarks.comparing.intervals import Estimate, between_pairs
from benchmarks.measuring import statistics
from benchmarks.measuring.clipped_mean import FEWEST_PAIRS, clipped_mean
from benchmarks.rendering.columns import aligned, columns, plural
from benchmarks.rendering.report import seconds_text
from benchmarks.sweeps.scaling import CellRuns, settling_notes
from benchmarks.values import Value

OFF = "off"
EXACT_DIGITS = 9  # of a logarithm: less is rounding of floats
HEADINGS = ("", "seconds/step", "against", "pairs", "speedup", "95% interval", "verdict")
HOW_TO_READ = (
    "Speedup: seconds of the base over those of the way, less 1, of the two runs of each repeat; the mean over pairs",
    "of its logarithm, with its interval by Student's t. It speaks of these machines on this day.",
)

Verdict = Literal["improvement", "regression", "inconclusive", "no verdict"]


class Speedup(Value, frozen=True):
    """In percent, with its 95% interval; None where there are too few pairs for one."""

    value: float
    low: float | None
    high: float | None


class Pair(Value, frozen=True):
    """The two runs of one repeat."""

    repeat: int
    base_run: str
    way_run: str
    base_seconds: float  # the median step of either
    way_seconds: float
    speedup_percent: float


class Gain(Value, frozen=True):
    """What one way gains over another; `why` says too why a figure is null."""

    cell: str  # by the flags in which it differs from the other cells
    way: str
    base: str
    wanted: int  # pairs
    pairs: list[Pair]
    speedup_percent: Speedup | None
    smallest_detectable_percent: float | None  # seen in 4 of 5 cases with so many pairs of this noise
    verdict: Verdict
    why: str
    left_out: list[str]
    notes: list[str]


def gain(cell: str, base: CellRuns, arm: CellRuns) -> Gain:
    """What `arm` gains over `base`."""
    pairs, left_out = [], []
    for repeat in range(1, base.wanted + 1):
        why_not = [f"{one.scale.pgle}: {text}" for one in (base, arm) if (text := _why_not(one, repeat))]
        if why_not:
            left_out.append(f"repeat {repeat}: {'; '.join(why_not)}")
        else:
            pairs.append(_pair(repeat, base, arm))
    logs = [round(math.log(pair.base_seconds / pair.way_seconds), EXACT_DIGITS) for pair in pairs]
    estimate = between_pairs(logs) if len(logs) >= FEWEST_PAIRS else None
    unapplied = _unapplied(base, arm, pairs)
    verdict, why = _verdict(base.scale.pgle, arm.scale.pgle, len(pairs), estimate, unapplied)
    return Gain(
        cell=cell,
        way=arm.scale.pgle,
        base=base.scale.pgle,
        wanted=base.wanted,
        pairs=pairs,
        speedup_percent=None if unapplied else _speedup(logs, estimate),
        smallest_detectable_percent=_percent(estimate.detectable) if estimate else None,
        verdict=verdict,
        why=why,
        left_out=left_out,
        notes=[*_far_off(pairs, logs), *_drifting(base, arm, pairs)],
    )


def _why_not(arm: CellRuns, repeat: int) -> str | None:
    run = arm.counted.get(repeat)
    if run is None:
        return dict(arm.others).get(repeat, "not started")
    if not run.seconds_per_step:
        return f"{run.run_id} has no speed: {run.null_because.get('seconds_per_step', 'unknown')}"
    return None


def _pair(repeat: int, base: CellRuns, arm: CellRuns) -> Pair:
    one, other = base.counted[repeat], arm.counted[repeat]
    seconds, way_seconds = one.seconds_per_step or math.nan, other.seconds_per_step or math.nan
    return Pair(
        repeat=repeat,
        base_run=one.run_id,
        way_run=other.run_id,
        base_seconds=seconds,
        way_seconds=way_seconds,
        speedup_percent=100 * (seconds / way_seconds - 1),
    )


def _percent(log: float) -> float:
    return 100 * math.expm1(log)


def _speedup(logs: Sequence[float], estimate: Estimate | None) -> Speedup | None:
    centre = estimate.centre if estimate else statistics.mean(logs)
    if centre is None:
        return None
    low, high = (None if end is None else _percent(end) for end in (estimate[1:3] if estimate else (None, None)))
    return Speedup(value=_percent(centre), low=low, high=high)


def _unapplied(base: CellRuns, arm: CellRuns, pairs: Sequence[Pair]) -> str | None:
    """Why the first run without its profile had none; None: all had it."""
    for run in (one.counted[pair.repeat] for one in (base, arm) if one.scale.pgle != OFF for pair in pairs):
        if not run.pgle_applied:
            return (run.pgle_reason if run.pgle_applied is False else "") or "the result does not say that it was"
    return None


def _verdict(
    base: str, way: str, pairs: int, estimate: Estimate | None, unapplied: str | None
) -> tuple[Verdict, str]:
    if unapplied:
        return "no verdict", f"nothing to gain here: the profile was not applied: {unapplied}"
    if estimate is None or estimate.low is None or estimate.high is None:
        return "no verdict", f"{plural(pairs, 'pair')} of valid runs: a verdict needs {FEWEST_PAIRS} or more"
    if estimate.low > 0:
        return "improvement", f"all of the interval is above 0: {way} is faster than {base}"
    if estimate.high < 0:
        return "regression", f"all of the interval is below 0: {way} is slower than {base}"
    shows = f"at this noise {pairs} pairs show an effect of {_percent(estimate.detectable):.2g}% or more"
    return "inconclusive", f"the interval holds 0; {shows} in 4 of 5 cases"


# --- what a reader must know --------------------------------------------------------------------


def _far_off(pairs: Sequence[Pair], logs: Sequence[float]) -> list[str]:
    found = clipped_mean(logs)
    return [
        f"repeat {pair.repeat} lies far from the others ({pair.speedup_percent:+.2f}%) and counts as "
        f"{_percent(counted):+.2f}%"
        for pair, log, counted in zip(pairs, logs, found.counted if found else logs, strict=True)
        if counted != log
    ]


def _drifting(base: CellRuns, arm: CellRuns, pairs: Sequence[Pair]) -> list[str]:
    runs = [one.counted[pair.repeat] for one in (base, arm) for pair in pairs]
    in_common = ", less what both runs of a pair have in common"
    return settling_notes(runs, plural(len(runs), "run"), in_common, ": the gain may include drift")


# --- the table ----------------------------------------------------------------------------------


def table_text(gains: Sequence[Gain]) -> str:
    """Every gain with its verdict, and what was left out."""
    notes = []
    for one in gains:
        name = f"{_name(one)}: " if len(gains) > 1 else ""
        notes.append(("why", f"{name}{one.verdict}: {one.why}"))
        notes += [("note", name + text) for text in one.notes]
        notes += [("left out", name + text) for text in one.left_out]
    rows = [HEADINGS, *map(_row, gains)]
    return "\n".join(["what PGLE gains, run against run", *columns(rows), *aligned(notes), *HOW_TO_READ])


def _name(one: Gain) -> str:
    return f"{one.cell} --pgle={one.way}"


def _row(one: Gain) -> tuple[str, ...]:
    speedup = one.speedup_percent
    return (
        _name(one),
        _typical([pair.way_seconds for pair in one.pairs]),
        f"{_typical([pair.base_seconds for pair in one.pairs])} {one.base}",
        f"{len(one.pairs)} of {one.wanted}",
        f"{speedup.value:+.2f}%" if speedup else "-",
        f"{speedup.low:+.2f}% to {speedup.high:+.2f}%" if speedup and speedup.low is not None else "-",
        one.verdict,
    )


def _typical(seconds: Sequence[float]) -> str:
    middle = statistics.median(seconds)
    return seconds_text(middle) if middle is not None else "-"
