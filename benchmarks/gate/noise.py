"""How much of a site's noise re-runs share with the run that they are to confirm, from its own re-runs. Pure.

The rule's false alarms depend on this share: re-runs of a night all have what the night has, and on the nodes of the
first run what these nodes have too. An analysis of variance on logarithms: re-runs of one night differ by what they
do not share, nights differ by all of it.

Re-runs are made on suspect nights, so neither the first run nor the level of the re-runs says anything unbiased about
the night, and a night is suspect more often where its baseline looks quiet by chance. So only the differences among
the re-runs count, and a cell's noise is that of all its nights.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from benchmarks.gate.level import median
from benchmarks.gate.rule_settings import G3, Rule
from benchmarks.gate.values import NightReport, SharedNoise

FEWEST_NIGHTS = 10  # with re-runs, of all cells: with fewer, the interval of the share is most of 0 to 1
_CONFIDENCE = 0.90
# Share -> false alarms a cell and night without a control: at 0.5% noise, 3% of the runs outliers. Simulated
# (docs/gate.md, tests/benchmarks/gate/test_simulation.py).
FALSE_ALARMS = {0.0: 0.001, 0.25: 0.0015, 0.5: 0.003, 0.75: 0.006, 1.0: 0.01}
CONTROLLED_FALSE_ALARMS = 0.001  # with one, at any share


class Reruns(NamedTuple):
    """The re-runs of one figure of one cell and night."""

    cell: str
    values: Sequence[float]
    deviation: float  # from night to night, of all nights of the cell, as a share
    freedom: int  # degrees of freedom of this deviation
    fresh_nodes: bool | None = None  # None: not known


def reruns_of(reports: Sequence[NightReport]) -> list[Reruns]:
    """Of every gating figure that was re-run, in the records of nights."""
    judged = [
        (f"{cell.cell} {one.metric.name}", cell.fresh_nodes, one)
        for report in reports
        if not report.slowed_by
        for cell in report.cells
        for one in cell.judgements
        if one.gates and one.noise_percent
    ]
    variances: dict[str, list[float]] = defaultdict(list)
    for name, _, one in judged:
        variances[name].append(((one.noise_percent or 0.0) / 100) ** 2)
    return [
        Reruns(
            name,
            one.confirmations,
            math.sqrt(fmean(variances[name])),
            one.baseline_nights + len(variances[name]) - 2,
            fresh,
        )
        for name, fresh, one in judged
        if len(one.confirmations) > 1
    ]


def shared_noise(found: Sequence[Reruns], rule: Rule = G3) -> SharedNoise | None:
    """None: too few nights with re-runs. Nights with an outlier among the re-runs are left out."""
    from scipy.special import fdtri

    counted = [one for one in found if not _has_outlier(one, rule)]
    if len(counted) < FEWEST_NIGHTS:
        return None
    within = sum(_squares(one) for one in counted)
    freedom = sum(len(one.values) - 1 for one in counted)
    ratio = within / freedom
    of_nights = sum({one.cell: one.freedom for one in counted}.values())
    tail = (1 - _CONFIDENCE) / 2
    low, high = (1 - ratio / float(fdtri(freedom, of_nights, tail_at)) for tail_at in (tail, 1 - tail))
    return SharedNoise(
        share=_clipped(1 - ratio), low=_clipped(low), high=_clipped(high), nights=len(counted),
        nodes=_share_of_nodes(counted),
    )  # fmt: skip


def false_alarm_share(shared: float, *, controlled: bool) -> float:
    """Of one gated figure and night, interpolated between the shares that were simulated."""
    from numpy import interp

    if controlled:
        return CONTROLLED_FALSE_ALARMS
    return float(interp(shared, list(FALSE_ALARMS), list(FALSE_ALARMS.values())))


def _has_outlier(one: Reruns, rule: Rule) -> bool:
    logs = [math.log(value) for value in one.values]
    middle = median(logs)
    return any(abs(value - middle) > rule.clip_deviations * one.deviation for value in logs)


def _squares(one: Reruns) -> float:
    """Of the distances from the night's mean, in variances from night to night."""
    logs = [math.log(value) for value in one.values]
    mean = fmean(logs)
    # The mean of 1 / variance is larger than 1 / mean variance.
    return math.fsum((value - mean) ** 2 for value in logs) / one.deviation**2 * (1 - 2 / one.freedom)


def _share_of_nodes(found: Sequence[Reruns]) -> float | None:
    """What re-runs on the first run's nodes share more than those on fresh ones; None: one of both is too rare."""
    same, fresh = ([one for one in found if one.fresh_nodes is which] for which in (False, True))
    if min(len(same), len(fresh)) < FEWEST_NIGHTS:
        return None
    ratios = [sum(map(_squares, some)) / sum(len(one.values) - 1 for one in some) for some in (fresh, same)]
    return _clipped(ratios[0] - ratios[1])


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)
