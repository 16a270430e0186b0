"""Read a log that Stepmark did not write: the common code of all formats with one line per step.

This module contains the window of a log in memory, ANSI colours, rank labels, the loop that finds step lines and
start-up lines, and the fields of a step line. The formats define the names of the fields (jax_backend/logs.py,
nemo_backend/logs.py). benchmarks/reading/read_log.py assigns steps to attempts.

The loop searches a window for one word with bytes.find, and parses only lines that contain this word.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NoReturn

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.reading.read_log import CHUNK_BYTES, AttemptTracker
from benchmarks.values import Step, Value

# The loop reads only this many bytes before and after the word. A line may be longer; the values of a step are not.
# Every decision uses only these bytes, so the size of the chunks cannot change the result.
LOOKBEHIND = 512
LOOKAHEAD = 4096

LONGEST_SECONDS = 1e9  # 30 years

GRADIENT_NOT_FINITE = "gradient norm not finite"  # why a step is excluded

ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
RANK = re.compile(
    rb"\s*(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+)?"  # the time from a log collector
    rb"(?:(\d{1,7}): |\[rank(\d{1,7})\]:? )"  # srun --label; torchrun
)
LINE_BEGINS = (b"\n", b"\r", b"")  # the byte before the first byte of a line
AFTER_THE_LINE = re.compile(rb"[\s\"'}\\].*$", re.DOTALL)  # a blank or the end of a JSON string, and what follows
ALL_DECIMALS = re.compile(rb"-?\d+\.\d{3,}|nan|-?inf")  # printed by {:.3f}, so no digit is missing
NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)


def without_colours(text: bytes) -> bytes:
    return ANSI.sub(b"", text) if b"\x1b" in text else text


def rank_of_line(before: bytes) -> int | None:
    """Return the rank in the label of a line, or None. Ray's pid does not count, because a restart changes it.
    torchrun's [default0] does not count, because every node has one."""
    label = RANK.match(without_colours(before).replace(b"\0", b""))
    return int(label[1] or label[2]) if label else None


# --- the part of the stream in memory ---------------------------------------------------------


class Window:
    """The part of a log in memory: the current chunk, LOOKBEHIND bytes before it, and LOOKAHEAD bytes after it."""

    def __init__(self, stream: BinaryIO, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self.text = b""
        self.start = 0  # lines that begin before this position have been processed
        self.end = 0  # lines that begin at or after this position need the next chunk
        self._ended = False
        self._forgotten = 0  # the number of bytes of the log before `text`
        self._counted = 0  # newlines before this position are included in _newlines
        self._newlines = 0

    def advance(self) -> bool:
        """Read the next chunk. Return False at the end of the log."""
        if self._ended:
            return False
        self.start = max(self.start, self.end)
        self._forget(max(0, self.start - LOOKBEHIND - 1))
        chunk = self._stream.read(self._chunk_bytes)
        self._ended = not chunk
        self.text += chunk
        self.end = len(self.text) if self._ended else max(self.start, len(self.text) - LOOKAHEAD)
        return True

    def _forget(self, count: int) -> None:
        if count > self._counted:
            self.line_number(count)
        self.text = self.text[count:]
        self._forgotten += count
        self.start -= count
        self.end -= count
        self._counted -= count

    def line_number(self, position: int) -> int:
        """Return the 1-based line number, as in grep -n. Newlines are counted only when a caller needs a number."""
        self._newlines += self.text.count(b"\n", self._counted, position)
        self._counted = position
        return self._newlines + 1

    def line_start(self, position: int) -> int:
        """Return the position where the line starts, or the earliest readable position."""
        earliest = position - LOOKBEHIND if position > LOOKBEHIND else 0
        newline = self.text.rfind(b"\n", earliest, position)
        return newline + 1 if newline >= 0 else earliest

    def line_before(self, position: int) -> bytes:
        """Return the line up to a position; empty if the line starts more than LOOKBEHIND bytes before it."""
        start = self.line_start(position)
        carriage_return = self.text.rfind(b"\r", start, position)
        if carriage_return >= 0:
            return self.text[carriage_return + 1 : position]
        # One byte before LOOKBEHIND is in memory. It shows whether a line starts exactly at LOOKBEHIND.
        begins_here = self._forgotten + start == 0 or self.text[start - 1 : start] == b"\n"
        return self.text[start:position] if begins_here else b""

    def text_before(self, position: int) -> bytes:
        """Return the readable part of the line before a position, without colours."""
        if self.text[position - 1 : position] in LINE_BEGINS:
            return b""
        start = self.line_start(position)
        return without_colours(self.text[self.text.rfind(b"\r", start, position) + 1 or start : position])

    def rank(self, position: int) -> int | None:
        """Return the rank in the label of the line at a position, or None."""
        if self.text[position - 1 : position] in LINE_BEGINS:
            return None
        return rank_of_line(self.line_before(position))

    def line_from(self, position: int, begins: re.Pattern[bytes] | None = None) -> tuple[bytes, str]:
        """Return the rest of the line from a position, without colours, and the reason if it is incomplete (or '').

        If another report that matches `begins` starts in the same line, two writers have mixed their output.
        """
        newline = self.text.find(b"\n", position, position + LOOKAHEAD)
        last = newline if newline >= 0 else min(len(self.text), position + LOOKAHEAD)
        carriage_return = self.text.find(b"\r", position, last)
        cut = "" if newline >= 0 or carriage_return >= 0 else "truncated"
        text = without_colours(self.text[position : carriage_return if carriage_return >= 0 else last])
        other = begins.search(text, 1) if begins is not None else None
        return (text[: other.start()], "mixed with a line of another writer") if other else (text, cut)


# --- the values in a line ---------------------------------------------------------------------


class StepReport(Value, frozen=True):
    """The values that were read from one step line."""

    step: int
    rank: int | None  # None: the line has no rank
    seconds: float | None
    loss: float | None
    tokens: int | None = None
    tflops_per_device: float | None = None
    tokens_per_second_per_device: float | None = None
    rates: dict[str, float] = {}  # rates of the whole job: name -> printed value
    other_losses: dict[str, float | None] = {}  # as in Step
    global_batch_size: int | None = None
    excluded_because: str | None = None


class UnreadableError(Exception):
    """Raised for a line that looks like a step line but cannot be read. The text is the reason."""


def shown(text: bytes) -> str:
    return repr(text.strip()[:40].decode(errors="backslashreplace"))


def can_be_a_time(seconds: float) -> bool:
    """Return whether a value is plausible as a step time. Damaged logs contain huge values whose squares overflow."""
    return 0 <= seconds < LONGEST_SECONDS


def number_of(name: bytes, value: bytes) -> float:
    """Return the number in a field. Raise UnreadableError if the text is not exactly one number."""
    number = NUMBER.fullmatch(value)
    if number is None:
        raise UnreadableError(f"{name.decode()} is not a number: {shown(value)}")
    return float(value)


class Fields:
    """The `name: value` fields of a step line.

    A value counts only if it is complete: if another field, the separator or the end of the line follows it.
    """

    def __init__(self, text: bytes, cut: str, separator: bytes, *, closed: bool = False) -> None:
        """Split the text into fields. `cut` is why it is incomplete. If `closed`, a separator ends the last field."""
        self.head, *parts = text.split(separator)
        self._rest = parts.pop() if closed and parts else b""
        self._cut = cut
        self._values: dict[bytes, bytes] = {}
        self._twice = b""
        values, name = self._values, b""
        for part in parts:
            name, colon, value = part.partition(b":")
            name = name.strip()
            if name in values and colon:
                self._twice = name
            values[name] = value
        self._last = b"" if closed else name

    def __contains__(self, name: bytes) -> bool:
        return name in self._values

    def is_empty(self) -> bool:
        return not self._values

    def ends_whole(self) -> bool:
        """Return whether the line is complete and has no text after its last field."""
        return not self._cut and not self._rest.strip(b" \t\"'}\\")

    def refuse(self, reason: str) -> NoReturn:
        """Raise UnreadableError. If the line is cut off, this is the reason, otherwise `reason`."""
        raise UnreadableError(self._cut or reason)

    def refuse_twice(self) -> None:
        if self._twice:
            raise UnreadableError(f"mixed lines: {self._twice.decode(errors='backslashreplace')} appears twice")

    def value(self, *names: bytes) -> tuple[bytes, bytes]:
        """Return the first of these names that the line has, and the complete text of its value."""
        name = self._first(names)
        if name is None:
            raise UnreadableError(self._cut or f"truncated: no {names[0].decode()}")
        text = self._values[name].strip()
        if name == self._last:
            text = AFTER_THE_LINE.sub(b"", text)
            if self._cut and not ALL_DECIMALS.fullmatch(text):
                raise UnreadableError(self._cut)
        return name, text

    def number(self, *names: bytes) -> float:
        """Return the value of the first of these names that the line has. For a pair `now/average`, return `now`."""
        name, text = self.value(*names)
        now, slash, average = text.partition(b"/")
        if slash:
            number_of(name, average)  # both numbers of a pair must be valid
        return number_of(name, now)

    def optional(self, *names: bytes) -> float | None:
        name = self._first(names)
        return None if name is None else self.number(name)

    def _first(self, names: Sequence[bytes]) -> bytes | None:
        for name in names:
            if name in self._values:
                return name
        return None

    def time(self, *names: bytes) -> float:
        seconds = self.number(*names)
        if not can_be_a_time(seconds):
            raise UnreadableError(f"seconds cannot be {shown(self.value(*names)[1])}")
        return seconds

    def whole_number(self, name: bytes) -> int | None:
        """Return a whole number of at most 15 digits, or None. A bad value does not make the line unreadable."""
        text = self._complete_value(name)
        return int(text) if len(text) <= 15 and text.isdigit() else None

    def is_not_finite(self, name: bytes) -> bool:
        return NOT_FINITE.fullmatch(self._complete_value(name).partition(b"/")[0]) is not None

    def _complete_value(self, name: bytes) -> bytes:
        return b"" if name not in self._values or (name == self._last and self._cut) else self.value(name)[1]


def event_of(report: StepReport, tracker: AttemptTracker) -> LogEvent:
    """Return the event for a report: a step, or a duplicate if the step was already reported in this attempt."""
    if not tracker.report(report.rank, report.step):
        return LogEvent(attempt=tracker.attempt, duplicates=1)
    step = Step(
        step=report.step,
        seconds=report.seconds,
        loss=report.loss,
        tokens=report.tokens,
        attempt=tracker.attempt,
        rank=report.rank or 0,
        excluded_because=report.excluded_because,
        framework_seconds=report.seconds,
        framework_tflops_per_device=report.tflops_per_device,
        framework_tokens_per_second_per_device=report.tokens_per_second_per_device,
        framework_global_batch_size=report.global_batch_size,
        framework_rates=report.rates or None,
        other_losses=report.other_losses or None,
    )
    return LogEvent(attempt=tracker.attempt, step=step)


# --- process starts ---------------------------------------------------------------------------


class StartLine:
    """A line that a program prints when it starts: each process prints it, or one process for the whole job."""

    def __init__(self, word: bytes, line: bytes, *, of_the_job: bool = False) -> None:
        self.word = word  # the loop searches for this word and matches `line` at its position
        self.line = re.compile(line)
        self.of_the_job = of_the_job

    def positions(self, window: Window) -> Iterator[int]:
        last = window.end + len(self.word) - 1
        position = window.text.find(self.word, window.start, last)
        while position >= 0:
            if self.line.match(window.text, position):
                yield position
            position = window.text.find(self.word, position + 1, last)


class Starts:
    """The positions of start-up lines in the current chunk of a window."""

    def __init__(self, window: Window, lines: Sequence[StartLine], tracker: AttemptTracker) -> None:
        self._window = window
        self._tracker = tracker
        found = [(position, line.of_the_job) for line in lines for position in line.positions(window)]
        self._found = sorted(found, reverse=True)  # the last position first, so that pop() returns the next one

    def before(self, until: int) -> bool:
        return bool(self._found) and self._found[-1][0] < until

    def pass_until(self, until: int) -> Iterator[LogEvent]:
        while self.before(until):
            position, of_the_job = self._found.pop()
            if of_the_job:
                self._tracker.job_started()
            else:
                self._tracker.started(self._window.rank(position))
            yield LogEvent(attempt=self._tracker.attempt)


# --- the loop ---------------------------------------------------------------------------------


class LineFormat(ABC):
    """A log format with one line per step: the form of its lines, and the loop that reads a log."""

    seconds_are = ""
    no_seconds = ""
    prints_loss = True
    word: bytes  # occurs in every step line and in few other lines
    begins: re.Pattern[bytes]  # starts with `word`; matches how a step's report begins, even an unreadable one
    start_lines: Sequence[StartLine] = ()

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes

    @abstractmethod
    def report(self, window: Window, found: int) -> StepReport | None:
        """Return the step report at a position of `word`, or None. Raise UnreadableError if the report is damaged."""

    def is_step(self, window: Window, found: int) -> bool:
        return self.begins.match(without_colours(window.text[found : found + 200])) is not None

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]:
        """Yield the events of a log. An event with neither a step nor a skipped line marks a process's start."""
        window, tracker = Window(stream, self._chunk_bytes), AttemptTracker()
        while window.advance():
            starts = Starts(window, self.start_lines, tracker)
            last = window.end + len(self.word) - 1
            while (found := window.text.find(self.word, window.start, last)) >= 0:
                if starts.before(found):
                    yield from starts.pass_until(found)
                if self.is_step(window, found) and (event := self._event(window, found, tracker)) is not None:
                    yield event
                window.start = found + len(self.word)
            yield from starts.pass_until(window.end)
            window.start = max(window.start, window.end)

    def _event(self, window: Window, found: int, tracker: AttemptTracker) -> LogEvent | None:
        try:
            report = self.report(window, found)
        except UnreadableError as error:
            skipped = SkippedLine(line=window.line_number(found), reason=str(error))
            return LogEvent(attempt=tracker.attempt, skipped=skipped)
        return None if report is None else event_of(report, tracker)
