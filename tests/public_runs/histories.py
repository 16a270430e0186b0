"""Real runs in the place of nights: the result sets of mlperf_v51_runs.csv as histories, and the gate on them.

A history is all runs of one submitter on one kind of machine, set after set in the order of their starts. Sets differ
in benchmark and number of nodes, so each run counts as a ratio to its own set's median. Runs were minutes apart, not
nights; a suspect run's re-runs are the three runs that followed it.
"""

import csv
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.gate.rule import G3, Rule
from benchmarks.gate.simulation import Case, Drawn, World, gated
from benchmarks.gate.values import Verdict
from benchmarks.measuring.statistics import DEVIATIONS_PER_MAD

FILE = Path(__file__).with_name("mlperf_v51_runs.csv")
FAMILIES = {  # those with 30 runs or more on one kind of GPU: submitter, and what its systems are called
    "AMD MI300X, MI350X": ("AMD", "^MI3"),
    "Cisco hpf": ("Cisco", "^hpf"),
    "Dell XE9680L B200": ("Dell", "XE9680Lx8B200"),
    "Lenovo B300": ("Lenovo", "B300"),
    "MangoBoost MI300X, MI325X": ("MangoBoost", "^MI3"),
    "Nebius B200, B300": ("Nebius", "b[23]00"),
    "NVIDIA theia": ("NVIDIA", "^theia"),
    "NVIDIA tyche": ("NVIDIA", "^tyche"),
    "Oracle B200": ("Oracle", "B200"),
    "University of Florida B200": ("University-of-Florida", "^hpg"),
}
FOUND_WITHIN = 3


class RunSet(NamedTuple):
    """The runs of one submitter, system and benchmark, in the order of their starts."""

    submitter: str
    system: str
    benchmark: str
    started: list[datetime]
    logs: list[float]  # of seconds/step over the set's median


def read_sets() -> list[RunSet]:
    with FILE.open(encoding="utf-8", newline="") as stream:
        sets = [_read(row) for row in csv.DictReader(stream)]
    return sorted(sets, key=lambda one: one.started[0])


def _read(row: Mapping[str, str]) -> RunSet:
    logs = [math.log(float(seconds)) for seconds in row["seconds_per_step"].split()]
    runs = sorted(zip(map(datetime.fromisoformat, row["started"].split()), logs, strict=True))
    started, middle = [start for start, _ in runs], statistics.median(logs)
    return RunSet(row["submitter"], row["system"], row["benchmark"], started, [log - middle for _, log in runs])


# --- how they vary --------------------------------------------------------------------------------


def deviation(one: RunSet) -> float:
    return statistics.stdev(one.logs)


def autocorrelation(one: RunSet) -> float:
    """Lag 1, from run to run; its bias in a set of n runs is about -1/n."""
    mean = statistics.fmean(one.logs)
    off = [value - mean for value in one.logs]
    return sum(a * b for a, b in pairwise(off)) / sum(value**2 for value in off)


def outliers(one: RunSet) -> int:
    """Runs that lie further from the set's median than 5 robust deviations, and than half a percent."""
    unit = max(DEVIATIONS_PER_MAD * statistics.median(map(abs, one.logs)), G3.least_noise)
    return sum(abs(value) > max(G3.outlier_deviations * unit, G3.relevant) for value in one.logs)


def share_of_day(sets: Sequence[RunSet]) -> tuple[float, int]:
    """Of the variance between runs, what is between days (UTC): an analysis of variance of the sets that span some.

    And how many sets these are.
    """
    within = between = 0.0
    counted = 0
    for one in sets:
        days: dict[object, list[float]] = defaultdict(list)
        for started, value in zip(one.started, one.logs, strict=True):
            days[started.date()].append(value)
        total = deviation(one) ** 2
        freedom = len(one.logs) - len(days)
        if len(days) < 2 or freedom < 2:
            continue
        squares = sum(map(_squares, days.values()))
        mean_within, mean_between = squares / freedom, (_squares(one.logs) - squares) / (len(days) - 1)
        size = (len(one.logs) - sum(len(v) ** 2 for v in days.values()) / len(one.logs)) / (len(days) - 1)
        part = max((mean_between - mean_within) / size, 0.0)
        within += mean_within / total
        between += part / total
        counted += 1
    return between / (within + between), counted


def _squares(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return sum((value - mean) ** 2 for value in values)


# --- the gate on them -----------------------------------------------------------------------------


class Replay(NamedTuple):
    """What the gate says of one history."""

    nights: int  # that were judged
    noise: float  # standard deviation of its runs
    false_alarms: int  # regressions, of which none was made
    improvements: int
    found: dict[float, tuple[int, int]]  # planted shift -> found within 3 nights, of so many nights to begin on


def histories(sets: Sequence[RunSet]) -> dict[str, list[float]]:
    """The runs of each family, set after set."""
    return {
        name: [
            value
            for one in sets
            if one.submitter == submitter and re.search(system, one.system)
            for value in one.logs
        ]
        for name, (submitter, system) in FAMILIES.items()
    }


def replay(logs: Sequence[float], effects: Sequence[float], rule: Rule = G3) -> Replay:
    first = rule.fewest_baseline_nights
    verdicts = _verdicts(logs, rule)[first:]
    found: dict[float, tuple[int, int]] = {}
    for effect in effects:
        begins = range(first, len(logs) - rule.confirmations - FOUND_WITHIN + 1)
        seen = 0
        for begin in begins:
            shifted = [value + (math.log1p(effect) if n >= begin else 0.0) for n, value in enumerate(logs)]
            cut = shifted[: begin + FOUND_WITHIN + rule.confirmations]
            seen += "regression" in _verdicts(cut, rule)[begin : begin + FOUND_WITHIN]
        found[effect] = (seen, len(begins))
    alarms, better = verdicts.count("regression"), verdicts.count("improvement")
    return Replay(len(verdicts), statistics.stdev(logs), alarms, better, found)


def _verdicts(logs: Sequence[float], rule: Rule) -> list[Verdict]:
    """Of all but the last runs, which have too few after them to be their re-runs."""
    after = np.lib.stride_tricks.sliding_window_view(np.array(logs), 1 + rule.confirmations)
    return gated(Drawn(after[None, :, 0], after[None, :, 1:]), Case(World(0.0), history=0), rule)[0].verdicts
