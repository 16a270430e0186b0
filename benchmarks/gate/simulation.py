"""Synthetic nights, each run one median, for the errors of the gate's rule. Pure, vectorised, fixed seeds.

A run's median, as a logarithm, is noise (of the night, of its nodes, of the run itself), a slow drift over weeks, and
in a few runs an outlier. Re-runs share the night; on the same nodes they share the nodes' part too. A control shares
the night and the nodes of its run, and has noise and outliers of its own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from benchmarks.gate.change_points import change_points
from benchmarks.gate.control import Control
from benchmarks.gate.nights import LEVELS, PastNight, divide
from benchmarks.gate.rule import G3, Decision, Rule, decide, stands
from benchmarks.gate.values import Direction, Verdict

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]
    Random = np.random.RandomState

HISTORY = 32  # nights before the change: a full baseline, its gap, and nights that were judged
WATCHED = 10  # nights after it
TREND_NIGHTS = 30


class World(NamedTuple):
    """What nights are like. Shares of the median step; the three parts of the variance add up to 1.

    Measured (docs/gate.md): runs of one day differ by 0.1% at the middle cluster, 0.5% at one in ten; some runs are
    outliers. How the variance divides between night, nodes and run was never published: it is assumed.
    """

    noise: float
    of_night: float = 0.1
    of_nodes: float = 0.4
    outliers: float = 0.03
    outlier_from: float = 0.02
    outlier_to: float = 0.10
    drift: float = 0.0005  # amplitude
    drift_nights: float = 60.0
    slow_nights: float = 0.0  # share of nights on which every run is slow
    slow_by: float = 0.02
    fresh_nodes: bool = True  # re-runs are on other nodes than tonight's run
    shape: Literal["normal", "t3", "skewed"] = (
        "normal"  # of all noise: Student's t with 3, or exponential to one side
    )
    night_memory: float = 0.0  # lag-1 autocorrelation of the night's part
    trend: float = 0.0  # slower by this share in 30 nights
    control: bool = False  # whether each run has one, as noisy as the run itself
    control_sees: float = 1.0  # share of what the night and the nodes do that the control does as well

    @property
    def of_run(self) -> float:
        return 1 - self.of_night - self.of_nodes


class Drawn(NamedTuple):
    """Logarithms: one run for every night of every history, and the re-runs that each would have had."""

    runs: "Array"  # histories x nights
    reruns: "Array"  # histories x nights x re-runs
    controls: "Array | None" = None  # histories x nights x (the run and its re-runs)


def generator(*of: object) -> "Random":
    """The same numbers for the same case, whatever ran before."""
    import zlib

    import numpy as np

    return np.random.RandomState(zlib.crc32(repr(of).encode()))


def draw(world: World, random: "Random", histories: int, nights: int, reruns: int) -> Drawn:
    import numpy as np

    shared = world.noise * world.of_night**0.5 * _remembered(_noise(world, random, (histories, nights)), world)
    shared += world.drift * _waves(random, histories, nights, world.drift_nights)
    shared += world.trend * np.arange(nights) / TREND_NIGHTS
    shared += world.slow_by * (random.random_sample((histories, nights)) < world.slow_nights)
    nodes = world.noise * world.of_nodes**0.5 * _noise(world, random, (histories, nights, 1 + reruns))
    if not world.fresh_nodes:
        nodes[:] = nodes[:, :, :1]
    nodes += shared[:, :, None]
    every = nodes + _of_run(world, random, nodes.shape)
    controls = world.control_sees * nodes + _of_run(world, random, nodes.shape) if world.control else None
    return Drawn(every[:, :, 0], every[:, :, 1:], controls)


def _of_run(world: World, random: "Random", shape: tuple[int, ...]) -> "Array":
    """A run's own noise, and what makes a few of them outliers."""
    import numpy as np

    own = world.noise * world.of_run**0.5 * _noise(world, random, shape)
    odd = random.random_sample(shape) < world.outliers
    odd_by = np.log1p(random.uniform(world.outlier_from, world.outlier_to, shape))
    found: Array = own + np.where(odd, odd_by, 0.0)
    return found


def _noise(world: World, random: "Random", shape: tuple[int, ...]) -> "Array":
    """Of variance 1."""
    if world.shape == "t3":
        heavy: Array = random.standard_t(3, shape) / 3**0.5
        return heavy
    skewed: Array = random.standard_exponential(shape) - 1
    return skewed if world.shape == "skewed" else random.standard_normal(shape)


def _remembered(nights: "Array", world: World) -> "Array":
    """Each night remembers a share of the one before; the variance stays."""
    memory = world.night_memory
    if memory:
        nights[:, 1:] *= (1 - memory**2) ** 0.5
        for night in range(1, nights.shape[1]):
            nights[:, night] += memory * nights[:, night - 1]
    return nights


def _waves(random: "Random", histories: int, nights: int, period: float) -> "Array":
    """A slow drift, wherever in it the history begins."""
    import numpy as np

    begins = random.uniform(0, 2 * np.pi, (histories, 1))
    waves: Array = np.sin(begins + 2 * np.pi * np.arange(nights)[None, :] / period)
    return waves


# --- the gate on them -----------------------------------------------------------------------------


class Watched(NamedTuple):
    """What the gate said of one history, night by night from the change on; nobody accepts anything."""

    verdicts: list[Verdict]
    open: list[bool]  # whether an alarm was: of that night, or of one before
    runs: int  # that these nights cost, re-runs included
    first: Decision  # what was decided in the first of them


class Case(NamedTuple):
    """A world, and what happens in it: from night `HISTORY` on every run is slower by `effect` (a share), until it is
    mended.
    """

    world: World
    effect: float = 0.0
    direction: Direction = "lower"
    history: int = HISTORY
    nights: int = WATCHED
    lasts: int | None = None  # nights; None: for good


def watch(case: Case, rule: Rule, seed: int, histories: int) -> list[Watched]:
    """The gate, night by night, on so many histories."""
    import numpy as np

    random = generator(seed, case.world, case.history)
    drawn = draw(case.world, random, histories, case.history + case.nights, rule.confirmations)
    end = None if case.lasts is None else case.history + case.lasts
    drawn.runs[:, case.history : end] += np.log1p(case.effect)
    drawn.reruns[:, case.history : end] += np.log1p(case.effect)
    return gated(drawn, case, rule)


def gated(drawn: Drawn, case: Case, rule: Rule = G3) -> list[Watched]:
    import numpy as np

    runs, reruns = np.exp(drawn.runs).tolist(), np.exp(drawn.reruns).tolist()
    controls = [None] * len(runs) if drawn.controls is None else np.exp(drawn.controls).tolist()
    return [_watched(*one, case, rule) for one in zip(runs, reruns, controls, strict=True)]


def _watched(
    runs: Sequence[float],
    reruns: Sequence[Sequence[float]],
    controls: Sequence[Sequence[float]] | None,
    case: Case,
    rule: Rule,
) -> Watched:
    """Night by night: earlier verdicts decide what later nights are held against."""
    past: list[PastNight] = []
    seen: list[tuple[Verdict, bool, int, Decision]] = []
    for number, (value, again) in enumerate(zip(runs, reruns, strict=True)):
        before = past[-1].verdict if past else None
        ours, *others = controls[number] if controls else [None]
        past.append(PastNight(value=value, control=ours))
        parts = divide(past, rule)
        baseline, recent, since = ([past[n].value for n in part] for part in parts[:3])
        control = Control([past[n].control for n in parts.baseline], ours, others) if controls else None
        decided, cost = decide(baseline, recent, case.direction, None, since, rule, control), 1
        outcome = decided.outcome
        if outcome == "suspect":
            outcome = stands(baseline, value, case.direction, before, rule, control) or outcome
        if outcome == "suspect":
            decided, cost = decide(baseline, recent, case.direction, again, since, rule, control), cost + len(again)
            outcome = decided.outcome
        assert outcome != "suspect"
        past[-1] = PastNight(value=value, verdict=outcome, control=ours)
        seen.append((outcome, parts.alarm is not None or outcome in LEVELS, cost, decided))
    verdicts, is_open, costs, decisions = zip(*seen[case.history :], strict=True)
    return Watched(list(verdicts), list(is_open), sum(costs), decisions[0])


# --- the weekly search for change points on them --------------------------------------------------

BEFORE, SINCE = 30, 20  # nights on either side of the change


def sweep_finds(world: World, effect: float, seed: int, histories: int) -> int:
    """In how many histories the sweep tells a change; `effect` is a share, 0 where there is none to find."""
    import numpy as np

    runs = draw(world, generator(seed, world, "sweep"), histories, BEFORE + SINCE, 0).runs
    runs[:, BEFORE:] += np.log1p(effect)
    return sum(bool(change_points(row)) for row in np.exp(runs).tolist())
