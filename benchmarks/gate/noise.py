"""What a site's own nights show of its noise, and the false alarms that follow. Pure.

Re-runs of a night all share what the night has, and on the nodes of the first run what these nodes have too. An
analysis of variance on logarithms finds this share: re-runs of one night differ by what they do not share, nights
differ by all of it.

Re-runs are made on suspect nights, so neither the first run nor the level of the re-runs says anything unbiased about
the night, and a night is suspect more often where its baseline looks quiet by chance. So only the differences among
the re-runs count, and a cell's noise is that of all its nights.

What the control sees: where one re-run shows a slow night, how much of it the controls beside the other re-runs show;
and of what lasts from night to night, how much the control of the night before or after shows. Noise of one run's own
is in no such product. A change of the cell, which no control sees, lasts to the next night, and is left out.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, permutations
from statistics import fmean
from typing import NamedTuple

from benchmarks.gate.level import clipped, logarithms, median
from benchmarks.gate.nights import BETWEEN, LEVELS, OLDER
from benchmarks.gate.rule_settings import G3, Rule
from benchmarks.gate.simulated_rates import RATES, SEEN
from benchmarks.gate.values import (
    CellReport,
    Estimate,
    MetricJudgement,
    NightCourse,
    NightPoint,
    NightReport,
    SharedNoise,
)
from benchmarks.measuring.clipped_mean import quantile

FEWEST_NIGHTS = 10  # with re-runs, of all cells: with fewer, the interval of the share is most of 0 to 1
FEWEST_IN_COURSE = 30  # with fewer, the interval of a drift is wider than 1% a month at 0.5% noise
MONTH = 30  # nights
_CONFIDENCE = 0.90
_LEAST_RATE = 1e-5  # of an event that no simulation has met


class Reruns(NamedTuple):
    """The re-runs of one figure of one cell and night."""

    cell: str
    values: Sequence[float]
    deviation: float  # from night to night, of all nights of the cell, as a share
    freedom: int  # degrees of freedom of this deviation
    fresh_nodes: bool | None = None  # None: not known
    off: Sequence[tuple[float, float]] = ()  # of each and its control, from their usual levels: logarithms


class FalseAlarms(NamedTuple):
    """Of one gated figure and night, as shares."""

    usual: float
    skewed: float  # where the noise is far from normal
    slow_nights: float  # where 3% of nights are slow by 2%


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
    lasting = _lasting([(name, one.verdict) for name, _, one in judged])
    return [
        Reruns(
            name,
            one.confirmations,
            math.sqrt(fmean(variances[name])),
            one.baseline_nights + len(variances[name]) - 2,
            fresh,
            [] if n in lasting else _off(one),
        )
        for n, (name, fresh, one) in enumerate(judged)
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


def control_sees(found: Sequence[Reruns], rule: Rule = G3) -> Estimate | None:
    """The share of a slow night that the control shows too; None: too few nights had re-runs with both."""
    known = [_products(one.off) for one in found if len(one.off) > 1 and not _has_outlier(one, rule)]
    return _ratio(known) if len(known) >= FEWEST_NIGHTS else None


def _ratio(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Of the means, the second over the first, by Fieller's interval: all of 0 to 1 while the first may be 0."""
    count = len(pairs)
    below, above = ([pair[n] for pair in pairs] for n in (0, 1))
    unit = quantile((1 + _CONFIDENCE) / 2, count - 1) ** 2 / count
    means = fmean(below), fmean(above)
    # At the ends k of the interval: (mean above - k mean below)^2 = unit x the variance of that.
    square = means[0] ** 2 - unit * _covariance(below, below)
    middle = means[0] * means[1] - unit * _covariance(below, above)
    within = middle**2 - square * (means[1] ** 2 - unit * _covariance(above, above))
    value = _clipped(means[1] / means[0]) if means[0] > 0 else 0.0
    if square <= 0 or within < 0 or means[0] <= 0:
        return Estimate(value=value, low=0.0, high=1.0, nights=count)
    low, high = (_clipped((middle + side * math.sqrt(within)) / square) for side in (-1, 1))
    return Estimate(value=value, low=low, high=high, nights=count)


def night_course(cells: Sequence[CellReport]) -> NightCourse | None:
    """Of all gated figures with nights enough: their mean, and the interval of one, since cells share the nights."""
    gated = [one for cell in cells for one in cell.judgements if one.gates]
    found = [
        course
        for one in gated
        if (points := _steady_nights(one))
        and (
            course := course_of(
                [point.value for point in points],
                [point.control for point in points] if one.control_p is not None else (),
                higher_is_better=one.metric.direction == "higher",
            )
        )
    ]
    if not found:
        return None
    seen = [one.control_sees for one in found if one.control_sees]
    return NightCourse(
        memory=_mean([one.memory for one in found]),
        drift_percent=_mean([one.drift_percent for one in found]),
        noise_percent=fmean(one.noise_percent for one in found),
        control_sees=_mean(seen) if len(seen) == len(found) else None,
    )


def course_of(
    values: Sequence[float],
    controls: Sequence[float | None] = (),
    *,
    higher_is_better: bool = False,
    rule: Rule = G3,
) -> NightCourse | None:
    """Of one series of nights, oldest first, and the control beside each."""
    count, sign = len(values), -1 if higher_is_better else 1
    if count < FEWEST_IN_COURSE:
        return None
    off = _distances(values, rule)
    memory = _autocorrelation(off)
    nights = [n - (count - 1) / 2 for n in range(count)]
    squares = math.fsum(n * n for n in nights)
    slope = math.fsum(n * one for n, one in zip(nights, off, strict=True)) / squares
    about = [one - slope * n for n, one in zip(nights, off, strict=True)]
    noise = max(math.sqrt(math.fsum(one * one for one in about) / (count - 2)), rule.least_noise)
    follows = max(_autocorrelation(about), 0.0)  # nights that follow each other say less of a slope
    error = noise * math.sqrt((1 + follows) / (1 - follows) / squares)
    return NightCourse(
        memory=_estimate(memory, math.sqrt((1 - memory**2) / count), count),
        drift_percent=_estimate(100 * MONTH * sign * slope, 100 * MONTH * error, count),
        noise_percent=100 * noise,
        control_sees=_seen_to_last(values, controls, rule),
    )


def _seen_to_last(values: Sequence[float], controls: Sequence[float | None], rule: Rule) -> Estimate | None:
    both = [(ours, other) for ours, other in zip(values, controls, strict=False) if other is not None]
    if len(both) < FEWEST_IN_COURSE:
        return None
    cell, control = (_distances([pair[n] for pair in both], rule) for n in (0, 1))
    each = list(zip(cell, control, strict=True))
    return _ratio([_products(pair) for pair in zip(each[::2], each[1::2], strict=False)])  # no night in two pairs


def _distances(values: Sequence[float], rule: Rule) -> list[float]:
    """From their mean: logarithms, clipped."""
    logs = clipped(logarithms(values, "the nights"), rule)
    mean = fmean(logs)
    return [one - mean for one in logs]


def false_alarms(
    shared: SharedNoise | None, course: NightCourse | None, sees: Estimate | None, *, worse: bool = False
) -> FalseAlarms:
    """As simulated; `worse`: at the worse end of each interval. Unknown, re-runs share all, controls see nothing."""
    share, seen = 1.0, _seen(sees, worse)
    if shared:
        share = shared.high if worse else shared.share
    rates = [_simulated("share", share, seen)]
    if course:
        memory, drift = (one.high if worse else one.value for one in (course.memory, course.drift_percent))
        lasting = _seen(course.control_sees, worse)
        rates += [_simulated("memory", memory, lasting), _simulated("drift", drift / course.noise_percent, lasting)]
    usual = max(rates)
    skewed, slow = _simulated("skewed", share, seen), _simulated("slow nights", 1.0, seen)
    return FalseAlarms(usual, max(usual, skewed), max(usual, slow))


def tells(sees: Estimate | None) -> bool:
    """Whether the nights say anything of what the control sees."""
    return sees is not None and (sees.low, sees.high) != (0.0, 1.0)


def _seen(sees: Estimate | None, worse: bool) -> float:
    if sees is None or not tells(sees):
        return 0.0
    return sees.low if worse else sees.value


def _simulated(what: str, value: float, seen: float) -> float:
    """Between those that were simulated, by the logarithm of the rate; the last beyond them."""
    from numpy import interp

    rows = RATES[what]
    logs = [math.log(max(float(interp(seen, SEEN, rates)), _LEAST_RATE)) for rates in rows.values()]
    return math.exp(float(interp(value, list(rows), logs)))


def _lasting(verdicts: Sequence[tuple[str, str]]) -> set[int]:
    """Of figures' verdicts, oldest first: those of a change that was there the next night too, or may be tomorrow."""
    found, after = set(), dict[str, str]()
    for n, (name, verdict) in reversed(list(enumerate(verdicts))):
        if verdict in LEVELS and after.get(name, verdict) == verdict:
            found.add(n)
        after[name] = verdict
    return found


def _off(one: MetricJudgement) -> list[tuple[float, float]]:
    """From the cell's level, and from the control's, of which tonight's is known to be so far off."""
    control = one.points[-1].control if one.points else None
    if control is None or one.control_percent is None or one.baseline is None:
        return []
    usual = control / (1 + one.control_percent / 100)
    pairs = zip(one.confirmations, one.confirmation_controls, strict=False)  # older records have no controls
    return [(math.log(ours / one.baseline), math.log(other / usual)) for ours, other in pairs if other is not None]


def _products(off: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Means over pairs of runs: of what the cell shows in both, and what the cell shows in one, the control in the
    other.
    """
    pairs = list(permutations(off, 2))
    return fmean(one[0] * other[0] for one, other in pairs), fmean(one[0] * other[1] for one, other in pairs)


def _covariance(one: Sequence[float], other: Sequence[float]) -> float:
    means = fmean(one), fmean(other)
    return math.fsum((a - means[0]) * (b - means[1]) for a, b in zip(one, other, strict=True)) / (len(one) - 1)


def _steady_nights(one: MetricJudgement) -> list[NightPoint]:
    """Of the level that counts now: without tonight and the nights that may yet be another level."""
    return [
        point
        for point in one.points
        if point.used_as == "baseline" or (point.used_as == "left out" and point.why in (OLDER, BETWEEN))
    ]


def _autocorrelation(distances: Sequence[float]) -> float:
    """Lag 1, with its bias in short series taken out."""
    count, squares = len(distances), math.fsum(one * one for one in distances)
    if not squares:
        return 0.0
    lagged = math.fsum(one * after for one, after in pairwise(distances))
    return min(max((lagged / squares + 1 / count) / (1 - 3 / count), -0.95), 0.95)


def _estimate(value: float, error: float, nights: int) -> Estimate:
    reach = quantile((1 + _CONFIDENCE) / 2, nights - 2) * error
    return Estimate(value=value, low=value - reach, high=value + reach, nights=nights)


def _mean(found: Sequence[Estimate]) -> Estimate:
    return Estimate(
        value=fmean(one.value for one in found),
        low=fmean(one.low for one in found),
        high=fmean(one.high for one in found),
        nights=min(one.nights for one in found),
    )


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
