"""Sets of moments as sorted arrays of beginnings and ends that do not overlap. Pure; picoseconds as whole numbers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Moments: from each beginning to its end. Sorted, without overlap, where a function here made them."""

    begins: Numbers
    ends: Numbers


NOTHING = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(pieces: Sequence[Intervals]) -> Intervals:
    """The moments that lie in any of them."""
    begins = np.concatenate([piece.begins for piece in pieces]) if pieces else NOTHING.begins
    ends = np.concatenate([piece.ends for piece in pieces]) if pieces else NOTHING.ends
    if not len(begins):
        return NOTHING
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], begins[1:] > ends[:-1]])  # begins after all before it have ended
    last = np.concatenate([first[1:], [True]])
    return Intervals(begins[first], ends[last])


def within(moments: Intervals, begin: int, end: int) -> Intervals:
    """What of them lies between two moments."""
    begins, ends = np.maximum(moments.begins, begin), np.minimum(moments.ends, end)
    kept = ends > begins
    return Intervals(begins[kept], ends[kept])


def total(moments: Intervals) -> int:
    """How long they are together; of moments that overlap, give their union."""
    return int((moments.ends - moments.begins).sum())


def shares(ranked: Sequence[Intervals]) -> list[int]:
    """Of several sets, how much each has for itself where every moment belongs to the first set that holds it."""
    covered, found, before = NOTHING, [], 0
    for moments in ranked:
        covered = union([covered, moments])
        now = total(covered)
        found.append(now - before)
        before = now
    return found
