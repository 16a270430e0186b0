"""Makes docs/measurements/2026-11-24-settling.md: what is said of simulated runs, and of public ones.

.venv/bin/python docs/make_settling_table.py [--runs=20] [--print]
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.measuring.window import choose_window  # noqa: E402
from benchmarks.rendering.columns import markdown_table  # noqa: E402
from benchmarks.values import Step, Window  # noqa: E402
from tests.benchmarks.measuring.settling_worlds import (  # noqa: E402
    MATTERS,
    NOISES,
    Drift,
    Judged,
    Length,
    bound_holds,
    drawn,
    exponential,
    linear,
    no_drift,
    share,
    throttled,
    two_states,
)
from tests.public_runs import PublicRun, public_runs  # noqa: E402

DOCUMENT = REPOSITORY / "docs" / "measurements" / "2026-11-24-settling.md"
LENGTHS = [
    *(Length(n, 0.1) for n in (50, 500)), *(Length(n, 1.0) for n in (50, 200, 500)),
    *(Length(n, 4.5) for n in (20, 50, 100, 200, 500)), *(Length(n, 20.0) for n in (20, 50, 200, 500)),
]  # fmt: skip
PERCENT, OVER = (0.5, 1.0, 2.0, 4.0, 8.0), (30.0, 75.0, 150.0, 300.0, 600.0)
DRIFTS: dict[str, list[Drift]] = {
    "linear, 0.5 to 8% in 30 to 600 s": [linear(*one) for one in product(PERCENT, OVER)],
    "exponential, 0.5 to 8%, 95% of it in 30 to 600 s": [exponential(*one) for one in product(PERCENT, OVER)],
    "1 to 8% slower in the last third": [throttled(percent, 1 / 3) for percent in PERCENT[1:]],
    "1 to 8% slower in the last sixth": [throttled(percent, 1 / 6) for percent in PERCENT[1:]],
    "1 to 8% slower in the last twelfth": [throttled(percent, 1 / 12) for percent in PERCENT[1:]],
    "1 to 8% slower in the last twentieth": [throttled(percent, 1 / 20) for percent in PERCENT[1:]],
    "linear, 1 to 8% in 30 minutes": [linear(percent, 1800) for percent in PERCENT[1:]],
}
SHOWN: dict[str, Drift] = {
    "none": no_drift(),
    "1% in 300 s": linear(1, 300),
    "1% in 600 s": linear(1, 600),
    "4% in 600 s": linear(4, 600),
    "8% in 225 s": linear(8, 225),
    "3.6%, 95% in 75 s": exponential(3.6, 75),
    "3.6%, 95% in 225 s": exponential(3.6, 225),
    "2% in the last third": throttled(2, 1 / 3),
    "two speeds 1% apart, 5 steps each": two_states(1, 5),
    "two speeds 1% apart, 50 steps each": two_states(1, 50),
}
STATES = ("settled", "still moving", "too short")
CUT_SECONDS = (300, 450, 600, 900)
LATER_SECONDS = (300.0, 2400.0)

TEXT = """# 2026-11-24: which runs are called settled

`python docs/make_settling_table.py` makes these tables from {runs} simulated runs a case ({more} of noise
alone) and the public runs of `tests/public_runs`. The noise is AR(1) 0.5 with the standard deviation given, and
spikes of 7 to 25% on 1.7% of the steps; "two scales" is 0.2% from step to step and 0.1% that lasts for some
fifty steps. A drift begins with the first step.

## Noise alone

Percent of the runs: settled / still moving / too short to tell.

{noise}

More are called still moving where noise outlasts the run (AR 0.9, two scales in a short one): there the
step time does move, and comes back.

## Runs whose median is off

All lengths and noises above; of them the runs whose drift puts the median of the counted steps {matters:g}% or
more off the settled step time. The last column: how often the median is no farther off than
`median_off_percent` says.

{drifts}

## Some drifts

{length}, noise 0.1%. "Off" is what the drift really does to the median, "up to" the median of what is printed
for the runs that still move.

{shown}

## Public runs

{public_runs} runs of MLPerf Training v5.1, each cut off after so many seconds. Their median is compared with
that of the steps 5 to 40 minutes later, where a run has 20 or more.

{public}

A run says nothing of what comes after it: a machine that changes its speed later is not seen, or that did so in the
last sixteenth of the run. A drift is taken to end ten minutes after stepping began, or with the run.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each case of the grid; ten times as many of others")
    parser.add_argument("--print", action="store_true", help="print the tables and write nothing")
    asked = parser.parse_args()
    length = Length(100, 4.5)
    public = public_runs()
    text = TEXT.format(
        runs=asked.runs,
        more=10 * asked.runs,
        matters=MATTERS,
        length=length.text(),
        noise=table(noise_alone(10 * asked.runs)),
        drifts=table(drifting(asked.runs)),
        shown=table(some_drifts(length, 10 * asked.runs)),
        public_runs=len(public),
        public=table(of_public(public)),
    )
    if asked.print:
        print(text)
    else:
        DOCUMENT.write_text(text, encoding="utf-8")


def table(rows: Iterator[Sequence[str]]) -> str:
    return markdown_table(next(rows), rows)


def states(found: Sequence[Judged]) -> str:
    return " / ".join(f"{100 * share(found, state):.0f}" for state in STATES)


def noise_alone(runs: int) -> Iterator[Sequence[str]]:
    yield ["steps", *NOISES]
    for length in LENGTHS:
        yield [length.text(), *(states(drawn("none", no_drift(), noise, length, runs)) for noise in NOISES)]


def drifting(runs: int) -> Iterator[Sequence[str]]:
    yield ["drift", "runs", *STATES, "the bound holds"]
    for name, drifts in DRIFTS.items():
        found = [
            one
            for number, drift in enumerate(drifts)
            for noise, length in product(NOISES, LENGTHS)
            for one in drawn(f"{name} {number}", drift, noise, length, runs)
            if one.off_percent >= MATTERS
        ]
        holds, moving = bound_holds(found)
        shares = [f"{100 * share(found, state):.{2 if state == 'settled' else 0}f}%" for state in STATES]
        yield [name, f"{len(found):,}", *shares, f"{100 * holds / moving:.1f}%"]


def some_drifts(length: Length, runs: int) -> Iterator[Sequence[str]]:
    yield ["drift", "off", "settled / still moving / too short", "up to"]
    for name, drift in SHOWN.items():
        found = drawn(name, drift, "0.1%", length, runs)
        bounds = [one.window.median_off_percent for one in found if one.window.median_off_percent is not None]
        off = f"{median(one.off_percent for one in found):.2f}%"
        yield [name, off, states(found), f"{median(bounds):.2g}%" if bounds else ""]


# --- public runs ----------------------------------------------------------------------------------


class Cut(NamedTuple):
    """A public run that was cut off."""

    window: Window
    off_percent: float | None  # of its median from that of later steps; None: too few


def of_public(runs: Sequence[PublicRun]) -> Iterator[Sequence[str]]:
    yield [
        "cut off after",
        *STATES,
        "settled: off later",
        "at worst",
        "still moving: off later",
        "within what is said",
    ]
    for seconds in CUT_SECONDS:
        found = [cut(run, seconds) for run in runs]
        counts = Counter(one.window.settling for one in found)
        off = {
            state: [one.off_percent for one in found if one.window.settling == state and one.off_percent is not None]
            for state in STATES
        }
        said = [one for one in found if one.window.settling == "still moving" and one.off_percent is not None]
        within = sum((one.off_percent or 0.0) <= (one.window.median_off_percent or 0.0) for one in said)
        yield [
            f"{seconds} s",
            *(str(counts[state]) for state in STATES),
            *(f"{value:.2f}%" for value in (median(off["settled"]), max(off["settled"]))),
            f"{median(off['still moving']):.2f}%",
            f"{within} of {len(said)}",
        ]


def cut(run: PublicRun, seconds: float) -> Cut:
    began = run.ends[0]
    steps = [
        Step(step=n, seconds=value, loss=None, tokens=None, elapsed_seconds=end - began)
        for n, (value, end) in enumerate(zip(run.seconds, run.ends, strict=True))
        if end - began <= seconds
    ]
    window, marked = choose_window(steps, "steady")
    counted = [step.seconds or 0.0 for step in marked if step.excluded_because is None]
    first, last = (seconds + wait for wait in LATER_SECONDS)
    later = [value for value, end in zip(run.seconds, run.ends, strict=True) if first <= end - began <= last]
    if not counted or len(later) < 20:
        return Cut(window, None)
    return Cut(window, 100 * abs(median(counted) / median(later) - 1))


if __name__ == "__main__":
    main()
