"""Prints docs/measurements/2026-11-24-comparisons.md: how often comparisons and their intervals are right.

    python -m tests.benchmarks.comparing.measure_rates > docs/measurements/2026-11-24-comparisons.md
    python -m tests.benchmarks.comparing.measure_rates --share=0.01     with a hundredth of the draws

Some minutes on one core. Nothing is asserted here; the tests beside it assert bounds with fewer draws.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.comparing.intervals import Estimate
from tests.benchmarks.comparing.nights import (
    NOISE,
    SHAPES,
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

EFFECT = 0.01
OfNights = Callable[[Machine, float], Estimate]
Rows = Iterator[Sequence[str]]

HEAD = """# 2026-11-24: how often comparisons are right

By simulation; `python -m tests.benchmarks.comparing.measure_rates` prints this page. "False": called better or worse
though A and B are equal, at `--margin=0` where nothing else is said. Except in the table on all figures, step time is
judged by itself at 95%; together with other figures its verdicts are a fifth fewer. See [comparing](../comparing.md).
"""
SETS: dict[str, Callable[..., Estimate]] = {  # of a RandomState, and of the share of outliers
    "3 and 3 runs": partial(sets, runs=(3, 3)),
    "10 and 10 runs": partial(sets, runs=(10, 10)),
    "1 and 1, 5 earlier ones": partial(singles, earlier=5),
    "1 and 1, 20 earlier ones": partial(singles, earlier=20),
}
NIGHTS: dict[str, OfNights] = {
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
DRIFTS = {  # of A and of B
    "neither": (Drift(), Drift()),
    "both by 3.6%, 60 s": (Drift(0.036, 60), Drift(0.036, 60)),
    "both by 3.6%, 200 s": (Drift(0.036, 200), Drift(0.036, 200)),
    "B by 3.6%, 60 s": (Drift(), Drift(0.036, 60)),
    "B by 8%, 300 s": (Drift(), Drift(0.08, 300)),
    "A by 3% and B by 6%, 200 s": (Drift(0.03, 200), Drift(0.06, 200)),
    "A by 4%, 100 s, and B by 4%, 300 s": (Drift(0.04, 100), Drift(0.04, 300)),
}


def rows_of_sets(draws: int) -> Rows:
    for name, draw in SETS.items():
        for outliers in (0.0, 0.03):
            found = rates(partial(draw, outliers=outliers), draws)
            yield name, f"{outliers:.0%}", *found.texts("held", "with_margin", "without")


def rows_of_nights(draws: int) -> Rows:
    def of(draw: OfNights, effect: float) -> Callable[[Random], Estimate]:
        return lambda random: draw(machine(random), effect)

    for name, draw in NIGHTS.items():
        equal, slower = (rates(of(draw, effect), draws) for effect in (0.0, EFFECT))
        yield name, *equal.texts("none", "without"), *slower.texts("without")


def orders(runs: int) -> dict[str, str]:
    blocks, turns = "A" * runs + "B" * runs, ("ABBA" * runs)[: 2 * runs]
    return {f"{runs} of A, then {runs} of B": blocks, f"{runs} a side, ABBA": turns}


def rows_of_trends(draws: int) -> Rows:
    for runs in (3, 5, 10):
        for name, order in orders(runs).items():
            for noise in (0.001, NOISE, 0.01):
                made = partial(in_order, order=order, noise=noise)
                equal = [partial(made, trend=trend) for trend in TRENDS]
                slower = [partial(made, trend=0.0, effect=effect) for effect in (EFFECT, 2 * EFFECT)]
                found = [rates(one, draws).texts("without")[0] for one in (*equal, *slower)]
                yield name, f"{noise:.1%}", *found


def rows_of_shapes(draws: int) -> Rows:
    between = {"3 of A, 6 of B, 3 of A": "AAABBBBBBAAA", "5 of A, 10 of B, 5 of A": "AAAAABBBBBBBBBBAAAAA"}
    for name, order in {**orders(3), **orders(5), **orders(10), **between}.items():
        for shape in SHAPES:
            made = [partial(in_order, order=order, trend=trend, shape=shape) for trend in TRENDS[2:]]
            found = [rates(one, draws) for one in made]
            yield f"{name}, {shape}", *(text for one in found for text in one.texts("without", "none"))


def rows_of_all_figures(draws: int) -> Rows:
    for runs in (3, 5, 10):
        equal, slower = (of_all_figures(Random(20), runs, draws, effect) for effect in (0.0, EFFECT))
        shares = (
            equal.any_alone,
            equal.any_together,
            slower.step_alone,
            slower.step_together,
            slower.step_equal_shares,
        )
        yield f"{runs} and {runs} runs", *(f"{share:.1%}" for share in shares)


def rows_of_drifts(draws: int) -> Rows:
    for name, (a, b) in DRIFTS.items():
        made = partial(drifting, a=a, b=b, runs=5)
        found = [partial(made, room=False), made, partial(made, effect=2 * EFFECT)]
        yield name, *(rates(one, draws).texts("without")[0] for one in found)


class Table(NamedTuple):
    heading: str
    draws: int
    text: str
    titles: Sequence[str]
    rows: Callable[[int], Rows]


TABLES = (
    Table("Sets and single runs of one day", 20_000, "Medians of runs differ by 0.3%; disturbed runs are 2-10% slow.",
          ("the sides", "disturbed", "interval contains 0", "false, margin 1%", "false"), rows_of_sets),
    Table("Nights", 4_000, "Nights differ by 0.2%, and so do the runs of a night.",
          ("the sides", "no verdict", "false", "1% slower is called worse"), rows_of_nights),
    Table("Trends within a day", 2_000, "A linear trend of 0 to 3% from the first run to the last.",
          ("the order", "noise", *(f"false at {trend:.1%}" for trend in TRENDS), "1% is seen", "2% is seen"),
          rows_of_trends),
    Table("Trends of other shapes", 1_000, f"Noise {NOISE:.1%}.",
          ("the order and the shape", "false at 1%", "no verdict", "false at 3%", "no verdict"), rows_of_shapes),
    Table("All figures of a comparison", 4_000,
          "Five: step time, effective tokens/s, which follow it, and three that are independent. False: any of them.",
          ("the sides", "false, each at 95%", "false, all together", "1% in step time, by itself", "all together",
           "with equal shares"),
          rows_of_all_figures),
    Table("Step times that still move", 1_000,
          "5 runs a side of 60 steps of 3 s, with noise of 0.2% by run and 0.3% by step. All approach the same step\n"
          "time from a share below it, with a time constant.",
          ("what moves", "false, drifts ignored", "false", "2% slower is called worse"), rows_of_drifts),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the draws that the documentation's tables have")
    share = parser.parse_args().share
    print(HEAD)
    for number, table in enumerate(TABLES):
        draws = max(round(share * table.draws), 1)
        print(f"## {table.heading}\n\n{table.text} {draws:,} draws a row.\n")
        rules = ["---", *["---:"] * (len(table.titles) - 1)]
        for row in (table.titles, rules, *table.rows(draws)):
            print(f"| {' | '.join(row)} |")
        print(end="" if number == len(TABLES) - 1 else "\n")


if __name__ == "__main__":
    main()
