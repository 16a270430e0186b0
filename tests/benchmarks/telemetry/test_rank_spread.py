"""Which rank is slow, which one begins late, and where; what cannot be compared is not."""

from collections.abc import Sequence

import pytest

from benchmarks.telemetry.summary import CAVEAT, RankSpread, rank_spread, telemetry_rows
from benchmarks.values import Started, Step

T0 = 1763755200.0


def step(number: int, rank: int = 0, seconds: float | None = 1.0) -> Step:
    return Step(step=number, seconds=seconds, loss=1.0, tokens=256, rank=rank, elapsed_seconds=number + 1.0)


def spread_of(
    medians: dict[int, float], started: Sequence[Started] = (), counted: Sequence[int] = (1, 2, 3)
) -> RankSpread | None:
    """Three steps of each rank around its median; the first step, which compiles, is not counted."""
    times = {0: 50.0, 1: 0.9, 2: 1.0, 3: 1.1}
    steps = [step(n, rank, middle * time) for n, time in times.items() for rank, middle in medians.items()]
    return rank_spread(steps, counted, started)


def test_the_slowest_rank_is_named_with_its_host() -> None:
    hosts = [Started(rank=rank, unix_seconds=T0, host=f"n{rank // 2}") for rank in range(4)]
    found = spread_of({0: 1.0, 1: 1.25, 2: 1.0, 3: 0.9}, hosts)
    assert (found.ranks, found.without_times) == (4, 0)
    assert (found.slowest.rank, found.slowest.host, found.slowest.seconds_per_step) == (1, "n0", 1.25)
    assert (found.fastest.rank, found.fastest.host, found.fastest.seconds_per_step) == (3, "n1", 0.9)
    assert found.spread == pytest.approx(0.35)
    assert [time.rank for time in found.worst] == [1, 0, 2, 3]
    assert found.notes[0] == CAVEAT
    assert "do not prove equal machines" in CAVEAT


def test_a_rank_alone_is_not_compared() -> None:
    assert spread_of({0: 1.0}) is None
    assert spread_of({}) is None
    assert telemetry_rows(None, None) == []


def test_a_rank_without_times_is_counted() -> None:
    steps = [step(1, rank=0), step(1, rank=1), step(1, rank=2, seconds=None)]
    started = [Started(rank=rank, unix_seconds=T0, host="a") for rank in range(4)]
    found = rank_spread(steps, [1], started)
    assert (found.ranks, found.without_times) == (2, 2)
    assert found.slowest.host == "a"
    unnamed = rank_spread(steps, [1], [])
    assert (unnamed.slowest.host, unnamed.without_times) == (None, 1)


def test_ranks_that_begin_late_are_named_the_last_first() -> None:
    late = {0: 0.0, 1: 2.5, 2: 0.25}
    started = [Started(rank=rank, unix_seconds=T0 + seconds, host=f"n{rank}") for rank, seconds in late.items()]
    found = spread_of(dict.fromkeys(late, 1.0), started)
    assert [(rank.rank, rank.host, rank.seconds_late) for rank in found.latest] == [
        (1, "n1", 2.5),
        (2, "n2", 0.25),
        (0, "n0", 0.0),
    ]
    assert any("clock" in note for note in found.notes)
    unsaid = spread_of({0: 1.0, 1: 1.0})
    assert (unsaid.latest, unsaid.notes) == ([], [CAVEAT])
