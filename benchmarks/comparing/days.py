"""On which days runs were made, and how much runs of one kind differ by chance: within a day, and from day to day.

Runs of one day share nodes, temperature and neighbours, so they are alike for a reason that another day does not
have. Pure; logarithms throughout.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from benchmarks.gate.change_points import FEWEST_NIGHTS, change_points
from benchmarks.measuring import statistics
from benchmarks.measuring.clipped_mean import CLIPPED_SPREAD_CORRECTION, clip, clip_reach
from benchmarks.rendering.columns import plural

SECONDS_OF_A_DAY = 12 * 3600  # what began so long after the first run of a day is of the next: a night is one day
FEWEST_DAYS = 5  # of one kind, before their spread is taken for that of others
FEWEST_FOR_NOISE = 5  # runs of one day, likewise
MOST_DAYS = 60  # the newest: a machine ages
MOST_FAR = 0.15  # where more of the values are far off, the machine is like that, and all count
STAMP = "%Y%m%dT%H%M%SZ"


class Timed(NamedTuple):
    """A run's figure."""

    log: float
    started: float | None  # seconds since 1970; None: its name does not say


class Spread(NamedTuple):
    variance: float
    freedom: float
    of: str = ""  # which runs, for people


class Noise(NamedTuple):
    """How much runs of one kind differ by chance; None: too little is known."""

    within: Spread | None  # runs of one day
    between: Spread | None  # days, by their medians
    single: Spread | None  # one run, its day included


def started_at(run_id: str) -> float | None:
    try:
        return datetime.strptime(run_id[:16], STAMP).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def days_of(started: Sequence[float | None]) -> list[int]:
    """The number of each run's day; those whose time is not known share one."""
    begins: list[float] = []
    for time in sorted(time for time in started if time is not None):
        if not begins or time - begins[-1] > SECONDS_OF_A_DAY:
            begins.append(time)
    return [0 if time is None else bisect_right(begins, time) for time in started]


# --- two sides ----------------------------------------------------------------------------------


def shared_out(a: Sequence[int], b: Sequence[int]) -> float:
    """How often a day's variance is in the difference of two means: 0 where each day has the same share of both."""
    one, other = _shares(a), _shares(b)
    return math.fsum((one.get(day, 0.0) - other.get(day, 0.0)) ** 2 for day in one.keys() | other.keys())


def left_out(a: Sequence[int], b: Sequence[int]) -> float:
    """Of that, what the spread of each side's runs does not show: 0 where each run has a day of its own."""
    shown = math.fsum(
        (1 - math.fsum(share**2 for share in _shares(days).values())) / (len(days) - 1)
        for days in (a, b)
        if len(days) > 1
    )
    missing = shared_out(a, b) - shown
    return missing if missing > 1e-9 else 0.0


def _shares(days: Sequence[int]) -> dict[int, float]:
    return {day: days.count(day) / len(days) for day in set(days)}


def by_day(logs: Sequence[float], days: Sequence[int]) -> list[list[float]]:
    """Those of each day, the oldest first."""
    return [[log for log, own in zip(logs, days, strict=True) if own == day] for day in sorted(set(days))]


def day_means(logs: Sequence[float], days: Sequence[int]) -> list[float]:
    return [fmean(found) for found in by_day(logs, days)]


# --- the noise of one kind of run ---------------------------------------------------------------


def noise_of(kinds: Sequence[Sequence[Timed]]) -> Noise:
    """Each of `kinds` are runs that are alike; lasting shifts between days are taken out."""
    newest = [
        by_day([run.log for run in runs], days_of([run.started for run in runs]))[-MOST_DAYS:] for runs in kinds
    ]
    days = [day for found in newest for day in found if len(day) > 1]
    within = _described(spread(days), days)
    if within and within.freedom < FEWEST_FOR_NOISE - 1:
        within = None
    long = [found for found in newest if len(found) >= FEWEST_DAYS]
    days = [day for found in long for day in found]
    between = _described(spread([level for found in long for level in _levels(found)]), days)
    return Noise(within, between, _single(between, within, list(map(len, days))) if between else None)


def _described(found: Spread | None, days: Sequence[Sequence[float]]) -> Spread | None:
    """With the runs that it is made of, in words."""
    runs = f"of {sum(map(len, days))} runs of the same kind on {plural(len(days), 'day')}"
    return found and found._replace(of=runs)


def _levels(days: Sequence[Sequence[float]]) -> list[list[float]]:
    """The medians of days, divided where the level changed for good: a shift of the past is no noise."""
    medians = [statistics.median(runs) or 0.0 for runs in days]
    if len(medians) < 2 * FEWEST_NIGHTS:
        return [medians]
    middle = statistics.median(medians) or 0.0
    bounds = [0, *(change.position for change in change_points([math.exp(one - middle) for one in medians]))]
    return [medians[begin:end] for begin, end in pairwise([*bounds, len(medians)])]


def spread(groups: Sequence[Sequence[float]]) -> Spread | None:
    """The variance around each group's own mean; a few values that are far off count as less far.

    As in clipped_mean.py, beyond 4 robust deviations; not where many are: that is how the machine is.
    """
    counted = [group for group in groups if len(group) > 1]
    if not counted:
        return None
    kept, correction = _clipped(counted)
    freedom = sum(len(group) - 1 for group in counted)
    squares = math.fsum((len(group) - 1) * (statistics.stdev(group) or 0.0) ** 2 for group in kept)
    return Spread(correction**2 * squares / freedom, freedom)


def _clipped(groups: Sequence[Sequence[float]]) -> tuple[Sequence[Sequence[float]], float]:
    middles = [statistics.median(group) or 0.0 for group in groups]
    off = [abs(value - middle) for group, middle in zip(groups, middles, strict=True) for value in group]
    reach = clip_reach(off)
    if reach is None:
        return groups, 1.0
    reach *= math.sqrt((len(off) - 1) / (len(off) - len(groups)))
    far = sum(one > reach for one in off)
    if not far or far > MOST_FAR * len(off):
        return groups, 1.0
    return [
        clip(group, middle, reach) for group, middle in zip(groups, middles, strict=True)
    ], CLIPPED_SPREAD_CORRECTION


def _single(between: Spread, within: Spread | None, counts: Sequence[int]) -> Spread:
    """One run of any day: a median of several has less of their noise in it than one run has."""
    part = fmean(1 / count for count in counts)
    if within is None:
        return between._replace(variance=between.variance / part)
    return combined([between, Spread((1 - part) * within.variance, within.freedom)])._replace(of=between.of)


def combined(parts: Sequence[Spread]) -> Spread:
    """A sum of variances, with Satterthwaite's degrees of freedom."""
    total = math.fsum(part.variance for part in parts)
    below = math.fsum(part.variance**2 / part.freedom for part in parts)
    return Spread(total, total**2 / below if below else math.fsum(part.freedom for part in parts))
