"""Nights of one cell in worlds of different kinds: each night one run, and the re-runs that it would have had."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.auditing.table import Array, Random

RERUNS = 3
NOISE = 0.005  # of one run's median, all parts together
MONTH = 30.0


class Nights(NamedTuple):
    """Logarithms of step times."""

    runs: Array  # histories x nights
    reruns: Array  # histories x nights x re-runs
    whole: Array  # histories x nights: what all runs of the night share, the control's too


Draw = Callable[[Random, tuple[int, ...]], Array]  # values with a variance of 1


class World(NamedTuple):
    """The parts of a run's noise as shares of its variance; the rest is the run's own."""

    of_night: float = 0.1
    of_nodes: float = 0.4
    draw: Draw = lambda random, shape: random.standard_normal(shape)
    one_machine: bool = False  # re-runs are on the nodes of the night's run
    remembers: float = 0.0  # autocorrelation of the nights' part
    bad_nights: float = 0.0  # share of nights that are slow as a whole
    bad_by: float = 0.02
    drift_a_month: float = 0.0
    drift_is_shared: bool = True  # by the control cell too


def student(random: Random, shape: tuple[int, ...]) -> Array:
    return random.standard_t(3, shape) / np.sqrt(3.0)


def skewed(random: Random, shape: tuple[int, ...]) -> Array:
    """Exponential: never much faster than usual, now and then much slower."""
    return random.exponential(1.0, shape) - 1.0


WORLDS: dict[str, World] = {
    "normal noise, a tenth of it the whole night's": World(),
    "Student's t with 3 degrees of freedom": World(draw=student),
    "skewed noise": World(draw=skewed),
    "half of the noise is the whole night's": World(of_night=0.5, of_nodes=0.2),
    "one machine: re-runs on the same nodes": World(one_machine=True),
    "nights remember each other (AR(1) 0.8, half of the noise)": World(of_night=0.5, of_nodes=0.2, remembers=0.8),
    "3% of nights are slow by 2% as a whole": World(bad_nights=0.03),
    "a drift of 1% a month, the machine's": World(drift_a_month=0.01),
}


def draw(world: World, random: Random, histories: int, nights: int, noise: float = NOISE) -> Nights:
    shape = (histories, nights)
    whole = noise * world.of_night**0.5 * _remembering(world.draw(random, shape), world.remembers)
    whole += np.log1p(world.bad_by) * (random.random(shape) < world.bad_nights)
    drift = world.drift_a_month / MONTH * np.arange(nights)[None, :]
    whole += drift if world.drift_is_shared else 0.0
    nodes = noise * world.of_nodes**0.5 * world.draw(random, (*shape, 1 + RERUNS))
    if world.one_machine:
        nodes[:] = nodes[:, :, :1]
    own = noise * (1 - world.of_night - world.of_nodes) ** 0.5 * world.draw(random, (*shape, 1 + RERUNS))
    every = whole[:, :, None] + nodes + own + (0.0 if world.drift_is_shared else drift[:, :, None])
    return Nights(every[:, :, 0], every[:, :, 1:], whole)


def _remembering(values: Array, r: float) -> Array:
    """AR(1) with the variance of its values."""
    made = values.copy()
    made[:, 1:] *= np.sqrt(1 - r * r)
    for night in range(1, made.shape[1]):
        made[:, night] += r * made[:, night - 1]
    return made
