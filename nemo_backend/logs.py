"""The log formats of NeMo 2.x and Megatron, and functions that read a log or follow it while it grows."""

import contextlib
import math
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.backend import LogFormat
from benchmarks.reading.log_stream import (
    GRADIENT_NOT_FINITE,
    LOOKBEHIND,
    Fields,
    LineFormat,
    StartLine,
    StepReport,
    Window,
    number_of,
    shown,
    without_colours,
)
from benchmarks.values import Step

# --- NeMo 2.x -------------------------------------------------------------------------------------

# Only rank 0 prints these lines, and it also prints the steps. Lightning prints the first line for each Trainer,
# and the second when a job with several processes starts.
NEMO_START_LINES = (
    StartLine(b"GPU available: ", rb"GPU available: (?:True|False)\b.{0,40}, used: ", of_the_job=True),
    StartLine(b"GLOBAL_RANK: 0, ", rb"GLOBAL_RANK: 0, MEMBER: 1/\d+", of_the_job=True),
)
SIGNIFICANT_DIGITS = 4
NEMO_SECONDS = b"train_step_timing in s"
NEMO_HEAD = re.compile(rb"Training epoch \d{1,9}, iteration \d{1,15}/(?:\d{1,15}|inf|nan)$")
NEMO_RECOGNISED = re.compile(rb"Training epoch \d+, iteration \d+/\S{1,15} \| [^\r\n]{1,400}" + NEMO_SECONDS)


class NemoLog(LineFormat):
    """The format `nemo`: the line that the ProgressPrinter of NeMo 2.x prints for each training step.

        Training epoch 0, iteration 1/9 | lr: 0.003 | global_step: 1 | reduced_train_loss: 5.868 | ...

    NeMo prints whole numbers in full and other values with 4 significant digits. Steps count from 0. If NeMo prints a
    line only every n steps, its time is the mean of n steps, and Stepmark reads the line as one step.
    """

    name = "nemo"
    word = b"Training epoch "
    begins = re.compile(rb"Training epoch \d+, iter")
    start_lines = NEMO_START_LINES
    seconds_are = "the mean of the steps since the previous line (log_every_n_steps)"

    def seconds_resolution(self, seconds: float) -> float:
        return last_digit(seconds, SIGNIFICANT_DIGITS)

    def rate_resolution(self, rate: float) -> float:
        return last_digit(rate, SIGNIFICANT_DIGITS)

    def recognises(self, head: bytes) -> bool:
        return NEMO_RECOGNISED.search(without_colours(head)) is not None

    def report(self, window: Window, found: int) -> StepReport:
        text, cut = window.line_from(found, self.begins)
        fields = Fields(text, cut, b" | ")
        return StepReport(
            step=_nemo_step(fields),
            rank=window.rank(found),
            seconds=fields.time(NEMO_SECONDS),
            loss=fields.number(b"reduced_train_loss"),
            tflops_per_device=fields.optional(b"TFLOPS_per_GPU"),
            tokens_per_second_per_device=fields.optional(b"tokens_per_sec_per_gpu"),
            global_batch_size=fields.whole_number(b"global_batch_size"),
            excluded_because=GRADIENT_NOT_FINITE if fields.is_not_finite(b"grad_norm") else None,
        )


def last_digit(value: float, significant_digits: int) -> float:
    """Return the value of one unit in the last significant digit, such as 0.01 for 3.25."""
    if not value or not math.isfinite(value):
        return 0.0
    exponent = math.floor(math.log10(abs(value))) - significant_digits + 1
    return float(f"1e{exponent}")  # 10.0**-4 is not 0.0001


def _nemo_step(fields: Fields) -> int:
    if NEMO_HEAD.match(fields.head) is None:
        fields.refuse(f"no iteration: {shown(fields.head)}")
    fields.refuse_twice()
    number = fields.whole_number(b"global_step")
    if number is None:
        fields.refuse("global_step is not a whole number")
    return number


# --- Megatron -------------------------------------------------------------------------------------

# Rank 0 prints these lines, and the last rank prints the steps, so each line marks a start of the whole job.
MEGATRON_START_LINES = (
    StartLine(b"using world size: ", rb"using world size: \d+[, ]", of_the_job=True),
    StartLine(b"> initializing torch distributed ...", rb"> initializing", of_the_job=True),
    StartLine(b"[before the start of training step] datetime:", rb"\[before", of_the_job=True),
)
MS_RESOLUTION_SECONDS = 0.0001  # {:.1f} ms
TFLOPS_RESOLUTION = 0.1  # {:.1f}

MILLISECONDS = b"elapsed time per iteration (ms)"
NAN = b"number of nan iterations"  # the last field of a line
SKIPPED_ITERATION = "skipped iteration"
NAN_ITERATION = "nan iteration"

HEAD = re.compile(rb"iteration +(\d{1,15})/ *\d{1,15} +\|")
# After one of these texts, `iteration` does not begin a step of Megatron: `epoch 0, ` of NeMo, `elapsed time per `
# within a line, or the line of GPT-NeoX (configs/log_formats/gpt-neox.yml).
ANOTHERS = re.compile(rb"(?:,|per) $|samples/sec: [0-9.]{1,20} \| {0,4}$")
RECOGNISED = re.compile(rb"(?<!\d\d\d \| )iteration +\d+/ *\d+ +\| [^\r\n]{0,300}?elapsed time per iteration \(ms\):")


# The names of losses that lm loss excludes. A run has one kind of load balancing; Megatron prints the others as 0.
OTHER_LOSSES = {
    "load_balancing": (b"seq_load_balancing_loss", b"global_load_balancing_loss", b"load_balancing_loss"),
    "mtp": (b"mtp_1 loss",),
}

# Megatron-Bridge prints this on a separate line before the line of the iteration.
BRIDGE_TFLOPS = re.compile(rb"Step Time : [0-9.]{1,20}s GPU utilization: ([0-9.]{1,20}) ?MODEL_TFLOP/s/GPU")


class MegatronLog(LineFormat):
    """The format `megatron`: the line that Megatron-LM and Megatron-Bridge print for each iteration.

         [2026-04-27 00:00:01] iteration        1/       3 | ... | elapsed time per iteration (ms): 4000.0 | ...

    Megatron counts iterations from 1, and steps keep these numbers, so that users can find them in the log. If the
    logging interval is n, the time in a line is the mean of n iterations. Stepmark reads the line as one step with
    the printed number, and does not invent steps for the iterations between. Newer versions print `now/average`, of
    which the first value belongs to this iteration.
    """

    name = "megatron"
    word = b"iteration "
    begins = HEAD
    start_lines = MEGATRON_START_LINES
    seconds_are = "the mean of the iterations since the previous line (log-interval), including data loading"

    def seconds_resolution(self, seconds: float) -> float:  # noqa: ARG002 - one decimal of a ms for any value
        return MS_RESOLUTION_SECONDS

    def rate_resolution(self, rate: float) -> float:  # noqa: ARG002
        return TFLOPS_RESOLUTION

    def recognises(self, head: bytes) -> bool:
        text = without_colours(head)
        return MILLISECONDS in text and RECOGNISED.search(text) is not None

    def is_step(self, window: Window, found: int) -> bool:
        before = window.text[max(0, found - 40) : found]
        return super().is_step(window, found) and ANOTHERS.search(without_colours(before)) is None

    def report(self, window: Window, found: int) -> StepReport:
        text, cut = window.line_from(found, self.begins)
        fields = Fields(text, cut, b"|", closed=True)
        return StepReport(
            step=_megatron_step(fields),
            rank=window.rank(found),
            seconds=round(fields.time(MILLISECONDS) / 1000, 9),  # 821.7 ms are 0.8217 s, not 0.8217000000000001
            loss=_loss(fields),
            tflops_per_device=fields.optional(b"throughput per GPU (TFLOP/s/GPU)", b"TFLOPs")
            or _tflops_before(window, found),
            tokens_per_second_per_device=fields.optional(
                b"tokens per GPU (tokens/s/GPU)", b"tokens per gpu per second (tgs)"
            ),
            rates={} if (rate := fields.optional(b"samples per second")) is None else {"samples_per_second": rate},
            global_batch_size=fields.whole_number(b"global batch size"),
            excluded_because=_excluded_because(fields),
            other_losses={
                name: loss for name, words in OTHER_LOSSES.items() if (loss := fields.optional(*words)) is not None
            },
        )


def _tflops_before(window: Window, found: int) -> float | None:
    """Return the TFLOP/s from Megatron-Bridge's separate line, if that line belongs to this iteration."""
    before = without_colours(window.text[max(0, found - LOOKBEHIND) : found]).rpartition(MILLISECONDS)[2]
    printed = BRIDGE_TFLOPS.findall(before)
    return number_of(b"MODEL_TFLOP/s/GPU", printed[-1]) if printed else None


def _megatron_step(fields: Fields) -> int:
    number = HEAD.match(fields.head + b"|")
    if number is None:
        fields.refuse(f"no iteration number: {shown(fields.head)}")
    fields.refuse_twice()
    if NAN not in fields and not fields.ends_whole():
        fields.refuse(f"truncated: no {NAN.decode()}")
    return int(number[1])


def _loss(fields: Fields) -> float | None:
    """Return the loss; None if a complete line has no loss, because the loss was not finite or was not counted."""
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


# --- reading --------------------------------------------------------------------------------------

MEGATRON = MegatronLog()
LOG_FORMATS: tuple[LogFormat, ...] = (NemoLog(), MEGATRON)


def read_log(path: Path, log_format: LogFormat, attempt: int) -> tuple[list[Step], list[str]]:
    """Return the steps of a log, assigned to rank 0, and the lines that could not be read.

    If the job restarted within the log, the steps after the restart belong to the next attempt.
    """
    steps: list[Step] = []
    unreadable: list[str] = []
    with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
        for event in log_format.read(stream):
            if event.step is not None:
                steps.append(msgspec.structs.replace(event.step, attempt=attempt - 1 + event.step.attempt, rank=0))
            if event.skipped is not None:
                unreadable.append(f"{path.name}:{event.skipped.line} {event.skipped.reason}")
    return steps, unreadable


def follow_log(path: Path, log_format: LogFormat, attempt: int) -> Callable[[], list[Step]]:
    """Return a function that returns the steps written since its last call. Each call reads the whole log."""
    given = 0

    def new_steps() -> list[Step]:
        nonlocal given
        steps, _ = read_log(path, log_format, attempt)
        fresh, given = steps[given:], max(given, len(steps))
        return fresh

    return new_steps
