"""Whether the 95% interval of a run's median holds the median that it should: of made processes, and of real runs."""

from collections.abc import Sequence

import numpy as np

from benchmarks.measuring.statistics import median_interval
from tests.auditing.noise import PROCESSES, true_median
from tests.auditing.table import Line, Lines, Random, Share, Size, at_least, share
from tests.public_runs import PublicRun, public_runs

PART = "interval"
COUNTS = (20, 50, 200)
SETTLED_AFTER = 180.0  # seconds; nine in ten public runs have settled by then
FEWEST = 60  # values of a real run after that
PROMISED_FROM = {"a state 1% slower for 25 steps in 100": 100}  # steps; a shorter window may lie in one state
OF_HALVES = 0.83  # an exact 95% interval holds the median of as many further steps so often


def lines(size: Size, random: Random) -> Lines:
    for name, process in PROCESSES.items():
        middle = true_median(process)
        for steps in COUNTS:
            runs = process(random, size.runs(2000, 100), steps)
            held, also = coverage(runs.tolist(), middle)
            line = at_least(PART, f"{name}, {steps} steps: holds the true median", held, goal(steps), also=also)
            yield line if steps >= PROMISED_FROM.get(name, 0) else line._replace(goal="", holds=None)
    yield from _real(size)
    yield _reaching_zero(size, random)


def goal(steps: int) -> float:
    """Fewer than 50 steps cannot show a memory that is longer than they are."""
    return 0.95 if steps >= 50 else 0.90


def coverage(runs: Sequence[Sequence[float]], middle: float) -> tuple[Share, str]:
    """How often the interval holds the true median; how wide it is, and how many runs have none."""
    found = [median_interval(run) for run in runs]
    known = [one for one in found if one is not None]
    held = share([one.low <= middle <= one.high for one in known])
    width = float(np.median([(one.high - one.low) / 2 / one.median for one in known]))
    missing = len(found) - len(known)
    none = f", {missing} of {len(found)} runs have none" if missing else ""
    return held, f"half-width {100 * width:.2f}%{none}"


# --- real runs --------------------------------------------------------------------------------------


def _real(size: Size) -> Lines:
    """Of public MLPerf runs: the interval of so many steps against the median of all the run's other steps."""
    every = [run for run in public_runs() if len(_settled(run)) >= FEWEST]
    runs = every if size.full else every[::6]
    for steps in (20, 50):
        rates = np.array([float(np.mean(held)) for run in runs if (held := _windows(run, steps))])
        error = float(rates.std(ddof=1)) / len(rates) ** 0.5
        found = f"{100 * rates.mean():.0f}% +- {196 * error:.0f} of windows in {len(rates)} runs"
        worst = f" (worst run {100 * min(rates):.0f}%)"
        what = f"public runs, {steps} values: the interval holds the median of all other values"
        holds = bool(rates.mean() + 2.33 * error >= 0.90) if steps >= 50 else None
        yield Line(PART, what, "" if holds is None else "at least 90%", found + worst, holds)
    halves = share([_halves(run) for run in runs])
    what = "public runs: the interval of the first half holds the median of the second"
    yield at_least(PART, what, halves, OF_HALVES, 0, also=f"{len(runs)} runs")


def _settled(run: PublicRun) -> list[float]:
    return [value for value, end in zip(run.seconds, run.ends, strict=True) if end - run.ends[0] >= SETTLED_AFTER]


def _windows(run: PublicRun, steps: int) -> list[bool]:
    """One after another through the run."""
    values, held = _settled(run), []
    for begin in range(0, len(values) - steps + 1, steps):
        window, others = values[begin : begin + steps], values[:begin] + values[begin + steps :]
        found = median_interval(window, run.resolution_seconds)
        if found is not None and others:
            held.append(bool(found.low <= np.median(others) <= found.high))
    return held


def _halves(run: PublicRun) -> bool:
    values = _settled(run)
    half = len(values) // 2
    found = median_interval(values[:half], run.resolution_seconds)
    return found is not None and bool(found.low <= np.median(values[half:]) <= found.high)


def _reaching_zero(size: Size, random: Random) -> Line:
    """Few, long-remembering, very unequal steps, as on a shared machine."""
    runs = np.exp(random.normal(0.0, 0.5, (size.runs(3000, 300), 1)) + random.normal(0.0, 0.4, (1, 12)).cumsum(1))
    runs = np.concatenate([runs, np.exp(random.normal(0.0, 0.5, runs.shape))])
    found = [median_interval(run[: 3 + number % 10]) for number, run in enumerate(runs.tolist())]
    low = sum(one is not None and one.low <= 0.0 for one in found)
    what = f"{len(found)} short, very uneven runs: intervals that reach 0"
    return Line(PART, what, "none", f"{low}", low == 0)
