"""Reads the training log of any MaxText, whatever vintage, launcher or log collector wrote it.

What lives here: the lines MaxText prints for a step and at its start. How they are found in a stream
is in benchmarks/logs/log_stream.py, which attempt a step belongs to in benchmarks/logs/ingest.py, for every format.

The seconds are the printed ones. MaxText times from dispatch to dispatch while it waits for an earlier
loss, so what it prints for step k is the true time of step k-2; a foreign log holds nothing better, and
nothing is corrected here.
"""

import math
import re
from collections.abc import Iterator

from benchmarks.backend import LogEvent
from benchmarks.logs.log_stream import (
    NUMBER,
    LineReader,
    StartLine,
    StepReport,
    StreamedFormat,
    UnreadableError,
    Window,
    shown,
    without_colours,
    without_repeats,
)
from benchmarks.values import Step

WORD = b"completed "  # every step line has it, and little else
STEP_LINE_BEGINS = (b"completed step", b"completed profiler activation")
# Printed once by each process before its first step: the first since 2024, the second since 2023.
START_LINES = (
    StartLine(b"System Information: Jax Version: ", rb"System Information: Jax Version: "),
    StartLine(b"Num_devices: ", rb"Num_devices: \d+, shape "),
)

PROFILER = "profiler"  # MaxText prints no seconds for the steps at which its profiler starts and stops
RAMPUP_MARK = b"[Rampup Batch Size Phase], "
RAMPUP = "batch size rampup"  # smaller batches than the run's: not the same work

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
STEP_NUMBER = re.compile(rb"completed (?:step|profiler activation/deactivation step):\s*(\d{1,15})$")
MAY_FOLLOW_THE_LINE = b" \t\"'}\\"  # a blank, or the end of a JSON string

THREE_DECIMALS = 0.001  # {:.3f}: of seconds, TFLOP/s and tokens/s alike
RECOGNISED_WORDS = (WORD, *(start.word for start in START_LINES))  # a search for a word alone takes no time
RECOGNISED = re.compile(
    rb"completed step:\s*\d+,\s*(?:seconds|live slice count):|"
    rb"completed profiler activation/deactivation step:\s*\d+,|"
    + b"|".join(start.line.pattern for start in START_LINES)
)  # fmt: skip


class MaxTextLog(StreamedFormat):
    """The format `maxtext`: see the top of this file."""

    name = "maxtext"

    def seconds_resolution(self, seconds: float) -> float:  # noqa: ARG002
        return THREE_DECIMALS

    def rate_resolution(self, rate: float) -> float:  # noqa: ARG002
        return THREE_DECIMALS

    def recognises(self, head: bytes) -> bool:
        text = without_colours(head)
        return any(word in text for word in RECOGNISED_WORDS) and RECOGNISED.search(text) is not None

    def reader(self) -> LineReader:
        return _MaxTextReader()


class _MaxTextReader(LineReader):
    word = WORD
    start_lines = START_LINES

    def quick_events(self, window: Window) -> Iterator[LogEvent]:
        for run in QUICK_RUNS:
            yield from self._quick_run(run, window)

    def _quick_run(self, run: re.Pattern[bytes], window: Window) -> Iterator[LogEvent]:
        """The events of the lines of one shape."""
        tracker = self.tracker
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

    def is_step(self, window: Window, found: int) -> bool:
        return window.text.startswith(STEP_LINE_BEGINS, found)

    def report(self, window: Window, found: int) -> StepReport:
        text, cut = window.line_from(found, STEP_LINE_BEGINS)
        text, repeats = without_repeats(text)
        fields = _Fields(text, "" if repeats else cut)
        at_profiler = text.startswith(STEP_LINE_BEGINS[1])
        return StepReport(
            step=fields.step_number(),
            rank=window.rank(found),
            seconds=None if at_profiler else fields.seconds(),
            loss=fields.loss(),
            tflops_per_device=fields.optional(b"TFLOP/s/device", b"TFLOP/s"),
            tokens_per_second_per_device=fields.optional(b"Tokens/s/device", b"Tokens/s"),
            excluded_because=PROFILER if at_profiler else _rampup(window, found),
            reports=repeats or 1,
        )


def _rampup(window: Window, found: int) -> str | None:
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
            raise UnreadableError(self._cut or "truncated: nothing after the step")
        number = STEP_NUMBER.match(self._head)
        if number is None:
            raise UnreadableError(f"no step number: {shown(self._head)}")
        return int(number[1])

    def seconds(self) -> float:
        seconds = self._number(b"seconds", line_may_end=False)
        if not math.isfinite(seconds) or seconds < 0:
            raise UnreadableError(f"seconds can't be {shown(self._values[b'seconds'])}")
        return seconds

    def loss(self) -> float:
        return self._number(b"loss", line_may_end=True)

    def optional(self, *names: bytes) -> float | None:
        """The first of these fields, whatever the vintage calls it."""
        return next((self._number(n, line_may_end=True) for n in names if n in self._values), None)

    def _number(self, name: bytes, *, line_may_end: bool) -> float:
        """The value of a field. `line_may_end`: in some vintage the field is the last of its line."""
        if name not in self._values:
            raise UnreadableError(self._cut or f"truncated: no {name.decode()}")
        value = self._values[name]
        is_last = name == self._last
        number = NUMBER.match(value)
        rest = value[number.end() :] if number else value
        if number is None or not (rest == b"" or (is_last and rest[0] in MAY_FOLLOW_THE_LINE)):
            reason = f"{name.decode()} is not a number: {shown(value)}"
            raise UnreadableError((is_last and self._cut) or reason)
        may_be_cut = is_last and not rest and (self._cut or not line_may_end)
        if may_be_cut and not _has_all_decimals(value):
            raise UnreadableError(self._cut or f"truncated: the line ends in {name.decode()}")
        return float(number[0])


def _has_all_decimals(number: bytes) -> bool:
    return len(number.partition(b".")[2]) >= PRINTED_DECIMALS or number[-1:].isalpha()
