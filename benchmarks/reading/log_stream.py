"""The stream of a foreign log: common code of all formats with one line per step.

This module has the window of a log in memory, ANSI colours, rank labels, the loop that finds step lines and start-up
lines, and the fields of a step line. The formats define the names of the fields (jax_backend/logs.py,
nemo_backend/logs.py). benchmarks/reading/read_log.py assigns steps to attempts.

A window of the stream is searched for one word with bytes.find, and only lines with that word are parsed.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NoReturn

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.reading.read_log import CHUNK_BYTES, AttemptTracker
from benchmarks.values import Step, Value

# The bytes before and after the word that are read. A line may be longer, but a step's report is not. Every decision
# uses only these bytes, so the size of the chunks cannot change the result.
LOOKBEHIND = 512
LOOKAHEAD = 4096

LONGEST_SECONDS = 1e9  # 30 years

GRADIENT_NOT_FINITE = "gradient norm not finite"  # why a step is excluded

ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
RANK = re.compile(
    rb"\s*(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+)?"  # a log collector's time
    rb"(?:(\d{1,7}): |\[rank(\d{1,7})\]:? )"  # srun --label; torchrun
)
LINE_BEGINS = (b"\n", b"\r", b"")  # what is before a line's first byte
AFTER_THE_LINE = re.compile(rb"[\s\"'}\\].*$", re.DOTALL)  # a blank, or the end of a JSON string, and what follows
ALL_DECIMALS = re.compile(rb"-?\d+\.\d{3,}|nan|-?inf")  # as {:.3f} prints: such a number was not cut
NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)


def without_colours(text: bytes) -> bytes:
    return ANSI.sub(b"", text) if b"\x1b" in text else text


def rank_of_line(before: bytes) -> int | None:
    """The rank that the beginning of a line names. Ray's pid and torchrun's [default0] name none: a restart
    changes the one, and every node has the other."""
    label = RANK.match(without_colours(before).replace(b"\0", b""))
    return int(label[1] or label[2]) if label else None


# --- the window of the stream that is in memory -----------------------------------------------


class Window:
    """The part of a log in memory, whole for LOOKBEHIND before and LOOKAHEAD after what is being read."""

    def __init__(self, stream: BinaryIO, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self.text = b""
        self.start = 0  # what begins here or later was not read yet
        self.end = 0  # what begins here or later waits for more text
        self._ended = False
        self._forgotten = 0  # bytes of the log that came before `text`
        self._counted = 0  # newlines are counted up to here
        self._newlines = 0

    def advance(self) -> bool:
        """Read on; False when all was read."""
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
        """1-based, as grep -n and sed count; asked for seldom, so counted then."""
        self._newlines += self.text.count(b"\n", self._counted, position)
        self._counted = position
        return self._newlines + 1

    def line_start(self, position: int) -> int:
        """Return the start of the line, or the earliest readable position."""
        earliest = position - LOOKBEHIND if position > LOOKBEHIND else 0
        newline = self.text.rfind(b"\n", earliest, position)
        return newline + 1 if newline >= 0 else earliest

    def line_before(self, position: int) -> bytes:
        """The line up to a position; empty where the line begins too far away to be looked at."""
        start = self.line_start(position)
        carriage_return = self.text.rfind(b"\r", start, position)
        if carriage_return >= 0:
            return self.text[carriage_return + 1 : position]
        # One byte more than LOOKBEHIND is in memory, so that a line's beginning is known for one.
        begins_here = self._forgotten + start == 0 or self.text[start - 1 : start] == b"\n"
        return self.text[start:position] if begins_here else b""

    def text_before(self, position: int) -> bytes:
        """Return the readable part of the line before a position, without colours."""
        if self.text[position - 1 : position] in LINE_BEGINS:
            return b""
        start = self.line_start(position)
        return without_colours(self.text[self.text.rfind(b"\r", start, position) + 1 or start : position])

    def rank(self, position: int) -> int | None:
        """The rank the line is labelled with."""
        if self.text[position - 1 : position] in LINE_BEGINS:
            return None
        return rank_of_line(self.line_before(position))

    def line_from(self, position: int, begins: re.Pattern[bytes] | None = None) -> tuple[bytes, str]:
        """Return the line from a position on, without colours, and why it is incomplete ('' if it is complete).

        If the report of another step begins in it, the output of two writers is interleaved.
        """
        newline = self.text.find(b"\n", position, position + LOOKAHEAD)
        last = newline if newline >= 0 else min(len(self.text), position + LOOKAHEAD)
        carriage_return = self.text.find(b"\r", position, last)
        cut = "" if newline >= 0 or carriage_return >= 0 else "truncated"
        text = without_colours(self.text[position : carriage_return if carriage_return >= 0 else last])
        other = begins.search(text, 1) if begins is not None else None
        return (text[: other.start()], "mixed with a line of another writer") if other else (text, cut)


# --- what a line says -------------------------------------------------------------------------


class StepReport(Value, frozen=True):
    """The values of one step line."""

    step: int
    rank: int | None  # None: the line names none
    seconds: float | None
    loss: float | None
    tokens: int | None = None
    tflops_per_device: float | None = None
    tokens_per_second_per_device: float | None = None
    rates: dict[str, float] = {}  # printed rates of the whole job, by name
    global_batch_size: int | None = None
    excluded_because: str | None = None


class UnreadableError(Exception):
    """A line that looks like a step's and can't be read; the text is the reason."""


def shown(text: bytes) -> str:
    return repr(text.strip()[:40].decode(errors="backslashreplace"))


def can_be_a_time(seconds: float) -> bool:
    """Return whether a value is plausible as a step time. Damaged logs contain times whose squares overflow."""
    return 0 <= seconds < LONGEST_SECONDS


def number_of(name: bytes, value: bytes) -> float:
    """Return a field's value, which must be exactly one number."""
    number = NUMBER.fullmatch(value)
    if number is None:
        raise UnreadableError(f"{name.decode()} is not a number: {shown(value)}")
    return float(value)


class Fields:
    """The `name: value` fields of a step line.

    A value counts only if it is complete: another field, the separator or the end of the line follows it.
    """

    def __init__(self, text: bytes, cut: str, separator: bytes, *, closed: bool = False) -> None:
        """`cut`: why the text ends before its line does. `closed`: the separator follows the last field too."""
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
        """Return whether nothing follows the last field of a closed line."""
        return not self._cut and not self._rest.strip(b" \t\"'}\\")

    def refuse(self, reason: str) -> NoReturn:
        """UnreadableError, for this reason or for that the line was cut."""
        raise UnreadableError(self._cut or reason)

    def refuse_twice(self) -> None:
        if self._twice:
            raise UnreadableError(f"mixed lines: {self._twice.decode(errors='backslashreplace')} appears twice")

    def value(self, *names: bytes) -> tuple[bytes, bytes]:
        """Return the first of these fields that exists, and its complete text."""
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
        """A number; the first of a pair `now/average`."""
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
        """Return a whole number of at most 15 digits, or None. A bad value does not skip the line."""
        text = self._complete_value(name)
        return int(text) if len(text) <= 15 and text.isdigit() else None

    def is_not_finite(self, name: bytes) -> bool:
        return NOT_FINITE.fullmatch(self._complete_value(name).partition(b"/")[0]) is not None

    def _complete_value(self, name: bytes) -> bytes:
        return b"" if name not in self._values or (name == self._last and self._cut) else self.value(name)[1]


def event_of(report: StepReport, tracker: AttemptTracker) -> LogEvent:
    """The step of a report, or that it is a further report of a known one."""
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
    )
    return LogEvent(attempt=tracker.attempt, step=step)


# --- process starts ---------------------------------------------------------------------------


class StartLine:
    """A line printed at a start: by each process, or by one of the whole job."""

    def __init__(self, word: bytes, line: bytes, *, of_the_job: bool = False) -> None:
        self.word = word  # which is searched for; the line is then matched at its position
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
    """The positions of start-up lines in a window."""

    def __init__(self, window: Window, lines: Sequence[StartLine], tracker: AttemptTracker) -> None:
        self._window = window
        self._tracker = tracker
        found = [(position, line.of_the_job) for line in lines for position in line.positions(window)]
        self._found = sorted(found, reverse=True)  # the last first

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
    """A format of one line a step: what its lines look like, and how a whole log of them is read."""

    seconds_are = ""
    no_seconds = ""
    prints_loss = True
    word: bytes  # every step line has it, and little else
    begins: re.Pattern[bytes]  # with the word, a step's report, readable or not
    start_lines: Sequence[StartLine] = ()

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes

    @abstractmethod
    def report(self, window: Window, found: int) -> StepReport | None:
        """Return the report of the line with the word, or None. Raise UnreadableError if the line is damaged."""

    def is_step(self, window: Window, found: int) -> bool:
        return self.begins.match(without_colours(window.text[found : found + 200])) is not None

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]:
        """Stream the log's events. An event that holds nothing says that a process started there."""
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
