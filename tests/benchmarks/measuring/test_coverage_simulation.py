"""How often the interval of the median holds the truth, on step times as real runs show them.

400 runs of 50 steps a case, fixed seeds. The bounds are what was simulated before the method was
chosen; the naive interval is here to show that the simulation can tell a bad method from a good one.
"""

import math
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.measuring.statistics import median_interval

pytestmark = pytest.mark.slow(seconds=1)  # simulations

RUNS = 400
STEPS = 50
STEP_SECONDS = 4.0
Array = npt.NDArray[np.float64]
Process = Callable[[np.random.RandomState, int], Array]


def independent(noise: float) -> Process:
    return lambda random, steps: 1 + noise * random.standard_normal(steps)


def autoregressive(r: float, noise: float = 0.003) -> Process:
    def draw(random: np.random.RandomState, steps: int) -> Array:
        values = random.standard_normal(steps)
        values[1:] *= math.sqrt(1 - r * r)
        for step in range(1, steps):
            values[step] += r * values[step - 1]
        return 1 + noise * values

    return draw


def spikes(random: np.random.RandomState, steps: int) -> Array:
    """1.7% of the steps are 7-25% slower."""
    slow = random.random_sample(steps) < 0.017
    return autoregressive(0.3)(random, steps) * np.where(slow, random.uniform(1.07, 1.25, steps), 1.0)


def periodic(random: np.random.RandomState, steps: int) -> Array:
    """Every tenth step is 10% slower, wherever the window begins."""
    slow = (np.arange(steps) + random.randint(10)) % 10 == 0
    return independent(0.003)(random, steps) * np.where(slow, 1.10, 1.0)


def drift(random: np.random.RandomState, steps: int) -> Array:
    """0.5% over the window; the truth is the middle."""
    return independent(0.003)(random, steps) + 0.005 * np.linspace(-0.5, 0.5, steps)


def generator(case: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(case.encode()))


def coverage(case: str, process: Process, resolution_seconds: float = 0.0) -> float:
    random = generator(case)
    truth = STEP_SECONDS * float(np.median(process(np.random.RandomState(1), 100_000)))
    covered = 0
    for _ in range(RUNS):
        seconds = STEP_SECONDS * process(random, STEPS)
        if resolution_seconds:
            seconds = np.round(seconds / resolution_seconds) * resolution_seconds
        interval = median_interval(seconds.tolist(), resolution_seconds)
        assert interval is not None
        covered += interval.low <= truth <= interval.high
    return covered / RUNS


CASES: dict[str, tuple[Process, float]] = {
    "independent 0.3%": (independent(0.003), 0.97),
    "independent 0.5%": (independent(0.005), 0.97),
    "independent 1%": (independent(0.01), 0.97),
    "AR 0.3": (autoregressive(0.3), 0.97),
    "spikes": (spikes, 0.97),
    "periodic slow steps": (periodic, 0.97),
    "AR 0.6": (autoregressive(0.6), 0.95),
    "drift": (drift, 0.95),
    "AR 0.8": (autoregressive(0.8), 0.91),
}


@pytest.mark.parametrize("case", CASES)
def test_the_interval_holds_the_true_median(case: str) -> None:
    process, least = CASES[case]
    assert coverage(case, process) >= least


def test_printed_figures_keep_their_coverage() -> None:
    """Two digits of a step of 4 s whose noise is about one digit."""
    assert coverage("printed", autoregressive(0.6), resolution_seconds=0.01) >= 0.95


def test_the_interval_is_narrow_enough_to_be_of_use() -> None:
    """An interval of everything would cover too: at 0.3% noise it must stay within 0.3% on either side."""
    random = generator("width")
    widths = []
    for _ in range(RUNS):
        interval = median_interval(independent(0.003)(random, STEPS).tolist())
        assert interval is not None
        widths.append((interval.high - interval.low) / 2)
    assert np.median(widths) < 0.002
    assert np.percentile(widths, 99) < 0.003


def test_the_naive_interval_fails_where_steps_depend_on_each_other() -> None:
    """The negative control: as if steps were independent, 1.96 standard errors around the median."""
    random, process, covered = generator("naive"), autoregressive(0.6), 0
    for _ in range(RUNS):
        seconds = process(random, STEPS)
        half_width = 1.96 * 1.2533 * seconds.std(ddof=1) / math.sqrt(STEPS)
        covered += abs(float(np.median(seconds)) - 1) <= half_width
    assert covered / RUNS < 0.85
