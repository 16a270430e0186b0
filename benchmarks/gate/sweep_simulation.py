"""The weekly sweep on synthetic nights: how often it finds a lasting change, and one that is none. Pure."""

from benchmarks.gate.change_points import change_points
from benchmarks.gate.simulation import World, draw, generator

BEFORE, SINCE = 30, 20  # nights on either side of the change


def sweep_finds(world: World, effect: float, seed: int, histories: int) -> int:
    """In how many histories the sweep tells a change; `effect` is a share, 0 where there is none to find."""
    import numpy as np

    runs = draw(world, generator(seed, world, "sweep"), histories, BEFORE + SINCE, 0).runs
    runs[:, BEFORE:] += np.log1p(effect)
    return sum(bool(change_points(row)) for row in np.exp(runs).tolist())
