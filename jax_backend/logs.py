"""Read the training log of any version of MaxText, from any launcher or log collector.

MaxText prints the time between two dispatches, and waits between them for the loss of an earlier step. So the seconds
printed for step k are the duration of step k-2. Stepmark reports the printed seconds: a log has no other step times.
"""

import re

from benchmarks.reading.log_stream import (
    Fields,
    LineFormat,
    StartLine,
    StepReport,
    UnreadableError,
    Window,
    shown,
    without_colours,
)

# Each process prints both lines before its first step. MaxText prints the first since 2024, the second since 2023.
START_LINES = (
    StartLine(b"System Information: Jax Version: ", rb"System Information: Jax Version: "),
    StartLine(b"Num_devices: ", rb"Num_devices: \d+, shape "),
)
PROFILER = "profiler"  # MaxText prints no seconds for the steps at which its profiler starts and stops
PROFILER_LINE = b"completed profiler"
RAMPUP_MARK = b"[Rampup Batch Size Phase], "
RAMPUP = "batch size rampup"  # the reason to exclude a step whose batch is still smaller than the requested batch

STEP_NUMBER = re.compile(rb"completed (?:step|profiler activation/deactivation step):\s*(\d{1,15})$")
# MaxText's loss includes these terms. Stepmark compares lm_loss, which does not.
OTHER_LOSSES = {"load_balancing": b"moe_lb_loss", "mtp": b"mtp_loss"}
THREE_DECIMALS = 0.001  # MaxText prints seconds, TFLOP/s and tokens/s with {:.3f}
RECOGNISED_WORDS = (b"completed ", *(start.word for start in START_LINES))  # a quick search before the regex
RECOGNISED = re.compile(
    rb"completed step:\s*\d+,\s*(?:seconds|live slice count):|"
    rb"completed profiler activation/deactivation step:\s*\d+,|"
    + b"|".join(start.line.pattern for start in START_LINES)
)  # fmt: skip


class MaxTextLog(LineFormat):
    name = "maxtext"
    word = b"completed "
    begins = re.compile(rb"completed (?:step|profiler activation)")
    start_lines = START_LINES
    seconds_are = "one step, from dispatch to dispatch, including the loading of its data"

    def seconds_resolution(self, seconds: float) -> float:  # noqa: ARG002
        return THREE_DECIMALS

    def rate_resolution(self, rate: float) -> float:  # noqa: ARG002
        return THREE_DECIMALS

    def recognises(self, head: bytes) -> bool:
        text = without_colours(head)
        return any(word in text for word in RECOGNISED_WORDS) and RECOGNISED.search(text) is not None

    def report(self, window: Window, found: int) -> StepReport:
        text, cut = window.line_from(found, self.begins)
        fields = Fields(text, cut, b",")
        at_profiler = text.startswith(PROFILER_LINE)
        ramps_up = window.text.endswith(RAMPUP_MARK, max(0, found - 64), found)
        others: dict[str, float | None] = {
            ours: term for ours, theirs in OTHER_LOSSES.items() if (term := fields.optional(theirs))
        }
        return StepReport(
            step=_step_number(fields),
            rank=window.rank(found),
            seconds=None if at_profiler else fields.time(b"seconds"),
            loss=(others and fields.optional(b"lm_loss")) or fields.number(b"loss"),
            tflops_per_device=fields.optional(b"TFLOP/s/device", b"TFLOP/s"),
            tokens_per_second_per_device=fields.optional(b"Tokens/s/device", b"Tokens/s"),
            excluded_because=PROFILER if at_profiler else RAMPUP if ramps_up else None,
            other_losses=others,
        )


def _step_number(fields: Fields) -> int:
    if fields.is_empty():
        fields.refuse("truncated: nothing after the step")
    number = STEP_NUMBER.match(fields.head)
    if number is None:
        raise UnreadableError(f"no step number: {shown(fields.head)}")
    return int(number[1])
