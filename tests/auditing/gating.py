"""The nightly gate: false alarms a night in worlds of different kinds, and whether it sees a change of 2%."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.gate.control import Control
from benchmarks.gate.nights import PastNight, divide
from benchmarks.gate.rule import G3, decide, stands
from benchmarks.gate.values import Verdict
from tests.auditing.nights import HALF_SEEN, NIGHTS_THAT_CHANGE, WORLDS, Nights, World, draw
from tests.auditing.table import Lines, Random, Size, at_least, at_most, share

PART = "gate"
BEFORE, WATCHED, SEEN_WITHIN = 23, 40, 3
EFFECT = 0.02


def lines(size: Size, random: Random) -> Lines:
    """Without a control the gate promises nothing where nights change, nor where the control does not see it."""
    yield from _table(size, random, WORLDS, controlled=False, promised=True)
    yield from _table(size, random, NIGHTS_THAT_CHANGE, controlled=False, promised=False)
    yield from _table(size, random, {**WORLDS, **NIGHTS_THAT_CHANGE}, controlled=True, promised=True)
    yield from _table(size, random, HALF_SEEN, controlled=True, promised=False)


def _table(size: Size, random: Random, worlds: Mapping[str, World], controlled: bool, promised: bool) -> Lines:
    for name, world in worlds.items():
        calm = draw(world, random, size.runs(1000, 12), BEFORE + WATCHED)
        alarms = share([[said == "regression" for said in one[BEFORE:]] for one in watched(calm, controlled)])
        seen = share(_seen(world, random, size.runs(500, 12), controlled))
        where = f"{name}{', with a control' if controlled else ''}"
        found = (
            at_most(PART, f"{where}: false alarms a night", alarms, 0.003, 2),
            at_least(PART, f"{where}: 2% slower is seen within {SEEN_WITHIN} nights", seen, 0.90),
        )
        yield from (line if promised else line._replace(goal="", holds=None) for line in found)


def _seen(world: World, random: Random, histories: int, controlled: bool) -> list[bool]:
    """The cell becomes slower, the control does not."""
    changed = draw(world, random, histories, BEFORE + SEEN_WITHIN)
    changed.runs[:, BEFORE:] += np.log1p(EFFECT)
    changed.reruns[:, BEFORE:] += np.log1p(EFFECT)
    return ["regression" in one[BEFORE:] for one in watched(changed, controlled)]


def watched(nights: Nights, controlled: bool) -> list[list[Verdict]]:
    """The verdicts of every history, night by night; nobody accepts anything."""
    runs, reruns = np.exp(nights.runs).tolist(), np.exp(nights.reruns).tolist()
    controls = np.exp(nights.controls).tolist() if controlled else [None] * len(runs)
    return [verdicts(*one) for one in zip(runs, reruns, controls, strict=True)]


def verdicts(
    runs: Sequence[float], reruns: Sequence[Sequence[float]], controls: Sequence[Sequence[float]] | None = None
) -> list[Verdict]:
    past: list[PastNight] = []
    for number, (tonight, again) in enumerate(zip(runs, reruns, strict=True)):
        beside, *others = controls[number] if controls else [None]
        parts = divide([*past, PastNight(value=tonight, control=beside)], G3)
        values = [*(night.value for night in past), tonight]
        baseline, recent, since = ([values[n] for n in part] for part in parts[:3])
        control = Control([past[n].control for n in parts.baseline], beside, others) if controls else None
        verdict = decide(baseline, recent, "lower", None, since, G3, control).outcome
        if verdict == "suspect":
            before = past[-1].verdict if past else None
            verdict = stands(baseline, tonight, "lower", before, G3, control) or (
                decide(baseline, recent, "lower", again, since, G3, control).outcome
            )
        assert verdict != "suspect"
        past.append(PastNight(value=tonight, verdict=verdict, control=beside))
    return [night.verdict or "inconclusive" for night in past]
