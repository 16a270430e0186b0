"""Reads the training log of any MaxText, whatever vintage, launcher or log collector wrote it.

What lives here: the lines MaxText prints for a step and at its start, and how they are found and read in
a stream. Which attempt a step belongs to is decided in benchmarks/ingest.py, for every format alike.

The seconds are the printed ones. MaxText times from dispatch to dispatch while it waits for an earlier
loss, so what it prints for step k is the true time of step k-2; a foreign log holds nothing better, and
nothing is corrected here.

How it is fast: a window of the stream is searched for one word with bytes.find (GB/s); only where it
stands is a line looked at. The usual line is read by one regular expression (the quick path); any other
shape by splitting it into its fields (the careful path), which alone decides what is unreadable.
"""

import math
import re
from collections.abc import Iterator
from typing import BinaryIO

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.ingest import AttemptTracker
from benchmarks.values import Step, Value

WORD = b"completed "  # every step line has it, and little else
STEP_LINE_BEGINS = (b"completed step", b"completed profiler activation")
# Printed once by each process before its first step: the first since 2024, the second since 2023.
START_LINES = (
    re.compile(rb"System Information: Jax Version: "),
    re.compile(rb"Num_devices: \d+, shape "),
)
START_WORDS = (b"System Information: Jax Version: ", b"Num_devices: ")

PROFILER = "profiler"  # MaxText prints no seconds for the steps at which its profiler starts and stops
RAMPUP_MARK = b"[Rampup Batch Size Phase], "
RAMPUP = "batch size rampup"  # smaller batches than the run's: not the same work

CHUNK_BYTES = 1 << 20
# What is looked at before and after the word. A line may be longer (any length), a step's report is not;
# and as every decision is made from these bytes alone, the size of the chunks can't change what is read.
LOOKBEHIND = 512
LOOKAHEAD = 4096

PRINTED_DECIMALS = 3  # MaxText prints {:.3f}: a number with fewer, at an end that is no end of line, was cut

# --- the quick path: the usual line, whole, with a rank and an absl prefix or without ---------
# [0-9]: the regular expression engine is slower at \d, and slower still at every part that may be absent.
_PREFIX = rb"(?:([0-9]{1,7}): )?(?:[IW][0-9 :.]{20,60}[a-z_]{1,40}\.py:[0-9]{1,5}\] )?"
_FLOAT = rb"([0-9]{1,9}\.[0-9]{1,9})"
_OTHER_FLOAT = rb"[0-9]{1,9}\.[0-9]{1,9}"
# What MaxText prints since 2025; and what it printed before. Both have the same groups.
QUICK_LINES = (
    _PREFIX + rb"completed step: ([0-9]{1,15}), seconds: " + _FLOAT + rb", TFLOP/s/device: " + _FLOAT
    + rb", Tokens/s/device: " + _FLOAT + rb", total_weights: [0-9]{1,15}, loss: " + _FLOAT
    + rb", lm_loss: " + _OTHER_FLOAT + rb", perplexity: " + _OTHER_FLOAT + rb"\r?\n",
    _PREFIX + rb"completed step: ([0-9]{1,15}), seconds: " + _FLOAT + rb", TFLOP/s(?:/device)?: " + _FLOAT
    + rb"(?:, Tokens/s(?:/device)?: " + _FLOAT + rb")?(?:, total_weights: [0-9]{1,15})?, loss: " + _FLOAT + rb"\r?\n",
)  # fmt: skip
# The empty alternative makes finditer give line after line, and something empty where there is another.
QUICK_RUNS = tuple(re.compile(line + b"|") for line in QUICK_LINES)

# --- the careful path -------------------------------------------------------------------------
ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
RANK = re.compile(
    rb"\s*(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+)?"  # a log collector's time
    rb"(?:(\d{1,7}): |\[rank(\d{1,7})\]:? )"  # srun --label; torchrun
)
RAY_REPEATED = re.compile(rb"\s*\[repeated (\d{1,9})x across cluster\]")
STEP_NUMBER = re.compile(rb"completed (?:step|profiler activation/deactivation step):\s*(\d{1,15})$")
NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
MAY_FOLLOW_THE_LINE = b" \t\"'}\\"  # a blank, or the end of a JSON string

RECOGNISED = re.compile(
    rb"completed step:\s*\d+,\s*(?:seconds|live slice count):|"
    rb"completed profiler activation/deactivation step:\s*\d+,|"
    + b"|".join(line.pattern for line in START_LINES)
)  # fmt: skip


class MaxTextLog:
    """The format `maxtext`: see the top of this file."""

    name = "maxtext"
    seconds_resolution = 0.001

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes

    def recognises(self, head: bytes) -> bool:
        plain = ANSI.sub(b"", head) if b"\x1b" in head else head
        return RECOGNISED.search(plain) is not None

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]:
        """Stream the log's events. An event that holds nothing says that a process started there."""
        window = _Window(stream, self._chunk_bytes)
        tracker = AttemptTracker()
        while window.advance():
            yield from _read_window(window, tracker)


# --- the window of the stream that is in memory -----------------------------------------------


class _Window:
    """The part of a log in memory, whole for LOOKBEHIND before and LOOKAHEAD after what is being read."""

    def __init__(self, stream: BinaryIO, chunk_bytes: int) -> None:
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


def _read_window(window: _Window, tracker: AttemptTracker) -> Iterator[LogEvent]:
    starts = _process_starts(window)
    while (found := window.text.find(WORD, window.start, window.end + len(WORD) - 1)) >= 0:
        yield from _pass_starts(window, starts, found, tracker)
        line_start = window.start = window.line_start(found)
        for run in QUICK_RUNS:  # the next line is often a step's too: no need to search for it
            yield from _quick_events(run, window, tracker)
        if window.start == line_start:
            if window.text.startswith(STEP_LINE_BEGINS, found):
                yield _careful_event(window, found, tracker)
            window.start = found + len(WORD)
    yield from _pass_starts(window, starts, window.end, tracker)
    window.start = max(window.start, window.end)


# --- process starts ---------------------------------------------------------------------------


def _process_starts(window: _Window) -> list[int]:
    """Where start-up lines stand in the window, the last first."""
    found = []
    for word, line in zip(START_WORDS, START_LINES, strict=True):
        position = window.text.find(word, window.start, window.end + len(word) - 1)
        while position >= 0:
            if line.match(window.text, position):
                found.append(position)
            position = window.text.find(word, position + 1, window.end + len(word) - 1)
    return sorted(found, reverse=True)


def _pass_starts(window: _Window, starts: list[int], until: int, tracker: AttemptTracker) -> Iterator[LogEvent]:
    while starts and starts[-1] < until:
        tracker.started(_rank(window, starts.pop()))
        yield LogEvent(attempt=tracker.attempt)


# --- one line ---------------------------------------------------------------------------------


class _Report(Value, frozen=True):
    """What one step line says."""

    step: int
    rank: int | None  # None: the line names none
    seconds: float | None
    loss: float
    tflops_per_device: float | None
    tokens_per_second_per_device: float | None
    excluded_because: str | None
    reports: int = 1  # Ray folds the reports of several workers into one line


class _UnreadableError(Exception):
    """A line that looks like a step's and can't be read; the text is the reason."""


def _quick_events(run: re.Pattern[bytes], window: _Window, tracker: AttemptTracker) -> Iterator[LogEvent]:
    """The events of the lines of one shape that follow each other where the window starts, which is moved on."""
    for line in run.finditer(window.text, window.start):
        rank, number, seconds, tflops, tokens, loss = line.groups()
        if number is None:  # the empty alternative
            window.start = line.end()
            return
        step = int(number)
        source = None if rank is None else int(rank)
        if not tracker.report(source, step):
            yield LogEvent(attempt=tracker.attempt, duplicates=1)
            continue
        attempt = tracker.attempt
        printed = float(seconds)
        yield LogEvent(
            attempt=attempt,
            step=Step(
                step=step,
                seconds=printed,
                loss=float(loss),
                tokens=None,
                attempt=attempt,
                rank=source or 0,
                framework_seconds=printed,
                framework_tflops_per_device=float(tflops),
                framework_tokens_per_second_per_device=None if tokens is None else float(tokens),
            ),
        )


def _careful_event(window: _Window, found: int, tracker: AttemptTracker) -> LogEvent:
    try:
        report = _read_report(window, found)
    except _UnreadableError as error:
        skipped = SkippedLine(line=window.line_number(found), reason=str(error))
        return LogEvent(attempt=tracker.attempt, skipped=skipped)
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
    )
    return LogEvent(attempt=tracker.attempt, step=step, duplicates=report.reports - 1)


def _read_report(window: _Window, found: int) -> _Report:
    text, cut = _text_of_line(window, found)
    repeated = RAY_REPEATED.search(text)
    if repeated:
        text = text[: repeated.start()]
        cut = ""
    fields = _Fields(text, cut)
    at_profiler = text.startswith(STEP_LINE_BEGINS[1])
    return _Report(
        step=fields.step_number(),
        rank=_rank(window, found),
        seconds=None if at_profiler else fields.seconds(),
        loss=fields.loss(),
        tflops_per_device=fields.optional(b"TFLOP/s/device", b"TFLOP/s"),
        tokens_per_second_per_device=fields.optional(b"Tokens/s/device", b"Tokens/s"),
        excluded_because=PROFILER if at_profiler else _rampup(window, found),
        reports=max(1, int(repeated[1])) if repeated else 1,
    )


def _text_of_line(window: _Window, found: int) -> tuple[bytes, str]:
    """The line from the word on, without colours, and why its end is no end of line ('' where it is one)."""
    text = window.text[found : found + LOOKAHEAD]
    ends = [e for e in (text.find(b"\n"), text.find(b"\r")) if e >= 0]
    cut = "" if ends else "truncated"
    if ends:
        text = text[: min(ends)]
    others = [e for e in (text.find(begin, 1) for begin in STEP_LINE_BEGINS) if e >= 0]
    if others:
        text, cut = text[: min(others)], "mingled with another writer's line"
    return (ANSI.sub(b"", text) if b"\x1b" in text else text), cut


def _rank(window: _Window, position: int) -> int | None:
    """The rank the line is labelled with. Ray's pid and torchrun's [default0] name none: a restart changes
    the one, and every node has the other."""
    label = RANK.match(ANSI.sub(b"", window.line_before(position).replace(b"\0", b"")))
    return int(label[1] or label[2]) if label else None


def _rampup(window: _Window, found: int) -> str | None:
    return RAMPUP if window.text.endswith(RAMPUP_MARK, max(0, found - 64), found) else None


class _Fields:
    """The comma-separated `name: value` of a step line. Each value is proved whole before it is believed."""

    def __init__(self, text: bytes, cut: str) -> None:
        self._cut = cut
        head, *parts = text.split(b",")
        self._head = head
        self._values: dict[bytes, bytes] = {}
        for part in parts:
            name, _, value = part.partition(b":")
            self._values.setdefault(name.strip(), value.strip(b" \t"))
        self._last = parts[-1].partition(b":")[0].strip() if parts else b""

    def step_number(self) -> int:
        if not self._values:
            raise _UnreadableError(self._cut or "truncated: nothing after the step")
        number = STEP_NUMBER.match(self._head)
        if number is None:
            raise _UnreadableError(f"no step number: {_shown(self._head)}")
        return int(number[1])

    def seconds(self) -> float:
        seconds = self._number(b"seconds", line_may_end=False)
        if not math.isfinite(seconds) or seconds < 0:
            raise _UnreadableError(f"seconds can't be {_shown(self._values[b'seconds'])}")
        return seconds

    def loss(self) -> float:
        return self._number(b"loss", line_may_end=True)

    def optional(self, *names: bytes) -> float | None:
        """The first of these fields, whatever the vintage calls it."""
        return next((self._number(n, line_may_end=True) for n in names if n in self._values), None)

    def _number(self, name: bytes, *, line_may_end: bool) -> float:
        """The value of a field. `line_may_end`: in some vintage the field is the last of its line."""
        if name not in self._values:
            raise _UnreadableError(self._cut or f"truncated: no {name.decode()}")
        value = self._values[name]
        is_last = name == self._last
        number = NUMBER.match(value)
        rest = value[number.end() :] if number else value
        if number is None or not (rest == b"" or (is_last and rest[0] in MAY_FOLLOW_THE_LINE)):
            reason = f"{name.decode()} is not a number: {_shown(value)}"
            raise _UnreadableError((is_last and self._cut) or reason)
        may_be_cut = is_last and not rest and (self._cut or not line_may_end)
        if may_be_cut and not _has_all_decimals(value):
            raise _UnreadableError(self._cut or f"truncated: the line ends in {name.decode()}")
        return float(number[0])


def _has_all_decimals(number: bytes) -> bool:
    return len(number.partition(b".")[2]) >= PRINTED_DECIMALS or number[-1:].isalpha()


def _shown(text: bytes) -> str:
    return repr(text.strip()[:40].decode(errors="backslashreplace"))
