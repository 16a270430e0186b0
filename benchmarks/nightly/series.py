"""The nights of a cell, oldest first, which never count, and which the latest one is compared with. Pure.

A night counts if its run is valid, was not slowed on purpose, may be compared, and has the benchmark, environment and
machine of the latest run. The report names every other run, and what changed when a new baseline begins.

The newest baseline night is 3 nights old, because the latest 3 nights are judged together. A short history shortens
this gap: ten nights are a baseline, and the eleventh is judged.

A suspect night that no re-runs confirmed or refuted never enters a baseline. An alarm opens with the first confirmed
`worse` or `better`. While it is open, the baseline does not move. It closes after a night of `same`, after 3 nights
in a row without suspicion, or when the user accepts the new level. A `better` of 10 nights is accepted by itself.
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

MOST_NIGHTS = 100  # that are looked back on; the rule needs some 30, an alarm may stay open for longer
MOST_SHOWN = 60  # nights in a record
CALM_NIGHTS = 3  # without suspicion, that close an alarm
OLDER_LEVEL = "before the accepted level"
OLDER = "older than the baseline"
DURING = "while an alarm was open"
UNCONFIRMED = "suspect, and not re-run"
UNDECIDED = (Suspicion.OPEN, Suspicion.SHARED)


class Past(NamedTuple):
    """One earlier night of a cell."""

    night: str
    entry: FinishedRun
    left_out: str  # why it counts nowhere; empty: it counts


class Series(NamedTuple):
    """The earlier nights of a cell, oldest first."""

    nights: list[Past]
    new_baseline: list[str]  # what changed since the newest night before


def series(
    latest: FinishedRun, suite: str, cell: str, runs: Iterable[FinishedRun], across: Collection[str]
) -> Series:
    """Return the earlier nights of a cell, of the runs of a folder."""
    of_cell = [one for one in runs if (one.labels.suite, one.labels.cell) == (suite, cell)]
    firsts = [one for one in of_cell if one.labels.role == "night"]
    # The newest valid run of a night that was started twice comes last, and replaces the others.
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
    """Return the nights that no figure's baseline holds."""
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


# --- which of them the latest is compared with ------------------------------------------------------


class PastNight(Value, frozen=True):
    """One night of one figure."""

    value: float  # of the first run: a re-run's value would make the noise look smaller than it is
    verdict: Verdict | None = None  # on this figure; None if it was never judged
    suspicion: Suspicion = Suspicion.NONE
    accepted: bool = False  # the user said: this is the level from now on
    left_out: str = ""  # why it never counts, such as a deliberate slowdown


class Alarm(NamedTuple):
    first: int  # the night that opened it
    verdict: Verdict
    frozen: int  # nights before this one are the baseline


class Division(NamedTuple):
    """Positions in the series, oldest first; the latest night is the last of `recent`."""

    baseline: list[int]
    recent: list[int]
    left_out: dict[int, str]  # every other night, with the reason
    alarm: Alarm | None = None


def divide(nights: Sequence[PastNight]) -> Division:
    """Return how the nights of a series, oldest first, are used to judge the last one."""
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
    """Return the first night of the level that counts, the open alarm, and the nights that no baseline may hold."""
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
