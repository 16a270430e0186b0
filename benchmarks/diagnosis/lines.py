"""A line of a log: who wrote it, when, and which error it ends a traceback with. Pure."""

import calendar
import re
from collections import deque

from benchmarks.logs.log_endings import WRITER

# `3: ` of srun --label, [rank3]: of PyTorch, [default3]: of torchrun, [Rank 3] of its watchdog.
LABEL = re.compile(rb"\s*(?:(\d{1,7}): |\[(?:rank|default)(\d{1,7})\]:? ?)")
NAMED = re.compile(
    rb"\[Rank (\d{1,7})\]|\[(?:rank|default)(\d{1,7})\]|error: \S+: task (\d{1,7}): |\{\"rank\": ?(\d{1,7}),"
    rb"|\bon rank:? (\d{1,7})\b|\bRank (\d{1,7})\] "
)
FILE_RANK = re.compile(r"(?:^|[._-])rank[._-]?(\d{1,7})(?=[._-]|$)|^(?:log|stdout|stderr)[._-](\d{1,7})(?=\.|$)")

STAMP = re.compile(
    rb"(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
    rb"|\b[IWEF](?P<gmonth>\d\d)(?P<gday>\d\d) (?P<gclock>\d\d:\d\d:\d\d)(?:\.(?P<gpart>\d{1,9}))?"
    rb"|\b(?P<smonth>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<sday>\d{1,2}) (?P<sclock>\d\d:\d\d:\d\d)"
    rb"|\"time_ms\": ?(?P<ms>\d{13})\b|\"time\": ?(?P<unix>\d{10}(?:\.\d+)?)\b"
)
MONTHS = [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"]


class Clock:
    """Turns the stamps of one log into seconds of the local time, as most of them are written.

    `year` completes stamps that have none; `utc_offset` is what the local time is ahead of Unix time.
    """

    def __init__(self, year: int, utc_offset: float = 0.0) -> None:
        self._year = year
        self._utc_offset = utc_offset

    def first(self, line: bytes) -> float | None:
        """When a line says that it was written."""
        found = STAMP.search(line)
        return None if found is None else self._seconds(found)

    def last(self, text: bytes, start: int, end: int) -> float | None:
        """The last stamp of a piece of text."""
        found = deque(STAMP.finditer(text, start, end), maxlen=1)
        return self._seconds(found[0]) if found else None

    def _seconds(self, found: re.Match[bytes]) -> float | None:
        said = found.groupdict()
        if said["ms"]:
            return int(said["ms"]) / 1e3 + self._utc_offset
        if said["unix"]:
            return float(said["unix"]) + self._utc_offset
        if said["year"]:
            return _seconds(int(said["year"]), int(said["month"]), int(said["day"]), said["clock"], said["part"])
        if said["gmonth"]:
            return _seconds(self._year, int(said["gmonth"]), int(said["gday"]), said["gclock"], said["gpart"])
        return _seconds(self._year, MONTHS.index(said["smonth"]) + 1, int(said["sday"]), said["sclock"], None)


def _seconds(year: int, month: int, day: int, clock: bytes, part: bytes | None) -> float | None:
    hour, minute, second = map(int, clock.split(b":"))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    whole = calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))
    return whole + (float(b"0." + part) if part else 0.0)


def rank_in(line: bytes) -> int | None:
    """The rank that a line names as its writer or as its subject."""
    label = label_of(line)
    if label is not None:
        return label
    found = NAMED.search(line[:400])
    return None if found is None else int(next(number for number in found.groups() if number))


def label_of(line: bytes) -> int | None:
    """The rank that srun or torchrun has put before a line."""
    found = LABEL.match(line)
    return None if found is None else int(found[1] or found[2])


def rank_of_file(name: str) -> int | None:
    """rank-3.log, log_3.txt and the like."""
    found = FILE_RANK.search(name)
    return None if found is None else int(found[1] or found[2])


# --- tracebacks ---------------------------------------------------------------------------------

TRACEBACK = b"Traceback (most recent call last):"
ERROR_LINE = re.compile(rb"[A-Za-z_][\w.]*(?:: .*)?$")
CHAINED = (b"The above exception was the direct cause", b"During handling of the above exception")
TRACEBACK_LINES = 2000  # a deep recursion is folded by Python after a few hundred


def error_lines(text: bytes, label: int | None = None) -> list[tuple[int, bytes]]:
    """The error of a traceback at the beginning of a text, and of those chained to it: where each stands, and itself.

    With a label, only the lines that this rank wrote belong to it.
    """
    found: list[tuple[int, bytes]] = []
    ended = False  # an error was read, and no further one is chained to it yet
    position = 0
    for number, whole in enumerate(text.split(b"\n", TRACEBACK_LINES)[:TRACEBACK_LINES]):
        start, position = position, position + len(whole) + 1
        if number == 0 or (label is not None and label_of(whole) != label):
            continue
        line = whole[writer_end(whole) :].rstrip()
        if line.startswith(CHAINED):
            ended = False
        elif not line or line[:1] in b" \t" or line.startswith(TRACEBACK):
            continue
        elif not ended and ERROR_LINE.match(line):
            found.append((start, line))
            ended = True
        elif ended:
            break
    return found


def writer_end(line: bytes) -> int:
    """Where the text of a line begins. A traceback is indented, so a blank more or less matters."""
    writer = WRITER.match(line)
    return writer.end() if writer and line[: writer.end()].strip() else 0
