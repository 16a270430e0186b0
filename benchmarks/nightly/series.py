"""Divide the earlier nights of a cell into its baseline, the recent nights, and nights that are excluded. No I/O.

A night counts if its run is valid, comparable and not slowed on purpose, and has the same benchmark, environment and
machine as the latest run. The report lists every other run, and what changed when a new baseline begins.

The newest baseline night is 3 nights old, because the rule judges the latest 3 nights together. A short history
shortens this gap: ten nights form a baseline, and the eleventh is judged.

A baseline excludes suspect nights that re-runs neither confirmed nor refuted. The first confirmed `worse` or `better`
opens an alarm, and the baseline stays fixed while the alarm is open. The alarm closes after a `same` night, after 3
nights in a row without suspicion, or with a new level: the user accepts it, or it was `better` for 10 nights.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from benchmarks.nightly.rule import BASELINE_NIGHTS, FEWEST_BASELINE_NIGHTS, RECENT_NIGHTS
from benchmarks.nightly.values import NightPoint, Suspicion
from benchmarks.runs import identity
from benchmarks.runs.finished_run import FinishedRun, changes
from benchmarks.text import reasons_text
from benchmarks.values import Value
from benchmarks.verdict import Verdict

MOST_NIGHTS = 100  # the most earlier nights to read; the rule needs about 30, or more while an alarm is open
MOST_SHOWN = 60  # the most nights in a record
CALM_NIGHTS = 3  # after this many nights in a row without suspicion, an alarm closes
OLDER_LEVEL = "before the accepted level"
OLDER = "older than the baseline"
DURING = "while an alarm was open"
UNCONFIRMED = "suspect, and not re-run"
UNDECIDED = (Suspicion.OPEN, Suspicion.SHARED)


class Past(NamedTuple):
    """One earlier night of a cell, and why it is excluded."""

    night: str
    entry: FinishedRun
    left_out: str  # why the night is excluded for every metric; empty: it is not excluded


class Series(NamedTuple):
    """The earlier nights of a cell, oldest first, and why a new baseline begins."""

    nights: list[Past]
    new_baseline: list[str]  # what changed since the latest comparable night


def series(
    latest: FinishedRun, suite: str, cell: str, runs: Iterable[FinishedRun], across: Collection[str]
) -> Series:
    """Return the earlier nights of a cell from `runs`. A change of a kind in `across` does not exclude a night."""
    of_cell = [one for one in runs if (one.labels.suite, one.labels.cell) == (suite, cell)]
    firsts = [one for one in of_cell if one.labels.role == "night"]
    # If a night was started twice, its newest valid run is the last in this order, and replaces the other runs.
    firsts.sort(key=lambda one: (one.status == "valid", one.started))
    before = latest.labels.night or ""
    earlier = {night: one for one in firsts if (night := one.labels.night or "") < before}
    kinds = [kind for kind in identity.KINDS if kind not in across]
    nights = [
        Past(night, entry, _why_left_out(entry, latest, kinds))
        for night, entry in sorted(earlier.items())[-MOST_NIGHTS:]
    ]
    comparable = [past.entry for past in nights if past.entry.status == "valid" and not past.entry.slowed_by]
    return Series(nights, changes(comparable[-1], latest, kinds) if comparable else [])


def _why_left_out(entry: FinishedRun, latest: FinishedRun, kinds: Sequence[str]) -> str:
    if entry.status != "valid":
        return f"{entry.status}: {reasons_text(entry.reasons)}" if entry.reasons else entry.status
    if entry.slowed_by:
        return f"slowed on purpose by {entry.slowed_by:.0%}"
    if entry.not_comparable:
        return "; ".join(entry.not_comparable)
    return "; ".join(f"another {change}" for change in changes(entry, latest, kinds))


def left_out_points(found: Series) -> list[NightPoint]:
    """Return the nights that are excluded for every metric."""
    return [
        NightPoint(
            night=past.night,
            run_id=past.entry.run_id,
            value=past.entry.metrics.seconds_per_step or 0.0,
            used_as="left out",
            why=past.left_out,
        )
        for past in found.nights
        if past.left_out
    ][-MOST_SHOWN:]


# --- the baseline of the latest night ---------------------------------------------------------------


class PastNight(Value, frozen=True):
    """The value and the verdict of one metric on one night."""

    value: float  # of the first run; with the values of re-runs, the noise would look too small
    verdict: Verdict | None = None  # the verdict on this metric; None: the night was never judged
    suspicion: Suspicion = Suspicion.NONE
    accepted: bool = False  # whether the user accepted this night's level as the new level
    left_out: str = ""  # why the night never counts, such as a deliberate slowdown


class Alarm(NamedTuple):
    first: int  # the position of the night that opened the alarm
    verdict: Verdict
    frozen: int  # while the alarm is open, the baseline ends before this position


class Division(NamedTuple):
    """The positions of nights in a series, oldest first. The latest night is the last position in `recent`."""

    baseline: list[int]
    recent: list[int]
    left_out: dict[int, str]  # position of every other night -> why it is excluded
    alarm: Alarm | None = None


def divide(nights: Sequence[PastNight]) -> Division:
    """Return how each night is used to judge the last night. `nights` are sorted, the oldest first."""
    *earlier, _ = nights
    latest = len(earlier)
    left_out = {n: night.left_out for n, night in enumerate(earlier) if night.left_out}
    first, alarm, excluded = _course(earlier)
    left_out |= {n: OLDER_LEVEL for n in range(first) if n not in left_out}
    left_out |= {n: why for n, why in excluded.items() if n not in left_out}
    end = latest if alarm is None else alarm.frozen
    counting = [n for n in range(end) if n not in left_out]
    split = max(len(counting) - RECENT_NIGHTS + 1, min(len(counting), FEWEST_BASELINE_NIGHTS))
    baseline, recent = counting[:split][-BASELINE_NIGHTS:], counting[split:] if alarm is None else []
    for n in range(latest):
        if n not in left_out and n not in baseline and n not in recent:
            left_out[n] = OLDER if baseline and n < baseline[0] else DURING
    return Division(baseline, [*recent, latest], dict(sorted(left_out.items())), alarm)


def _course(earlier: Sequence[PastNight]) -> tuple[int, Alarm | None, dict[int, str]]:
    """Return where the current level begins, the open alarm, and the nights that no baseline may contain."""
    first, calm = 0, 0
    alarm: Alarm | None = None
    excluded: dict[int, str] = {}
    for n, night in enumerate(earlier):
        if night.left_out:
            continue
        moved = night.verdict if night.verdict in (Verdict.WORSE, Verdict.BETTER) else None
        if moved and (alarm is None or alarm.verdict != moved):
            alarm = Alarm(n, moved, alarm.frozen if alarm else n)
        nights_better = n - alarm.first + 1 if alarm and alarm.verdict is Verdict.BETTER else 0
        if night.accepted or nights_better >= FEWEST_BASELINE_NIGHTS:
            first, alarm, excluded = alarm.first if alarm else n, None, {}
        elif night.suspicion in UNDECIDED:
            excluded[n] = UNCONFIRMED
        elif alarm is not None and night.verdict is Verdict.SAME:
            alarm = None
        elif alarm is not None:
            excluded[n] = DURING
            calm = 0 if moved else calm + 1
            alarm = alarm if calm < CALM_NIGHTS else None
    return first, alarm, excluded
