"""Two ways to do PGLE, in pairs of runs -> the paired comparison of their step times, its verdict, the table. Pure.

A pair is one run of either way, one started after the other. compare.py compares two cells of a sweep the same way.
"""

import math
from collections.abc import Sequence

from benchmarks import statistics
from benchmarks.compare.intervals import DEFAULT_MARGIN_PERCENT, of_pairs, percent, verdict_of
from benchmarks.sweeps.scaling import CellRuns, settling_notes
from benchmarks.text import aligned, columns, plural, seconds_text
from benchmarks.values import Value
from benchmarks.verdict import Verdict

OFF = "off"
HEADINGS = ("", "seconds/step", "against", "pairs", "step time", "95% interval", "verdict")
HOW_TO_READ = (
    "Step time: of the way against the base, over the pairs of runs, as compare.py compares two cells of a sweep.",
)


class Pair(Value, frozen=True):
    """The two runs of one repeat."""

    repeat: int
    base_run: str
    way_run: str
    base_seconds: float  # the median step of either
    way_seconds: float
    percent: float  # of the way's step time against the base's


class Gain(Value, frozen=True):
    """One way's step time against the base's, in percent; `why` also says why a value is null."""

    cell: str  # by the flags in which it differs from the other cells
    way: str
    base: str
    wanted: int  # pairs
    pairs: list[Pair]
    percent: float | None
    low: float | None  # 95%
    high: float | None
    verdict: Verdict
    why: str
    left_out: list[str]
    notes: list[str]


def gain(cell: str, base: CellRuns, arm: CellRuns) -> Gain:
    """The step time of `arm` against that of `base`."""
    pairs, left_out = [], []
    for repeat in range(1, base.wanted + 1):
        why_not = [f"{one.scale.pgle}: {text}" for one in (base, arm) if (text := _why_not(one, repeat))]
        if why_not:
            left_out.append(f"repeat {repeat}: {'; '.join(why_not)}")
        else:
            pairs.append(_pair(repeat, base, arm))
    found = of_pairs(*([math.log(one) for one in side] for side in _seconds(pairs)))
    verdict, why = verdict_of(found, DEFAULT_MARGIN_PERCENT)
    unapplied = _unapplied(base, arm, pairs)
    if unapplied:
        verdict, why = Verdict.NOT_TESTED, f"nothing to gain here: the profile was not applied: {unapplied}"
    known = bool(pairs) and not unapplied
    runs = [one.counted[pair.repeat] for one in (base, arm) for pair in pairs]
    in_common = ", less what both runs of a pair have in common"
    return Gain(
        cell=cell,
        way=arm.scale.pgle,
        base=base.scale.pgle,
        wanted=base.wanted,
        pairs=pairs,
        percent=percent(found.centre) if known else None,
        low=percent(found.low) if known and found.low is not None else None,
        high=percent(found.high) if known and found.high is not None else None,
        verdict=verdict,
        why=why,
        left_out=left_out,
        notes=settling_notes(runs, plural(len(runs), "run"), in_common, ": the gain may include drift"),
    )


def _why_not(arm: CellRuns, repeat: int) -> str | None:
    run = arm.counted.get(repeat)
    if run is None:
        return dict(arm.others).get(repeat, "not started")
    if not run.metrics.seconds_per_step:
        return f"{run.run_id} has no speed: {run.null_because.get('seconds_per_step', 'unknown')}"
    return None


def _pair(repeat: int, base: CellRuns, arm: CellRuns) -> Pair:
    one, other = base.counted[repeat], arm.counted[repeat]
    seconds, way_seconds = one.metrics.seconds_per_step or math.nan, other.metrics.seconds_per_step or math.nan
    return Pair(
        repeat=repeat,
        base_run=one.run_id,
        way_run=other.run_id,
        base_seconds=seconds,
        way_seconds=way_seconds,
        percent=100 * (way_seconds / seconds - 1),
    )


def _seconds(pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    return [pair.base_seconds for pair in pairs], [pair.way_seconds for pair in pairs]


def _unapplied(base: CellRuns, arm: CellRuns, pairs: Sequence[Pair]) -> str | None:
    """Why the first run without its profile had none; None: all had it."""
    for run in (one.counted[pair.repeat] for one in (base, arm) if one.scale.pgle != OFF for pair in pairs):
        if not run.pgle_applied:
            return (run.pgle_reason if run.pgle_applied is False else "") or "the result does not say that it was"
    return None


# --- the table ----------------------------------------------------------------------------------


def table_text(gains: Sequence[Gain]) -> str:
    """Every gain with its verdict, and the repeats that do not count."""
    notes = []
    for one in gains:
        name = f"{_name(one)}: " if len(gains) > 1 else ""
        notes.append(("why", f"{name}{one.verdict}: {one.why}"))
        notes += [("note", name + text) for text in one.notes]
        notes += [("excluded", name + text) for text in one.left_out]
    rows = [HEADINGS, *map(_row, gains)]
    return "\n".join(["PGLE, in pairs of runs", *columns(rows), *aligned(notes), *HOW_TO_READ])


def _name(one: Gain) -> str:
    return f"{one.cell} --pgle={one.way}"


def _row(one: Gain) -> tuple[str, ...]:
    middles = [statistics.median(side) for side in _seconds(one.pairs)]
    base, way = ("-" if middle is None else seconds_text(middle) for middle in middles)
    interval = "-" if one.low is None or one.high is None else f"{one.low:+.2f}% to {one.high:+.2f}%"
    return (
        _name(one),
        way,
        f"{base} {one.base}",
        f"{len(one.pairs)} of {one.wanted}",
        "-" if one.percent is None else f"{one.percent:+.2f}%",
        interval,
        one.verdict,
    )
