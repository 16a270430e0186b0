"""Two ways to do PGLE, in pairs of runs -> how much faster one is, its interval, a verdict, the table. Pure.

A pair is one run of either way, one started after the other: an ordinary paired comparison (comparing/intervals.py).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from benchmarks.comparing.intervals import Estimate, between_pairs
from benchmarks.measuring import statistics
from benchmarks.rendering.columns import aligned, columns, plural
from benchmarks.rendering.report import seconds_text
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.sweeps.pairs import FEWEST_PAIRS, paired
from benchmarks.values import Value

OFF = "off"
OF_THE_PROFILE = "pgle"  # in the names of XLA flags that hand a profile over
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


class Arm(NamedTuple):
    """All runs of one way, by repeat: the valid ones, and why each other repeat has none."""

    way: str
    runs: Mapping[int, FinishedRun]
    absent: Mapping[int, str]


def gain(cell: str, base: Arm, arm: Arm, wanted: int, xla_flags: Mapping[str, str]) -> Gain:
    """What `arm` gains over `base`; `xla_flags` is what each run's measured phase had, by run id."""
    left_out = []
    repeats = []
    for repeat in range(1, wanted + 1):
        why_not = [f"{one.way}: {text}" for one in (base, arm) if (text := _why_not(one, repeat))]
        if why_not:
            left_out.append(f"repeat {repeat}: {'; '.join(why_not)}")
        else:
            repeats.append(repeat)
    pairs = [_pair(repeat, base.runs[repeat], arm.runs[repeat]) for repeat in repeats]
    logs = [round(math.log(pair.base_seconds / pair.way_seconds), EXACT_DIGITS) for pair in pairs]
    estimate = between_pairs(logs) if len(logs) >= FEWEST_PAIRS else None
    unapplied = _unapplied(base, arm, repeats)
    verdict, why = _verdict(base, arm, len(pairs), estimate, unapplied)
    return Gain(
        cell=cell,
        way=arm.way,
        base=base.way,
        wanted=wanted,
        pairs=pairs,
        speedup_percent=None if unapplied else _speedup(logs, estimate),
        smallest_detectable_percent=_percent(estimate.detectable or 0.0) if estimate else None,
        verdict=verdict,
        why=why,
        left_out=left_out,
        notes=_far_off(pairs, logs) + _also_differing(base, arm, repeats, xla_flags) + _drifting(base, arm, repeats),
    )


def _why_not(arm: Arm, repeat: int) -> str | None:
    run = arm.runs.get(repeat)
    if run is None:
        return arm.absent.get(repeat, "not started")
    if run.not_comparable:
        return f"{run.run_id} may not be compared: {'; '.join(run.not_comparable)}"
    if not run.seconds_per_step:
        return f"{run.run_id} has no speed: {run.null_because.get('seconds_per_step', 'unknown')}"
    return None


def _pair(repeat: int, base: FinishedRun, way: FinishedRun) -> Pair:
    base_seconds, way_seconds = base.seconds_per_step or math.nan, way.seconds_per_step or math.nan
    return Pair(
        repeat=repeat,
        base_run=base.run_id,
        way_run=way.run_id,
        base_seconds=base_seconds,
        way_seconds=way_seconds,
        speedup_percent=100 * (base_seconds / way_seconds - 1),
    )


def _percent(log: float) -> float:
    return 100 * math.expm1(log)


def _speedup(logs: Sequence[float], estimate: Estimate | None) -> Speedup | None:
    if estimate is not None and estimate.low is not None and estimate.high is not None:
        low, high = _percent(estimate.low), _percent(estimate.high)
        return Speedup(value=_percent(estimate.centre), low=low, high=high)
    centre = statistics.mean(logs)
    return None if centre is None else Speedup(value=_percent(centre), low=None, high=None)


def _unapplied(base: Arm, arm: Arm, repeats: Sequence[int]) -> str | None:
    """Why the first run without its profile had none; None: all had it."""
    for run in (one.runs[repeat] for one in (base, arm) if one.way != OFF for repeat in repeats):
        if not run.pgle_applied:
            return (run.pgle_reason if run.pgle_applied is False else "") or "the result does not say that it was"
    return None


def _verdict(
    base: Arm, arm: Arm, pairs: int, estimate: Estimate | None, unapplied: str | None
) -> tuple[Verdict, str]:
    if unapplied:
        return "no verdict", f"nothing to gain here: the profile was not applied: {unapplied}"
    if estimate is None or estimate.low is None or estimate.high is None:
        return "no verdict", f"{plural(pairs, 'pair')} of valid runs: a verdict needs {FEWEST_PAIRS} or more"
    if estimate.low > 0:
        return "improvement", f"all of the interval is above 0: {arm.way} is faster than {base.way}"
    if estimate.high < 0:
        return "regression", f"all of the interval is below 0: {arm.way} is slower than {base.way}"
    effect = _percent(estimate.detectable or 0.0)
    shows = f"at this noise {pairs} pairs show an effect of {effect:.2g}% or more in 4 of 5 cases"
    return "inconclusive", f"the interval holds 0; {shows}"


# --- what a reader must know --------------------------------------------------------------------


def _far_off(pairs: Sequence[Pair], logs: Sequence[float]) -> list[str]:
    found = paired(logs)
    return [
        f"repeat {pair.repeat} lies far from the others ({pair.speedup_percent:+.2f}%) and counts as "
        f"{_percent(counted):+.2f}%"
        for pair, log, counted in zip(pairs, logs, found.counted if found else logs, strict=True)
        if counted != log
    ]


def _also_differing(base: Arm, arm: Arm, repeats: Sequence[int], xla_flags: Mapping[str, str]) -> list[str]:
    """A way of PGLE may set other XLA flags too; what they do is in the gain."""
    differing: dict[str, None] = {}
    for ids in ((base.runs[repeat].run_id, arm.runs[repeat].run_id) for repeat in repeats):
        if all(run_id in xla_flags for run_id in ids):
            one, other = (_flags(xla_flags[run_id]) for run_id in ids)
            differing |= {
                f"{name}={other.get(name, '(not set)')} ({base.way}: {one.get(name, 'not set')})": None
                for name in sorted(one.keys() | other.keys())
                if one.get(name) != other.get(name) and OF_THE_PROFILE not in name
            }
    return [f"the arms also differ in: {', '.join(differing)}: the gain is of both"] if differing else []


def _flags(text: str) -> dict[str, str]:
    words = (word.removeprefix("--").partition("=") for word in text.split())
    return {name: value for name, _, value in words}


def _drifting(base: Arm, arm: Arm, repeats: Sequence[int]) -> list[str]:
    drifting = sum(not one.runs[repeat].settled for one in (base, arm) for repeat in repeats)
    why = "where step times still drift, the gain holds some of that"
    return [f"not settled: {drifting} of {2 * len(repeats)} runs: {why}"] if drifting else []


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
    known = speedup is not None and speedup.low is not None
    return (
        _name(one),
        _typical([pair.way_seconds for pair in one.pairs]),
        f"{_typical([pair.base_seconds for pair in one.pairs])} {one.base}",
        f"{len(one.pairs)} of {one.wanted}",
        f"{speedup.value:+.2f}%" if speedup else "-",
        f"{speedup.low:+.2f}% to {speedup.high:+.2f}%" if speedup and known else "-",
        one.verdict,
    )


def _typical(seconds: Sequence[float]) -> str:
    middle = statistics.median(seconds)
    return seconds_text(middle) if middle is not None else "-"
