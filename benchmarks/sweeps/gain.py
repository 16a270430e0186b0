"""Two ways to run one benchmark, in pairs of runs -> how much faster one is, its interval, a verdict. Pure.

A pair is one run of either way, one started after the other, so that what slows the machine for longer than a run
falls on both alike. The interval (pairs.py) speaks of these machines on this day. The table is in
gain_table.py.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from benchmarks.measuring import statistics
from benchmarks.rendering.columns import plural
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.sweeps.pairs import FEWEST_PAIRS, MOST_PAIRS, Paired, paired, pairs_for, smallest_detectable
from benchmarks.values import Value

OFF = "off"
SHOWN_EFFECT_PERCENT = 1.0
OF_THE_PROFILE = "pgle"  # in the names of XLA flags that hand a profile over
EXACT_DIGITS = 9  # of a logarithm: less is rounding of floats

Verdict = Literal["improvement", "regression", "inconclusive", "no verdict"]


class Estimate(Value, frozen=True):
    """With its 95% interval; None where there are too few pairs for one."""

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
    counted_as_percent: float | None  # where it lies too far from the others to count as it is


class Gain(Value, frozen=True):
    """What one way gains over another. A figure that can't be known is null, and `null_because` says why."""

    cell: str  # by the flags in which it differs from the other cells
    way: str
    base: str
    wanted: int  # pairs
    pairs: list[Pair]
    ratio: Estimate | None  # seconds of the way over seconds of the base
    speedup_percent: Estimate | None  # base over way, less 1
    pair_deviation_percent: float | None  # how much pairs differ by chance
    smallest_detectable_percent: float | None  # seen in 4 of 5 cases with so many pairs of this noise
    pairs_for_one_percent: int | None
    verdict: Verdict
    why: str
    left_out: list[str]
    notes: list[str]
    null_because: dict[str, str]


class Taken(NamedTuple):
    """The valid run of a repeat, its place among all starts of the sweep, and the XLA flags of its measured phase."""

    result: FinishedRun
    place: int
    xla_flags: str | None = None  # as XLA reads them; None: the run folder does not say


class Arm(NamedTuple):
    """All runs of one way."""

    way: str
    taken: Mapping[int, Taken]  # by repeat
    absent: Mapping[int, str]  # repeat -> why it has no valid run


# --- the gain -----------------------------------------------------------------------------------


def gain(cell: str, base: Arm, arm: Arm, wanted: int, ways: int = 2) -> Gain:
    """What `arm` gains over `base`; `ways` is how many runs one repeat of the cell has."""
    repeats, left_out = _sorted_out(base, arm, wanted)
    logs = [_log_speedup(base.taken[r].result, arm.taken[r].result) for r in repeats]
    found = paired(logs)
    pairs = [
        _pair(r, base.taken[r].result, arm.taken[r].result, log, found.counted[number] if found else log)
        for number, (r, log) in enumerate(zip(repeats, logs, strict=True))
    ]
    unapplied = _unapplied(base, arm, repeats)
    verdict, why = _verdict(base, arm, repeats, found, unapplied)
    return Gain(
        cell=cell,
        way=arm.way,
        base=base.way,
        wanted=wanted,
        pairs=pairs,
        ratio=None if unapplied else _ratio(logs, found),
        speedup_percent=None if unapplied else _speedup(logs, found),
        pair_deviation_percent=_percent(found.deviation) if found else None,
        smallest_detectable_percent=_percent(smallest_detectable(found.deviation, len(logs))) if found else None,
        pairs_for_one_percent=_pairs_for_one_percent(found.deviation) if found else None,
        verdict=verdict,
        why=why,
        left_out=left_out,
        notes=_notes(base, arm, repeats, pairs, ways),
        null_because=_nulls(len(logs), found, unapplied),
    )


def _sorted_out(base: Arm, arm: Arm, wanted: int) -> tuple[list[int], list[str]]:
    """The repeats of which both runs can be compared, and why each other one is none."""
    repeats: list[int] = []
    left_out: dict[str, list[str]] = {}  # those for the same reason are named together
    for repeat in range(1, wanted + 1):
        why = [f"{one.way}: {text}" for one in (base, arm) if (text := _why_not(one, repeat))]
        if why:
            left_out.setdefault("; ".join(why), []).append(str(repeat))
        else:
            repeats.append(repeat)
    return repeats, [f"repeat {', '.join(numbers)}: {why}" for why, numbers in left_out.items()]


def _why_not(arm: Arm, repeat: int) -> str | None:
    if repeat not in arm.taken:
        return arm.absent.get(repeat, "not started")
    result = arm.taken[repeat].result
    if result.not_comparable:
        return f"{result.run_id} may not be compared: {'; '.join(result.not_comparable)}"
    if not result.seconds_per_step:
        return f"{result.run_id} has no speed: {result.null_because.get('seconds_per_step', 'unknown')}"
    return None


def _log_speedup(base: FinishedRun, way: FinishedRun) -> float:
    return round(math.log(_seconds(base) / _seconds(way)), EXACT_DIGITS)


def _seconds(result: FinishedRun) -> float:
    return result.seconds_per_step or math.nan  # a result without has been sorted out


def _percent(log: float) -> float:
    return 100 * math.expm1(log)


def _pair(repeat: int, base: FinishedRun, way: FinishedRun, log: float, counted: float) -> Pair:
    return Pair(
        repeat=repeat,
        base_run=base.run_id,
        way_run=way.run_id,
        base_seconds=_seconds(base),
        way_seconds=_seconds(way),
        speedup_percent=_percent(log),
        counted_as_percent=_percent(counted) if counted != log else None,
    )


def _centre(logs: Sequence[float], found: Paired | None) -> float | None:
    return found.centre if found else statistics.mean(logs)


def _ratio(logs: Sequence[float], found: Paired | None) -> Estimate | None:
    centre = _centre(logs, found)
    if centre is None:
        return None
    low, high = (
        (math.exp(-centre - found.half_width), math.exp(-centre + found.half_width)) if found else (None, None)
    )
    return Estimate(value=math.exp(-centre), low=low, high=high)


def _speedup(logs: Sequence[float], found: Paired | None) -> Estimate | None:
    centre = _centre(logs, found)
    if centre is None:
        return None
    low, high = (_percent(centre - found.half_width), _percent(centre + found.half_width)) if found else (None, None)
    return Estimate(value=_percent(centre), low=low, high=high)


def _pairs_for_one_percent(deviation: float) -> int | None:
    return pairs_for(math.log1p(SHOWN_EFFECT_PERCENT / 100), deviation)


def _nulls(pairs: int, found: Paired | None, unapplied: str | None) -> dict[str, str]:
    nulls = _too_few(pairs, found)
    if unapplied:
        nulls = {name: text for name, text in nulls.items() if not name.endswith(".low")}
        nulls |= dict.fromkeys(("ratio", "speedup_percent"), f"the profile was not applied: {unapplied}")
    return nulls


def _too_few(pairs: int, found: Paired | None) -> dict[str, str]:
    why = f"{plural(pairs, 'pair')} of valid runs: an interval needs {FEWEST_PAIRS}"
    if found is None:
        figures = ("pair_deviation_percent", "smallest_detectable_percent", "pairs_for_one_percent")
        unknown = ("ratio", "speedup_percent") if not pairs else ("ratio.low", "speedup_percent.low")
        return dict.fromkeys((*unknown, *figures), why)
    if _pairs_for_one_percent(found.deviation) is None:
        return {"pairs_for_one_percent": f"at this noise more than {MOST_PAIRS:,}"}
    return {}


# --- the verdict and what a reader must know ----------------------------------------------------


def _verdict(
    base: Arm, arm: Arm, repeats: Sequence[int], found: Paired | None, unapplied: str | None
) -> tuple[Verdict, str]:
    if unapplied:
        return "no verdict", f"nothing to gain here: the profile was not applied: {unapplied}"
    if found is None:
        return "no verdict", f"{plural(len(repeats), 'pair')} of valid runs: a verdict needs {FEWEST_PAIRS} or more"
    if found.centre - found.half_width > 0:
        return "improvement", f"all of the interval is above 0: {arm.way} is faster than {base.way}"
    if found.centre + found.half_width < 0:
        return "regression", f"all of the interval is below 0: {arm.way} is slower than {base.way}"
    return "inconclusive", f"the interval holds 0. {_what_would_show(found)}"


def _unapplied(base: Arm, arm: Arm, repeats: Sequence[int]) -> str | None:
    """Why the first run without its profile had none; None: all had it."""
    reasons = (_not_applied(one, one.taken[repeat].result) for one in (base, arm) for repeat in repeats)
    return next((why for why in reasons if why), None)


def _not_applied(arm: Arm, result: FinishedRun) -> str | None:
    if arm.way == OFF:
        return None
    if result.pgle_applied is None:
        return "the result does not say that it was"
    return None if result.pgle_applied else result.pgle_reason


def _what_would_show(found: Paired) -> str:
    count, needed = len(found.counted), _pairs_for_one_percent(found.deviation)
    effect = _percent(smallest_detectable(found.deviation, count))
    pairs = f"{needed:,} pairs" if needed else f"more than {MOST_PAIRS:,} pairs"
    return (
        f"At this noise ({_percent(found.deviation):.2g}% a pair) {count} pairs show an effect of {effect:.2g}% "
        f"or more in 4 of 5 cases; for {SHOWN_EFFECT_PERCENT:g}% it takes {pairs}"
    )


def _notes(base: Arm, arm: Arm, repeats: Sequence[int], pairs: Sequence[Pair], ways: int) -> list[str]:
    found = [
        f"repeat {pair.repeat} lies far from the others ({pair.speedup_percent:+.2f}%) and counts as "
        f"{pair.counted_as_percent:+.2f}%"
        for pair in pairs
        if pair.counted_as_percent is not None
    ]
    for repeat in repeats:
        between = abs(base.taken[repeat].place - arm.taken[repeat].place) - 1
        if between > ways - 2:
            found.append(
                f"repeat {repeat}: {plural(between, 'other run')} began between its two (one was run again later): "
                "what changed meanwhile is in its ratio"
            )
    return found + _also_differing(base, arm, repeats) + _drifting(base, arm, repeats)


def _also_differing(base: Arm, arm: Arm, repeats: Sequence[int]) -> list[str]:
    """A way of PGLE may set other XLA flags too; what they do is in the gain."""
    differing: dict[str, None] = {}
    for repeat in repeats:
        base_flags, arm_flags = base.taken[repeat].xla_flags, arm.taken[repeat].xla_flags
        if base_flags is not None and arm_flags is not None:
            one, other = _flags(base_flags), _flags(arm_flags)
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
    """Where step times still settle, windows that begin at other steps sample other parts of that."""
    runs = {one.way: [one.taken[repeat].result for repeat in repeats] for one in (base, arm)}
    drifting = sum(not run.settled for found in runs.values() for run in found)
    if not drifting:
        return []
    first = [f"{way} from step {min(run.first_step or 0 for run in found)}" for way, found in runs.items()]
    return [
        f"not settled: {drifting} of {2 * len(repeats)} runs; steps count {', '.join(first)}: where step times still "
        "drift, the gain holds some of that"
    ]
