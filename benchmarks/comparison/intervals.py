"""How far side B is from side A, with its interval: sets of runs, pairs, single runs. Pure; logarithms throughout.

The unit is the run. Steps of one run share its machine, its placing and its minute: intervals of steps, put together,
hold a difference of nothing in far fewer cases than they say (tests/benchmarks/comparison/test_simulated.py). So a
single run against a single run has a verdict only where it is known how much such runs differ by chance.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import statistics
from benchmarks.pairs import FEWEST_PAIRS, POWER, paired

FEWEST_RUNS = FEWEST_PAIRS  # of a side that is a set: two have an interval that holds nearly everything
FEWEST_FOR_NOISE = 5  # runs of one identity, before their spread is taken for that of others
CONFIDENCE = 0.975  # two-sided 95%
EQUALITY = 0.95  # two-sided 90%: two one-sided tests at 5%


class Estimate(NamedTuple):
    """The logarithm of B over A. None: too little is known for an interval."""

    centre: float
    half_width: float | None  # 95%; of an interval that is not symmetric, the wider half
    low: float | None
    high: float | None
    equal_low: float | None  # 90%
    equal_high: float | None
    detectable: float | None  # the effect that is seen in 4 of 5 cases
    by: str  # what the interval is made from
    of_runs: bool = True  # whether what differs from run to run is in it; else it speaks of two windows alone


class Level(NamedTuple):
    """One side's own: the logarithm of its figure."""

    centre: float
    low: float | None
    high: float | None
    runs: int
    clipped: list[int]  # the places of runs that lie far off, and count as if they did not


class Noise(NamedTuple):
    """How much runs of one identity differ by chance, as the standard deviation of logarithms."""

    deviation: float
    freedom: int
    runs: int
    of: str  # which runs, for people


# --- one side -----------------------------------------------------------------------------------


def level(logs: Sequence[float], window: tuple[float, float] | None = None) -> Level:
    """The mean over runs, with its interval from 3 runs on; of one run its own, with its window's interval."""
    if len(logs) == 1:
        low, high = window or (None, None)
        return Level(logs[0], low, high, 1, [])
    found = paired(logs)
    if found is None:
        return Level(_mean(logs), None, None, len(logs), [])
    clipped = [place for place, (given, kept) in enumerate(zip(logs, found.counted, strict=True)) if given != kept]
    low, high = found.centre - found.half_width, found.centre + found.half_width
    return Level(found.centre, low, high, len(logs), clipped)


# --- two sides ----------------------------------------------------------------------------------


def between_sets(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Welch's t on the means of logarithms; from 6 runs a side on, a run far off counts as in pairs.py."""
    one, other = paired(a), paired(b)
    if one is None or other is None:
        raise ValueError(f"a set has {FEWEST_RUNS} runs or more")
    parts = [one.deviation**2 / len(a), other.deviation**2 / len(b)]
    error = math.sqrt(math.fsum(parts))
    weights = (len(a) - 1, len(b) - 1)
    # Satterthwaite: as many degrees of freedom as the noisier side leaves.
    below = math.fsum(part**2 / weight for part, weight in zip(parts, weights, strict=True))
    freedom = math.fsum(parts) ** 2 / below if below > 0 else float(sum(weights))
    return _around(other.centre - one.centre, error, freedom, f"{len(a)} and {len(b)} runs, Welch's t")


def between_pairs(logs: Sequence[float]) -> Estimate:
    """Student's t on the ratios of pairs: what slows both runs of a pair falls out."""
    found = paired(logs)
    if found is None:
        raise ValueError(f"an interval needs {FEWEST_PAIRS} pairs")
    error = found.deviation / math.sqrt(len(logs))
    return _around(found.centre, error, len(logs) - 1, f"{len(logs)} pairs of one sweep, Student's t")


def with_noise(a: Sequence[float], b: Sequence[float], noise: Noise) -> Estimate:
    """Fewer runs than a set has, beside a known noise from run to run."""
    error = noise.deviation * math.sqrt(1 / len(a) + 1 / len(b))
    by = f"the noise from run to run, {100 * math.expm1(noise.deviation):.2g}%, {noise.of}"
    return _around(_mean(b) - _mean(a), error, noise.freedom, by)


def between_windows(a: Level, b: Level) -> Estimate:
    """Two single runs: their windows' intervals together (MOVER, Zou and Donner 2008). Of these windows alone."""
    centre = b.centre - a.centre
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return unknown_interval(centre)
    below = math.hypot(b.centre - b.low, a.high - a.centre)
    above = math.hypot(b.high - b.centre, a.centre - a.low)
    half, by = max(below, above), "the two windows' own intervals"
    return Estimate(centre, half, centre - below, centre + above, None, None, None, by, of_runs=False)


def unknown_interval(centre: float) -> Estimate:
    return Estimate(centre, None, None, None, None, None, None, "", of_runs=False)


def noise_of(groups: Sequence[Sequence[float]], of: str) -> Noise | None:
    """Pooled over groups of runs that are alike; None where no group is large enough."""
    counted = [group for group in groups if len(group) >= FEWEST_FOR_NOISE]
    if not counted:
        return None
    freedom = sum(len(group) - 1 for group in counted)
    squares = math.fsum((len(group) - 1) * (statistics.stdev(group) or 0.0) ** 2 for group in counted)
    return Noise(math.sqrt(squares / freedom), freedom, sum(map(len, counted)), of)


def _around(centre: float, error: float, freedom: float, by: str) -> Estimate:
    half, equal = quantile(CONFIDENCE, freedom) * error, quantile(EQUALITY, freedom) * error
    return Estimate(
        centre=centre,
        half_width=half,
        low=centre - half,
        high=centre + half,
        equal_low=centre - equal,
        equal_high=centre + equal,
        detectable=half + quantile(POWER, freedom) * error,
        by=by,
    )


def _mean(logs: Sequence[float]) -> float:
    return math.fsum(logs) / len(logs)


def quantile(probability: float, freedom: float) -> float:
    from scipy.special import stdtrit  # --help needs no quantile

    return float(stdtrit(freedom, probability))
