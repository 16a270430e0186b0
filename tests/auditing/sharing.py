"""The gate's own measure of what re-runs share with the run that they are to confirm, on sites where it is known."""

from collections.abc import Sequence

import numpy as np

from benchmarks.gate.level import level
from benchmarks.gate.noise import Reruns, false_alarm_share, shared_noise
from benchmarks.gate.rule import G3
from tests.auditing.nights import WORLDS, Nights, World, draw
from tests.auditing.table import Lines, Random, Size, at_least, share

PART = "shared noise"
NIGHTS, BASELINE, RERUN = 400, 20, 25  # of a site; of a baseline; with re-runs
SUSPECT = 1.645  # standard deviations above the level


def true_share(world: World) -> float:
    """Of a run's variance."""
    return world.of_night + (world.of_nodes if world.one_machine else 0.0)


def lines(size: Size, random: Random) -> Lines:
    for name, world in WORLDS.items():
        sites = draw(world, random, size.runs(400, 25), NIGHTS)
        found = [shared_noise(_reruns(sites, site)) for site in range(len(sites.runs))]
        known = [one for one in found if one is not None]
        truth = true_share(world)
        held = share([truth <= one.high for one in known])
        middle, stated = float(np.median([one.share for one in known])), false_alarm_share(truth, controlled=False)
        shares = f"{100 * truth:.0f}% is shared, the median estimate is {100 * middle:.0f}%"
        what = f"{name}: the upper end of the estimate holds the share"
        yield at_least(PART, what, held, 0.95, also=f"{shares}; stated false alarms {100 * stated:.2f}%")


def _reruns(sites: Nights, site: int) -> Sequence[Reruns]:
    """Of the first nights that look slow, as a gate would make them; the noise is that of its baselines."""
    runs = sites.runs[site]
    levels = [level(part.tolist(), G3) for part in np.split(runs, NIGHTS // BASELINE)]
    deviation = float(np.sqrt(np.mean([one.deviation**2 for one in levels])))
    slow = np.flatnonzero(runs > np.median(runs) + SUSPECT * deviation)[:RERUN]
    return [Reruns("cell", np.exp(sites.reruns[site, n]).tolist(), deviation, NIGHTS - 2) for n in slow]
