"""The control: a small, fixed program on the nodes of each run of a cell, right after it. Pure.

What slows the control as well is the night or its nodes, not the cell. So a change is confirmed only if the
difference to the control has changed too, by a test of its own with a looser p: the control's noise must not hide a
change. Nights on which the control was off are left out of the baseline.
"""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.gate.level import beyond_clip, level, logarithms, median
from benchmarks.gate.rule_settings import Rule


class Control(NamedTuple):
    """Values of the control, in the cell's own figure. None: that run had none."""

    baseline: Sequence[float | None]  # of each baseline night
    tonight: float | None = None
    reruns: Sequence[float | None] = ()  # of each re-run


class Compared(NamedTuple):
    """What the control says of a change of the cell."""

    confirms: bool
    p: float  # of the change of the difference
    distance: float  # of the control itself from its usual level, a logarithm
    moved: bool  # whether that is more than chance, to the side of the cell's change


class Moved(NamedTuple):
    """The control's own distance from its usual level, a logarithm."""

    distance: float
    p: float


def own_change(control: Control, rule: Rule) -> Moved | None:
    """Of tonight's control. None: it has none, or too few nights before had one."""
    known = [value for value in control.baseline if value is not None]
    if control.tonight is None or len(known) < rule.fewest_baseline_nights:
        return None
    found = level(logarithms(known, "the control"), rule)
    distance = logarithms([control.tonight], "tonight's control")[0] - found.centre
    return Moved(distance, min(2 * found.p(distance), 1.0))


def usual_nights(control: Control, rule: Rule) -> list[int]:
    """The baseline nights without those on which the control was off; all, where that leaves too few."""
    every = list(range(len(control.baseline)))
    known = logarithms([value for value in control.baseline if value is not None], "the control")
    if len(known) < rule.fewest_baseline_nights:
        return every
    off = beyond_clip(known, rule)
    ours = iter(off)
    kept = [n for n in every if control.baseline[n] is None or not next(ours)]
    return kept if len(kept) >= rule.fewest_baseline_nights else every


def compare(
    cell: Sequence[float],
    cell_now: Sequence[float],
    control: Sequence[float | None],
    control_now: Sequence[float | None],
    side: float,
    rule: Rule,
) -> Compared | None:
    """Logarithms of the cell, and values of the control, of the baseline nights and of the runs that show a change.

    None: too few of them have a control.
    """
    usual = _pairs(cell, control)
    now = _pairs(cell_now, control_now)
    if len(usual) < rule.fewest_baseline_nights or 2 * len(now) <= len(cell_now):
        return None
    difference = level([ours - other for ours, other in usual], rule)
    off = median([ours - other for ours, other in now]) - difference.centre
    p = difference.p(off)
    itself = level([other for _, other in usual], rule)
    distance = median([other for _, other in now]) - itself.centre
    moved = distance * side > 0 and itself.p(distance) < rule.control_p
    return Compared(off * side > 0 and p < rule.control_p, p, distance, moved)


def _pairs(cell: Sequence[float], control: Sequence[float | None]) -> list[tuple[float, float]]:
    known = [(ours, other) for ours, other in zip(cell, control, strict=True) if other is not None]
    return list(
        zip([ours for ours, _ in known], logarithms([other for _, other in known], "the control"), strict=True)
    )
