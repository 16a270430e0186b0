"""Comparisons of sets of runs: nothing differs, or the day drifts, and how often that is called a change."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks.comparing.compare import compare
from benchmarks.comparing.runs import ComparedRun
from benchmarks.comparing.values import Comparison
from tests.auditing.table import Array, Line, Lines, Random, Share, Size, at_least, at_most, share
from tests.benchmarks.comparing.made import REAL_RUN, run, side

PART = "compare"
NOISE = 0.003
CLAIMS = ("better", "worse", "changed")
MORNING = datetime(2026, 11, 20, 6, tzinfo=UTC)
HOURS = 10.0  # from the first run of a comparison to the last


class Order(NamedTuple):
    """Which of the runs, in the order of their start, are of B."""

    name: str
    of_b: Sequence[bool]


Shape = Callable[[Array], Array]  # of a day's trend, from 0 to 1


def linear(day: Array) -> Array:
    return day


def early(day: Array) -> Array:
    """Most of it in the first fifth of the day."""
    return 1 - np.exp(-day / 0.2)


def noon(day: Array) -> Array:
    """Up to noon, and down again."""
    return np.sin(np.pi * day)


def inside(runs: int) -> Order:
    return Order(
        f"{runs} runs of B between those of A", [runs <= 2 * number < 3 * runs for number in range(2 * runs)]
    )


def blocks(runs: int) -> Order:
    return Order(f"{runs} runs of A, then {runs} of B", [False] * runs + [True] * runs)


def in_turns(runs: int) -> Order:
    return Order(f"{runs} a side in turns", [number % 4 in (1, 2) for number in range(2 * runs)])


def lines(size: Size, random: Random) -> Lines:
    many = size.runs(1000, 40)
    for runs in (3, 4, 5):
        found = _compared(random, many, in_turns(runs))
        yield at_most(PART, f"A/A, {runs} runs a side in turns: step time called better or worse", _step(found), 0.05)
        yield at_most(
            PART, f"A/A, {runs} runs a side in turns: any of four independent figures called so", _any(found), 0.05
        )
    for trend in (0.01, 0.03):
        for order in (blocks(3), in_turns(3), blocks(5), in_turns(5), blocks(10), in_turns(10)):
            what = f"A/A, a trend of {100 * trend:g}% over the day, {order.name}: step time called so"
            yield at_most(PART, what, _step(_compared(random, many, order, trend=trend)), 0.05)
    for order in (blocks(5), in_turns(5), blocks(10), in_turns(10)):
        found = _step(_compared(random, many, order, trend=0.03, shape=early))
        what = f"A/A, 3% early in the day and steady later, {order.name}: step time called so"
        yield at_most(PART, what, found, 0.05)
    for order in (inside(6), blocks(6), inside(10), blocks(10)):
        found = _step(_compared(random, many, order, trend=0.01, shape=noon))
        yield at_most(PART, f"A/A, 1% slower at noon, {order.name}: step time called so", found, 0.05)
    seen = _step(_compared(random, many, in_turns(5), effect=0.02))
    yield at_least(PART, f"B is 2% slower, {in_turns(5).name}: called so", seen, 0.90)
    for order in (blocks(5), blocks(10)):
        found = _step(_compared(random, many, order, effect=0.02))
        yield Line(PART, f"B is 2% slower, no trend, {order.name}: called so", "", found.text())
    yield from _singles(random, many)


def _singles(random: Random, many: int) -> Lines:
    """One run a side, and no other of the kind."""
    one_each, twice = Order("one run a side", [False, True]), float(np.log(2))
    for gpu in (True, False):
        on = "a GPU" if gpu else "a CPU"
        what = f"one run a side on {on}, 5% apart by chance: called better or worse"
        yield at_most(PART, what, _step(_compared(random, many, one_each, effect=0.05, gpu=gpu)), 0.01)
        found = _step(_compared(random, many, one_each, effect=twice, gpu=gpu))
        what = f"one run a side on {on}, B takes twice as long: called worse"
        yield at_least(PART, what, found, 0.99) if gpu else Line(PART, what, "", found.text())


def _step(found: Sequence[Comparison]) -> Share:
    """How often the step time is called another."""
    return share([one.differences[0].verdict in CLAIMS for one in found])


def _any(found: Sequence[Comparison]) -> Share:
    return share([any(two.verdict in CLAIMS for two in one.differences) for one in found])


def _compared(
    random: Random,
    many: int,
    order: Order,
    trend: float = 0.0,
    effect: float = 0.0,
    shape: Shape = linear,
    gpu: bool = False,
) -> list[Comparison]:
    """Runs at equal distances over the day."""
    day = np.linspace(0.0, 1.0, len(order.of_b))
    level = trend * shape(day) + effect * np.array(order.of_b)
    return [_one(random, order, day, level, gpu) for _ in range(many)]


def _one(random: Random, order: Order, day: Array, level: Array, gpu: bool) -> Comparison:
    logs = level + NOISE * random.standard_normal(len(day))
    runs: tuple[list[ComparedRun], list[ComparedRun]] = ([], [])
    for number, (at, log, of_b) in enumerate(zip(day, logs, order.of_b, strict=True)):
        runs[of_b].append(_run(random, number, HOURS * float(at), float(log), gpu))
    return compare(side("A", *runs[False]), side("B", *runs[True]), margin_percent=0.0)


def _run(random: Random, number: int, hour: float, log: float, gpu: bool) -> ComparedRun:
    """Effective throughput, loss and memory vary each by itself."""
    started = MORNING + timedelta(hours=hour)
    real = REAL_RUN.result
    middle = real.seconds_per_step.median or 1.0
    effective, last, held = (float(np.exp(NOISE * one)) for one in random.standard_normal(3))
    changed = {
        "tokens_per_second_effective": (real.tokens_per_second_effective or 1.0) * effective,
        "seconds_per_step": replace(real.seconds_per_step, ci95=[middle * (1 - NOISE), middle * (1 + NOISE)]),
        "loss": replace(real.loss, last=(real.loss.last or 1.0) * last),
        "telemetry": real.telemetry
        and replace(real.telemetry, host_memory_bytes_max=int((real.telemetry.host_memory_bytes_max or 1e9) * held)),
    }
    hardware = replace(REAL_RUN.benchmark.hardware, name="h100", kind="gpu") if gpu else REAL_RUN.benchmark.hardware
    name = f"{started:%Y%m%dT%H%M%SZ}-run-{number}"
    return run(name, float(np.exp(log)), result=changed, benchmark={"hardware": hardware})
