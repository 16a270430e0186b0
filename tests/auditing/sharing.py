"""What the gate says of its own false alarms, from a site's nights, on sites whose real false alarms are known."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.gate.level import level
from benchmarks.gate.noise import Reruns, control_sees, course_of, false_alarms, shared_noise
from benchmarks.gate.rule import G3
from tests.auditing.gating import BEFORE, watched
from tests.auditing.nights import NIGHTS_THAT_CHANGE, WORLDS, Nights, World, draw, skewed, student
from tests.auditing.table import Array, Lines, Random, Share, Size, at_least, share

PART = "stated noise"
NIGHTS, BASELINE, RERUN, COURSE = 400, 20, 25, 60  # of a site; of a baseline; with re-runs; that a record holds
WATCHED = 40
SUSPECT = 1.645  # standard deviations above the level
Z = 1.645


def true_share(world: World) -> float:
    """Of a run's variance."""
    return world.of_night + (world.of_nodes if world.one_machine else 0.0)


def lines(size: Size, random: Random) -> Lines:
    half_seen = {
        f"{name}; a control sees half": w._replace(control_sees=0.5) for name, w in NIGHTS_THAT_CHANGE.items()
    }
    for name, world in WORLDS.items():
        sites = draw(world, random, size.runs(400, 25), NIGHTS)
        known = [one for site in range(len(sites.runs)) if (one := shared_noise(_reruns(sites, site)))]
        truth, middle = true_share(world), float(np.median([one.share for one in known]))
        shares = f"{100 * truth:.0f}% is shared, the median estimate is {100 * middle:.0f}%"
        what = f"{name}: the upper end of the estimate holds the share"
        yield at_least(PART, what, share([truth <= one.high for one in known]), 0.95, also=shares)
    yield from _stated(size, random, {**WORLDS, **NIGHTS_THAT_CHANGE}, controlled=False)
    yield from _stated(size, random, half_seen, controlled=True)
    yield from _stated(size, random, NIGHTS_THAT_CHANGE, controlled=True)


def _stated(size: Size, random: Random, worlds: Mapping[str, World], controlled: bool) -> Lines:
    for name, world in worlds.items():
        sites = draw(world, random, size.runs(400, 25), NIGHTS)
        middle, stated = (
            [_rate(world, sites, site, controlled, worse=end) for site in range(len(sites.runs))]
            for end in (False, True)
        )
        real = _real(world, random, size.runs(400, 8), controlled)
        held = share([one >= real.share - Z * real.error for one in stated])
        where = f"{name}{', with a control' if controlled else ''}"
        ends = " to ".join(f"{100 * float(np.median(rates)):.2f}" for rates in (middle, stated))
        also = f"real {real.text(2)}, stated {ends}% in the middle site"
        yield at_least(
            PART,
            f"{where}: the upper end of the stated false alarms is not below the real ones",
            held,
            0.90,
            also=also,
        )


def _real(world: World, random: Random, histories: int, controlled: bool) -> Share:
    calm = draw(world, random, histories, BEFORE + WATCHED)
    return share([[said == "regression" for said in one[BEFORE:]] for one in watched(calm, controlled)])


def _rate(world: World, sites: Nights, site: int, controlled: bool, *, worse: bool) -> float:
    """Of the figures in a report the one whose condition the world meets."""
    reruns = _reruns(sites, site)
    controls = np.exp(sites.controls[site, -COURSE:, 0]).tolist() if controlled else []
    course = course_of(np.exp(sites.runs[site, -COURSE:]).tolist(), controls)
    found = false_alarms(shared_noise(reruns), course, control_sees(reruns) if controlled else None, worse=worse)
    if world.bad_nights:
        return found.slow_nights
    return found.skewed if world.draw in (student, skewed) else found.usual


def _reruns(sites: Nights, site: int) -> Sequence[Reruns]:
    """Of the first nights that look slow, as a gate would make them; the noise is that of its baselines."""
    runs, controls = sites.runs[site], sites.controls[site]
    usual, deviation = _levels(runs)
    usual_control, _ = _levels(controls[:, 0])
    slow = np.flatnonzero(runs > usual + SUSPECT * deviation)[:RERUN]
    return [
        Reruns(
            "cell", np.exp(sites.reruns[site, n]).tolist(), deviation, NIGHTS - 2,
            off=list(zip(sites.reruns[site, n] - usual[n], controls[n, 1:] - usual_control[n], strict=True)),
        )
        for n in slow
    ]  # fmt: skip


def _levels(values: Array) -> tuple[Array, float]:
    """The level about each night, and the deviation from it."""
    found = [level(part.tolist(), G3) for part in np.split(values, NIGHTS // BASELINE)]
    deviation = float(np.sqrt(np.mean([one.deviation**2 for one in found])))
    return np.repeat([one.centre for one in found], BASELINE), deviation
