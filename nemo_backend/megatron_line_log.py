"""The format `megatron`: what Megatron-LM and Megatron-Bridge print for an iteration, one line each.

     [2026-04-27 00:00:01] iteration        1/       3 | ... | elapsed time per iteration (ms): 4000.0 | ...

Iterations count from 1 and keep their printed numbers: a user greps them. Where the logging interval is n, a
line stands for n iterations: its time is their mean, and it is kept as one step, under the iteration it was
printed at. So a window holds as many values as the log has lines, and none is made up for the iterations
between. A newer line prints `now/average`; the first is this iteration's.
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

WORD = b"iteration "
# Rank 0 prints these once, the last rank prints the steps: so each is the whole job's.
START_LINES = (
    StartLine(b"using world size: ", rb"using world size: \d+[, ]", of_the_job=True),
    StartLine(b"> initializing torch distributed ...", rb"> initializing", of_the_job=True),
    StartLine(b"[before the start of training step] datetime:", rb"\[before", of_the_job=True),
)
MS_RESOLUTION_SECONDS = 0.0001  # {:.1f} ms; Megatron-DeepSpeed prints {:.4f} s
TFLOPS_RESOLUTION = 0.1  # {:.1f}

MILLISECONDS = b"elapsed time per iteration (ms)"
SECONDS = b"elapsed time per iteration (s)"  # Megatron-DeepSpeed
LOSSES = (b"lm loss", b"loss")
TFLOPS = b"throughput per GPU (TFLOP/s/GPU)"
TOKENS = b"tokens per GPU (tokens/s/GPU)"
SKIPPED = b"number of skipped iterations"
BATCH = b"global batch size"
GRADIENT_NORM = b"grad norm"
NAN = b"number of nan iterations"
SKIPPED_ITERATION = "skipped iteration"
NAN_ITERATION = "nan iteration"

# --- the quick path: the usual line of a healthy iteration, with a rank or without ---------------
_FLOAT = rb"([0-9]{1,12}\.[0-9]{1,9})"
_OTHER = rb"[0-9.]{1,24}(?:E[+-][0-9]{1,3})?"
QUICK_RUN = re.compile(
    rb"(?:([0-9]{1,7}): )? ?(?:\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{8,15}\] )?"
    rb"iteration {1,15}([0-9]{1,15})/ {0,15}[0-9]{1,15} \| consumed samples: {1,20}[0-9]{1,20} \|"
    rb" elapsed time per iteration \(ms\): " + _FLOAT + rb"(?:/" + _OTHER + rb")? \|"
    rb"(?: throughput per GPU \(TFLOP/s/GPU\): " + _FLOAT + rb"(?:/" + _OTHER + rb")? \|)?"
    rb" learning rate: " + _OTHER + rb" \| global batch size: {1,9}([0-9]{1,9}) \|"
    rb" lm loss: ([0-9]\.[0-9]{6}E[+-][0-9]{2}) \|"
    rb"(?: load_balancing_loss: " + _OTHER + rb" \|)? loss scale: " + _OTHER + rb" \|"
    rb"(?: grad norm: " + _OTHER + rb" \|)?(?: num zeros: " + _OTHER + rb" \|)?(?: params norm: " + _OTHER + rb" \|)?"
    rb" number of skipped iterations: {3}0 \| number of nan iterations: {3}0 \|\r?\n|"
)  # fmt: skip

# --- the careful path ---------------------------------------------------------------------------
HEAD = re.compile(rb"iteration +(\d{1,15})/ *\d{1,15} +\|")
ANOTHERS = re.compile(rb"(?:,|per) $")  # NeMo's `Training epoch 0, iteration 1/9 |`, and the time's own name
RECOGNISED_WORD = b"elapsed time per iteration ("  # a search for a word alone takes no time
RECOGNISED = re.compile(rb"iteration +\d+/ *\d+ +\| [^\r\n]{0,300}?elapsed time per iteration \(m?s\):")


class MegatronLog(StreamedFormat):
    """The format `megatron`: see the top of this file."""

    name = "megatron"

    def seconds_resolution(self, seconds: float) -> float:  # noqa: ARG002 - one decimal of a ms, whatever the value
        return MS_RESOLUTION_SECONDS

    def rate_resolution(self, rate: float) -> float:  # noqa: ARG002
        return TFLOPS_RESOLUTION

    def recognises(self, head: bytes) -> bool:
        text = without_colours(head)
        return RECOGNISED_WORD in text and RECOGNISED.search(text) is not None

    def reader(self) -> LineReader:
        return _MegatronReader()


def _seconds(milliseconds: float) -> float:
    return round(milliseconds / 1000, 9)  # 821.7 ms are 0.8217 s, not 0.8217000000000001


class _MegatronReader(LineReader):
    word = WORD
    start_lines = START_LINES

    def quick_events(self, window: Window) -> Iterator[LogEvent]:
        tracker = self.tracker
        for line in QUICK_RUN.finditer(window.text, window.start):
            rank, number, milliseconds, tflops, batch, loss = line.groups()
            if number is None:  # the empty alternative
                window.start = line.end()
                return
            step = int(number)
            source = None if rank is None else int(rank)
            if not tracker.report(source, step):
                yield LogEvent(attempt=tracker.attempt, duplicates=1)
                continue
            printed = _seconds(float(milliseconds))
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
                    framework_tflops_per_device=None if tflops is None else float(tflops),
                    framework_global_batch_size=int(batch),
                ),
            )

    def is_step(self, window: Window, found: int) -> bool:
        text = window.text
        if HEAD.match(without_colours(text[found : found + 200])) is None:
            return False
        return ANOTHERS.search(without_colours(text[max(0, found - 40) : found])) is None

    def report(self, window: Window, found: int) -> StepReport:
        text, cut = window.line_from(found, ())
        text, cut = _before_another(text, cut)
        text, repeats = without_repeats(text)
        fields = _Fields(text, "" if repeats else cut)
        return StepReport(
            step=fields.step_number(),
            rank=window.rank(found),
            seconds=fields.seconds(),
            loss=fields.loss(),
            tflops_per_device=fields.optional(TFLOPS),
            tokens_per_second_per_device=fields.optional(TOKENS),
            global_batch_size=fields.global_batch_size(),
            excluded_because=fields.excluded_because(),
            reports=repeats or 1,
        )


def _before_another(text: bytes, cut: str) -> tuple[bytes, str]:
    """The text up to where another writer's report begins, if one does."""
    other = HEAD.search(text, len(WORD))
    return (text[: other.start()], "mingled with another writer's line") if other else (text, cut)


class _Fields:
    """The ` name: value |` of a step line. A value is whole where its bar follows, a line where its last field is."""

    def __init__(self, text: bytes, cut: str) -> None:
        self._cut = cut
        head, *parts = text.split(b"|")
        self._head = head + b"|"
        self._rest = parts.pop() if parts else b""  # what no bar ends: nothing, in a whole line
        self._values: dict[bytes, bytes] = {}
        self._twice: bytes | None = None
        for part in parts:
            name, _, value = part.partition(b":")
            if name.strip() in self._values:
                self._twice = name.strip()
            self._values[name.strip()] = value.strip()

    def step_number(self) -> int:
        number = HEAD.match(self._head)
        if number is None:
            raise UnreadableError(f"no iteration number: {shown(self._head)}")
        if self._twice is not None:
            raise UnreadableError(f"mingled: {self._twice.decode(errors='backslashreplace')} stands twice")
        if NAN not in self._values and (self._cut or self._rest.strip(b" \t\"'}\\")):
            raise UnreadableError(self._cut or f"truncated: no {NAN.decode()}")
        return int(number[1])

    def seconds(self) -> float:
        unit = SECONDS if SECONDS in self._values else MILLISECONDS
        printed = self._now(unit)
        if not math.isfinite(printed) or printed < 0:
            raise UnreadableError(f"the time can't be {shown(self._values[unit])}")
        return printed if unit is SECONDS else _seconds(printed)

    def loss(self) -> float | None:
        """None: the line is whole and names none, as Megatron does where it is not finite or was not counted."""
        name = next((n for n in LOSSES if n in self._values), None)
        if name is None and NAN not in self._values:
            raise UnreadableError("truncated: no lm loss")
        return None if name is None else number_of(name, self._values[name])

    def excluded_because(self) -> str | None:
        if self.optional(NAN):
            return NAN_ITERATION
        if self.optional(SKIPPED):
            return SKIPPED_ITERATION
        norm = self._values.get(GRADIENT_NORM, b"").partition(b"/")[0]
        return GRADIENT_NOT_FINITE if NOT_FINITE.fullmatch(norm) else None

    def global_batch_size(self) -> int | None:
        return whole_number_of(self._values.get(BATCH))

    def optional(self, name: bytes) -> float | None:
        return self._now(name) if name in self._values else None

    def _now(self, name: bytes) -> float:
        if name not in self._values:
            raise UnreadableError(self._cut or f"truncated: no {name.decode()}")
        now, slash, average = self._values[name].partition(b"/")
        if slash:
            number_of(name, average)  # half a pair is no pair
        return number_of(name, now)
