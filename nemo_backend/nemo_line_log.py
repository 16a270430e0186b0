"""The format `nemo`: what NeMo 2.x prints for a training step, one line each (its ProgressPrinter).

    Training epoch 0, iteration 1/9 | lr: 0.003 | global_step: 1 | reduced_train_loss: 5.868 | ...

Every value has 4 significant digits, a whole number all of its digits; the steps count from 0. Printed every
n steps, a line is the mean of those n and is kept under the step it was printed at.
"""

import math
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

# Printed by rank 0 alone, which prints the steps too: the first by Lightning for each Trainer, the second
# when a job of several processes joins.
START_LINES = (
    StartLine(b"GPU available: ", rb"GPU available: (?:True|False)\b.{0,40}, used: ", of_the_job=True),
    StartLine(b"GLOBAL_RANK: 0, ", rb"GLOBAL_RANK: 0, MEMBER: 1/\d+", of_the_job=True),
)
SIGNIFICANT_DIGITS = 4
SECONDS = b"train_step_timing in s"
GLOBAL_STEP = b"global_step"
HEAD = re.compile(rb"Training epoch (\d{1,9}), iteration (\d{1,15})/(?:\d{1,15}|inf|nan)$")
RECOGNISED = re.compile(rb"Training epoch \d+, iteration \d+/\S{1,15} \| [^\r\n]{1,400}" + SECONDS)


class NemoLog(LineFormat):
    """The format `nemo`: see the top of this file."""

    name = "nemo"
    word = b"Training epoch "
    begins = re.compile(rb"Training epoch \d+, iter")
    start_lines = START_LINES

    def seconds_resolution(self, seconds: float) -> float:
        return last_digit(seconds, SIGNIFICANT_DIGITS)

    def rate_resolution(self, rate: float) -> float:
        return last_digit(rate, SIGNIFICANT_DIGITS)

    def recognises(self, head: bytes) -> bool:
        return RECOGNISED.search(without_colours(head)) is not None

    def report(self, window: Window, found: int) -> StepReport:
        text, cut = window.line_from(found, self.begins)
        fields = Fields(text, cut, b" | ")
        return StepReport(
            step=_step_number(fields),
            rank=window.rank(found),
            seconds=fields.time(SECONDS),
            loss=fields.number(b"reduced_train_loss"),
            tflops_per_device=fields.optional(b"TFLOPS_per_GPU"),
            tokens_per_second_per_device=fields.optional(b"tokens_per_sec_per_gpu"),
            global_batch_size=fields.whole_number(b"global_batch_size"),
            excluded_because=GRADIENT_NOT_FINITE if fields.is_not_finite(b"grad_norm") else None,
            reports=fields.reports,
        )


def last_digit(value: float, significant_digits: int) -> float:
    """What the last of so many digits is worth in a value."""
    if not value or not math.isfinite(value):
        return 0.0
    exponent = math.floor(math.log10(abs(value))) - significant_digits + 1
    return float(f"1e{exponent}")  # 10.0**-4 is not 0.0001


def _step_number(fields: Fields) -> int:
    head = HEAD.match(fields.head)
    if head is None:
        fields.refuse(f"no iteration: {shown(fields.head)}")
    fields.refuse_twice()
    if GLOBAL_STEP in fields:
        number = fields.whole_number(GLOBAL_STEP)
        if number is None:
            fields.refuse(f"{GLOBAL_STEP.decode()} is not a whole number")
        return number
    if int(head[1]):  # the iteration begins again with each epoch
        fields.refuse(f"no global_step, which epoch {int(head[1])} needs")
    return int(head[2])
