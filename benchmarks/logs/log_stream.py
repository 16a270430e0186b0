"""The stream of a foreign log: what every format of one line a step shares.

What lives here: the window of a log that is in memory, ANSI colours, the rank a line is labelled with,
Ray's folded repeats, and the loop that finds step lines and start-up lines. What a line means is a
format's business (jax_backend/logs.py, nemo_backend/logs.py), which attempt it belongs to is decided in
benchmarks/logs/ingest.py.

How it is fast: a window of the stream is searched for one word with bytes.find (GB/s); only where it
stands is a line looked at. The usual line is read by one regular expression (a format's quick path); any
other shape by splitting it into its fields (the careful path), which alone decides what is unreadable.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.logs.ingest import AttemptTracker
from benchmarks.values import Step, Value

CHUNK_BYTES = 1 << 20
# What is looked at before and after the word. A line may be longer (any length), a step's report is not;
# and as every decision is made from these bytes alone, the size of the chunks can't change what is read.
LOOKBEHIND = 512
LOOKAHEAD = 4096

GRADIENT_NOT_FINITE = "gradient norm not finite"  # why a step is left out

ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
RANK = re.compile(
    rb"\s*(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+)?"  # a log collector's time
    rb"(?:(\d{1,7}): |\[rank(\d{1,7})\]:? )"  # srun --label; torchrun
)
RAY_REPEATED = re.compile(rb"\s*\[repeated (\d{1,9})x across cluster\]")
NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)


def without_colours(text: bytes) -> bytes:
    return ANSI.sub(b"", text) if b"\x1b" in text else text


def rank_of_line(before: bytes) -> int | None:
    """The rank that the beginning of a line names. Ray's pid and torchrun's [default0] name none: a restart
    changes the one, and every node has the other."""
    label = RANK.match(without_colours(before).replace(b"\0", b""))
    return int(label[1] or label[2]) if label else None


# --- the window of the stream that is in memory -----------------------------------------------


class Window:
    """The part of a log in memory, whole for LOOKBEHIND before and LOOKAHEAD after what is being read.

    Of a `growing` log the end is not the end: what has no line end yet waits for more text.
    """

    def __init__(self, stream: BinaryIO, chunk_bytes: int = CHUNK_BYTES, *, growing: bool = False) -> None:
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self._growing = growing
        self.text = b""
        self.start = 0  # what begins here or later was not read yet
        self.end = 0  # what begins here or later waits for more text
        self._ended = False
        self._forgotten = 0  # bytes of the log that came before `text`
        self._counted = 0  # newlines are counted up to here
        self._newlines = 0

    def advance(self) -> bool:
        """Read on; False when all was read (of a growing log: all that has its line end)."""
        if self._ended:
            return False
        self.start = max(self.start, self.end)
        self._forget(max(0, self.start - LOOKBEHIND - 1))
        chunk = self._stream.read(self._chunk_bytes)
        if self._growing and not chunk:
            return self._up_to_the_last_line_end()
        self._ended = not chunk
        self.text += chunk
        self.end = len(self.text) if self._ended else max(self.start, len(self.text) - LOOKAHEAD)
        return True

    def _up_to_the_last_line_end(self) -> bool:
        line_end = max(self.text.rfind(b"\n"), self.text.rfind(b"\r")) + 1
        if line_end <= self.start:
            return False
        self.end = line_end
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
        """Where the line begins, or the earliest place that may be looked at."""
        earliest = max(0, position - LOOKBEHIND)
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

    def rank(self, position: int) -> int | None:
        """The rank the line is labelled with."""
        return rank_of_line(self.line_before(position))

    def line_from(self, position: int, begins: Sequence[bytes]) -> tuple[bytes, str]:
        """The line from a position on, without colours, and why its end is no end of line ('' where it is one).

        Where another of the words that begin a step's report stands in it, two writers have met.
        """
        text = self.text[position : position + LOOKAHEAD]
        ends = [e for e in (text.find(b"\n"), text.find(b"\r")) if e >= 0]
        cut = "" if ends else "truncated"
        if ends:
            text = text[: min(ends)]
        others = [e for e in (text.find(begin, 1) for begin in begins) if e >= 0]
        if others:
            text, cut = text[: min(others)], "mingled with another writer's line"
        return without_colours(text), cut


# --- what a line says -------------------------------------------------------------------------


class StepReport(Value, frozen=True):
    """What one step line says."""

    step: int
    rank: int | None  # None: the line names none
    seconds: float | None
    loss: float | None
    tflops_per_device: float | None = None
    tokens_per_second_per_device: float | None = None
    global_batch_size: int | None = None
    excluded_because: str | None = None
    reports: int = 1  # Ray folds the reports of several workers into one line


class UnreadableError(Exception):
    """A line that looks like a step's and can't be read; the text is the reason."""


def without_repeats(text: bytes) -> tuple[bytes, int | None]:
    """A line before Ray's `[repeated 9x across cluster]`, and that number; None where Ray added none."""
    repeated = RAY_REPEATED.search(text)
    return (text[: repeated.start()], max(1, int(repeated[1]))) if repeated else (text, None)


def shown(text: bytes) -> str:
    return repr(text.strip()[:40].decode(errors="backslashreplace"))


def number_of(name: bytes, value: bytes) -> float:
    """A field's value, which must be a number and nothing else."""
    number = NUMBER.fullmatch(value)
    if number is None:
        raise UnreadableError(f"{name.decode()} is not a number: {shown(value)}")
    return float(value)


def whole_number_of(value: bytes | None) -> int | None:
    """A whole number of at most 15 digits, None where it is none: for a field that is no reason to skip a line."""
    return int(value) if value is not None and len(value) <= 15 and value.isdigit() else None


def event_of(report: StepReport, tracker: AttemptTracker) -> LogEvent:
    """The step of a report, or that it is a further report of a known one."""
    if not tracker.report(report.rank, report.step):
        return LogEvent(attempt=tracker.attempt, duplicates=report.reports)
    step = Step(
        step=report.step,
        seconds=report.seconds,
        loss=report.loss,
        tokens=None,
        attempt=tracker.attempt,
        rank=report.rank or 0,
        excluded_because=report.excluded_because,
        framework_seconds=report.seconds,
        framework_tflops_per_device=report.tflops_per_device,
        framework_tokens_per_second_per_device=report.tokens_per_second_per_device,
        framework_global_batch_size=report.global_batch_size,
    )
    return LogEvent(attempt=tracker.attempt, step=step, duplicates=report.reports - 1)


# --- process starts ---------------------------------------------------------------------------


class StartLine:
    """A line printed at a start: by each process, or by one of the whole job."""

    def __init__(self, word: bytes, line: bytes, *, of_the_job: bool = False) -> None:
        self.word = word  # which is searched for; the line is then matched where it stands
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
    """Where start-up lines stand in a window."""

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


class LogReader(ABC):
    """Reads one log, window after window."""

    def __init__(self) -> None:
        self.tracker = AttemptTracker()

    @abstractmethod
    def read_window(self, window: Window) -> Iterator[LogEvent]:
        """The window's events. One that holds nothing says that a process started there."""

    def finish(self) -> Iterator[LogEvent]:
        """What is known only when the log has ended."""
        yield from ()


class LineReader(LogReader):
    """Reads the step lines of one log. A format fills in what its lines look like."""

    word: bytes  # every step line has it, and little else
    start_lines: Sequence[StartLine] = ()

    @abstractmethod
    def quick_events(self, window: Window) -> Iterator[LogEvent]:
        """The events of the usual lines that follow each other where the window starts, which is moved on."""

    @abstractmethod
    def is_step(self, window: Window, found: int) -> bool:
        """Whether the word found begins a step's report, readable or not."""

    @abstractmethod
    def report(self, window: Window, found: int) -> StepReport:
        """What the line says that has the word there; UnreadableError where it can't be known."""

    def read_window(self, window: Window) -> Iterator[LogEvent]:
        starts = Starts(window, self.start_lines, self.tracker)
        word = self.word
        while (found := window.text.find(word, window.start, window.end + len(word) - 1)) >= 0:
            yield from starts.pass_until(found)
            line_start = window.start = window.line_start(found)
            yield from self.quick_events(window)  # the next line is often a step's too: no need to search for it
            if window.start == line_start:
                if self.is_step(window, found):
                    yield self._careful_event(window, found)
                window.start = found + len(word)
        yield from starts.pass_until(window.end)
        window.start = max(window.start, window.end)

    def _careful_event(self, window: Window, found: int) -> LogEvent:
        try:
            report = self.report(window, found)
        except UnreadableError as error:
            skipped = SkippedLine(line=window.line_number(found), reason=str(error))
            return LogEvent(attempt=self.tracker.attempt, skipped=skipped)
        return event_of(report, self.tracker)


def read_log(reader: LogReader, stream: BinaryIO, chunk_bytes: int = CHUNK_BYTES) -> Iterator[LogEvent]:
    """Stream a log's events to its end."""
    window = Window(stream, chunk_bytes)
    while window.advance():
        yield from reader.read_window(window)
    yield from reader.finish()


class StreamedFormat(ABC):
    """What every format of one log line a step has in common: a reader, and how a whole log is read with it."""

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes

    @abstractmethod
    def reader(self) -> LogReader:
        """A reader of one log."""

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]:
        """Stream the log's events. An event that holds nothing says that a process started there."""
        return read_log(self.reader(), stream, self._chunk_bytes)
