"""The nightly gate: false alarms a night in worlds of different kinds, and whether it sees a change of 2%."""

from collections.abc import Sequence

import numpy as np

from benchmarks.gate.nights import PastNight, divide
from benchmarks.gate.rule import G3, decide, stands
from benchmarks.gate.values import Verdict
from tests.auditing.nights import WORLDS, Nights, World, draw
from tests.auditing.table import Lines, Random, Size, at_least, at_most, share

PART = "gate"
BEFORE, WATCHED, SEEN_WITHIN = 23, 40, 3
EFFECT = 0.02


def lines(size: Size, random: Random) -> Lines:
    for name, world in WORLDS.items():
        calm = draw(world, random, size.runs(1000, 15), BEFORE + WATCHED)
        alarms = [[verdict == "regression" for verdict in one[BEFORE:]] for one in watched(calm)]
        yield at_most(PART, f"{name}: false alarms a night", share(alarms), 0.003, 2)
    for name, world in WORLDS.items():
        found = share(_seen(world, random, size.runs(500, 15)))
        yield at_least(PART, f"{name}: 2% slower at 0.5% noise seen within 3 nights", found, 0.90)


def _seen(world: World, random: Random, histories: int) -> list[bool]:
    changed = draw(world, random, histories, BEFORE + SEEN_WITHIN)
    changed.runs[:, BEFORE:] += np.log1p(EFFECT)
    changed.reruns[:, BEFORE:] += np.log1p(EFFECT)
    return ["regression" in one[BEFORE:] for one in watched(changed)]


def watched(nights: Nights) -> list[list[Verdict]]:
    """The verdicts of every history, night by night; nobody accepts anything."""
    rows = zip(np.exp(nights.runs).tolist(), np.exp(nights.reruns).tolist(), strict=True)
    return [verdicts(runs, reruns) for runs, reruns in rows]


def verdicts(runs: Sequence[float], reruns: Sequence[Sequence[float]]) -> list[Verdict]:
    past: list[PastNight] = []
    for tonight, again in zip(runs, reruns, strict=True):
        parts = divide([*past, PastNight(value=tonight)], G3)
        values = [*(night.value for night in past), tonight]
        baseline, recent, since = ([values[n] for n in part] for part in parts[:3])
        verdict = decide(baseline, recent, "lower", None, since, G3).outcome
        if verdict == "suspect":
            before = past[-1].verdict if past else None
            verdict = stands(baseline, tonight, "lower", before, G3) or (
                decide(baseline, recent, "lower", again, since, G3).outcome
            )
        assert verdict != "suspect"
        past.append(PastNight(value=tonight, verdict=verdict))
    return [night.verdict or "inconclusive" for night in past]
