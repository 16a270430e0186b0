"""Real runs in the place of nights: the result sets of mlperf_v51_runs.csv as histories, and the rule on them.

A history is all runs of one submitter on one kind of machine, set after set in the order of their starts. Sets differ
in benchmark and number of nodes, so each run counts as a ratio to its own set's median. Runs were minutes apart, not
nights; a suspect run's re-runs are the three runs that followed it.
"""

import csv
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.nightly.rule import CONFIRMATIONS, FEWEST_BASELINE_NIGHTS
from benchmarks.verdict import Verdict
from tests.simulation.nights import Nights, verdicts

FILE = Path(__file__).with_name("mlperf_v51_runs.csv")
FAMILIES = {  # of those with 30 runs or more on one kind of GPU: submitter, and what its systems are called
    "AMD MI300X, MI350X": ("AMD", "^MI3"),
    "Cisco hpf": ("Cisco", "^hpf"),
    "MangoBoost MI300X, MI325X": ("MangoBoost", "^MI3"),
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


# --- the rule on them -----------------------------------------------------------------------------


class Replay(NamedTuple):
    """The verdicts on one history."""

    nights: int  # that were judged
    noise: float  # standard deviation of its runs
    false_alarms: int  # regressions, of which none was made
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


def replay(logs: Sequence[float], effects: Sequence[float]) -> Replay:
    first = FEWEST_BASELINE_NIGHTS
    calm = _verdicts(logs)[first:]
    found: dict[float, tuple[int, int]] = {}
    for effect in effects:
        begins = range(first, len(logs) - CONFIRMATIONS - FOUND_WITHIN + 1)
        seen = 0
        for begin in begins:
            shifted = [value + (math.log1p(effect) if n >= begin else 0.0) for n, value in enumerate(logs)]
            cut = shifted[: begin + FOUND_WITHIN + CONFIRMATIONS]
            seen += Verdict.WORSE in _verdicts(cut)[begin : begin + FOUND_WITHIN]
        found[effect] = (seen, len(begins))
    return Replay(len(calm), statistics.stdev(logs), calm.count(Verdict.WORSE), found)


def _verdicts(logs: Sequence[float]) -> list[Verdict]:
    """Return the verdicts on all runs but the last, which have too few after them to be their re-runs."""
    after = np.lib.stride_tricks.sliding_window_view(np.array(logs), 1 + CONFIRMATIONS)[None]
    return verdicts(Nights(after[:, :, 0], after[:, :, 1:], after[:, :, 0]), controlled=False)[0]
