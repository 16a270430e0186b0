"""Find the format of a log, and the attempt to which each step belongs.

No I/O: functions take streams and events, and return events. The backend's LogFormat defines the lines of a log.
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
HEAD_OVERLAP = 4096  # bytes read twice, so that a line across two chunks is complete in the second

# Names of the rates of the whole job in Step.framework_rates.
TOKENS_RATE, SAMPLES_RATE, MFU_RATE = "tokens_per_second", "samples_per_second", "mfu_percent"

Span = tuple[int, int]  # a first and a last step number


# --- the format of a log ----------------------------------------------------------------------


def formats_of(stream: BinaryIO, formats: Sequence[LogFormat]) -> Iterator[LogFormat]:
    """Yield the formats that have lines in a seekable log, in the order of their first lines."""
    stream.seek(0)
    unseen, rest = list(formats), b""
    while unseen and (chunk := stream.read(HEAD_BYTES)):
        seen = [one for one in unseen if one.recognises(rest + chunk)]
        yield from seen
        unseen = [one for one in unseen if one not in seen]
        rest = chunk[-HEAD_OVERLAP:]


# --- the attempt of a step --------------------------------------------------------------------


class AttemptTracker:
    """Distinguishes a restart from a second host that reports the same steps. All log formats use the same rule.

    A source is a rank in the label of a line, or None for lines without a label.
    - A rank reports each step once, in order. If it reports the same or a lower step again, it has restarted.
    - Lines without a rank may come from several hosts that are at most one step apart. In the steps 5,5,6,6 and
      5,6,5,6, the repeated steps are duplicates. If the step number decreases by more than one, or to 0, the job has
      restarted.
    - If a source has reported steps, its next start-up line is a restart. If any source has reported steps, the
      next start-up line of the whole job is a restart.
    If a second host and a restart look the same, the tracker assumes a restart, so it never merges two attempts.
    """

    def __init__(self) -> None:
        self.attempt = 1
        self._highest: dict[int | None, int] = {}  # source -> its highest step in this attempt
        self._seen: set[int] = set()

    def started(self, source: int | None) -> None:
        """Record a start-up line of one source, which may begin a new attempt."""
        if source in self._highest:
            self._begin()

    def job_started(self) -> None:
        """Record a start-up line that a job prints once: all steps before it belong to an earlier attempt."""
        if self._highest:
            self._begin()

    def report(self, source: int | None, step: int) -> bool:
        """Record a reported step, which may begin a new attempt. Return whether it is new in its attempt."""
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


# --- the content of a log ---------------------------------------------------------------------


class ReadLog:
    """The contents of a log: the steps of each attempt, the number of duplicates, and the skipped lines."""

    def __init__(self, events: Iterable[LogEvent]) -> None:
        self.attempts: list[list[Step]] = []  # the steps of each attempt that has steps
        self.duplicates = 0
        self.skipped: list[SkippedLine] = []
        self.begun = 1  # number of attempts, including those without steps
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
            self.begun = event.attempt  # attempts never decrease

    def last_timed(self) -> list[Step]:
        """Return the steps of the attempt whose metrics count: the last attempt with step times. Without any step
        times, return the last attempt with a rate from which step times can be computed."""
        timed = (steps for steps in reversed(self.attempts) if any(step.seconds is not None for step in steps))
        rated = (steps for steps in reversed(self.attempts) if any(_has_rate(step) for step in steps))
        return next(timed, None) or next(rated, [])


def _has_rate(step: Step) -> bool:
    rates = step.framework_rates or {}
    return bool(step.framework_tokens_per_second_per_device or rates.get(TOKENS_RATE) or rates.get(SAMPLES_RATE))


def one_series(steps: Sequence[Step]) -> list[Step]:
    """Return an attempt's steps with one rank for all of them, because any rank may be the first to report a step."""
    rank = steps[0].rank if steps else 0
    return [step if step.rank == rank else msgspec.structs.replace(step, rank=rank) for step in steps]


def stride(numbers: Sequence[int]) -> int:
    """Return the logging interval of ascending steps: the most common distance if it is the majority, otherwise 1."""
    distances = Counter(map(sub, numbers[1:], numbers))
    if not distances:
        return 1
    every, count = distances.most_common(1)[0]
    return every if every > 1 and 2 * count > distances.total() else 1


def gaps(numbers: Sequence[int]) -> list[Span]:
    """Return the first and the last missing step of each gap in ascending steps."""
    every = stride(numbers)
    return [(a + every, b - every) for a, b in pairwise(numbers) if b >= a + 2 * every]
