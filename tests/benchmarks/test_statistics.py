"""Figures of step times: the median's interval at its edges, and the plain statistics.

How often the interval holds the truth is in test_coverage_simulation.py.
"""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.statistics import (
    MedianInterval,
    RunningMean,
    excess,
    mean,
    median,
    median_interval,
    median_of_counts,
    stdev,
)

SECONDS = st.lists(st.floats(0.01, 1000.0), min_size=9, max_size=60)

# What an independent implementation gave (numpy, scipy). In the first the order statistics are the wider interval, in
# the second that of the thirds is.
REFERENCES = [
    ([4 + 0.01 * (5 * i % 17) for i in range(51)], MedianInterval(4.080000000, 4.050758265, 4.109241735)),
    (
        [4 + 0.01 * math.sin(12.9898 * i * i) ** 3 + 0.0002 * i for i in range(50)],
        MedianInterval(4.005138118, 3.989824834, 4.020510175),
    ),
]


def interval(seconds: list[float], resolution_seconds: float = 0.0) -> MedianInterval:
    found = median_interval(seconds, resolution_seconds)
    assert found is not None
    return found


def width(found: MedianInterval) -> float:
    return found.high - found.low


@pytest.mark.parametrize(("seconds", "reference"), REFERENCES)
def test_interval_agrees_with_the_reference_implementation(seconds: list[float], reference: MedianInterval) -> None:
    assert interval(seconds) == pytest.approx(reference, abs=1e-6)


@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_fewer_than_nine_steps_have_no_interval(count: int) -> None:
    assert median_interval([4.0 + 0.01 * i for i in range(count)]) is None


@pytest.mark.parametrize("count", [9, 10, 11, 50])
@pytest.mark.parametrize("value", [0.0, 0.1, 4.07])
def test_constant_steps_have_an_interval_of_no_width(count: int, value: float) -> None:
    assert interval([value] * count) == (value, value, value)


def test_a_spike_among_equal_steps_leaves_the_interval_alone() -> None:
    """The MAD is 0 here; the spike must neither set the spread nor make it undefined."""
    assert interval([4.0] * 49 + [400.0]) == (4.0, 4.0, 4.0)


def test_the_resolution_of_a_printed_figure_widens_by_half_a_digit_on_either_side() -> None:
    found = interval([4.07] * 50, resolution_seconds=0.01)
    assert [found.low, found.high] == pytest.approx([4.065, 4.075])


def test_coarsely_printed_steps_keep_their_autocorrelation() -> None:
    """Most of these print alike (MAD 0), yet they come in long rows, and the interval must know."""
    printed = ([4.07] * 12 + [4.08] * 4) * 3
    assert width(interval(printed, 0.01)) > 0.015
    assert width(interval(printed)) < 0.005


def test_dependent_steps_are_worth_fewer() -> None:
    """The same values in another order."""
    waves = [4 + 0.01 * math.sin(i / 3) for i in range(50)]
    mixed = [waves[(7 * i) % 50] for i in range(50)]
    assert width(interval(waves)) > 1.5 * width(interval(mixed))


def test_a_level_that_moves_from_third_to_third_widens_the_interval() -> None:
    """Each third is quiet and the steps in it are independent; only the thirds tell that the level wanders."""
    noise = [0.001 * math.sin(12.9898 * i * i) for i in range(60)]
    moved = [4 + noise[i] + 0.004 * (i // 20 % 2) for i in range(60)]
    still = [4 + one for one in noise]
    assert width(interval(moved)) > 3 * width(interval(still))


def test_no_interval_of_true_steps_reaches_zero() -> None:
    """A memory as long as the run, and 30% of noise: nothing is known for sure, but no step takes no time."""
    drifting = [0.095 * math.exp(0.3 * math.sin(i / 9)) for i in range(49)]
    found = interval(drifting)
    assert 0.4 * found.median < found.low < found.high < 2.5 * found.median
    jumped = interval([0.095] * 6 + [0.4] * 3)
    assert 0 < jumped.low < 0.095 < jumped.high <= 0.4


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_value_that_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        median_interval([4.0] * 9 + [bad])


@given(SECONDS)
def test_the_interval_is_finite_ordered_and_holds_the_median(seconds: list[float]) -> None:
    found = interval(seconds)
    assert math.isfinite(found.high)
    assert 0 < found.low <= found.median <= found.high


@given(SECONDS, st.sampled_from([0.25, 0.5, 2.0, 64.0]), st.sampled_from([0.0, 0.125]))
def test_the_interval_has_the_unit_of_its_values(seconds: list[float], scale: float, resolution: float) -> None:
    """Powers of two scale floats exactly, so that no rounding can tip a value over a threshold."""
    one = interval(seconds, resolution)
    scaled = interval([scale * value for value in seconds], scale * resolution)
    assert scaled.median == pytest.approx(scale * one.median)
    assert scaled.low == pytest.approx(scale * one.low)
    assert scaled.high == pytest.approx(scale * one.high)


@given(SECONDS)
def test_no_interval_is_finer_than_its_figures_were_printed(seconds: list[float]) -> None:
    found = interval(seconds, 0.5)
    assert found.high - found.median >= 0.25 - 1e-9
    assert found.low == 0 or found.median - found.low >= 0.25 - 1e-9


def test_plain_figures() -> None:
    seconds = [4.0, 1.0, 2.0, 5.0]
    assert mean(seconds) == 3.0
    assert median(seconds) == 3.0
    assert stdev(seconds) == pytest.approx(math.sqrt(10 / 3))
    assert median([3.0, 1.0, 2.0]) == 2.0


@given(st.lists(st.lists(st.floats(0.01, 1000.0) | st.sampled_from([1.0, 2.0]))))
def test_values_that_come_in_parts_have_the_figures_of_all_at_once(parts: list[list[float]]) -> None:
    together = [value for part in parts for value in part]
    running = RunningMean()
    for part in parts:
        running.add(part)
    assert running.value() == mean(together)
    assert median_of_counts(Counter(together)) == median(together)


def test_slow_steps_hide_in_the_median_and_show_in_the_excess() -> None:
    assert excess([10.0] * 9 + [13.0]) == pytest.approx(0.03)


def test_a_figure_that_cannot_be_known_is_none() -> None:
    assert mean([]) is None
    assert median([]) is None
    assert stdev([4.0]) is None
    assert excess([]) is None
    assert excess([0.0, 0.0]) is None
