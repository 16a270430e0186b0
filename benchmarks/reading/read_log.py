"""Find the format of a foreign log, and the attempt of each step.

Pure: streams and events in, events out. The backend's LogFormat defines the lines of a log.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import sub
from typing import BinaryIO

import msgspec

from benchmarks.backend import LogEvent, LogFormat, SkippedLine
from benchmarks.values import Step

HEAD_BYTES = CHUNK_BYTES = 1 << 20
HEAD_OVERLAP = 4096  # a line that lies across two heads is whole in one of them

# Rates of the whole job, as Step.framework_rates names them.
TOKENS_RATE, SAMPLES_RATE, MFU_RATE = "tokens_per_second", "samples_per_second", "mfu_percent"

Span = tuple[int, int]  # a first and a last step


# --- which format -----------------------------------------------------------------------------


def formats_of(stream: BinaryIO, formats: Sequence[LogFormat]) -> Iterator[LogFormat]:
    """The formats that have lines in a seekable log, in the order in which they show themselves."""
    stream.seek(0)
    unseen, rest = list(formats), b""
    while unseen and (chunk := stream.read(HEAD_BYTES)):
        seen = [one for one in unseen if one.recognises(rest + chunk)]
        yield from seen
        unseen = [one for one in unseen if one not in seen]
        rest = chunk[-HEAD_OVERLAP:]


# --- which attempt ----------------------------------------------------------------------------


class AttemptTracker:
    """Distinguish a restart from a second host that reports the same steps. One rule for every log format.

    A source is the rank that the lines name, or None.
    - A rank reports each step once, in order: a step it already reported, or a lower one, is a restart.
    - Lines without a rank may come from several hosts, at most one step apart: 5,5,6,6 and 5,6,5,6 are
      duplicates. Back by more than one step, or back to step 0, is a restart.
    - A start-up line of a source that has already reported steps is a restart; one that a whole job
      prints once is a restart if any source has.
    Attempts are never merged: if a second host and a restart look the same, it is a restart.
    """

    def __init__(self) -> None:
        self.attempt = 1
        self._highest: dict[int | None, int] = {}  # of each source, in this attempt
        self._seen: set[int] = set()

    def started(self, source: int | None) -> None:
        """A start-up line was read."""
        if source in self._highest:
            self._begin()

    def job_started(self) -> None:
        """Note a start-up line that a whole job prints once: all earlier steps belong to an earlier job."""
        if self._highest:
            self._begin()

    def report(self, source: int | None, step: int) -> bool:
        """Whether this is the first report of the step in its attempt; `attempt` is then that attempt."""
        highest = self._highest.get(source, -1)
        another_host = source is None and (step == highest or (step == highest - 1 and step > 0))
        if step <= highest and not another_host:
            self._begin()
        if not another_host:
            self._highest[source] = step
        new = step not in self._seen
        self._seen.add(step)
        return new

    def _begin(self) -> None:
        self.attempt += 1
        self._highest = {}
        self._seen = set()


# --- what was read ----------------------------------------------------------------------------


class ReadLog:
    """All that the events of a log say."""

    def __init__(self, events: Iterable[LogEvent]) -> None:
        self.attempts: list[list[Step]] = []  # of those that have steps
        self.duplicates = 0
        self.skipped: list[SkippedLine] = []
        self.begun = 1  # attempts, those without a step too
        attempt = 0
        for event in events:
            step = event.step
            if step is not None:
                if event.attempt != attempt:
                    attempt = event.attempt
                    self.attempts.append([])
                self.attempts[-1].append(step)
            elif event.skipped is not None:
                self.skipped.append(event.skipped)
            self.duplicates += event.duplicates
            self.begun = event.attempt  # which never decreases

    def last_timed(self) -> list[Step]:
        """The steps of the last attempt that has steps with seconds, or else with a rate that they follow from: the
        one a result is about."""
        timed = (steps for steps in reversed(self.attempts) if any(step.seconds is not None for step in steps))
        rated = (steps for steps in reversed(self.attempts) if any(_has_rate(step) for step in steps))
        return next(timed, None) or next(rated, [])


def _has_rate(step: Step) -> bool:
    rates = step.framework_rates or {}
    return bool(step.framework_tokens_per_second_per_device or rates.get(TOKENS_RATE) or rates.get(SAMPLES_RATE))


def one_series(steps: Sequence[Step]) -> list[Step]:
    """The steps of an attempt as one rank's: the first report of each counts, whichever rank's line came first."""
    rank = steps[0].rank if steps else 0
    return [step if step.rank == rank else msgspec.structs.replace(step, rank=rank) for step in steps]


def stride(numbers: Sequence[int]) -> int:
    """Return the logging interval of ascending steps: the distance of most neighbours, or 1."""
    distances = Counter(map(sub, numbers[1:], numbers))
    if not distances:
        return 1
    every, count = distances.most_common(1)[0]
    return every if every > 1 and 2 * count > distances.total() else 1


def gaps(numbers: Sequence[int]) -> list[Span]:
    """The first and last missing step of each gap in ascending steps of a logging interval."""
    every = stride(numbers)
    return [(a + every, b - every) for a, b in pairwise(numbers) if b >= a + 2 * every]
