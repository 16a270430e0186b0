"""The weekly sweep: where in a series of nights the level changed for good, however little. Pure.

A baseline that moves along absorbs small lasting changes; this looks at the whole series at once. E-divisive
(Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate data", JASA 2014):
the split with the greatest energy distance between the nights before it and some of those after it, held against
that of the nights in random order; then again within the parts, until none is far enough.

Why no library: apache-otava 0.8 pins numpy to one version and brings clients for BigQuery and Slack; ruptures has no
test of significance, so somebody must guess how many changes there are.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.gate.level import logarithms
from benchmarks.measuring.statistics import DEVIATIONS_PER_MAD

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

FEWEST_NIGHTS = 5  # on either side of a change
REACH_DEVIATIONS = 4.0
SEED = 20140101


class Change(NamedTuple):
    """From `position` on the level is another one."""

    position: int
    percent: float  # the median night from here to the next change, against that since the change before
    p: float  # how often the same nights in random order split as far apart


def change_points(
    values: Sequence[float], p: float = 1e-3, smallest: float = 0.005, seed: int = SEED
) -> list[Change]:
    """All lasting changes of a series, oldest first; `smallest` is a share, below which a change is not told."""
    import numpy as np

    logs = np.array(logarithms(values, "the series of nights"))
    permutations = math.ceil(1 / p) - 1  # of which none may split as far
    random = np.random.RandomState(seed)
    found = dict[int, float]()
    parts = [(0, len(logs))]
    while parts:
        begin, end = parts.pop()
        split = _significant_split(logs[begin:end], permutations, p, random)
        if split is not None:
            index = begin + split[0]
            found[index] = split[1]
            parts += [(begin, index), (index, end)]
    return _large_enough(logs, found, math.log1p(smallest))


def _significant_split(
    logs: "Array", permutations: int, p: float, random: "np.random.RandomState"
) -> tuple[int, float] | None:
    """The best split of a part and its p; None where too many random orders split as far."""
    import numpy as np

    if len(logs) < 2 * FEWEST_NIGHTS:
        return None
    distances = np.minimum(np.abs(logs[:, None] - logs[None, :]), _reach(logs))
    best, farthest = _best_split(distances)
    if farthest <= 0:
        return None
    least = farthest * (1 - 1e-9)  # the same nights in another order, but for rounding
    as_far, most = 0, math.floor(p * (permutations + 1)) - 1
    for _ in range(permutations):
        order = random.permutation(len(logs))
        as_far += _best_split(distances[np.ix_(order, order)])[1] >= least
        if as_far > most:
            return None  # p is passed already, whatever the rest says
    return best, (as_far + 1) / (permutations + 1)


def _reach(logs: "Array") -> float:
    """Nights further apart count as so far apart: else one disturbed run would outweigh a small lasting change."""
    import numpy as np

    spread = DEVIATIONS_PER_MAD * float(np.median(np.abs(logs - np.median(logs))))
    return REACH_DEVIATIONS * spread or math.inf  # more than half of the nights are equal: nothing says what is far


@lru_cache(maxsize=64)
def _weights(nights: int) -> "tuple[npt.NDArray[np.intp], Array, Array, Array]":
    """The ends of the later nights that are looked at (each fifth night, and the last), and by split (rows) and end
    (columns) the energy distance mn/(m+n) [2 E|X-Y| - E|X-X'| - E|Y-Y'|] of the m nights before a split and the n
    after it, as weights of sums of distances: between the first `split` and the first `end` nights, among the first
    `split`, among the first `end`.
    """
    import numpy as np

    ends = np.arange(nights, FEWEST_NIGHTS, -FEWEST_NIGHTS)[::-1]
    split, end = np.arange(1, nights + 1)[:, None], ends[None, :]
    possible = (split >= FEWEST_NIGHTS) & (end - split >= FEWEST_NIGHTS)
    before, after = np.where(possible, split, 2.0), np.where(possible, end - split, 2.0)
    scale = np.where(possible, before * after / (before + after), 0.0)
    between, first, second = 2 / (before * after), 1 / (before * (before - 1)), 1 / (after * (after - 1))
    return ends, scale * (between + 2 * second), -scale * (between + first + second), -scale * second


def _best_split(distances: "Array") -> tuple[int, float]:
    """The split with the greatest energy distance, and that distance."""
    ends, of_both, of_split, of_end = _weights(len(distances))
    sums = distances.cumsum(0).cumsum(1)
    alone = sums.diagonal()
    energy = of_both * sums[:, ends - 1] + of_split * alone[:, None] + of_end * alone[ends - 1]
    at = int(energy.argmax())
    return at // energy.shape[1] + 1, float(energy.flat[at])


def _large_enough(logs: "Array", found: dict[int, float], smallest: float) -> list[Change]:
    """Without those that are too small to tell, the smallest first: its neighbours become others when it goes."""
    import numpy as np

    kept = sorted(found)
    while kept:
        bounds = [0, *kept, len(logs)]
        medians = [float(np.median(logs[a:b])) for a, b in pairwise(bounds)]
        steps = [after - before for before, after in pairwise(medians)]
        least = min(range(len(kept)), key=lambda n: abs(steps[n]))
        if abs(steps[least]) >= smallest:
            return [
                Change(index, 100 * math.expm1(step), found[index]) for index, step in zip(kept, steps, strict=True)
            ]
        del kept[least]
    return []
