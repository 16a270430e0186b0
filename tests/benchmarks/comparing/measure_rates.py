"""Prints the tables of docs/comparing.md: how often intervals contain the truth, and how often verdicts are false.

    python -m tests.benchmarks.comparing.measure_rates
    python -m tests.benchmarks.comparing.measure_rates --share=0.01     with a hundredth of the draws

Nothing is asserted here; the tests beside it assert bounds with fewer draws.
"""

import argparse
from collections.abc import Callable
from functools import partial

from benchmarks.comparing.intervals import Estimate
from tests.benchmarks.comparing.nights import (
    NOISE,
    Drift,
    Machine,
    Random,
    compared,
    drifting,
    in_order,
    machine,
    of_all_figures,
    rates,
    sets,
    singles,
)

DRAWS = 20_000
DRAWS_OF_NIGHTS = 4_000
DRAWS_OF_DRIFTS = 1_000
EFFECT = 0.01
OfNights = Callable[[Machine, float], Estimate]

ROWS: dict[str, Callable[..., Estimate]] = {  # of a RandomState, and of the share of outliers
    "3 and 3 runs": partial(sets, runs=(3, 3)),
    "10 and 10 runs": partial(sets, runs=(10, 10)),
    "1 and 1, 5 earlier ones": partial(singles, earlier=5),
    "1 and 1, 20 earlier ones": partial(singles, earlier=20),
}
OF_NIGHTS: dict[str, OfNights] = {
    "10 and 10 in one night, in any order": lambda m, e: compared(m.runs([41], 10), m.runs([41], 10, e)),
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

TRENDS = (0.0, 0.005, 0.01, 0.03)
SHAPES = {"a line": 1.0, "steep at first": 0.3, "a jump in the middle": 0.0}
DRIFTS = {  # of A and of B
    "neither": (Drift(), Drift()),
    "both by 3.6% in 60 s": (Drift(0.036, 60), Drift(0.036, 60)),
    "both by 3.6% in 200 s": (Drift(0.036, 200), Drift(0.036, 200)),
    "B by 3.6% in 60 s": (Drift(), Drift(0.036, 60)),
    "B by 8% in 300 s": (Drift(), Drift(0.08, 300)),
    "A by 3% and B by 6% in 200 s": (Drift(0.03, 200), Drift(0.06, 200)),
    "A by 4% in 100 s, B by 4% in 300 s": (Drift(0.04, 100), Drift(0.04, 300)),
}


def orders(runs: int) -> dict[str, str]:
    return {
        f"{runs} of A, then {runs} of B": "A" * runs + "B" * runs,
        f"{runs} a side, ABBA": ("ABBA" * runs)[: 2 * runs],
    }


def print_orders(draws: int) -> None:
    """False verdicts under trends, at three noises; what is seen without one; and other shapes of 3%."""
    for runs in (3, 5, 10):
        for name, order in orders(runs).items():
            for noise in (0.001, NOISE, 0.01):
                made = partial(in_order, order=order, noise=noise)
                false = [rates(partial(made, trend=trend), draws).text("without") for trend in TRENDS]
                seen = [
                    rates(partial(made, trend=0.0, effect=effect), draws).text("without") for effect in (0.01, 0.02)
                ]
                print(f"| {name} | {noise:.1%} | {' | '.join([*false, *seen])} |")
    for runs in (3, 10):
        for name, order in orders(runs).items():
            for shape, power in SHAPES.items():
                found = [
                    rates(partial(in_order, order=order, trend=trend, shape=power), draws) for trend in TRENDS[2:]
                ]
                print(f"| {name}, {shape} | {' | '.join(one.text('without') for one in found)} |")


def print_all_figures(draws: int) -> None:
    """False verdicts in any of 5 figures, each by itself and all together; 1% in step time, likewise."""
    for runs in (3, 5, 10):
        none, one = (of_all_figures(Random(20), runs, draws, effect) for effect in (0.0, EFFECT))
        shares = (none.any_alone, none.any_together, one.step_alone, one.step_together)
        print(f"| {runs} and {runs} runs | {' | '.join(f'{share:.1%}' for share in shares)} |")


def print_drifts(draws: int) -> None:
    """Step times that approach one level: false verdicts without and with room for the drift; 2% slower, with."""
    for name, (a, b) in DRIFTS.items():
        made = partial(drifting, a=a, b=b, runs=5)
        found = [rates(partial(made, room=room), draws).text("without") for room in (False, True)]
        seen = rates(partial(made, effect=0.02), draws).text("without")
        print(f"| {name} | {' | '.join([*found, seen])} |")


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
    for table, draws in (
        (print_orders, DRAWS_OF_NIGHTS), (print_all_figures, DRAWS_OF_NIGHTS), (print_drifts, DRAWS_OF_DRIFTS),
    ):  # fmt: skip
        print()
        table(max(round(share * draws), 1))


if __name__ == "__main__":
    main()
