"""Step times of runs on machines of different kinds. Every function returns runs x steps, as shares of the level.

The two-scale process has the sizes that public MLPerf v5.1 logs show: 0.2% from step to step with an autocorrelation
of 0.3, and 0.1% that lasts for some fifty steps.
"""

from collections.abc import Callable

import numpy as np

from tests.auditing.table import Array, Random

Process = Callable[[Random, int, int], Array]


def independent(random: Random, runs: int, steps: int, deviation: float = 0.003) -> Array:
    return 1 + deviation * random.standard_normal((runs, steps))


def autoregressive(r: float, deviation: float = 0.003) -> Process:
    """Each step remembers a share of the one before."""

    return lambda random, runs, steps: 1 + deviation * remembering(random.standard_normal((runs, steps)), r)


def remembering(values: Array, r: float) -> Array:
    """AR(1) along the second axis, with the variance of its values."""
    made = values.copy()
    made[:, 1:] *= np.sqrt(1 - r * r)
    for place in range(1, made.shape[1]):
        made[:, place] += r * made[:, place - 1]
    return made


def two_scales(random: Random, runs: int, steps: int) -> Array:
    fast = autoregressive(0.3, 0.002)(random, runs, steps)
    return fast + autoregressive(0.98, 0.001)(random, runs, steps) - 1


def every_tenth(random: Random, runs: int, steps: int) -> Array:
    """Each tenth step takes 10% longer, wherever in the ten a run begins."""
    place = (np.arange(steps)[None, :] + random.integers(0, 10, (runs, 1))) % 10
    return independent(random, runs, steps) + 0.1 * (place == 0)


def spiked(random: Random, runs: int, steps: int) -> Array:
    """1.7% of the steps take 7 to 25% longer."""
    spikes = random.random((runs, steps)) < 0.017
    return independent(random, runs, steps) + np.where(spikes, random.uniform(0.07, 0.25, (runs, steps)), 0.0)


def two_states(random: Random, runs: int, steps: int) -> Array:
    """The machine is 1% slower for 25 steps on average, after 75 at its usual speed."""
    state = random.random(runs) < 0.25
    slow = np.empty((runs, steps), dtype=bool)
    for step in range(steps):
        ends = random.random(runs) < np.where(state, 1 / 25, 1 / 75)
        state = state ^ ends
        slow[:, step] = state
    return independent(random, runs, steps) + 0.01 * slow


PROCESSES: dict[str, Process] = {
    "independent, 0.3%": independent,
    "AR(1) 0.6": autoregressive(0.6),
    "AR(1) 0.9": autoregressive(0.9),
    "two scales": two_scales,
    "every tenth step 10% slow": every_tenth,
    "spikes": spiked,
    "a state 1% slower for 25 steps in 100": two_states,
}


def true_median(process: Process) -> float:
    """Of the process: of very many steps of many runs."""
    return float(np.median(process(np.random.default_rng(7), 400, 2500)))
