"""How often the interval of the median holds the truth, on made step times and on those of public MLPerf runs.

Fixed seeds. The naive interval and the interval without its thirds are
here to show that the simulation can tell a bad method from a good one.
"""

import math
import zlib

import numpy as np
import pytest

from benchmarks import statistics
from tests.benchmarks.measuring.coverage import (
    GATE_NOISE,
    PROCESSES,
    Settled,
    autoregressive,
    exact,
    halves_held,
    held,
    independent,
    settled_runs,
    windows_held,
)

RUNS = 400
WANDERING = {case for case in PROCESSES if case.startswith(("two scales", "slower"))}  # over tens of steps


@pytest.fixture(scope="module")
def real() -> list[Settled]:
    return settled_runs()


@pytest.mark.parametrize("steps", [20, 50])
@pytest.mark.parametrize("case", [case for case in PROCESSES if case not in WANDERING])
def test_the_interval_holds_the_true_median(case: str, steps: int) -> None:
    least = 0.92 if (case, steps) == ("AR(1) 0.9", 20) else 0.97
    assert held(case, PROCESSES[case], steps, RUNS).share >= least


@pytest.mark.parametrize("steps", [20, 50, 200])
def test_a_memory_of_fifty_steps_is_allowed_for(steps: int) -> None:
    assert held("gate", GATE_NOISE, steps, RUNS).share >= 0.93


def test_printed_figures_keep_their_coverage() -> None:
    """Two digits of a step of 4 s whose noise is about one digit."""
    assert held("printed", autoregressive(0.6), 50, RUNS, resolution_seconds=0.01).share >= 0.97


def test_the_interval_is_narrow_enough_to_be_of_use() -> None:
    """An interval of everything would cover too."""
    assert held("width", independent(0.003), 50, RUNS).half_width < 0.0035
    assert held("width", independent(0.003), 200, RUNS).half_width < 0.0018
    assert held("width", autoregressive(0.9), 50, RUNS).half_width < 0.009


@pytest.mark.parametrize("steps", [50, 100])
def test_windows_of_public_runs_hold_the_median_of_the_rest(real: list[Settled], steps: int) -> None:
    """As often as an exact interval would: the rest is uncertain too."""
    found, wanted = windows_held(real, steps), exact(real, steps)
    assert found is not None
    assert wanted is not None
    assert found.share >= wanted >= 0.9


def test_one_half_of_a_public_run_holds_the_median_of_the_other(real: list[Settled]) -> None:
    found, wanted = halves_held(real), exact(real, None)
    assert found is not None
    assert wanted == pytest.approx(0.834, abs=0.001)
    assert found.share >= wanted


def test_neighbouring_steps_alone_do_not_tell_of_a_long_memory(
    real: list[Settled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: without the thirds."""
    monkeypatch.setattr(statistics, "MEMORY", 0.0)
    assert held("gate", GATE_NOISE, 200, RUNS).share < 0.75
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
