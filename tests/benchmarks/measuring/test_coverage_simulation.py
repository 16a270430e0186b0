"""How often the interval of the median holds the truth, on made step times and on those of public MLPerf runs.

Fixed seeds. The naive interval and the interval without its thirds are here to show that the simulation can tell a
bad method from a good one.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, median
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks import statistics
from benchmarks.statistics import median_interval
from tests.benchmarks import made_steps
from tests.benchmarks.made_steps import Array, Random
from tests.public_runs import PublicRun, public_runs

RUNS = 400
STEP_SECONDS = 4.0
SETTLED_AFTER_SECONDS = 180.0  # nine in ten public runs hold still within 0.5% from there on
FEWEST_OF_HALF = 20

Process = Callable[[Random, int], Array]


class Coverage(NamedTuple):
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


GATE_NOISE = two_scales(0.002, 0.001, 0.98)
PROCESSES: dict[str, Process] = {
    "independent, 0.3%": independent(0.003),
    **{f"AR(1) {r}": autoregressive(r) for r in (0.5, 0.9)},
}


def held(case: str, process: Process, steps: int, resolution_seconds: float = 0.0) -> Coverage:
    """Return the coverage of the process's median, from many windows."""
    random = Random(zlib.crc32(f"{case} {steps}".encode()))
    windows = []
    for _ in range(RUNS):
        seconds = STEP_SECONDS * process(random, steps)
        if resolution_seconds:
            seconds = np.round(seconds / resolution_seconds) * resolution_seconds
        windows.append((seconds.tolist(), STEP_SECONDS))
    return _held(windows, resolution_seconds)


def _held(windows: Sequence[tuple[list[float], float]], resolution_seconds: float) -> Coverage:
    """Windows, each with the figure that its interval should hold."""
    inside, half_widths = [], []
    for seconds, truth in windows:
        found = median_interval(seconds, resolution_seconds)
        assert found is not None
        inside.append(found.low <= truth <= found.high)
        half_widths.append((found.high - found.low) / 2 / found.median)
    return Coverage(fmean(inside), median(half_widths), len(windows))


# --- real step times ------------------------------------------------------------------------------


class SettledRuns(NamedTuple):
    """A public run, without the time in which machines settle."""

    run: PublicRun
    seconds: list[float]

    @property
    def median(self) -> float:
        return median(self.seconds)


def settled_runs() -> list[SettledRuns]:
    runs = public_runs()
    return [
        SettledRuns(
            run, [taken for taken, end in zip(run.seconds, run.ends, strict=True) if end > SETTLED_AFTER_SECONDS]
        )
        for run in runs
    ]


def windows_held(runs: Sequence[SettledRuns], steps: int) -> Coverage | None:
    """Windows of so many values against the median of the rest of their run, no shorter; runs count alike."""
    return _over_runs(runs, lambda run: _cut(run.seconds, steps), 2 * steps)


def exact(runs: Sequence[SettledRuns], steps: int | None) -> float | None:
    """How often an exact 95% interval holds the median of the rest, uncertain too; None: of the other half."""
    lengths = [len(run.seconds) for run in runs if len(run.seconds) >= 2 * (steps or FEWEST_OF_HALF)]
    errors = [math.sqrt(1 + (steps / (length - steps) if steps else 1)) for length in lengths]
    normal = NormalDist()
    return fmean(2 * normal.cdf(normal.inv_cdf(0.975) / error) - 1 for error in errors) if errors else None


def halves_held(runs: Sequence[SettledRuns]) -> Coverage | None:
    """One half of a run against the median of the other."""

    def halves(run: SettledRuns) -> list[tuple[list[float], float]]:
        middle = len(run.seconds) // 2
        one, other = run.seconds[:middle], run.seconds[middle:]
        return [(one, median(other)), (other, median(one))]

    return _over_runs(runs, halves, 2 * FEWEST_OF_HALF)


def _cut(seconds: list[float], steps: int) -> list[tuple[list[float], float]]:
    starts = range(0, len(seconds) - steps + 1, steps)
    return [(seconds[at : at + steps], median(seconds[:at] + seconds[at + steps :])) for at in starts]


def _over_runs(
    runs: Sequence[SettledRuns], windows: Callable[[SettledRuns], list[tuple[list[float], float]]], fewest: int
) -> Coverage | None:
    found = [_held(windows(run), run.run.resolution_seconds) for run in runs if len(run.seconds) >= fewest]
    if not found:
        return None
    return Coverage(
        fmean(one.share for one in found), median(one.half_width for one in found), sum(one.windows for one in found)
    )


# --- the tests ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> list[SettledRuns]:
    return settled_runs()


@pytest.mark.parametrize("steps", [20, 50])
@pytest.mark.parametrize("case", PROCESSES)
def test_the_interval_holds_the_true_median(case: str, steps: int) -> None:
    least = 0.92 if (case, steps) == ("AR(1) 0.9", 20) else 0.97
    assert held(case, PROCESSES[case], steps).share >= least


@pytest.mark.parametrize("steps", [20, 50, 200])
def test_a_memory_of_fifty_steps_is_allowed_for(steps: int) -> None:
    assert held("gate", GATE_NOISE, steps).share >= 0.93


def test_printed_figures_keep_their_coverage() -> None:
    """Two digits of a step of 4 s whose noise is about one digit."""
    assert held("printed", autoregressive(0.6), 50, resolution_seconds=0.01).share >= 0.97


@pytest.mark.parametrize("steps", [50, 100])
def test_windows_of_public_runs_hold_the_median_of_the_rest(real: list[SettledRuns], steps: int) -> None:
    """As often as an exact interval would: the rest is uncertain too."""
    found, wanted = windows_held(real, steps), exact(real, steps)
    assert found is not None
    assert wanted is not None
    assert found.share >= wanted >= 0.9


def test_one_half_of_a_public_run_holds_the_median_of_the_other(real: list[SettledRuns]) -> None:
    found, wanted = halves_held(real), exact(real, None)
    assert found is not None
    assert wanted == pytest.approx(0.834, abs=0.001)
    assert found.share >= wanted


def test_neighbouring_steps_alone_do_not_tell_of_a_long_memory(
    real: list[SettledRuns], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: without the thirds."""
    monkeypatch.setattr(statistics, "MEMORY", 0.0)
    assert held("gate", GATE_NOISE, 200).share < 0.75
    halves = halves_held(real)
    assert halves is not None
    assert halves.share < 0.5


def test_the_naive_interval_fails_where_steps_depend_on_each_other() -> None:
    """The negative control: as if steps were independent, 1.96 standard errors around the median."""
    random, process, covered, steps = np.random.RandomState(zlib.crc32(b"naive")), autoregressive(0.6), 0, 50
    for _ in range(RUNS):
        seconds = process(random, steps)
        half_width = 1.96 * 1.2533 * seconds.std(ddof=1) / math.sqrt(steps)
        covered += abs(float(np.median(seconds)) - 1) <= half_width
    assert covered / RUNS < 0.85
