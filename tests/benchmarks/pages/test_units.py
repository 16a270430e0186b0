"""Figures of any unit, as people read them."""

import pytest

from benchmarks.pages.units import axis_unit, value_text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.25881, "s", "258.8 ms"), (0.0, "s", "0 s"), (2.5e9, "bytes", "2.50 GB"), (41.234, "%", "41.23%"),
        (1.0593, "ratio", "1.059"), (9891.25, "tokens/s", "9,891 tokens/s"), (5.8447, "nats", "5.845 nats"),
        (-3.0, "", "-3"),
    ],
)  # fmt: skip
def test_a_figure_has_the_unit_that_suits(value: float, unit: str, text: str) -> None:
    assert value_text(value, unit) == text


@pytest.mark.parametrize(
    ("unit", "typical", "expected"),
    [
        ("s", 7.0, (1.0, "seconds")), ("s", 0.02, (1e3, "milliseconds")), ("s", 1e-5, (1e6, "microseconds")),
        ("bytes", 3e9, (1e-9, "GB")), ("bytes", 3e7, (1e-6, "MB")), ("ratio", 1.0, (1.0, "")),
        ("nats", 5.0, (1.0, "nats")),
    ],
)  # fmt: skip
def test_an_axis_says_its_unit(unit: str, typical: float, expected: tuple[float, str]) -> None:
    assert axis_unit(unit, typical) == expected
