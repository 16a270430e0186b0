"""Prints the tables of docs/comparing.md: how often intervals hold the truth, and how often verdicts are false.

    python -m tests.benchmarks.comparing.measure_rates
    python -m tests.benchmarks.comparing.measure_rates --share=0.01     with a hundredth of the draws

Nothing is asserted here; test_intervals.py and test_days.py assert bounds with fewer draws.
"""

import argparse
from collections.abc import Callable
from functools import partial

from benchmarks.comparing.intervals import Estimate
from tests.benchmarks.comparing.nights import Machine, Random, compared, machine, rates, sets, singles

DRAWS = 20_000
DRAWS_OF_NIGHTS = 4_000
EFFECT = 0.01
OfNights = Callable[[Machine, float], Estimate]

ROWS: dict[str, Callable[..., Estimate]] = {  # of a RandomState, and of the share of outliers
    "3 and 3 runs": partial(sets, runs=(3, 3)),
    "10 and 10 runs": partial(sets, runs=(10, 10)),
    "1 and 1, 5 earlier ones": partial(singles, earlier=5),
    "1 and 1, 20 earlier ones": partial(singles, earlier=20),
}
OF_NIGHTS: dict[str, OfNights] = {
    "10 and 10, in turns in one night": lambda m, e: compared(m.runs([41], 10), m.runs([41], 10, e)),
    "3 and 3, a night each": lambda m, e: compared(m.runs([41], 3), m.runs([42], 3, e)),
    "10 and 10, a night each": lambda m, e: compared(m.runs([41], 10), m.runs([42], 10, e)),
    "10 and 10, a night each, 20 earlier nights": lambda m, e: compared(
        m.runs([41], 10), m.runs([42], 10, e), m.runs(range(20), 1)
    ),
    "9 and 9, three nights each": lambda m, e: compared(m.runs(range(41, 44), 3), m.runs(range(44, 47), 3, e)),
    "1 and 1 in one night, 5 earlier runs of one night": lambda m, e: compared(
        m.runs([41], 1), m.runs([41], 1, e), m.runs([0], 5)
    ),
}


def row_of_nights(draw: OfNights, draws: int) -> str:
    def of(effect: float) -> Callable[[Random], Estimate]:
        return lambda random: draw(machine(random), effect)

    return f"{rates(of(0.0), draws).text('none', 'without')} | {rates(of(EFFECT), draws).text('without')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the draws that the documentation's tables have")
    share = parser.parse_args().share
    for name, draw in ROWS.items():
        for outliers in (0.0, 0.03):
            found = rates(partial(draw, outliers=outliers), max(round(share * DRAWS), 1))
            print(f"| {name} | {outliers:.0%} | {found.text('held', 'with_margin', 'without')} |")
    print()
    for name, of_nights in OF_NIGHTS.items():
        print(f"| {name} | {row_of_nights(of_nights, max(round(share * DRAWS_OF_NIGHTS), 1))} |")


if __name__ == "__main__":
    main()
