"""Measures how often the interval of a run's median holds it, on made step times and on those of public MLPerf runs.

.venv/bin/python -m tests.benchmarks.measuring.measure_coverage [--runs=1000] [--print]

Writes docs/measurements/2026-11-24-interval.md, and the table of docs/figures.md, which is a part of it.
"""

import argparse
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist, fmean, median
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks.measuring import statistics
from benchmarks.measuring.statistics import median_interval
from benchmarks.rendering.columns import markdown_table
from tests.benchmarks import made_steps
from tests.benchmarks.made_steps import Array, Random
from tests.documents import replace_part
from tests.public_runs import PublicRun, public_runs

DOCS = Path(__file__).resolve().parents[3] / "docs"
DOCUMENT = DOCS / "measurements" / "2026-11-24-interval.md"
SHORT_DOCUMENT = DOCS / "figures.md"
SHORT_ROWS = {  # rows of the long tables, and what they are called in the short one
    "independent, 0.3%": "independent steps",
    "AR(1) 0.9": "AR(1) 0.9",
    "two scales: 0.2% AR 0.3, 0.1% AR 0.98": "a memory of 50 steps",
    "two scales: 0.2% AR 0.3, 0.1% AR 0.995": "a memory of 200 steps",
    "slower by 1% for 50 steps, and back": "two speeds 1% apart, each for 50 steps",
    "all, 57 runs": "57 public runs, the rest of each",
    "steps above 2 s, 8 runs": "8 of them, with steps above 2 s",
    "exact": "an exact interval of the rest",
}
STEP_SECONDS = 4.0
SETTLED_AFTER_SECONDS = 180.0  # nine in ten public runs hold still within 0.5% from there on
COUNTS = (20, 30, 50, 100, 200, 500)
FEW = (10, 15, 20, 25, 30, 35, 40, 45, 50)  # counts of long steps
FEWEST_OF_HALF = 20
FEWEST_WINDOWS = 30  # for a cell of the short table
LONG = 200_000  # steps that give the median of a process

Process = Callable[[Random, int], Array]


class Held(NamedTuple):
    """How often an interval held the truth, and how far it reached."""

    share: float
    half_width: float  # median, relative to the median step
    windows: int


# --- made step times ------------------------------------------------------------------------------


def independent(noise: float) -> Process:
    return lambda random, steps: 1 + noise * random.standard_normal(steps)


def autoregressive(r: float, noise: float = 0.003) -> Process:
    return lambda random, steps: 1 + noise * made_steps.autoregressive(random, (steps,), r)


def two_scales(fast: float, slow: float, r: float) -> Process:
    """A memory of a step, and one of some 1 / (1 - r) steps."""
    return lambda random, steps: 1 + made_steps.two_scales(random, (steps,), fast, slow, r)


def spikes(random: Random, steps: int) -> Array:
    """1.7% of the steps are 7-25% slower."""
    slow = random.random_sample(steps) < 0.017
    return autoregressive(0.3)(random, steps) * np.where(slow, random.uniform(1.07, 1.25, steps), 1.0)


def periodic(every: int) -> Process:
    """Every so many steps one is 10% slower, wherever the window begins."""

    def draw(random: Random, steps: int) -> Array:
        slow = (np.arange(steps) + random.randint(every)) % every == 0
        return independent(0.003)(random, steps) * np.where(slow, 1.10, 1.0)

    return draw


def two_speeds(random: Random, steps: int) -> Array:
    """1% apart, each for 50 steps on average."""
    slow = made_steps.two_speeds(random, (steps,), 50)
    return independent(0.003)(random, steps) + 0.01 * slow


GATE_NOISE = two_scales(0.002, 0.001, 0.98)
PROCESSES: dict[str, Process] = {
    "independent, 0.3%": independent(0.003),
    "independent, 1%": independent(0.01),
    **{f"AR(1) {r}": autoregressive(r) for r in (0.3, 0.5, 0.7, 0.8, 0.9)},
    "two scales: 0.2% AR 0.3, 0.1% AR 0.98": GATE_NOISE,
    "two scales: 0.2% AR 0.3, 0.15% AR 0.97": two_scales(0.002, 0.0015, 0.97),
    "two scales: 0.2% AR 0.3, 0.1% AR 0.995": two_scales(0.002, 0.001, 0.995),
    "1.7% of steps slower by 7-25%": spikes,
    **{f"every {n}th step slower by 10%": periodic(n) for n in (7, 10, 25)},
    "slower by 1% for 50 steps, and back": two_speeds,
}


def held(case: str, process: Process, steps: int, runs: int, resolution_seconds: float = 0.0) -> Held:
    """Of the process's own median, from as many windows."""
    random = Random(zlib.crc32(f"{case} {steps}".encode()))
    truth = STEP_SECONDS * float(np.median(process(Random(1), LONG))) if "slower" in case else STEP_SECONDS
    windows = []
    for _ in range(runs):
        seconds = STEP_SECONDS * process(random, steps)
        if resolution_seconds:
            seconds = np.round(seconds / resolution_seconds) * resolution_seconds
        windows.append((seconds.tolist(), truth))
    return _held(windows, resolution_seconds)


def _held(windows: Sequence[tuple[list[float], float]], resolution_seconds: float) -> Held:
    """Windows, each with the figure that its interval should hold."""
    inside, half_widths = [], []
    for seconds, truth in windows:
        found = median_interval(seconds, resolution_seconds)
        assert found is not None
        inside.append(found.low <= truth <= found.high)
        half_widths.append((found.high - found.low) / 2 / found.median)
    return Held(fmean(inside), median(half_widths), len(windows))


# --- real step times ------------------------------------------------------------------------------


class Settled(NamedTuple):
    """A public run, without the time in which machines settle."""

    run: PublicRun
    seconds: list[float]

    @property
    def median(self) -> float:
        return median(self.seconds)


def settled_runs() -> list[Settled]:
    runs = public_runs()
    return [
        Settled(run, [taken for taken, end in zip(run.seconds, run.ends, strict=True) if end > SETTLED_AFTER_SECONDS])
        for run in runs
    ]


def windows_held(runs: Sequence[Settled], steps: int) -> Held | None:
    """Windows of so many values against the median of the rest of their run, no shorter; runs count alike."""
    return _over_runs(runs, lambda run: _cut(run.seconds, steps), 2 * steps)


def exact(runs: Sequence[Settled], steps: int | None) -> float | None:
    """How often an exact 95% interval holds the median of the rest, uncertain too; None: of the other half."""
    lengths = [len(run.seconds) for run in runs if len(run.seconds) >= 2 * (steps or FEWEST_OF_HALF)]
    errors = [math.sqrt(1 + (steps / (length - steps) if steps else 1)) for length in lengths]
    normal = NormalDist()
    return fmean(2 * normal.cdf(normal.inv_cdf(0.975) / error) - 1 for error in errors) if errors else None


def halves_held(runs: Sequence[Settled]) -> Held | None:
    """One half of a run against the median of the other."""

    def halves(run: Settled) -> list[tuple[list[float], float]]:
        middle = len(run.seconds) // 2
        one, other = run.seconds[:middle], run.seconds[middle:]
        return [(one, median(other)), (other, median(one))]

    return _over_runs(runs, halves, 2 * FEWEST_OF_HALF)


def shuffled(runs: Sequence[Settled]) -> list[Settled]:
    """The same values without their order: what the interval would do if steps had no memory."""
    return [run._replace(seconds=list(Random(7).permutation(run.seconds))) for run in runs]


def _cut(seconds: list[float], steps: int) -> list[tuple[list[float], float]]:
    starts = range(0, len(seconds) - steps + 1, steps)
    return [(seconds[at : at + steps], median(seconds[:at] + seconds[at + steps :])) for at in starts]


def _over_runs(
    runs: Sequence[Settled], windows: Callable[[Settled], list[tuple[list[float], float]]], fewest: int
) -> Held | None:
    found = [_held(windows(run), run.run.resolution_seconds) for run in runs if len(run.seconds) >= fewest]
    if not found:
        return None
    return Held(
        fmean(one.share for one in found), median(one.half_width for one in found), sum(one.windows for one in found)
    )


def autocorrelation(seconds: Sequence[float], lag: int) -> float:
    """Of values cut at 3 robust deviations, so that it is not that of a few spikes."""
    values = np.array(seconds) - np.median(seconds)
    reach = statistics.CLIP_DEVIATIONS * statistics.DEVIATIONS_PER_MAD * float(np.median(np.abs(values)))
    values = np.clip(values, -reach, reach)
    values -= values.mean()
    return float((values[lag:] * values[:-lag]).sum() / (values * values).sum())


# --- the document ---------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="windows of each made process and length")
    parser.add_argument("--print", action="store_true", help="and write no file")
    options = parser.parse_args()
    text = "\n".join(document(options.runs))
    if options.print:
        print(text)
    else:
        DOCUMENT.write_text(text + "\n")
        replace_part(SHORT_DOCUMENT, "interval", short_table(text.splitlines()))


INTRODUCTION = """
# 2026-11-24: what the 95% interval of a run's median covers

Made by `.venv/bin/python -m tests.benchmarks.measuring.measure_coverage`. A cell is how often, in percent,
`seconds_per_step.ci95` held the truth, by the number of steps in the window. In brackets: its half width in percent
of the step (median). The rule is in `benchmarks/measuring/statistics.py`.

## Made step times

{runs:,} windows each; the truth is the median of the process.
"""
PUBLIC = """
## Public runs

{count} runs of MLPerf Training v5.1, one of each system and benchmark (`tests/public_runs`), from {settled:g} s of
stepping on. A value is a step's time where the log has each; else the mean of 10 or 32 steps by a clock of 1 ms
(0.08% of a step or finer; the interval is widened by half of that). The truth is the median of the rest of the run,
which is no shorter than the window; runs count alike. That median is uncertain too: *exact* is how often an exact 95%
interval would hold it. *Shuffled*: the same values without their order, as if steps had no memory.
*Without the thirds*: an interval that knows the autocorrelation of neighbouring steps alone.
"""
FEW_STEPS = """
Few steps, in brackets what an exact interval would do:
"""
HALVES = """
Few runs have steps above 2 s: 40 windows of 8 runs leave an uncertainty of 7 points and more.

Autocorrelation at lags of 1, 5, 20 and 50 values, median (lowest to highest). The gate's simulated steps (two scales,
AR 0.98) have 0.44, 0.18, 0.13 and 0.07.
"""
FACTOR = """
MaxText's public repository holds no log of more than a few steps; the logs in `tests/` have 20 at most.

## The choice of 1.75

The interval of the thirds is widened by a factor, because neighbouring thirds are alike. 1.75 is the least of these
that holds the rest of public runs, from 50 values on, as often as an exact interval: of all, and of steps above 2 s.
The last column is the half width of 50 independent steps of 0.3% noise, in percent.
"""


def document(runs: int) -> Iterator[str]:
    real = settled_runs()
    each = [run for run in real if run.run.steps_per_value == 1]
    means = [run for run in real if run.run.steps_per_value > 1]
    titles = ["step times", *map(str, COUNTS)]
    yield INTRODUCTION.format(runs=runs).lstrip()
    yield markdown_table(titles, _made_rows(runs))
    yield PUBLIC.format(count=len(real), settled=SETTLED_AFTER_SECONDS)
    yield markdown_table(["values", *map(str, COUNTS[:-1]), "half against half"], _real_rows(each, means))
    long, others = ([run for run in real if (run.median >= 2) is wanted] for wanted in (True, False))
    yield FEW_STEPS
    yield markdown_table(["values", *map(str, FEW)], [_few("of more than 2 s", long), _few("shorter", others)])
    yield HALVES
    yield markdown_table(["values", "1", "5", "20", "50"], [_lags("each step", each), _lags("means of steps", means)])
    yield FACTOR
    titles = [f"{group}, {steps}" for group in ("all", "above 2 s") for steps in COUNTS[:4]]
    yield markdown_table(["factor", *titles, "half width"], _factor_rows(real, runs))


def short_table(lines: Sequence[str]) -> str:
    """The shares alone, in percent, of a few rows; few windows say nothing."""
    rows = [line.strip("| ").split(" | ") for line in lines]
    found = {name: next(row for row in rows if row[0] == name) for name in SHORT_ROWS}
    shares = [[title, *map(_share, found[name][1:6])] for name, title in SHORT_ROWS.items()]
    return markdown_table(["steps in the window", *map(str, COUNTS[:5])], shares)


def _share(cell: str) -> str:
    share, _, rest = cell.partition(" (")
    windows = rest.partition("), ")[2].partition(" ")[0]
    return "" if windows and int(windows) < FEWEST_WINDOWS else share


def _made_rows(runs: int) -> Iterator[list[str]]:
    for case, process in PROCESSES.items():
        yield [case, *(_cell(held(case, process, steps, runs)) for steps in COUNTS)]
    case = "AR(1) 0.7, 4 s printed with 2 digits"
    yield [case, *(_cell(held(case, autoregressive(0.7), steps, runs, 0.01)) for steps in COUNTS)]


def _real_rows(each: Sequence[Settled], means: Sequence[Settled]) -> Iterator[list[str]]:
    real = [*each, *means]
    groups = {
        "each step": each,
        "means of steps": means,
        "steps below 0.3 s": [run for run in real if run.median < 0.3],
        "steps of 0.3 to 2 s": [run for run in real if 0.3 <= run.median < 2],
        "steps above 2 s": [run for run in real if run.median >= 2],
        "all": real,
        "all, shuffled": shuffled(real),
    }
    for name, runs in groups.items():
        cells = [windows_held(runs, steps) for steps in COUNTS[:-1]]
        yield [f"{name}, {len(runs)} runs", *map(_real_cell, [*cells, halves_held(runs)])]
    yield ["exact", *(_percent(exact(real, steps)) for steps in (*COUNTS[:-1], None))]
    with patch.object(statistics, "MEMORY", 0.0):
        cells = [windows_held(real, steps) for steps in COUNTS[:-1]]
        yield ["all, without the thirds", *map(_real_cell, [*cells, halves_held(real)])]


def _factor_rows(real: Sequence[Settled], runs: int) -> Iterator[list[str]]:
    groups = (real, [run for run in real if run.median >= 2])
    for factor in (0.0, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5):
        with patch.object(statistics, "MEMORY", factor):
            found = [windows_held(group, steps) for group in groups for steps in COUNTS[:4]]
            quiet = held("independent, 0.3%", independent(0.003), 50, runs)
        shares = (_percent(one and one.share) for one in found)
        yield [f"{factor:g}", *shares, f"{100 * quiet.half_width:.2f}"]
    yield ["exact", *(_percent(exact(group, steps)) for group in groups for steps in COUNTS[:4]), ""]


def _few(name: str, runs: Sequence[Settled]) -> list[str]:
    found = [(windows_held(runs, steps), exact(runs, steps)) for steps in FEW]
    return [name, *(f"{_percent(one and one.share)} ({_percent(wanted)})" for one, wanted in found)]


def _lags(name: str, runs: Sequence[Settled]) -> list[str]:
    cells = []
    for lag in (1, 5, 20, 50):
        found = [autocorrelation(run.seconds, lag) for run in runs if len(run.seconds) >= 3 * lag]
        cells.append(f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})")
    return [name, *cells]


def _cell(found: Held) -> str:
    return f"{100 * found.share:.1f} ({100 * found.half_width:.2f})"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _real_cell(found: Held | None) -> str:
    return "" if found is None else f"{_cell(found)}, {found.windows} windows"


if __name__ == "__main__":
    main()
