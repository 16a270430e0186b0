"""The gate on real histories: runs of public MLPerf v5.1 result sets, one submitter and benchmark after the other.

Runs stand for nights, though they were minutes apart. Each result set is another system, so it is taken relative to
its own median, and what differs from set to set is not in them. A night's re-runs are the next runs of its set.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.auditing.gating import BEFORE, SEEN_WITHIN, verdicts
from tests.auditing.nights import RERUNS
from tests.auditing.table import Line, Lines, Random, Size, at_most, share

PART = "histories"
FILE = Path(__file__).resolve().parents[1] / "public_runs" / "mlperf_v51_runs.csv"
FEWEST_NIGHTS = 40
SHIFTS = (0.01, 0.02, 0.03)


class History(NamedTuple):
    logs: list[float]  # in the order of their start
    reruns: list[list[float]]


def histories() -> list[History]:
    with FILE.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    sets: dict[tuple[str, str], list[list[tuple[str, float]]]] = {}
    for row in rows:
        seconds = [math.log(float(one)) for one in row["seconds_per_step"].split()]
        runs = sorted(zip(row["started"].split(), seconds, strict=True))
        sets.setdefault((row["submitter"], row["benchmark"]), []).append(runs)
    found = []
    for systems in sets.values():
        logs, reruns = [], []
        for runs in sorted(systems):
            middle = median(log for _, log in runs)
            of_set = [log - middle for _, log in runs]
            logs += of_set
            reruns += [[of_set[(n + k) % len(of_set)] for k in range(1, RERUNS + 1)] for n in range(len(of_set))]
        if len(logs) >= FEWEST_NIGHTS:
            found.append(History(logs, reruns))
    return found


def lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn
    found = histories() if size.full else histories()[:2]
    calm = [[verdict == "regression" for verdict in _verdicts(one, len(one.logs), 0.0)[BEFORE:]] for one in found]
    alarms = share([[alarm] for one in calm for alarm in one])
    what = f"{len(found)} histories of public runs, {sum(map(len, calm))} nights: false alarms a night"
    yield at_most(PART, what, alarms, 0.003, 2)
    for shift in SHIFTS:
        seen = [one for history in found for one in _seen(history, shift)]
        what = f"the same, {100 * shift:g}% slower from a night on: seen within {SEEN_WITHIN} nights"
        yield Line(PART, what, "", share(seen).text())


def _seen(one: History, shift: float) -> list[bool]:
    """A change that begins at each night in turn."""
    begins = range(BEFORE, len(one.logs) - SEEN_WITHIN + 1)
    return ["regression" in _verdicts(one, at, shift)[at : at + SEEN_WITHIN] for at in begins]


def _verdicts(one: History, begins: int, shift: float) -> Sequence[str]:
    end = min(begins + SEEN_WITHIN, len(one.logs)) if shift else len(one.logs)
    added = [math.log1p(shift) if night >= begins else 0.0 for night in range(end)]
    runs = [math.exp(log + more) for log, more in zip(one.logs[:end], added, strict=True)]
    again = [[math.exp(log + more) for log in logs] for logs, more in zip(one.reruns[:end], added, strict=True)]
    return verdicts(runs, again)
