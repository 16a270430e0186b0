"""Earlier runs of a cell -> its nights, oldest first; which of them count nowhere, and why. Pure.

A night counts where its run is valid, was slowed by nobody, may be compared, and is of the same benchmark,
environment and machine as tonight's. Runs of another one are left out by name, and a new baseline is said.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from benchmarks.gate.values import NightPoint
from benchmarks.runs import identity
from benchmarks.runs.finished_run import FinishedRun, changes
from benchmarks.text import reasons_text

MOST_NIGHTS = 200  # that are looked back on; the rule needs some 30, the search for change points is glad of more
MOST_SHOWN = 60  # that a record holds of them
NO_VALUE = 0.0  # of a point whose run has none: it is left out


class Past(NamedTuple):
    """One earlier night of a cell."""

    night: str
    entry: FinishedRun
    left_out: str  # why it counts nowhere; empty: it counts
    control: FinishedRun | None = None  # the control's run beside it


class Series(NamedTuple):
    """The earlier nights of a cell, oldest first."""

    nights: list[Past]
    new_baseline: list[str]  # what changed since the newest night before


def night_of(entry: FinishedRun) -> str:
    """The night that a run stands for. One that no suite has started is a night of its own."""
    return entry.night or entry.started.replace("-", "").replace(":", "")


def series(
    tonight: FinishedRun,
    suite: str,
    cell: str,
    own: Iterable[FinishedRun],
    replayed: Iterable[FinishedRun],
    across: Collection[str],
    control: FinishedRun | None = None,
) -> Series:
    """`own`: runs of tonight's folder; `replayed`: of other folders (--history), where a run counts if it is of the
    same suite and cell, or of the same benchmark. Controls of earlier nights count if comparable with tonight's.
    """
    own_cell = [entry for entry in own if (entry.suite, entry.cell) == (suite, cell)]
    known = {entry.run_id for entry in own_cell} | {tonight.run_id}
    benchmark = tonight.identity.get("benchmark")
    others = [
        entry
        for entry in replayed
        if (entry.suite, entry.cell) == (suite, cell) or entry.identity.get("benchmark") == benchmark
    ]
    runs = [*own_cell, *(entry for entry in others if entry.run_id not in known)]
    controls = _by_night([one for one in runs if one.role == "control"])
    runs = [one for one in runs if one.role in (None, "night")]
    earlier = {night: entry for night, entry in _by_night(runs).items() if night < night_of(tonight)}
    kinds = [kind for kind in identity.KINDS if kind not in across]
    nights = [
        Past(night, entry, _why_left_out(entry, tonight, kinds), _comparable(controls.get(night), control, kinds))
        for night, entry in sorted(earlier.items())[-MOST_NIGHTS:]
    ]
    comparable = [past.entry for past in nights if past.entry.status == "valid" and not past.entry.slowed_by]
    return Series(nights, changes(comparable[-1], tonight, kinds) if comparable else [])


def _by_night(runs: Iterable[FinishedRun]) -> dict[str, FinishedRun]:
    # Of a night that was begun twice, its newest valid run: it comes last, and takes the place of the others.
    return {night_of(one): one for one in sorted(runs, key=lambda one: (one.status == "valid", one.started))}


def _comparable(entry: FinishedRun | None, control: FinishedRun | None, kinds: Sequence[str]) -> FinishedRun | None:
    return entry if entry and control and not _why_left_out(entry, control, kinds) else None


def _why_left_out(entry: FinishedRun, tonight: FinishedRun, kinds: Sequence[str]) -> str:
    if entry.status != "valid":
        return f"{entry.status}: {reasons_text(entry.reasons)}" if entry.reasons else entry.status
    if entry.slowed_by:
        return f"slowed on purpose by {entry.slowed_by:.0%}"
    if entry.not_comparable:
        return "; ".join(entry.not_comparable)
    return "; ".join(f"another {change}" for change in changes(entry, tonight, kinds))


def left_out_points(found: Series) -> list[NightPoint]:
    """What counts in no figure's baseline."""
    return [
        NightPoint(
            night=past.night,
            run_id=past.entry.run_id,
            value=past.entry.seconds_per_step or NO_VALUE,
            used_as="left out",
            why=past.left_out,
        )
        for past in found.nights
        if past.left_out
    ][-MOST_SHOWN:]
