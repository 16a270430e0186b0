"""Simulated runs that drift, jump or only vary, and how the window judges each."""

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.measuring.window import choose_window
from benchmarks.values import Step, Window
from tests.benchmarks import made_steps
from tests.benchmarks.made_steps import Array, Random

Noise = Callable[[Random, int, int], Array]  # runs x steps, logarithms
Drift = Callable[[Random, int, int, float], Array]  # runs, steps and seconds of a step -> runs x steps, settled: 1

MATTERS = 0.5  # percent


class Length(NamedTuple):
    steps: int
    seconds: float  # of a step


class SimulatedRun(NamedTuple):
    """One run: what is said of it, and how far its drift really puts its median off the settled step time."""

    window: Window
    off_percent: float


# --- noise ----------------------------------------------------------------------------------------


def varying(percent: float, r: float = 0.5) -> Noise:
    """AR(1), with spikes."""
    return lambda random, runs, steps: (
        percent / 100 * made_steps.autoregressive(random, (runs, steps), r) + made_steps.spikes(random, (runs, steps))
    )


def two_scales(random: Random, runs: int, steps: int) -> Array:
    """As in public MLPerf logs: 0.2% from step to step, and 0.1% that lasts for some fifty steps."""
    return made_steps.two_scales(random, (runs, steps)) + made_steps.spikes(random, (runs, steps))


NOISES: dict[str, Noise] = {
    "0.04%": varying(0.04),
    "0.1%": varying(0.1),
    "0.3%": varying(0.3),
    "1%": varying(1.0),
    "3%": varying(3.0),
    "two scales": two_scales,
    "0.3%, AR 0.9": varying(0.3, 0.9),
}


# --- drifts ---------------------------------------------------------------------------------------


def _of_time(level: Callable[[Array], Array]) -> Drift:
    def drawn(random: Random, runs: int, steps: int, seconds: float) -> Array:  # noqa: ARG001 - the same in each run
        return np.tile(level(seconds * np.arange(steps)), (runs, 1))

    return drawn


def no_drift() -> Drift:
    return _of_time(np.ones_like)


def linear(percent: float, over: float) -> Drift:
    """Return a drift: slower for `over` seconds, then steady."""
    return _of_time(lambda at: (1 + percent / 100 * np.minimum(at / over, 1)) / (1 + percent / 100))


def exponential(percent: float, over: float) -> Drift:
    """Return a drift with 95% of the change in `over` seconds."""
    return _of_time(lambda at: (1 + percent / 100 * (1 - np.exp(-3 * at / over))) / (1 + percent / 100))


def throttled(percent: float, share: float) -> Drift:
    """Slower from one step to the next, for the last share of the run."""
    return _of_time(lambda at: np.where(at < (1 - share) * (at[-1] + at[1]), 1 / (1 + percent / 100), 1.0))


def two_states(percent: float, dwell_steps: float) -> Drift:
    """Two speeds, each for `dwell_steps` steps on average. The settled value is between them."""

    def drawn(random: Random, runs: int, steps: int, seconds: float) -> Array:  # noqa: ARG001 - in steps
        return 1 + percent / 100 * (made_steps.two_speeds(random, (runs, steps), dwell_steps) - 0.5)

    return drawn


# --- judged ---------------------------------------------------------------------------------------


def drawn(name: str, drift: Drift, noise: str, length: Length, runs: int = 100) -> list[SimulatedRun]:
    """The same for the same names."""
    random = Random(zlib.crc32(f"{name} {noise} {length}".encode()))
    levels = drift(random, runs, length.steps, length.seconds)
    seconds = length.seconds * levels * np.exp(NOISES[noise](random, runs, length.steps))
    found = []
    for level, row in zip(levels, seconds.tolist(), strict=True):
        steps = [Step(step=n, seconds=value, loss=None, tokens=None) for n, value in enumerate([30.0, *row])]
        window, marked = choose_window(steps, "steady")
        counts = np.array([step.excluded_because is None for step in marked[1:]])
        found.append(SimulatedRun(window, 100 * abs(float(np.median(level[counts])) - 1)))
    return found


def share(found: Sequence[SimulatedRun], settling: str) -> float:
    return sum(one.window.settling == settling for one in found) / len(found) if found else 0.0


def bound_holds(found: Sequence[SimulatedRun]) -> tuple[int, int]:
    """Return how many of the runs that still move have a median within the stated error, and their number."""
    moving = [one for one in found if one.window.median_off_percent is not None]
    return sum(one.off_percent <= (one.window.median_off_percent or 0.0) for one in moving), len(moving)
