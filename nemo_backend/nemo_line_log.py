"""The format `nemo`: what NeMo 2.x prints for a training step, one line each (its ProgressPrinter).

    Training epoch 0, iteration 1/9 | lr: 0.003 | global_step: 1 | reduced_train_loss: 5.868 | ...

Every value has 4 significant digits, a whole number all of its digits; the steps count from 0. Printed every
n steps, a line is the mean of those n and is kept under the step it was printed at.
"""

import math
import re
from collections.abc import Iterator

from benchmarks.backend import LogEvent
from benchmarks.logs.log_stream import (
    GRADIENT_NOT_FINITE,
    NOT_FINITE,
    LineReader,
    StartLine,
    StepReport,
    StreamedFormat,
    UnreadableError,
    Window,
    number_of,
    shown,
    whole_number_of,
    without_colours,
    without_repeats,
)
from benchmarks.values import Step

WORD = b"Training epoch "
# Printed by rank 0 alone, which prints the steps too: the first by Lightning for each Trainer, the second
# when a job of several processes joins.
START_LINES = (
    StartLine(b"GPU available: ", rb"GPU available: (?:True|False)\b.{0,40}, used: ", of_the_job=True),
    StartLine(b"GLOBAL_RANK: 0, ", rb"GLOBAL_RANK: 0, MEMBER: 1/\d+", of_the_job=True),
)
SIGNIFICANT_DIGITS = 4

LOSS = b"reduced_train_loss"
SECONDS = b"train_step_timing in s"
GLOBAL_STEP = b"global_step"
TFLOPS = b"TFLOPS_per_GPU"
TOKENS = b"tokens_per_sec_per_gpu"
BATCH = b"global_batch_size"
GRADIENT_NORM = b"grad_norm"

# --- the quick path: the usual line, whole, with a rank or without ------------------------------
_NUMBER = rb"[0-9.e+-]{1,24}"
_FLOAT = rb"([0-9]{1,9}(?:\.[0-9]{1,9})?)"


def _optional(*names: bytes) -> bytes:
    """Fields that may be absent, each once: one that stands twice is for the careful path."""
    return b"".join(rb"(?: \| " + name + b": " + _NUMBER + b")?" for name in names)


QUICK_RUN = re.compile(
    rb"(?:([0-9]{1,7}): )?Training epoch [0-9]{1,9}, iteration [0-9]{1,15}/[0-9]{1,15}"
    + _optional(b"lr")
    + rb"(?: \| global_batch_size: ([0-9]{1,15}))?"
    + rb" \| global_step: ([0-9]{1,15})"
    + _optional(b"peak_memory_usage", b"memory_allocated", b"max_memory_reserved")
    + rb" \| reduced_train_loss: "
    + _FLOAT
    + rb" \| train_step_timing in s: "
    + _FLOAT
    + _optional(b"consumed_samples", b"val_loss")
    + rb"\r?\n|"  # the empty alternative makes finditer give line after line
)

# --- the careful path ---------------------------------------------------------------------------
HEAD = re.compile(rb"Training epoch (\d{1,9}), iteration (\d{1,15})/(?:\d{1,15}|inf|nan)$")
BEGINS = re.compile(rb"Training epoch \d+, iter")
AFTER_THE_LINE = re.compile(rb"[\s\"'}\\].*$", re.DOTALL)  # a blank, or the end of a JSON string, and what follows
RECOGNISED = re.compile(rb"Training epoch \d+, iteration \d+/\S{1,15} \| [^\r\n]{1,400}" + SECONDS)


class NemoLog(StreamedFormat):
    """The format `nemo`: see the top of this file."""

    name = "nemo"

    def seconds_resolution(self, seconds: float) -> float:
        return last_digit(seconds, SIGNIFICANT_DIGITS)

    def rate_resolution(self, rate: float) -> float:
        return last_digit(rate, SIGNIFICANT_DIGITS)

    def recognises(self, head: bytes) -> bool:
        return RECOGNISED.search(without_colours(head)) is not None

    def reader(self) -> LineReader:
        return _NemoReader()


def last_digit(value: float, significant_digits: int) -> float:
    """What the last of so many digits is worth in a value."""
    if not value or not math.isfinite(value):
        return 0.0
    exponent = math.floor(math.log10(abs(value))) - significant_digits + 1
    return float(f"1e{exponent}")  # 10.0**-4 is not 0.0001


class _NemoReader(LineReader):
    word = WORD
    start_lines = START_LINES

    def quick_events(self, window: Window) -> Iterator[LogEvent]:
        tracker = self.tracker
        for line in QUICK_RUN.finditer(window.text, window.start):
            rank, batch, number, loss, seconds = line.groups()
            if number is None:  # the empty alternative
                window.start = line.end()
                return
            step = int(number)
            source = None if rank is None else int(rank)
            if not tracker.report(source, step):
                yield LogEvent(attempt=tracker.attempt, duplicates=1)
                continue
            printed = float(seconds)
            yield LogEvent(
                attempt=tracker.attempt,
                step=Step(
                    step=step,
                    seconds=printed,
                    loss=float(loss),
                    tokens=None,
                    attempt=tracker.attempt,
                    rank=source or 0,
                    framework_seconds=printed,
                    framework_global_batch_size=None if batch is None else int(batch),
                ),
            )

    def is_step(self, window: Window, found: int) -> bool:
        head = window.text[found : found + 200]
        return BEGINS.match(without_colours(head)) is not None

    def report(self, window: Window, found: int) -> StepReport:
        text, cut = window.line_from(found, (WORD,))
        text, repeats = without_repeats(text)
        fields = _Fields(text, "" if repeats else cut)
        return StepReport(
            step=fields.step_number(),
            rank=window.rank(found),
            seconds=fields.seconds(),
            loss=fields.number(LOSS),
            tflops_per_device=fields.optional(TFLOPS),
            tokens_per_second_per_device=fields.optional(TOKENS),
            global_batch_size=whole_number_of(fields.as_printed(BATCH)),
            excluded_because=fields.excluded_because(),
            reports=repeats or 1,
        )


class _Fields:
    """The ` | name: value` of a step line. A value is whole where another field or the line's end follows."""

    def __init__(self, text: bytes, cut: str) -> None:
        self._cut = cut
        self._head, *parts = text.split(b" | ")
        pairs = [(name.strip(), value.strip(b" \t")) for name, _, value in (part.partition(b":") for part in parts)]
        self._values = dict(pairs)
        self._twice = next((name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i])), None)
        self._last = pairs[-1][0] if pairs else b""

    def step_number(self) -> int:
        head = HEAD.match(self._head)
        if head is None:
            raise UnreadableError(self._cut or f"no iteration: {shown(self._head)}")
        if self._twice is not None:
            raise UnreadableError(f"mingled: {self._twice.decode(errors='backslashreplace')} stands twice")
        if GLOBAL_STEP in self._values:
            value = self._value(GLOBAL_STEP)
            if not re.fullmatch(rb"\d{1,15}", value):
                raise UnreadableError(f"global_step is not a whole number: {shown(value)}")
            return int(value)
        if int(head[1]):  # the iteration begins again with each epoch
            raise UnreadableError(self._cut or f"no global_step, which epoch {int(head[1])} needs")
        return int(head[2])

    def seconds(self) -> float:
        seconds = self.number(SECONDS)
        if not math.isfinite(seconds) or seconds < 0:
            raise UnreadableError(f"seconds can't be {shown(self._values[SECONDS])}")
        return seconds

    def number(self, name: bytes) -> float:
        return number_of(name, self._value(name))

    def optional(self, name: bytes) -> float | None:
        return self.number(name) if name in self._values else None

    def excluded_because(self) -> str | None:
        return GRADIENT_NOT_FINITE if NOT_FINITE.fullmatch(self.as_printed(GRADIENT_NORM) or b"") else None

    def as_printed(self, name: bytes) -> bytes | None:
        """A field that a step can do without: None where it is absent or not whole."""
        if name not in self._values or (name == self._last and self._cut):
            return None
        return self._value(name)

    def _value(self, name: bytes) -> bytes:
        if name not in self._values:
            raise UnreadableError(self._cut or f"truncated: no {name.decode()}")
        if name != self._last:
            return self._values[name]
        if self._cut:
            raise UnreadableError(self._cut)
        return AFTER_THE_LINE.sub(b"", self._values[name])
