"""Nights of one cell in worlds of different kinds: each night one run, and the re-runs that it would have had.

Beside each of these runs a control: a small program on the same nodes in the same night, with noise of its own.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.auditing.noise import remembering
from tests.auditing.table import Array, Random

RERUNS = 3
NOISE = 0.005  # of one run's median, all parts together
MONTH = 30.0


class Nights(NamedTuple):
    """Logarithms of step times."""

    runs: Array  # histories x nights
    reruns: Array  # histories x nights x re-runs
    controls: Array  # histories x nights x (the run's, and its re-runs')


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
    outliers: float = 0.0  # share of runs, and of controls, that are slow by 2 to 10%
    control_sees: float = 1.0  # of what the night and its nodes do


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
    "3% of runs are slow by 2 to 10%": World(outliers=0.03),
}
# In these the night itself changes, and no number of re-runs in the same night tells that from a change of the cell.
NIGHTS_THAT_CHANGE: dict[str, World] = {
    "nights remember each other (AR(1) 0.8, half of the noise)": World(of_night=0.5, of_nodes=0.2, remembers=0.8),
    "3% of nights are slow by 2% as a whole": World(bad_nights=0.03),
    "a drift of 1% a month, the machine's": World(drift_a_month=0.01),
}
HALF_SEEN = {"3% of nights are slow by 2%, and the control sees half": World(bad_nights=0.03, control_sees=0.5)}


def draw(world: World, random: Random, histories: int, nights: int, noise: float = NOISE) -> Nights:
    shape = (histories, nights)
    whole = noise * world.of_night**0.5 * remembering(world.draw(random, shape), world.remembers)
    whole += np.log1p(world.bad_by) * (random.random(shape) < world.bad_nights)
    whole += world.drift_a_month / MONTH * np.arange(nights)[None, :]
    nodes = noise * world.of_nodes**0.5 * world.draw(random, (*shape, 1 + RERUNS))
    if world.one_machine:
        nodes[:] = nodes[:, :, :1]
    shared = whole[:, :, None] + nodes
    cell = shared + _own(world, random, shared.shape, noise)
    return Nights(
        cell[:, :, 0], cell[:, :, 1:], world.control_sees * shared + _own(world, random, shared.shape, noise)
    )


def _own(world: World, random: Random, shape: tuple[int, ...], noise: float) -> Array:
    """Of one run, shared with nothing."""
    slow = np.log1p(random.uniform(0.02, 0.10, shape)) * (random.random(shape) < world.outliers)
    return noise * (1 - world.of_night - world.of_nodes) ** 0.5 * world.draw(random, shape) + slow
