"""Read ranks and time stamps from lines of a log, and errors from tracebacks. No I/O."""

import calendar
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from benchmarks.reading.log_stream import without_colours
from benchmarks.reading.shown_lines import WRITER

# LABEL matches the prefix of a line: `3: ` by srun --label, [rank3]: by PyTorch, [default3]: by torchrun, and
# [1,3]<stderr>: by mpirun. NAMED matches a rank that a line names, such as [Rank 3] by PyTorch's watchdog.
LABEL = re.compile(
    rb"\s*(?:(\d{1,7}): |\[(?:rank|default)(\d{1,7})\]:? ?|\[(?:[\w.-]+[@-])?\d+,(\d{1,7})\]<std(?:err|out)>: ?)"
)
NAMED = re.compile(
    rb"\[Rank (\d{1,7})\]|\[(?:rank|default)(\d{1,7})\]|error: \S+: task (\d{1,7}): |\{\"rank\": ?(\d{1,7}),"
    rb"|\bon rank:? (\d{1,7})\b|\bRank (\d{1,7})\] |(?<![-\w])rank=(\d{1,7})\b"
    rb"|\[(?:[\w.-]+[@-])?\d+,(\d{1,7})\]<std(?:err|out)>:"
)
FILE_RANK = re.compile(r"(?:^|[._-])rank[._-]?(\d{1,7})(?=[._-]|$)|^(?:log|stdout|stderr)[._-](\d{1,7})(?=\.|$)")

FOLDER_RANK = re.compile(r"(?:^|/)rank[._-]?(\d{1,7})/[^/]+$|/attempt_\d+/(\d{1,7})/std(?:err|out)\.log$")

STAMP = re.compile(
    rb"(?P<year>(?:19|20)\d\d)[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)"
    rb"(?:[.,](?P<part>\d{1,9}))?"
    rb"|\b[IWEF](?P<gmonth>\d\d)(?P<gday>\d\d) (?P<gclock>\d\d:\d\d:\d\d)(?:\.(?P<gpart>\d{1,9}))?"
    rb"|\b(?P<smonth>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<sday>\d{1,2}) (?P<sclock>\d\d:\d\d:\d\d)"
    rb"|\"time_ms\": ?(?P<ms>\d{13})\b|\"time\": ?(?P<unix>\d{10}(?:\.\d+)?)\b"
)
HAS_A_STAMP = re.compile(rb':\d\d:\d\d|"time')  # a fast check: every stamp contains one of these
MONTHS = [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"]


class Clock:
    """Converts the time stamps of one log to seconds of local time, because most logs print local time.

    `year` is assumed for stamps without a year. `utc_offset` is local time minus UTC, in seconds.
    """

    def __init__(self, year: int, utc_offset: float = 0.0) -> None:
        self._year = year
        self._utc_offset = utc_offset

    def first(self, line: bytes) -> float | None:
        """Return the first time stamp of a line."""
        found = STAMP.search(line) if HAS_A_STAMP.search(line) else None
        return None if found is None else self._seconds(found)

    def last(self, text: bytes, start: int, end: int) -> float | None:
        """Return the last time stamp between two positions of a text."""
        begin = text.find(b"\n", start, end) + 1 if start else 0
        found = deque(STAMP.finditer(text, begin, end), maxlen=1)
        return self._seconds(found[0]) if found else None

    def _seconds(self, found: re.Match[bytes]) -> float | None:
        stamp = found.groupdict()
        if stamp["ms"]:
            return int(stamp["ms"]) / 1e3 + self._utc_offset
        if stamp["unix"]:
            return float(stamp["unix"]) + self._utc_offset
        if stamp["year"]:
            return _seconds(int(stamp["year"]), int(stamp["month"]), int(stamp["day"]), stamp["clock"], stamp["part"])
        month = int(stamp["gmonth"]) if stamp["gmonth"] else MONTHS.index(stamp["smonth"]) + 1
        if stamp["gmonth"]:
            return _seconds(self._year, month, int(stamp["gday"]), stamp["gclock"], stamp["gpart"])
        return _seconds(self._year, month, int(stamp["sday"]), stamp["sclock"], None)


def _seconds(year: int, month: int, day: int, clock: bytes, part: bytes | None) -> float | None:
    hour, minute, second = map(int, clock.split(b":"))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    whole = calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))
    return whole + (float(b"0." + part) if part else 0.0)


def rank_in(line: bytes) -> int | None:
    """Return the rank that wrote the line, or a rank that the line names; None if there is neither."""
    found = LABEL.match(line) or NAMED.search(line[:400])
    return None if found is None else int(next(number for number in found.groups() if number))


def rank_of_file(path: str) -> int | None:
    """Return the rank in a file's path: rank-3.log, log_3.txt, rank3/FILE, or torchrun's attempt_0/3/stderr.log."""
    found = FILE_RANK.search(path.rpartition("/")[2]) or FOLDER_RANK.search(path)
    return None if found is None else int(found[1] or found[2])


# --- tracebacks ---------------------------------------------------------------------------------

TRACEBACK = b"Traceback (most recent call last)"
# `ValueError: bad`, `jax.errors.JaxRuntimeError: bad`, `socket.timeout: bad`, `KeyboardInterrupt`.
ERROR_LINE = re.compile(
    rb"(?:\w+\.)*(?:[A-Z_]\w*[a-z]\w*|(?<=\.)[a-z]\w+):(?:\s.*)?$|[\w.]*(?:Error|Exception|Interrupt|Exit|Iteration)$"
)
CHAINED = (
    b"The above exception was the direct cause",
    b"During handling of the above exception",
    b"The stack trace below excludes JAX-internal frames",
)
# Errors that only report the error of another process or thread, which prints a traceback itself.
PASSED_ON = re.compile(
    rb"(?:[\w.]*\.)?(?:ProcessRaisedException|ProcessExitedException|_?RemoteTraceback|ChildFailedError|RayTaskError"
    rb"|CalledProcessError|UnfilteredStackTrace|(?:Base)?ExceptionGroup|SignalException"
    rb"|UnexpectedStatusException)\b|\w+: CheckpointException ranks:|\w+: Caught \w+ in \w+"
    rb"|(?:[\w.]*\.)?SparkException: Job aborted due to stage failure"
)
TRACEBACK_LINES = 2000  # the most lines that are read; Python shortens a deep recursion to a few hundred
LONGEST_PREFIX = 1000  # the most bytes that a writer puts before each of its lines
FRAMES_WITHIN = 200  # the number of lines in which a frame is searched, because many ranks may write at once
FRAME = re.compile(rb'  File \\?"|\xe2\x94\x82|\|   File "')  # of Python, of rich, and of a group of exceptions
INSIDE = (b" ", b"\t", b"|", b"+-", b"\xe2\x94", b"\xe2\x95")  # a line before the error begins with one of these
NUMBERS = re.compile(rb"\d+")
# The part of a prefix that differs between lines of one writer: a time with or without a date, or seconds.
CLOCKS = re.compile(
    rb"(?:\d{4}[-/]\d\d[-/]\d\d[T _]?)?\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\d+\.\d{3,}"
)


class Traceback(NamedTuple):
    """A traceback, including the tracebacks that are chained to it."""

    prefix: "re.Pattern[bytes]"  # matches what precedes the text in each of its lines
    end: int  # where its last error begins in the text; without an error, where its last line begins
    errors: list[tuple[int, bytes]]  # (position, text) of each error, in the order in which they were raised


def read_traceback(text: bytes) -> Traceback:
    """Return the traceback that begins in the first line of a text.

    Its lines have the same prefix as the first line, except for times. If no frame has it, use the first frame's.
    """
    first = without_colours(text.partition(b"\n")[0])
    before, head, _ = first.partition(TRACEBACK)
    if not head:  # the first line of the traceback is lost
        frame = FRAME.search(first)
        prefix = _pattern(first[: frame.start()] if frame else b"", CLOCKS)
        return Traceback(prefix, *_errors(_lines(text, prefix)))
    prefix = _prefix(text, before)
    return Traceback(prefix, *_errors(_lines(text, prefix)))


def is_passed_on(error: bytes) -> bool:
    """Return whether an error only repeats the error of another process or thread."""
    return PASSED_ON.match(error) is not None


def _errors(lines: Iterable[tuple[int, bytes]]) -> tuple[int, list[tuple[int, bytes]]]:
    """Return the position of the last error (without an error, of the last line) in a text, and all errors."""
    found: list[tuple[int, bytes]] = []
    end, ended, chained = 0, False, False  # `ended`: an error was read, and nothing is chained to it yet
    for start, line in lines:
        if line.startswith(CHAINED):
            ended, chained = False, True
        elif TRACEBACK in line and not chained:
            break  # another writer's traceback
        elif TRACEBACK in line:
            chained = False
        elif ended and line and not line.startswith(INSIDE):
            break
        elif not ended and ERROR_LINE.match(line):
            found.append((start, line))
            end, ended = start, True
        elif not ended:
            end = start
    return end, found


def _lines(text: bytes, prefix: "re.Pattern[bytes]") -> Iterator[tuple[int, bytes]]:
    """Yield the position and text of each line after the first that has the prefix. The text omits the prefix."""
    position = 0
    for number, whole in enumerate(text.split(b"\n", TRACEBACK_LINES)[:TRACEBACK_LINES]):
        start, position = position, position + len(whole) + 1
        line = without_colours(whole)
        found = prefix.match(line)
        if number and found:
            yield start, line[found.end() :].rstrip()


def _prefix(text: bytes, before: bytes) -> "re.Pattern[bytes]":
    following = text.split(b"\n", FRAMES_WITHIN)[1:FRAMES_WITHIN]
    for free in (CLOCKS, NUMBERS):
        pattern = _pattern(before, free)
        for line in map(without_colours, following):
            if (found := pattern.match(line)) and FRAME.match(line, found.end()):
                return pattern
    first = without_colours(following[0]) if following else b""
    frame = FRAME.search(first)
    return _pattern(first[: frame.start()] if frame else before, CLOCKS)


def _pattern(prefix: bytes, free: "re.Pattern[bytes]") -> "re.Pattern[bytes]":
    """Return a pattern for a prefix. Numbers in parts that match `free` may differ, and final blanks may be missing.

    A prefix that is too long is treated as empty.
    """
    prefix = prefix if len(prefix) <= LONGEST_PREFIX else b""
    bare = prefix.rstrip()
    parts, position = [], 0
    for found in free.finditer(bare):
        parts += [re.escape(bare[position : found.start()]), NUMBERS.sub(rb"\\d+", re.escape(found[0]))]
        position = found.end()
    return re.compile(b"".join([*parts, re.escape(bare[position:]), b"[ \t]{0,%d}" % (len(prefix) - len(bare))]))


def writer_end(line: bytes) -> int:
    """Return the end of the writer's prefix. Spaces after it belong to the text, because tracebacks are indented."""
    writer = WRITER.match(line)
    return writer.end() if writer and line[: writer.end()].strip() else 0
