"""Made nights: runs that share what differs from night to night, for simulations of comparisons."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.comparing.days import Noise, Timed, days_of, noise_of
from benchmarks.comparing.intervals import Estimate, between_sets_of_days, with_noise

HOUR, NIGHT = 3600.0, 86400.0
NIGHT_NOISE = RUN_NOISE = 0.002


class Machine(NamedTuple):
    """Each night has a level of its own, whatever runs."""

    random: np.random.RandomState
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


def machine(random: np.random.RandomState, night_noise: float = NIGHT_NOISE, run_noise: float = RUN_NOISE) -> Machine:
    return Machine(random, {}, night_noise, run_noise)


def compared(a: Sequence[Timed], b: Sequence[Timed], earlier: Sequence[Timed] = ()) -> Estimate:
    """As compare.py does it."""
    found = days_of([run.started for run in (*a, *b)])
    days = (found[: len(a)], found[len(a) :])
    logs = ([run.log for run in a], [run.log for run in b])
    noise: Noise = noise_of([group for group in (earlier, a, b) if len(group) >= 3])
    if min(len(a), len(b)) >= 3:
        return between_sets_of_days(*logs, days, noise)
    return with_noise(*logs, days, noise)
