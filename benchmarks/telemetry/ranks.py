"""How the ranks of a run differ: their own step times, and when each began. Pure.

In synchronous training every rank waits in each step for the slowest one, so their step times are nearly equal
whichever machine is slow: a rank that differs is worth a look, and equal ranks prove nothing.
"""

from collections.abc import Collection, Sequence

from benchmarks.measuring.statistics import median
from benchmarks.values import Started, Step, Value

MOST_NAMED = 8
CAVEAT = (
    "in synchronous training all ranks wait for the slowest one in every step: "
    "equal step times do not prove equal machines"
)
CLOCKS = "each host's own clock says when its ranks began: a difference between clocks shows as lateness"


class RankTime(Value, frozen=True):
    """One rank's median over the counted steps."""

    rank: int
    host: str | None  # None: it did not say where it runs
    seconds_per_step: float


class LateRank(Value, frozen=True):
    """When a rank began its first step, after the first one that did."""

    rank: int
    host: str
    seconds_late: float


class RankSpread(Value, frozen=True):
    """A part of result.json: how the ranks' own step times differ."""

    ranks: int  # those with a time for a counted step
    without_times: int  # those that reported steps or a start, and no time for a counted step
    slowest: RankTime
    fastest: RankTime
    spread: float  # (slowest - fastest) / the median of all ranks
    worst: list[RankTime]  # the slowest first, at most 8
    latest: list[LateRank]  # the last to begin first, at most 8; empty where the ranks do not say when they began
    notes: list[str]


def rank_spread(steps: Sequence[Step], counted: Collection[int], started: Sequence[Started]) -> RankSpread | None:
    """From the steps of all ranks of one attempt, over the steps that count; None for fewer than two ranks."""
    wanted = frozenset(counted)
    seconds: dict[int, list[float]] = {}
    for step in steps:
        times = seconds.setdefault(step.rank, [])
        if step.seconds is not None and step.step in wanted:
            times.append(step.seconds)
    hosts = {start.rank: start.host for start in started}
    times_of = [
        RankTime(rank=rank, host=hosts.get(rank), seconds_per_step=middle)
        for rank, times in seconds.items()
        if (middle := median(times)) is not None
    ]
    if len(times_of) < 2:
        return None
    ordered = sorted(times_of, key=lambda time: (-time.seconds_per_step, time.rank))
    slowest, fastest = ordered[0], ordered[-1]
    middle = median([time.seconds_per_step for time in ordered]) or 0.0
    latest = _latest(started)
    return RankSpread(
        ranks=len(ordered),
        without_times=len(seconds.keys() | hosts.keys()) - len(ordered),
        slowest=slowest,
        fastest=fastest,
        spread=(slowest.seconds_per_step - fastest.seconds_per_step) / middle if middle > 0 else 0.0,
        worst=ordered[:MOST_NAMED],
        latest=latest,
        notes=[CAVEAT, CLOCKS] if latest else [CAVEAT],
    )


def _latest(started: Sequence[Started]) -> list[LateRank]:
    if len(started) < 2:
        return []
    first = min(start.unix_seconds for start in started)
    late = [LateRank(rank=s.rank, host=s.host, seconds_late=s.unix_seconds - first) for s in started]
    return sorted(late, key=lambda rank: (-rank.seconds_late, rank.rank))[:MOST_NAMED]
