"""Prints the tables of docs/comparing.md: how often intervals hold the truth, and how often verdicts are false.

    python -m tests.benchmarks.comparing.measure_rates
    python -m tests.benchmarks.comparing.measure_rates --share=0.01     with a hundredth of the draws

Nothing is asserted here; test_intervals.py and test_days.py assert bounds with fewer draws.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.comparing.days import Timed, noise_of
from benchmarks.comparing.intervals import Estimate, between_sets, verdict_of, with_noise
from tests.benchmarks.comparing.nights import Machine, compared, machine
from tests.benchmarks.comparing.test_intervals import logs

DRAWS = 20_000
DRAWS_OF_NIGHTS = 4_000
DRAWS_OF_SHIFTS = 1_000
EFFECT = 0.01
Draw = Callable[..., Estimate]  # of a RandomState, and of the share of outliers
OfNights = Callable[[Machine, float], Estimate]


def sets(runs_a: int, runs_b: int) -> Draw:
    return lambda random, outliers: between_sets(logs(random, runs_a, outliers), logs(random, runs_b, outliers))


def single(earlier: int) -> Draw:
    def draw(random: np.random.RandomState, outliers: float) -> Estimate:
        noise = noise_of([[Timed(one, None) for one in logs(random, earlier, outliers)]])
        return with_noise(logs(random, 1, outliers), logs(random, 1, outliers), ([0], [0]), noise)

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


def other_nights(each: int, nights: int = 0, earlier: int = 1) -> OfNights:
    return lambda m, effect: compared(m.runs([41], each), m.runs([42], each, effect), m.runs(range(nights), earlier))


OF_NIGHTS: dict[str, OfNights] = {
    "10 and 10, in turns in one night": lambda m, e: compared(m.runs([41], 10), m.runs([41], 10, e)),
    "10 and 10, in turns in two nights": lambda m, e: compared(m.runs([41, 42], 5), m.runs([41, 42], 5, e)),
    "10 and 10, a night each": other_nights(10),
    "10 and 10, a night each, 5 earlier nights": other_nights(10, 5),
    "10 and 10, a night each, 20 earlier nights": other_nights(10, 20),
    "10 and 10, a night each, 20 earlier nights of 3 runs": other_nights(10, 20, 3),
    "3 and 3, a night each": other_nights(3),
    "3 and 3, a night each, 20 earlier nights": other_nights(3, 20),
    "9 and 9, three nights each": lambda m, e: compared(m.runs(range(41, 44), 3), m.runs(range(44, 47), 3, e)),
    "10 and 10, a night for each run": lambda m, e: compared(m.runs(range(41, 51), 1), m.runs(range(51, 61), 1, e)),
    "1 and 1, a night each, 5 earlier runs of one night": other_nights(1, 1, 5),
    "1 and 1, a night each, 5 earlier nights": other_nights(1, 5),
    "1 and 1, a night each, 20 earlier nights": other_nights(1, 20),
    "1 and 1 in one night, 5 earlier runs of one night": lambda m, e: compared(
        m.runs([41], 1), m.runs([41], 1, e), m.runs([0], 5)
    ),
}


def after_a_shift(m: Machine, effect: float) -> Estimate:
    earlier = m.runs(range(10), 1) + m.runs(range(10, 20), 1, 0.05)
    return compared(m.runs([41], 1), m.runs([42], 1, effect), earlier)


class Rates(NamedTuple):
    held: float
    with_margin: float
    without: float
    none: float

    def text(self, *names: str) -> str:
        return " | ".join(f"{100 * getattr(self, name):.1f}%" for name in names)


def rates(draw: Callable[[np.random.RandomState], Estimate], draws: int) -> Rates:
    """How often the interval holds 0, a verdict of the margin of 1%, one without a margin, and no verdict."""
    random = np.random.RandomState(20)
    held = with_margin = without = none = 0
    for _ in range(draws):
        found = draw(random)
        held += found.low is not None and found.high is not None and found.low <= 0 <= found.high
        with_margin += verdict_of(found, "lower", 1.0)[0] in ("better", "worse")
        verdict = verdict_of(found, "lower", 0.0)[0]
        without += verdict in ("better", "worse")
        none += verdict == "no verdict"
    return Rates(held / draws, with_margin / draws, without / draws, none / draws)


def row_of_nights(draw: OfNights, draws: int) -> str:
    nothing = rates(lambda random: draw(machine(random), 0.0), draws)
    slower = rates(lambda random: draw(machine(random), EFFECT), draws)
    return f"{nothing.text('none', 'without')} | {slower.text('without')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the draws that the documentation's tables have")
    share = parser.parse_args().share
    draws, draws_of_nights, draws_of_shifts = (
        max(round(share * number), 1) for number in (DRAWS, DRAWS_OF_NIGHTS, DRAWS_OF_SHIFTS)
    )
    for name, draw in ROWS.items():
        for outliers in (0.0, 0.03):
            found = rates(partial(draw, outliers=outliers), draws)
            print(f"| {name} | {outliers:.0%} | {found.text('held', 'with_margin', 'without')} |")
    print()
    for name, of_nights in OF_NIGHTS.items():
        print(f"| {name} | {row_of_nights(of_nights, draws_of_nights)} |")
    print()
    for effect in (0.0, 0.02):
        found = rates(
            lambda random, effect=effect: after_a_shift(machine(random, 0.003, 1e-9), effect), draws_of_shifts
        )
        print(f"a past shift of 5%, {effect:.0%} slower: {found.text('without')}")


if __name__ == "__main__":
    main()
