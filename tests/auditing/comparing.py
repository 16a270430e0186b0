"""Comparisons of sets of runs: nothing is different, or the day itself drifts, and how often that is called a change."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from benchmarks.comparing.compare import compare
from benchmarks.comparing.runs import ComparedRun
from benchmarks.comparing.values import Comparison
from tests.auditing.table import Array, Lines, Random, Size, at_least, at_most, share
from tests.benchmarks.comparing.made import run, side

PART = "compare"
NOISE = 0.003
CLAIMS = ("better", "worse", "changed")
MORNING = datetime(2026, 11, 20, 6, tzinfo=UTC)
HOURS = 10.0  # from the first run of a comparison to the last


class Order(NamedTuple):
    """Which of the runs, in the order of their start, are of B."""

    name: str
    of_b: Sequence[bool]


def blocks(runs: int) -> Order:
    return Order("A's runs, then B's", [False] * runs + [True] * runs)


def in_turns(runs: int) -> Order:
    return Order("in turns", [number % 4 in (1, 2) for number in range(2 * runs)])


def lines(size: Size, random: Random) -> Lines:
    many = size.runs(1000, 40)
    for runs in (3, 4, 5):
        claimed = _claimed(random, many, in_turns(runs), 0.0)
        yield at_most(PART, f"A/A, {runs} runs a side in turns: step time called better or worse", claimed[0], 0.05)
        yield at_most(PART, f"A/A, {runs} runs a side in turns: any figure called so", claimed[1], 0.05)
    for trend in (0.01, 0.03):
        for runs in (3, 5, 10):
            for order in (blocks(runs), in_turns(runs)):
                what = f"A/A, a trend of {100 * trend:g}% over the day, {runs} runs a side, {order.name}: called so"
                yield at_most(PART, what, _claimed(random, many, order, trend)[0], 0.05)
    for order in (in_turns(5), blocks(5)):
        seen = _claimed(random, many, order, 0.0, 0.02)[0]
        what = f"B is 2% slower, no trend, 5 runs a side, {order.name}: called worse"
        yield at_least(PART, what, seen, 0.90 if order == in_turns(5) else 0.0)


def _claimed(random: Random, many: int, order: Order, trend: float, effect: float = 0.0) -> tuple:
    """How often the step time, and how often any figure, is called changed."""
    found = [_compared(random, order, trend, effect) for _ in range(many)]
    step = share([one.differences[0].verdict in CLAIMS for one in found])
    return step, share([any(two.verdict in CLAIMS for two in one.differences) for one in found])


def _compared(random: Random, order: Order, trend: float, effect: float) -> Comparison:
    count = len(order.of_b)
    day = np.linspace(0.0, 1.0, count)
    logs: Array = NOISE * random.standard_normal(count) + trend * day + effect * np.array(order.of_b)
    made = [_run(number, HOURS * float(at), float(log)) for number, (at, log) in enumerate(zip(day, logs, strict=True))]
    a = [one for one, of_b in zip(made, order.of_b, strict=True) if not of_b]
    b = [one for one, of_b in zip(made, order.of_b, strict=True) if of_b]
    return compare(side("A", *a), side("B", *b), margin_percent=0.0)


def _run(number: int, hour: float, log: float) -> ComparedRun:
    started = MORNING + timedelta(hours=hour)
    return run(f"{started:%Y%m%dT%H%M%SZ}-run-{number}", float(np.exp(log)))
