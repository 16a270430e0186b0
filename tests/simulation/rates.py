"""How often the nightly rule is wrong, and how soon it finds a slowdown: a table with the promised bounds."""

from collections.abc import Mapping

import numpy as np

from benchmarks.verdict import Verdict
from tests.simulation.nights import NIGHTS_THAT_CHANGE, WORLDS, World, draw, verdicts
from tests.simulation.table import Lines, Random, at_least, at_most, share

SEED = 20261124
PART = "nightly rule"
BEFORE, WATCHED, FOUND_WITHIN = 23, 40, 3
EFFECT = 0.02
MOST_ALARMS, LEAST_FOUND = 0.005, 0.90


def lines(histories: int, random: Random) -> Lines:
    """Without a control the rule promises nothing if whole nights change; nor for a machine that drifts."""
    bad_nights = {name: world for name, world in NIGHTS_THAT_CHANGE.items() if world.bad_nights}
    others = {name: world for name, world in NIGHTS_THAT_CHANGE.items() if not world.bad_nights}
    yield from _table(histories, random, WORLDS, controlled=False, promised=True)
    yield from _table(histories, random, NIGHTS_THAT_CHANGE, controlled=False, promised=False)
    yield from _table(histories, random, {**WORLDS, **bad_nights}, controlled=True, promised=True)
    yield from _table(histories, random, others, controlled=True, promised=False)


def _table(histories: int, random: Random, worlds: Mapping[str, World], controlled: bool, promised: bool) -> Lines:
    for name, world in worlds.items():
        where = f"{name}{', with a control' if controlled else ''}"
        calm = verdicts(draw(world, random, histories, BEFORE + WATCHED), controlled)
        alarms = share([[verdict is Verdict.WORSE for verdict in one[BEFORE:]] for one in calm])
        changed = draw(world, random, histories, BEFORE + FOUND_WITHIN)
        changed.runs[:, BEFORE:] += np.log1p(EFFECT)  # of the cell, not of the control
        changed.reruns[:, BEFORE:] += np.log1p(EFFECT)
        seen = share([Verdict.WORSE in one[BEFORE:] for one in verdicts(changed, controlled)])
        found = (
            at_most(PART, f"{where}: false alarms a night", alarms, MOST_ALARMS, 2),
            at_least(PART, f"{where}: 2% slower is found within {FOUND_WITHIN} nights", seen, LEAST_FOUND),
        )
        yield from (line if promised else line._replace(goal="", holds=None) for line in found)
