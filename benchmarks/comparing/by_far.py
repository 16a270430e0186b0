"""A difference in speed that needs no statistics: ten times the largest seen between runs of one kind. Pure.

It is for sides whose noise is not known, such as two single runs.
"""

import math
from collections.abc import Collection, Sequence

from benchmarks.rendering.columns import percent_text

TIMES = 10
# The fastest and the slowest run of one result set, at most: 1,168 runs of 117 sets of MLPerf Training v5.1
# (tests/public_runs). On GPUs and TPUs; of a CPU, which any neighbour may share, no such bound is known.
MOST_APART_PERCENT = 4.95


def threshold(kinds: Collection[str], runs: Sequence[Sequence[float]], windows: float | None) -> float | None:
    """How far the logarithms of two sides must be apart. None: no bound is known.

    `kinds` of the devices; `runs`: figures of runs that are alike, as logarithms; `windows`: how far the windows of
    two single runs leave their difference open.
    """
    if "cpu" in kinds or windows is None:
        return None
    own = [max(logs) - min(logs) for logs in runs if len(logs) > 1]
    return TIMES * max(math.log1p(MOST_APART_PERCENT / 100), windows, *own)


def reason(a: int, b: int) -> str:
    each = "one run each" if a == b == 1 else f"{a} and {b} runs"
    largest = f"{percent_text(MOST_APART_PERCENT, '.3g')} on GPUs, MLPerf Training v5.1"
    return f"{each}; more than {TIMES} times the largest difference seen between runs of one kind ({largest})"
