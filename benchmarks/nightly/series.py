"""Earlier runs of a cell -> its nights, oldest first, and which of them never count. Pure.

A night counts if its run is valid, was not slowed on purpose, may be compared, and has the benchmark, environment and
machine of the latest run. The report names every other run, and what changed when a new baseline begins.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from benchmarks.nightly.values import NightPoint
from benchmarks.runs import identity
from benchmarks.runs.finished_run import FinishedRun, changes
from benchmarks.text import reasons_text

MOST_NIGHTS = 100  # that are looked back on; the rule needs some 30, an alarm may stay open for longer
MOST_SHOWN = 60  # nights in a record


class Past(NamedTuple):
    """One earlier night of a cell."""

    night: str
    entry: FinishedRun
    left_out: str  # why it counts nowhere; empty: it counts


class Series(NamedTuple):
    """The earlier nights of a cell, oldest first."""

    nights: list[Past]
    new_baseline: list[str]  # what changed since the newest night before


def night_of(entry: FinishedRun) -> str:
    """Return the night of a run. A run that no suite has started is its own night."""
    return entry.labels.night or entry.started.replace("-", "").replace(":", "")


def series(
    latest: FinishedRun,
    suite: str,
    cell: str,
    own: Iterable[FinishedRun],
    replayed: Iterable[FinishedRun],
    across: Collection[str],
) -> Series:
    """Return the earlier nights of a cell.

    `own` are runs of the suite's folder, `replayed` runs of other folders (--history). A replayed run counts if it is
    of the same suite and cell, or of the same benchmark.
    """
    own_cell = [entry for entry in own if _is_of(entry, suite, cell)]
    known = {entry.run_id for entry in own_cell} | {latest.run_id}
    benchmark = latest.origin.identity.get("benchmark")
    others = [
        entry
        for entry in replayed
        if _is_of(entry, suite, cell) or entry.origin.identity.get("benchmark") == benchmark
    ]
    runs = [*own_cell, *(entry for entry in others if entry.run_id not in known)]
    runs = [one for one in runs if one.labels.role in (None, "night")]
    earlier = {night: entry for night, entry in _by_night(runs).items() if night < night_of(latest)}
    kinds = [kind for kind in identity.KINDS if kind not in across]
    nights = [
        Past(night, entry, _why_left_out(entry, latest, kinds))
        for night, entry in sorted(earlier.items())[-MOST_NIGHTS:]
    ]
    comparable = [past.entry for past in nights if past.entry.status == "valid" and not past.entry.slowed_by]
    return Series(nights, changes(comparable[-1], latest, kinds) if comparable else [])


def _is_of(entry: FinishedRun, suite: str, cell: str) -> bool:
    return (entry.labels.suite, entry.labels.cell) == (suite, cell)


def _by_night(runs: Iterable[FinishedRun]) -> dict[str, FinishedRun]:
    # The newest valid run of a night that was started twice comes last, and replaces the others.
    return {night_of(one): one for one in sorted(runs, key=lambda one: (one.status == "valid", one.started))}


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
