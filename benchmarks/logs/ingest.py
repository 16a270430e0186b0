"""Foreign logs, whatever wrote them: which format a log has, which attempt a step belongs to, and how
several logs are joined.

Pure: streams and events in, events out. What a line of a log looks like is the backend's business
(its LogFormat); files, flags and printing are in launch/ingest.py.
"""

import statistics
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO

import msgspec

from benchmarks.backend import LogEvent, LogFormat, SkippedLine
from benchmarks.values import Step, Value

HEAD_BYTES = 1 << 20
HEAD_OVERLAP = 4096  # a line that lies across two heads is whole in one of them
WATCHED_CHUNK = 8

HOSTS_DIFFER_BY = 2  # steps by which the logs of two hosts of one attempt may start or end apart


# --- which format -----------------------------------------------------------------------------


def detect(stream: BinaryIO, formats: Sequence[LogFormat]) -> LogFormat | None:
    """The format of a seekable log, by its first MiB and then, while nothing is recognised, by each next one.

    The stream is left at its start. Nothing is recognised: None.
    """
    stream.seek(0)
    found = next((f for head in _heads(stream) for f in formats if f.recognises(head)), None)
    stream.seek(0)
    return found


def _heads(stream: BinaryIO) -> Iterator[bytes]:
    head = stream.read(HEAD_BYTES)
    while head:
        yield head
        further = stream.read(HEAD_BYTES)
        head = head[-HEAD_OVERLAP:] + further if further else b""


def _family(name: str) -> str:
    """A run of `nemo` may print its lines and its bar, `nemo-bar`: the word before the dash is what they share."""
    return name.partition("-")[0]


class WatchedStream:
    """A log while it is read as one format, watched for lines of the others: of a run that is not read then.

    Looked at are its first chunk, every WATCHED_CHUNKth after it, and the last two: all of them would cost a third
    of the speed.
    """

    def __init__(self, stream: BinaryIO, read_as: LogFormat, formats: Sequence[LogFormat]) -> None:
        self._stream = stream
        self._unseen = [f for f in formats if _family(f.name) != _family(read_as.name)]
        self._chunks = 0
        self._last: tuple[bytes, bytes] = (b"", b"")
        self.others: list[str] = []

    def read(self, size: int) -> bytes:
        chunk = self._stream.read(size)
        if not chunk:
            self._look_at(b"".join(self._last))
        elif self._chunks % WATCHED_CHUNK == 0:
            self._look_at(chunk)
        self._chunks += 1
        self._last = (self._last[1], chunk)
        return chunk

    def _look_at(self, text: bytes) -> None:
        seen = [f for f in self._unseen if f.recognises(text)]
        if seen:
            self.others += [f.name for f in seen]
            self._unseen = [f for f in self._unseen if f not in seen]


# --- which attempt ----------------------------------------------------------------------------


class StepSet:
    """Step numbers seen, about a byte each: a log of several GB has too many for a set of integers."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = defaultdict(lambda: bytearray(256))  # of 256 steps each

    def add(self, step: int) -> bool:
        """Whether the step is new."""
        page = self._pages[step >> 8]
        if page[step & 255]:
            return False
        page[step & 255] = 1
        return True


class AttemptTracker:
    """Tells a restart from a second host that reports the same steps. One rule for every log format.

    A source is a rank where the lines name one, None where they don't.
    - A rank reports each step once, in order: a step it already reported, or a lower one, is a restart.
    - Lines without a rank may come from several hosts, at most one step apart: 5,5,6,6 and 5,6,5,6 are
      duplicates. Back by more than one step, or back to step 0, is a restart.
    - A start-up line of a source that has already reported steps is a restart; one that a whole job
      prints once is a restart where any source has.
    Attempts are never merged: where a second host and a restart look the same, it is a restart.
    """

    def __init__(self) -> None:
        self.attempt = 1
        self._highest: dict[int | None, int] = {}  # of each source, in this attempt
        self._seen = StepSet()

    def started(self, source: int | None) -> None:
        """A start-up line was read."""
        if source in self._highest:
            self._begin()

    def job_started(self) -> None:
        """A start-up line was read that one process of a whole job prints: whoever reported steps before,
        they were an earlier job's."""
        if self._highest:
            self._begin()

    def report(self, source: int | None, step: int) -> bool:
        """Whether this is the first report of the step in its attempt; `attempt` is then that attempt."""
        highest = self._highest.get(source, -1)
        if step > highest or self._restarts(source, step, highest):
            self._highest[source] = step
        return self._seen.add(step)

    def _restarts(self, source: int | None, step: int, highest: int) -> bool:
        another_host = source is None and (step == highest or (step == highest - 1 and step > 0))
        if not another_host:
            self._begin()
        return not another_host

    def _begin(self) -> None:
        self.attempt += 1
        self._highest = {}
        self._seen = StepSet()


# --- several logs -----------------------------------------------------------------------------


class NamedLog(Value, frozen=True):
    """One log of several: the name a person knows it by, and its events."""

    name: str
    events: Iterable[LogEvent]


def join(logs: Sequence[NamedLog]) -> Iterable[LogEvent]:
    """The events of several logs as those of one; a single log's stream as they are.

    Each attempt of a further log is one of three things:
    - another host's report of an attempt already read, when both start and both end within
      HOSTS_DIFFER_BY steps of each other: its known steps are duplicates, its unknown ones are added;
    - the rest of the attempt read last, when it begins with the very next step (of its logging interval)
      and no process start;
    - otherwise an attempt of its own.
    The steps of several logs are held in memory and come out attempt by attempt, in order; lines left out
    come first and name their log.
    """
    return logs[0].events if len(logs) == 1 else _join(logs)


def _join(logs: Sequence[NamedLog]) -> Iterator[LogEvent]:
    attempts: list[dict[int, Step]] = []
    for log in logs:
        own = _Collected()
        for event in log.events:
            if event.skipped is not None:
                yield LogEvent(attempt=1, skipped=_named(event.skipped, log.name))
            if event.duplicates:
                yield LogEvent(attempt=1, duplicates=event.duplicates)
            own.add(event)
        duplicates = _place(own, attempts)
        if duplicates:
            yield LogEvent(attempt=1, duplicates=duplicates)
    yield from _in_order(attempts)


class _Collected:
    """The attempts of one log."""

    def __init__(self) -> None:
        self.attempts: dict[int, dict[int, Step]] = {}
        self.starts_a_process = False  # a start-up line came before the first step

    def add(self, event: LogEvent) -> None:
        if event.step is not None:
            self.attempts.setdefault(event.attempt, {})[event.step.step] = event.step
        elif event.skipped is None and not event.duplicates and not self.attempts:
            self.starts_a_process = True


def _place(own: _Collected, attempts: list[dict[int, Step]]) -> int:
    """Put the attempts of one log among those of the logs before it; how many reports were duplicates."""
    earlier = list(attempts)
    duplicates = 0
    for place, steps in enumerate(own.attempts.values()):
        known = next((a for a in earlier if _same_attempt(a, steps)), None)
        if known is None and place == 0 and not own.starts_a_process and _goes_on(attempts, steps):
            known = attempts[-1]
        if known is None:
            attempts.append(steps)
            continue
        earlier = [a for a in earlier if a is not known]  # a host reports an attempt once
        duplicates += len(steps.keys() & known.keys())
        known.update({number: step for number, step in steps.items() if number not in known})
    return duplicates


def _same_attempt(one: dict[int, Step], other: dict[int, Step]) -> bool:
    return (
        abs(min(one) - min(other)) <= HOSTS_DIFFER_BY
        and abs(max(one) - max(other)) <= HOSTS_DIFFER_BY
        and bool(one.keys() & other.keys())
    )


def _goes_on(attempts: list[dict[int, Step]], steps: dict[int, Step]) -> bool:
    return bool(attempts) and min(steps) == max(attempts[-1]) + stride(sorted(attempts[-1]))


def _named(skipped: SkippedLine, log: str) -> SkippedLine:
    return SkippedLine(line=skipped.line, reason=f"{skipped.reason} (in {log})")


def _in_order(attempts: list[dict[int, Step]]) -> Iterator[LogEvent]:
    for attempt, steps in enumerate(attempts, start=1):
        for number in sorted(steps):
            yield LogEvent(attempt=attempt, step=_renumbered(steps[number], attempt))


def _renumbered(step: Step, attempt: int) -> Step:
    return step if step.attempt == attempt else msgspec.structs.replace(step, attempt=attempt)


# --- what was read ----------------------------------------------------------------------------


class AttemptOutline(Value, frozen=True):
    """One attempt in a line."""

    attempt: int
    first_step: int
    last_step: int
    count: int
    median_seconds: float | None
    without_seconds: int
    every: int  # how many steps lie between two lines, as a rule: a logging interval
    gaps: list[tuple[int, int]]  # first and last missing step of each


def stride(numbers: Sequence[int]) -> int:
    """The logging interval of ascending steps: the distance that most neighbours have, 1 where none has it."""
    distances = Counter(b - a for a, b in pairwise(numbers))
    if not distances:
        return 1
    every, count = distances.most_common(1)[0]
    return every if every > 1 and 2 * count > distances.total() else 1


class OutlineMaker:
    """Collects what an outline needs, 16 bytes a step."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._numbers = array("q")
        self._seconds = array("d")

    def add(self, step: Step) -> None:
        self._numbers.append(step.step)
        if step.seconds is not None:
            self._seconds.append(step.seconds)

    def outline(self) -> AttemptOutline:
        numbers = sorted(self._numbers)
        every = stride(numbers)
        return AttemptOutline(
            attempt=self._attempt,
            first_step=numbers[0],
            last_step=numbers[-1],
            count=len(numbers),
            median_seconds=statistics.median(self._seconds) if self._seconds else None,
            without_seconds=len(numbers) - len(self._seconds),
            every=every,
            gaps=[(a + every, b - every) for a, b in pairwise(numbers) if b >= a + 2 * every],
        )


class LastTimedAttempt:
    """Keeps the steps of the last attempt that has steps with seconds: the one a result is about."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._current: list[Step] = []
        self._attempt = 0

    def watch(self, events: Iterable[LogEvent]) -> Iterator[LogEvent]:
        """The same events, while their steps are kept."""
        for event in events:
            if event.step is not None:
                self._add(event.step)
            yield event

    def _add(self, step: Step) -> None:
        if step.attempt != self._attempt:
            self._attempt, self._current = step.attempt, []
        self._current.append(step)
        if step.seconds is not None:
            self.steps = self._current
