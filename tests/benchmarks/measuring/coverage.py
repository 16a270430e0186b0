"""Simulated and public step times, and how often the interval of a median holds the truth."""

import math
import zlib
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, median
from typing import NamedTuple

import numpy as np

from benchmarks.statistics import median_interval
from tests.benchmarks import made_steps
from tests.benchmarks.made_steps import Array, Random
from tests.public_runs import PublicRun, public_runs

STEP_SECONDS = 4.0
SETTLED_AFTER_SECONDS = 180.0  # nine in ten public runs hold still within 0.5% from there on
FEWEST_OF_HALF = 20
LONG = 200_000  # steps that give the median of a process

Process = Callable[[Random, int], Array]


class Held(NamedTuple):
    """How often an interval held the truth, and how far it reached."""

    share: float
    half_width: float  # median, relative to the median step
    windows: int


# --- made step times ------------------------------------------------------------------------------


def independent(noise: float) -> Process:
    return lambda random, steps: 1 + noise * random.standard_normal(steps)


def autoregressive(r: float, noise: float = 0.003) -> Process:
    return lambda random, steps: 1 + noise * made_steps.autoregressive(random, (steps,), r)


def two_scales(fast: float, slow: float, r: float) -> Process:
    """A memory of a step, and one of some 1 / (1 - r) steps."""
    return lambda random, steps: 1 + made_steps.two_scales(random, (steps,), fast, slow, r)


def spikes(random: Random, steps: int) -> Array:
    """1.7% of the steps are 7-25% slower."""
    slow = random.random_sample(steps) < 0.017
    return autoregressive(0.3)(random, steps) * np.where(slow, random.uniform(1.07, 1.25, steps), 1.0)


def periodic(every: int) -> Process:
    """Every so many steps one is 10% slower, wherever the window begins."""

    def draw(random: Random, steps: int) -> Array:
        slow = (np.arange(steps) + random.randint(every)) % every == 0
        return independent(0.003)(random, steps) * np.where(slow, 1.10, 1.0)

    return draw


def two_speeds(random: Random, steps: int) -> Array:
    """1% apart, each for 50 steps on average."""
    slow = made_steps.two_speeds(random, (steps,), 50)
    return independent(0.003)(random, steps) + 0.01 * slow


GATE_NOISE = two_scales(0.002, 0.001, 0.98)
PROCESSES: dict[str, Process] = {
    "independent, 0.3%": independent(0.003),
    "independent, 1%": independent(0.01),
    **{f"AR(1) {r}": autoregressive(r) for r in (0.3, 0.5, 0.7, 0.8, 0.9)},
    "two scales: 0.2% AR 0.3, 0.1% AR 0.98": GATE_NOISE,
    "two scales: 0.2% AR 0.3, 0.15% AR 0.97": two_scales(0.002, 0.0015, 0.97),
    "two scales: 0.2% AR 0.3, 0.1% AR 0.995": two_scales(0.002, 0.001, 0.995),
    "1.7% of steps slower by 7-25%": spikes,
    **{f"every {n}th step slower by 10%": periodic(n) for n in (7, 10, 25)},
    "slower by 1% for 50 steps, and back": two_speeds,
}


def held(case: str, process: Process, steps: int, runs: int, resolution_seconds: float = 0.0) -> Held:
    """Of the process's own median, from as many windows."""
    random = Random(zlib.crc32(f"{case} {steps}".encode()))
    truth = STEP_SECONDS * float(np.median(process(Random(1), LONG))) if "slower" in case else STEP_SECONDS
    windows = []
    for _ in range(runs):
        seconds = STEP_SECONDS * process(random, steps)
        if resolution_seconds:
            seconds = np.round(seconds / resolution_seconds) * resolution_seconds
        windows.append((seconds.tolist(), truth))
    return _held(windows, resolution_seconds)


def _held(windows: Sequence[tuple[list[float], float]], resolution_seconds: float) -> Held:
    """Windows, each with the figure that its interval should hold."""
    inside, half_widths = [], []
    for seconds, truth in windows:
        found = median_interval(seconds, resolution_seconds)
        assert found is not None
        inside.append(found.low <= truth <= found.high)
        half_widths.append((found.high - found.low) / 2 / found.median)
    return Held(fmean(inside), median(half_widths), len(windows))


# --- real step times ------------------------------------------------------------------------------


class Settled(NamedTuple):
    """A public run, without the time in which machines settle."""

    run: PublicRun
    seconds: list[float]

    @property
    def median(self) -> float:
        return median(self.seconds)


def settled_runs() -> list[Settled]:
    runs = public_runs()
    return [
        Settled(run, [taken for taken, end in zip(run.seconds, run.ends, strict=True) if end > SETTLED_AFTER_SECONDS])
        for run in runs
    ]


def windows_held(runs: Sequence[Settled], steps: int) -> Held | None:
    """Windows of so many values against the median of the rest of their run, no shorter; runs count alike."""
    return _over_runs(runs, lambda run: _cut(run.seconds, steps), 2 * steps)


def exact(runs: Sequence[Settled], steps: int | None) -> float | None:
    """How often an exact 95% interval holds the median of the rest, uncertain too; None: of the other half."""
    lengths = [len(run.seconds) for run in runs if len(run.seconds) >= 2 * (steps or FEWEST_OF_HALF)]
    errors = [math.sqrt(1 + (steps / (length - steps) if steps else 1)) for length in lengths]
    normal = NormalDist()
    return fmean(2 * normal.cdf(normal.inv_cdf(0.975) / error) - 1 for error in errors) if errors else None


def halves_held(runs: Sequence[Settled]) -> Held | None:
    """One half of a run against the median of the other."""

    def halves(run: Settled) -> list[tuple[list[float], float]]:
        middle = len(run.seconds) // 2
        one, other = run.seconds[:middle], run.seconds[middle:]
        return [(one, median(other)), (other, median(one))]

    return _over_runs(runs, halves, 2 * FEWEST_OF_HALF)


def _cut(seconds: list[float], steps: int) -> list[tuple[list[float], float]]:
    starts = range(0, len(seconds) - steps + 1, steps)
    return [(seconds[at : at + steps], median(seconds[:at] + seconds[at + steps :])) for at in starts]


def _over_runs(
    runs: Sequence[Settled], windows: Callable[[Settled], list[tuple[list[float], float]]], fewest: int
) -> Held | None:
    found = [_held(windows(run), run.run.resolution_seconds) for run in runs if len(run.seconds) >= fewest]
    if not found:
        return None
    return Held(
        fmean(one.share for one in found), median(one.half_width for one in found), sum(one.windows for one in found)
    )
