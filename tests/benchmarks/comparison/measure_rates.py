"""Prints the table of docs/comparing.md: how often intervals hold the truth, and how often verdicts are false.

    python -m tests.benchmarks.comparison.measure_rates

Nothing is asserted here; test_intervals.py asserts bounds with fewer draws.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.comparison.intervals import Estimate, between_sets, noise_of, with_noise
from benchmarks.comparison.verdicts import verdict_of
from tests.benchmarks.comparison.test_intervals import logs

DRAWS = 20_000
Draw = Callable[[np.random.RandomState, float], Estimate]


def sets(runs_a: int, runs_b: int) -> Draw:
    return lambda random, outliers: between_sets(logs(random, runs_a, outliers), logs(random, runs_b, outliers))


def single(earlier: int) -> Draw:
    def draw(random: np.random.RandomState, outliers: float) -> Estimate:
        noise = noise_of([logs(random, earlier, outliers)], "")
        assert noise is not None
        return with_noise(logs(random, 1, outliers), logs(random, 1, outliers), noise)

    return draw


ROWS: dict[str, Draw] = {
    "3 and 3 runs": sets(3, 3),
    "5 and 5 runs": sets(5, 5),
    "10 and 10 runs": sets(10, 10),
    "3 and 10 runs": sets(3, 10),
    "1 and 1, 5 earlier ones": single(5),
    "1 and 1, 10 earlier ones": single(10),
    "1 and 1, 20 earlier ones": single(20),
}


def row(draw: Draw, outliers: float) -> str:
    """Of two sides that do not differ: interval holds 0, a false verdict with the margin of 1%, and without one."""
    random = np.random.RandomState(20)
    held = with_margin = without = 0
    for _ in range(DRAWS):
        found = draw(random, outliers)
        held += found.low is not None and found.high is not None and found.low <= 0 <= found.high
        with_margin += verdict_of(found, "lower", 1.0, (1, 1))[0] in ("better", "worse")
        without += verdict_of(found, "lower", 0.0, (1, 1))[0] in ("better", "worse")
    return " | ".join(f"{100 * count / DRAWS:.1f}%" for count in (held, with_margin, without))


if __name__ == "__main__":
    for name, drawn in ROWS.items():
        for share in (0.0, 0.03):
            print(f"| {name} | {share:.0%} | {row(drawn, share)} |")
