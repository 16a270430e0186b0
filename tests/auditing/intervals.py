"""Whether the 95% interval of a run's median holds the median that it should."""

from collections.abc import Sequence

import numpy as np

from benchmarks.measuring.statistics import median_interval
from tests.auditing.noise import PROCESSES, true_median
from tests.auditing.table import Line, Lines, Random, Share, Size, at_least, share

PART = "interval"
COUNTS = (20, 50, 200)


def lines(size: Size, random: Random) -> Lines:
    for name, process in PROCESSES.items():
        middle = true_median(process)
        for steps in COUNTS:
            runs = process(random, size.runs(2000, 100), steps)
            held, width, none = coverage(runs.tolist(), middle)
            what = f"{name}, {steps} steps: median half-width {100 * width:.2f}%"
            yield at_least(PART, what + none, held, 0.95)


def coverage(runs: Sequence[Sequence[float]], middle: float) -> tuple[Share, float, str]:
    """How often the interval holds the true median, and the median half-width; runs without an interval are named."""
    found = [median_interval(run) for run in runs]
    known = [one for one in found if one is not None]
    held = share([one.low <= middle <= one.high for one in known])
    width = float(np.median([(one.high - one.low) / 2 / one.median for one in known]))
    missing = len(found) - len(known)
    return held, width, f"; {missing} of {len(found)} runs have none" if missing else ""


__all__ = ["Line", "lines"]
