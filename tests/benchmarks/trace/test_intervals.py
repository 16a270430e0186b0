"""Sets of moments, held against counting every moment."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.trace.trace import Intervals, shares, union, within

PIECES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def made(pieces: list[tuple[int, int]]) -> Intervals:
    return Intervals(*(np.array([piece[side] for piece in pieces], dtype=np.int64) for side in (0, 1)))


def moments(pieces: list[tuple[int, int]]) -> set[int]:
    return {moment for begin, end in pieces for moment in range(begin, end)}


@given(PIECES, st.integers(0, 50), st.integers(0, 50))
def test_within_keeps_what_lies_between(pieces: list[tuple[int, int]], begin: int, end: int) -> None:
    assert union([within(made(pieces), begin, end)]).total() == len(moments(pieces) & set(range(begin, end)))


@given(st.lists(PIECES, min_size=1, max_size=4))
def test_shares_give_each_moment_to_the_first_that_holds_it(ranked: list[list[tuple[int, int]]]) -> None:
    taken: set[int] = set()
    expected = []
    for pieces in ranked:
        expected.append(len(moments(pieces) - taken))
        taken |= moments(pieces)
    assert shares([made(pieces) for pieces in ranked]) == expected
