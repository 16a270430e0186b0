"""Foreign logs, whatever wrote them: which format a log has, which attempt a step belongs to, and how
several logs are joined.

Pure: streams and events in, events out. What a line of a log looks like is the backend's business
(its LogFormat); files, flags and printing are in launch/ingest.py.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import msgspec

from benchmarks.backend import LogEvent, LogFormat, SkippedLine
from benchmarks.values import Step

HEAD_BYTES = CHUNK_BYTES = 1 << 20
HEAD_OVERLAP = 4096  # a line that lies across two heads is whole in one of them

Span = tuple[int, int]  # a first and a last step

HOSTS_DIFFER_BY = 2  # steps by which the logs of two hosts of one attempt may start or end apart


# --- which format -----------------------------------------------------------------------------


def detect(stream: BinaryIO, formats: Sequence[LogFormat]) -> LogFormat | None:
    """The format of a seekable log, by its first MiB and then, while nothing is recognised, by each next one.

    The stream is left at its start. Nothing is recognised: None.
    """
    stream.seek(0)
    found, rest = None, b""
    while found is None and (chunk := stream.read(HEAD_BYTES)):
        head = rest + chunk
        found = next((f for f in formats if f.recognises(head)), None)
        rest = chunk[-HEAD_OVERLAP:]
    stream.seek(0)
    return found


def _family(name: str) -> str:
    """A run of `nemo` may print its lines and its bar, `nemo-bar`: the word before the dash is what they share."""
    return name.partition("-")[0]


class WatchedStream(io.RawIOBase):
    """A log while it is read: how far it was read, about where the step lies that was just reported; and whether
    lines of further formats came by, of a run that is not read then."""

    def __init__(self, stream: BinaryIO, read_as: LogFormat, formats: Sequence[LogFormat] = ()) -> None:
        super().__init__()
        self._stream = stream
        self._unseen = [f for f in formats if _family(f.name) != _family(read_as.name)]
        self.others: list[str] = []
        self.position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._stream.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self.position += len(chunk)
        seen = [f for f in self._unseen if f.recognises(chunk)]
        self.others += [f.name for f in seen]
        self._unseen = [f for f in self._unseen if f not in seen]
        return len(chunk)

    def buffered(self) -> BinaryIO:
        return io.BufferedReader(self, CHUNK_BYTES)


# --- which attempt ----------------------------------------------------------------------------


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
        self._seen: set[int] = set()

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
        new = step not in self._seen
        self._seen.add(step)
        return new

    def _restarts(self, source: int | None, step: int, highest: int) -> bool:
        another_host = source is None and (step == highest or (step == highest - 1 and step > 0))
        if not another_host:
            self._begin()
        return not another_host

    def _begin(self) -> None:
        self.attempt += 1
        self._highest = {}
        self._seen = set()


# --- several logs -----------------------------------------------------------------------------


NamedLog = tuple[str, Iterable[LogEvent]]  # the name a person knows it by, and its events


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
    return logs[0][1] if len(logs) == 1 else _join(logs)


def _join(logs: Sequence[NamedLog]) -> Iterator[LogEvent]:
    attempts: list[dict[int, Step]] = []
    for name, events in logs:
        own: dict[int, dict[int, Step]] = {}
        starts_a_process = False  # a start-up line came before the first step
        for event in events:
            if event.step is not None:
                own.setdefault(event.attempt, {})[event.step.step] = event.step
            elif event.skipped is not None:
                skipped = SkippedLine(line=event.skipped.line, reason=f"{event.skipped.reason} (in {name})")
                yield LogEvent(attempt=1, skipped=skipped)
            elif not event.duplicates and not own:
                starts_a_process = True
            if event.duplicates:
                yield LogEvent(attempt=1, duplicates=event.duplicates)
        duplicates = _place(list(own.values()), attempts, starts_a_process)
        if duplicates:
            yield LogEvent(attempt=1, duplicates=duplicates)
    for attempt, steps in enumerate(attempts, start=1):
        for number in sorted(steps):
            yield LogEvent(attempt=attempt, step=msgspec.structs.replace(steps[number], attempt=attempt))


def _place(own: list[dict[int, Step]], attempts: list[dict[int, Step]], starts_a_process: bool) -> int:
    """Put the attempts of one log among those of the logs before it; how many reports were duplicates."""
    earlier = list(attempts)
    duplicates = 0
    for place, steps in enumerate(own):
        known = next((a for a in earlier if _same_attempt(a, steps)), None)
        if known is None and place == 0 and not starts_a_process and _goes_on(attempts, steps):
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


# --- what was read ----------------------------------------------------------------------------


class ReadLog:
    """All that the events of a log say."""

    def __init__(self, events: Iterable[LogEvent]) -> None:
        self.attempts: list[list[Step]] = []  # of those that have steps
        self.duplicates = 0
        self.skipped: list[SkippedLine] = []
        attempt = 0
        for event in events:
            self.duplicates += event.duplicates
            if event.skipped is not None:
                self.skipped.append(event.skipped)
            if event.step is not None:
                if event.attempt != attempt:
                    attempt = event.attempt
                    self.attempts.append([])
                self.attempts[-1].append(event.step)

    def last_timed(self) -> list[Step]:
        """The steps of the last attempt that has steps with seconds: the one a result is about."""
        timed = (steps for steps in reversed(self.attempts) if any(step.seconds is not None for step in steps))
        return next(timed, [])


def stride(numbers: Sequence[int]) -> int:
    """The logging interval of ascending steps: the distance that most neighbours have, 1 where none has it."""
    distances = Counter(b - a for a, b in pairwise(numbers))
    if not distances:
        return 1
    every, count = distances.most_common(1)[0]
    return every if every > 1 and 2 * count > distances.total() else 1


def gaps(numbers: Sequence[int]) -> list[Span]:
    """The first and last missing step of each gap in ascending steps of a logging interval."""
    every = stride(numbers)
    return [(a + every, b - every) for a, b in pairwise(numbers) if b >= a + 2 * every]
