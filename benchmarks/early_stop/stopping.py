"""When a run may end early: as soon as its median is known well enough, and on all ranks after the same step.

A worker loads this file by its path: the standard library alone; what else it needs is handed to it. The result is
recomputed with the same rule from the raw steps (stopped.py), so a decision that does not follow from them is seen.

The rule looks at the steps that the window would count if the run ended now, and asks of them, on 3 looks in a row,
that the half-width of the median's interval is within the target, and that the medians of their two halves agree
within it. Simulated in tests/benchmarks/early_stop/test_stopping_simulation.py, tabled in docs/until.md.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

LOOKS = 3
# Two steps are announced ahead, so that every rank has heard of the last one before it begins another. Where the loop
# has begun the next step already when a step is looked at, it is one more.
AHEAD = 2
LONGEST_LEAD = AHEAD + 1


class Until(NamedTuple):
    """What is asked of a run: how well its median is to be known, from how many counted steps, of at most so many."""

    half_width: float
    at_least: int
    steps: int

    @classmethod
    def parse(cls, text: str) -> "Until":
        half_width, at_least, steps = text.split(",")
        return cls(float(half_width), int(at_least), int(steps))

    def text(self) -> str:
        return f"{self.half_width!r},{self.at_least},{self.steps}"


class Interval(Protocol):
    """interval.MedianInterval, as far as it is looked at."""

    @property
    def median(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


class Settling(Protocol):
    """settling.Settling: is told of every step, and says from which on they are settled."""

    @property
    def settled_from(self) -> int | None: ...
    def take(self, seconds: float | None, end: float, *, counts: bool) -> None: ...


class StopRule:
    """Is told of every step of rank 0 in order; `decided` is the one after which the run may end."""

    def __init__(
        self,
        until: Until,
        median_interval: Callable[[Sequence[float]], Interval | None],
        settling: Settling,
        settling_seconds: float,
    ) -> None:
        self._until = until
        self._median_interval = median_interval
        self._settling = settling
        self._settling_seconds = settling_seconds
        self._taken = 0
        self._end = 0.0
        self._counted: list[float] = []
        self._looks = 0
        self.decided: int | None = None
        self.half_width: float | None = None  # at the last look; before there are enough steps, none
        self.missing = "no step was counted"  # what the last look lacked, in words; empty where it lacked nothing

    def take(
        self, step: int, seconds: float | None, elapsed_seconds: float | None, excluded_because: str | None = None
    ) -> bool:
        """A step, as it is written down. True: the run may end."""
        if self.decided is not None:
            return True
        usable = seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None
        self._end = self._end + (usable or 0.0) if elapsed_seconds is None else elapsed_seconds
        # The first step compiles; as in window.py.
        counts = self._taken > 0 and excluded_because is None and usable is not None
        self._taken += 1
        self._settling.take(usable, self._end, counts=counts)
        if counts and usable is not None:
            self._counted.append(usable)
        if self._settling.settled_from == self._taken:
            self._counted = []  # from the next one on they are settled, and those alone will count
        if counts:
            self._look()
        if self._looks >= LOOKS:
            self.decided = step
        return self.decided is not None

    def _look(self) -> None:
        self.missing = self._lacks()
        self._looks = 0 if self.missing else self._looks + 1
        if 0 < self._looks < LOOKS:
            self.missing = f"{self._looks} of {LOOKS} looks in a row"

    def _lacks(self) -> str:
        until, counted = self._until, self._counted
        if len(counted) < until.at_least:
            settled = "" if self._settling.settled_from is None else " since step times have settled"
            return f"{len(counted)} of at least {until.at_least} steps are counted{settled}"
        interval = self._median_interval(counted)
        if interval is None or interval.median <= 0:
            return "the steps take no measurable time"
        self.half_width = half_width(interval.median, interval.low, interval.high)
        if self._will_settle(interval.median):
            return "step times have not settled yet"
        if self.half_width > until.half_width:
            return f"the median is known to {percent(self.half_width)} only"
        apart = halves_apart(counted)
        if apart > until.half_width:
            return f"the medians of the first and the second half of the steps are {apart:.2%} apart"
        return ""

    def _will_settle(self, seconds: float) -> bool:
        """Whether the whole run would last until step times have settled, with steps enough after that.

        Settling moves step times further than any interval tells. A shorter run cannot show it, ended early or not.
        """
        steps = self._until.steps - 1 - self._until.at_least
        return self._settling.settled_from is None and seconds * steps >= self._settling_seconds


def half_width(median: float, low: float, high: float) -> float:
    """The longer side of an interval, relative to the median: the true one lies within it on either side."""
    return max(high - median, median - low) / median


def halves_apart(seconds: Sequence[float]) -> float:
    """How far the medians of the first and the second half differ, relative to the first."""
    half = len(seconds) // 2
    first, second = statistics.median(seconds[:half]), statistics.median(seconds[-half:])
    return abs(second / first - 1) if first > 0 else math.inf


def percent(share: float) -> str:
    return f"+-{100 * share:.3g}%"


# --- all ranks ------------------------------------------------------------------------------------


class Channel(Protocol):
    """What rank 0 says once, and every other rank can ask for without waiting."""

    def say(self, text: str) -> None: ...
    def heard(self) -> str | None: ...


class EarlyStop:
    """One rank's part in ending a run: rank 0 looks and announces the last step, the others ask for it.

    Why all end after the same step: a rank that has finished a step knows that rank 0 had begun it, because ranks
    share out every step's gradients. So it knows what rank 0 had said before that. A rank that would hear of it too
    late ends with an error: one that trains on alone would wait for the others for ever.
    """

    def __init__(
        self, rule: StopRule, until: Until, rank: int, events: Any, channel: Channel | None, *, begun: int
    ) -> None:
        self._rule = rule
        self._until = until
        self._rank = rank
        self._events = events
        self._channel = channel  # None: there is one process
        self._begun = begun  # steps that the loop has begun already when one is looked at
        self._runs_out = False
        self.last: int | None = None  # the last step of the run; None: nobody has said so yet
        self.on_last: Callable[[int], object] = lambda _last: None  # is told of it, on every rank for itself

    def after(self, step: int, seconds: float, elapsed_seconds: float, excluded_because: str | None) -> None:
        """The step was done and written down; the next ones after it may have been begun."""
        if self.last is not None or self._runs_out:
            return
        if self._rank == 0:
            self._decide(step, seconds, elapsed_seconds, excluded_because)
        elif self._channel is not None and step >= self._until.at_least:  # nothing can be said before
            self._listen(step)

    def _decide(self, step: int, seconds: float, elapsed_seconds: float, excluded_because: str | None) -> None:
        if not self._rule.take(step, seconds, elapsed_seconds, excluded_because):
            return
        last = step + AHEAD + self._begun
        if last >= self._until.steps - 1:
            self._runs_out = True  # the run ends as soon by itself
            return
        if self._channel is not None:
            self._channel.say(f"{step},{last}")
        self._end_after(step, last)

    def _listen(self, step: int) -> None:
        said = self._channel.heard() if self._channel is not None else None
        if said is None:
            return
        decided, last = map(int, said.split(","))
        if last < step + self._begun:
            raise SystemExit(
                f"stepmark worker: rank {self._rank} heard after step {step} that the last one was {last}"
            )
        self._end_after(decided, last)

    def _end_after(self, decided: int, last: int) -> None:
        self.last = last
        self._events.write("stopped", step=last, decided=decided)
        self.on_last(last)
