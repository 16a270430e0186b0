"""Simulated nights of one cell, and the rule's verdicts on them.

Each night has one run, the re-runs that it would have, and one run of a control cell on other nodes.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.nightly.rule import CONFIRMATIONS, judge, screen_distance
from benchmarks.nightly.series import PastNight, divide
from benchmarks.nightly.values import Suspicion
from benchmarks.verdict import Verdict
from tests.simulation.table import Array, Random

NOISE = 0.005  # of one run's median, all parts together
MONTH = 30.0


class Nights(NamedTuple):
    """Logarithms of step times."""

    runs: Array  # histories x nights
    reruns: Array  # histories x nights x re-runs
    controls: Array  # histories x nights


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
    control_sees: float = 1.0  # share of the effects of the night and its nodes


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
# The night itself changes. Re-runs of the same night cannot distinguish that from a change of the cell.
NIGHTS_THAT_CHANGE: dict[str, World] = {
    "3% of nights are slow by 2% as a whole": World(bad_nights=0.03),
    "nights remember each other (AR(1) 0.8, half of the noise)": World(of_night=0.5, of_nodes=0.2, remembers=0.8),
    "a drift of 1% a month, the machine's": World(drift_a_month=0.01),
}


def draw(world: World, random: Random, histories: int, nights: int, noise: float = NOISE) -> Nights:
    shape = (histories, nights)
    whole = noise * world.of_night**0.5 * remembering(world.draw(random, shape), world.remembers)
    whole += np.log1p(world.bad_by) * (random.random(shape) < world.bad_nights)
    whole += world.drift_a_month / MONTH * np.arange(nights)[None, :]
    nodes = noise * world.of_nodes**0.5 * world.draw(random, (*shape, 1 + CONFIRMATIONS))
    if world.one_machine:
        nodes[:] = nodes[:, :, :1]
    cell = whole[:, :, None] + nodes + _own_noise(world, random, nodes.shape, noise)
    its_nodes = noise * world.of_nodes**0.5 * world.draw(random, shape)
    control = world.control_sees * whole + its_nodes + _own_noise(world, random, shape, noise)
    return Nights(cell[:, :, 0], cell[:, :, 1:], control)


def _own_noise(world: World, random: Random, shape: tuple[int, ...], noise: float) -> Array:
    """Return the noise of one run, which no other shares."""
    slow = np.log1p(random.uniform(0.02, 0.10, shape)) * (random.random(shape) < world.outliers)
    return noise * (1 - world.of_night - world.of_nodes) ** 0.5 * world.draw(random, shape) + slow


def remembering(values: Array, share: float) -> Array:
    """AR(1) along the second axis, with the variance of the values."""
    made = values.copy()
    made[:, 1:] *= np.sqrt(1 - share * share)
    for place in range(1, made.shape[1]):
        made[:, place] += share * made[:, place - 1]
    return made


# --- the rule on them -----------------------------------------------------------------------------


def verdicts(nights: Nights, controlled: bool) -> list[list[Verdict]]:
    """Return the verdicts of every history, night by night. The user accepts nothing."""
    runs, reruns = np.exp(nights.runs).tolist(), np.exp(nights.reruns).tolist()
    controls = np.exp(nights.controls).tolist() if controlled else [[]] * len(runs)
    return [_verdicts(*one) for one in zip(runs, reruns, controls, strict=True)]


def _verdicts(runs: Sequence[float], reruns: Sequence[Sequence[float]], controls: Sequence[float]) -> list[Verdict]:
    past: list[PastNight] = []
    moved = [None] * len(runs) if not controls else _control_moves(controls)
    for latest, again, control in zip(runs, reruns, moved, strict=True):
        parts = divide([*past, PastNight(value=latest)])
        baseline = [past[n].value for n in parts.baseline]
        recent = [*(past[n].value for n in parts.recent[:-1]), latest]
        alarm = parts.alarm.verdict if parts.alarm else None
        found = judge(baseline, recent, "lower", None, alarm, control)
        if found.suspicion is Suspicion.OPEN:
            found = judge(baseline, recent, "lower", again, alarm, control)
        past.append(PastNight(value=latest, verdict=found.verdict, suspicion=found.suspicion))
    return [night.verdict or Verdict.NOT_TESTED for night in past]


def _control_moves(controls: Sequence[float]) -> list[float | None]:
    """Return how far the control was off each night; None if it was as usual."""
    past: list[PastNight] = []
    found: list[float | None] = []
    for latest in controls:
        parts = divide([*past, PastNight(value=latest)])
        found.append(screen_distance([past[n].value for n in parts.baseline], latest))
        suspicion = Suspicion.NONE if found[-1] is None else Suspicion.OPEN
        past.append(PastNight(value=latest, suspicion=suspicion))
    return found
