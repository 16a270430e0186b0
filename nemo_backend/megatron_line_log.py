"""The format `megatron`: what Megatron-LM and Megatron-Bridge print for an iteration, one line each.

     [2026-04-27 00:00:01] iteration        1/       3 | ... | elapsed time per iteration (ms): 4000.0 | ...

Iterations count from 1 and keep their printed numbers: a user greps them. Where the logging interval is n, a
line stands for n iterations: its time is their mean, and it is kept as one step, under the iteration it was
printed at. So a window holds as many values as the log has lines, and none is made up for the iterations
between. A newer line prints `now/average`; the first is this iteration's.
"""

import re

from benchmarks.logs.log_stream import (
    GRADIENT_NOT_FINITE,
    Fields,
    LineFormat,
    StartLine,
    StepReport,
    Window,
    shown,
    without_colours,
)

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
NAN = b"number of nan iterations"  # the last field of a line
SKIPPED_ITERATION = "skipped iteration"
NAN_ITERATION = "nan iteration"

HEAD = re.compile(rb"iteration +(\d{1,15})/ *\d{1,15} +\|")
ANOTHERS = re.compile(rb"(?:,|per) $")  # NeMo's `Training epoch 0, iteration 1/9 |`, and the time's own name
RECOGNISED_WORD = b"elapsed time per iteration ("  # a search for a word alone takes no time
RECOGNISED = re.compile(rb"iteration +\d+/ *\d+ +\| [^\r\n]{0,300}?elapsed time per iteration \(m?s\):")


class MegatronLog(LineFormat):
    """The format `megatron`: see the top of this file."""

    name = "megatron"
    word = b"iteration "
    begins = HEAD
    start_lines = START_LINES

    def seconds_resolution(self, seconds: float) -> float:  # noqa: ARG002 - one decimal of a ms, whatever the value
        return MS_RESOLUTION_SECONDS

    def rate_resolution(self, rate: float) -> float:  # noqa: ARG002
        return TFLOPS_RESOLUTION

    def recognises(self, head: bytes) -> bool:
        text = without_colours(head)
        return RECOGNISED_WORD in text and RECOGNISED.search(text) is not None

    def is_step(self, window: Window, found: int) -> bool:
        before = window.text[max(0, found - 40) : found]
        return super().is_step(window, found) and ANOTHERS.search(without_colours(before)) is None

    def report(self, window: Window, found: int) -> StepReport:
        text, cut = window.line_from(found, self.begins)
        fields = Fields(text, cut, b"|", closed=True)
        return StepReport(
            step=_step_number(fields),
            rank=window.rank(found),
            seconds=_seconds(fields),
            loss=_loss(fields),
            tflops_per_device=fields.optional(b"throughput per GPU (TFLOP/s/GPU)"),
            tokens_per_second_per_device=fields.optional(b"tokens per GPU (tokens/s/GPU)"),
            global_batch_size=fields.whole_number(b"global batch size"),
            excluded_because=_excluded_because(fields),
            reports=fields.reports,
        )


def _step_number(fields: Fields) -> int:
    number = HEAD.match(fields.head + b"|")
    if number is None:
        fields.refuse(f"no iteration number: {shown(fields.head)}")
    fields.refuse_twice()
    if NAN not in fields and not fields.ends_whole():
        fields.refuse(f"truncated: no {NAN.decode()}")
    return int(number[1])


def _seconds(fields: Fields) -> float:
    if SECONDS in fields:
        return fields.time(SECONDS)
    return round(fields.time(MILLISECONDS) / 1000, 9)  # 821.7 ms are 0.8217 s, not 0.8217000000000001


def _loss(fields: Fields) -> float | None:
    """None: the line is whole and names none, as Megatron does where it is not finite or was not counted."""
    loss = fields.optional(b"lm loss", b"loss")
    if loss is None and NAN not in fields:
        fields.refuse("truncated: no lm loss")
    return loss


def _excluded_because(fields: Fields) -> str | None:
    if fields.optional(NAN):
        return NAN_ITERATION
    if fields.optional(b"number of skipped iterations"):
        return SKIPPED_ITERATION
    return GRADIENT_NOT_FINITE if fields.is_not_finite(b"grad norm") else None
