"""Figures of step times: the median's interval at its edges, and the plain figures beside it.

How often the interval holds the truth is in test_coverage_simulation.py.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measuring.statistics import MedianInterval, excess, mean, median, median_interval, stdev

SECONDS = st.lists(st.floats(0.01, 1000.0), min_size=3, max_size=60)

# What an independent implementation gave (numpy; its t quantile takes one decimal of the degrees of
# freedom). In the first the order statistics are the wider interval, in the second the normal one is.
REFERENCES = [
    (
        [4 + 0.01 * math.sin(i) + 0.02 * (i % 7) + (i == 30) for i in range(50)],
        MedianInterval(
            median=4.058685412,
            low=4.033128016,
            high=4.089151454,
            autocorrelation=0.267145594,
            effective_n=34.0508720,
        ),
    ),
    (
        [4 + 0.01 * math.sin(12.9898 * i * i) ** 3 for i in range(50)],
        MedianInterval(
            median=4.000000698,
            low=3.997391130,
            high=4.002610266,
            autocorrelation=0.228345525,
            effective_n=36.2478739,
        ),
    ),
]


def interval(seconds: list[float], resolution_seconds: float = 0.0) -> MedianInterval:
    found = median_interval(seconds, resolution_seconds)
    assert found is not None
    return found


@pytest.mark.parametrize(("seconds", "reference"), REFERENCES)
def test_interval_agrees_with_the_reference_implementation(seconds: list[float], reference: MedianInterval) -> None:
    found = interval(seconds)
    assert found.median == pytest.approx(reference.median, abs=1e-9)
    assert found.autocorrelation == pytest.approx(reference.autocorrelation, abs=1e-8)
    assert found.effective_n == pytest.approx(reference.effective_n, abs=1e-6)
    assert [found.low, found.high] == pytest.approx([reference.low, reference.high], abs=1e-6)


@pytest.mark.parametrize("seconds", [[], [4.0], [4.0, 4.1]])
def test_fewer_than_three_steps_have_no_interval(seconds: list[float]) -> None:
    assert median_interval(seconds) is None


def test_three_steps_have_a_wide_interval_worth_one_value() -> None:
    found = interval([4.0, 4.01, 4.02])
    assert found.median == 4.01
    assert found.effective_n == 1
    assert found.high - found.low > 10 * 0.02


@pytest.mark.parametrize("count", [3, 4, 5, 50])
@pytest.mark.parametrize("value", [0.0, 0.1, 4.07])
def test_constant_steps_have_an_interval_of_no_width(count: int, value: float) -> None:
    found = interval([value] * count)
    assert (found.median, found.low, found.high) == (value, value, value)


def test_a_spike_among_equal_steps_leaves_the_interval_alone() -> None:
    """The MAD is 0 here; the spike must neither set the spread nor make it undefined."""
    found = interval([4.0] * 49 + [400.0])
    assert (found.low, found.high) == (4.0, 4.0)


def test_the_resolution_of_a_printed_figure_widens_by_half_a_digit_on_either_side() -> None:
    found = interval([4.07] * 50, resolution_seconds=0.01)
    assert [found.low, found.high] == pytest.approx([4.065, 4.075])


def test_coarsely_printed_steps_keep_their_autocorrelation() -> None:
    """Most of these print alike (MAD 0), yet they come in long rows, and the interval must know."""
    printed = ([4.07] * 20 + [4.08] * 8) * 2
    assert interval(printed, 0.01).autocorrelation > 0.8 > interval(printed).autocorrelation


def test_dependent_steps_are_worth_fewer() -> None:
    independent = interval([4 + 0.01 * math.sin(12.9898 * i * i) for i in range(50)])
    slow_wave = interval([4 + 0.01 * math.sin(i / 8) for i in range(50)])
    assert slow_wave.effective_n < 3 < independent.effective_n


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_value_that_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        median_interval([4.0, 4.0, bad])


@given(SECONDS)
def test_the_interval_is_finite_ordered_and_holds_the_median(seconds: list[float]) -> None:
    found = interval(seconds)
    assert all(map(math.isfinite, (found.low, found.high, found.autocorrelation, found.effective_n)))
    assert 0 <= found.low <= found.median <= found.high
    assert 1 <= found.effective_n <= len(seconds)
    assert 0 <= found.autocorrelation <= 0.95


@given(SECONDS, st.sampled_from([0.25, 0.5, 2.0, 64.0]), st.sampled_from([0.0, 0.125]))
def test_the_interval_has_the_unit_of_its_values(seconds: list[float], scale: float, resolution: float) -> None:
    """Powers of two scale floats exactly, so that no rounding can tip a value over a threshold."""
    one = interval(seconds, resolution)
    scaled = interval([scale * value for value in seconds], scale * resolution)
    assert scaled.median == pytest.approx(scale * one.median)
    assert scaled.low == pytest.approx(scale * one.low)
    assert scaled.high == pytest.approx(scale * one.high)
    assert scaled.effective_n == pytest.approx(one.effective_n)


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


def test_slow_steps_hide_in_the_median_and_show_in_the_excess() -> None:
    assert excess([10.0] * 9 + [13.0]) == pytest.approx(0.03)


def test_a_figure_that_cannot_be_known_is_none() -> None:
    assert mean([]) is None
    assert median([]) is None
    assert stdev([4.0]) is None
    assert excess([]) is None
    assert excess([0.0, 0.0]) is None
