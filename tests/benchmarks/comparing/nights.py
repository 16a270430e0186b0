"""Made runs and nights for simulations of comparisons, and how often intervals and verdicts on them are right."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.comparing.context import still_moves
from benchmarks.comparing.days import Timed, days_of, noise_of
from benchmarks.comparing.intervals import (
    Estimate,
    between_sets,
    between_sets_in_order,
    between_sets_of_days,
    verdict_of,
    with_noise,
)
from benchmarks.comparing.together import CHANCE, adjusted
from benchmarks.comparing.turns import times_of
from benchmarks.measuring import settling

HOUR, NIGHT = 3600.0, 86400.0
NIGHT_NOISE = RUN_NOISE = 0.002
NOISE = 0.003  # of run medians, as logarithms
Random = np.random.RandomState
Array = npt.NDArray[np.float64]


def logs(random: Random, runs: int, outliers: float = 0.0, noise: float = NOISE) -> list[float]:
    """Medians of runs, some of which are 2-10% slow."""
    slow = np.where(random.rand(runs) < outliers, random.uniform(0.02, 0.10, runs), 0.0)
    return [float(one) for one in random.normal(0.0, noise, runs) + slow]


def sets(random: Random, runs: tuple[int, int], outliers: float, wider: float = 1.0) -> Estimate:
    """B is as fast as A, and may be noisier."""
    return between_sets(logs(random, runs[0], outliers), logs(random, runs[1], outliers, NOISE * wider))


def singles(random: Random, earlier: int, outliers: float) -> Estimate:
    """A run against one that is as fast, beside earlier ones."""
    noise = noise_of([[Timed(one, None) for one in logs(random, earlier, outliers)]])
    return with_noise(logs(random, 1, outliers), logs(random, 1, outliers), ([0], [0]), noise)


class Machine(NamedTuple):
    """Each night has a level of its own, whatever runs."""

    random: Random
    levels: dict[int, float]
    night_noise: float = NIGHT_NOISE
    run_noise: float = RUN_NOISE

    def runs(self, nights: Sequence[int], each: int, effect: float = 0.0) -> list[Timed]:
        found = []
        for night in nights:
            level = self.levels.setdefault(night, float(self.random.normal(0.0, self.night_noise)))
            noise = self.random.normal(0.0, self.run_noise, each)
            times = night * NIGHT + HOUR * np.sort(self.random.rand(each))
            found += [Timed(level + effect + float(n), float(t)) for n, t in zip(noise, times, strict=True)]
        return found


def machine(random: Random, night_noise: float = NIGHT_NOISE, run_noise: float = RUN_NOISE) -> Machine:
    return Machine(random, {}, night_noise, run_noise)


def compared(a: Sequence[Timed], b: Sequence[Timed], earlier: Sequence[Timed] = ()) -> Estimate:
    """As compare.py does it."""
    found = days_of([run.started for run in (*a, *b)])
    days = (found[: len(a)], found[len(a) :])
    both = ([run.log for run in a], [run.log for run in b])
    times = times_of([run.started for run in (*a, *b)], found)
    noise = noise_of([group for group in (earlier, a, b) if len(group) >= 3])
    if min(len(a), len(b)) < 3:
        return with_noise(*both, days, noise)
    return between_sets_of_days(*both, days, (times[: len(a)], times[len(a) :]), noise)


Shape = Callable[[Array], Array]
SHAPES: dict[str, Shape] = {  # of what the machine does over the day
    "a line": lambda times: times,
    "steep at first": lambda times: times**0.3,
    "a jump in the middle": np.round,
    "up and down again": lambda times: np.sin(np.pi * times),
    "a wave": lambda times: np.sin(2 * np.pi * times),
}


def in_order(
    random: Random,
    order: str,
    trend: float,
    noise: float = NOISE,
    effect: float = 0.0,
    shape: str = "a line",
    of_ratio: bool = False,
) -> Estimate:
    """Runs one after the other, such as AAABBB, on a machine that slows down by as much as `trend` over the day."""
    times = np.arange(len(order)) / (len(order) - 1)
    of_b = np.array([letter == "B" for letter in order])
    logs = random.normal(0.0, noise, len(order)) + trend * SHAPES[shape](times) + effect * of_b
    sides = [
        [float(one) for one in values[chosen]] for values in (logs, NIGHT * 0.3 * times) for chosen in (~of_b, of_b)
    ]
    return between_sets_in_order(sides[0], sides[1], (sides[2], sides[3]), of_ratio=of_ratio)


class Rates(NamedTuple):
    held: float  # how often the interval holds 0
    with_margin: float  # better or worse, with the margin of 1%
    without: float  # the same without a margin
    none: float  # no verdict

    def texts(self, *names: str) -> list[str]:
        return [f"{100 * getattr(self, name):.1f}%" for name in names]


def rates(draw: Callable[[Random], Estimate], draws: int, seed: int = 20) -> Rates:
    random, said = Random(seed), []
    for _ in range(draws):
        found = draw(random)
        held = found.low is not None and found.high is not None and found.low <= 0 <= found.high
        margin, verdict = (verdict_of(found, "lower", percent)[0] for percent in (1.0, 0.0))
        claims = ("better", "worse")
        said.append((held, margin in claims, verdict in claims, verdict == "no verdict"))
    return Rates(*(sum(column) / draws for column in zip(*said, strict=True)))


class TogetherRates(NamedTuple):
    """How often 5 figures of two sides differ."""

    any_alone: float  # one of them or more, each at 95% by itself
    any_together: float
    step_alone: float
    step_together: float
    step_equal_shares: float  # were all figures given the same share


def of_all_figures(random: Random, runs: int, draws: int, effect: float = 0.0) -> TogetherRates:
    """Step time of 0.3% noise with an effect; effective tokens/s follow it, with noise of their own."""
    said = []
    for _ in range(draws):
        chances: dict[str, float] = {}
        sides = [[random.normal(0.0, noise, runs) for noise in (NOISE, 0.002, 0.001, 0.001)] for _ in "AB"]
        for place, name in enumerate(("step time", "excess", "last loss", "memory", "effective")):
            a, b = (side[0] + side[1] if name == "effective" else side[place] for side in sides)
            moved = effect if name in ("step time", "effective") else 0.0
            chances[name] = between_sets([float(one) for one in a], [float(one) + moved for one in b]).chance or 0.0
        together = adjusted(chances)
        equal = adjusted({f"any {name}": chance for name, chance in chances.items()})
        least = [min(chances.values()), min(together.values())]
        said.append([*least, chances["step time"], together["step time"], equal["any step time"]])
    return TogetherRates(*(float(share) for share in (np.array(said) <= CHANCE).mean(axis=0)))


class Drift(NamedTuple):
    """Step times approach 1 from 1 - `size`, by a time constant."""

    size: float = 0.0
    seconds: float = 1.0


def drifting(random: Random, a: Drift, b: Drift, runs: int, effect: float = 0.0, room: bool = True) -> Estimate:
    """Runs of 60 steps of 3 s, of which those after 75 s count; `room`: as compare.py does it."""
    sides = [[_drifted(random, drift) for _ in range(runs)] for drift in (a, b)]
    found = between_sets([log for log, _ in sides[0]], [log + effect for log, _ in sides[1]])
    moves = [sum(moves for _, moves in side) / runs for side in sides]
    return found.moved(moves[1] - moves[0]) if room else found


def _drifted(random: Random, drift: Drift) -> tuple[float, float]:
    seconds = np.exp(random.normal(0.0, RUN_NOISE) + random.normal(0.0, NOISE, 60))
    ends = 3.0 * np.arange(1, 61)
    seconds = seconds * (1 - drift.size * np.exp(-ends / drift.seconds))
    counted = [settling.Timed(float(one), float(end)) for one, end in zip(seconds, ends, strict=True) if end > 75]
    found = settling.judge(counted, counted, len(ends) - len(counted))
    return float(np.log(np.median(seconds[ends > 75]))), still_moves(found)
