"""The format `nemo-bar`: the progress bar of NeMo 24.09 and its kin (Lightning on tqdm), painted over itself.

    Epoch 0: : 100%|██████████| 100/100 [20:15<00:00, reduced_train_loss=6.370, global_step=99.00, ...]

One physical line holds hundreds of paints between carriage returns; no more of it is held than a window. Only the
first rank paints.

A bar is painted when its counter moves, and again when its metrics change (24.09), or not (2.x); then a paint has the
metrics of the step before. So metrics are believed by their global_step, and a step is its last paint. global_step is
printed with 3 digits where that is shorter (`1e+3`, all from 100,000 on); such a paint cannot be read.

The seconds are the printed ones, with 3 significant digits. Where the timer is stopped after the bar is
painted (NeMo 24.09 adds its timer last) they are those of the step before: the first step has none, and the
second, which has the first one's, is left out.
"""

import re
from collections.abc import Iterator

import msgspec

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.reading.log_stream import (
    LogReader,
    Starts,
    StepReport,
    StreamedFormat,
    UnreadableError,
    Window,
    can_be_a_time,
    event_of,
    number_of,
    shown,
    without_colours,
)
from nemo_backend.line_logs import NEMO_START_LINES, last_digit

WORD = b"Epoch "
SIGNIFICANT_DIGITS = 3  # tqdm's {:.3g}; Lightning pads it with zeros to 5 characters, which say nothing
FIRST_STEPS_TIME = "the first step's time"

_COUNT = rb"[0-9]{1,15}|[0-9.]{1,15}[kMGTP]"
PAINT = re.compile(
    rb"Epoch [0-9]{1,9}:(?: ?:)? {1,4}"
    rb"(?:[0-9]{1,3}%\|[^|\r\n]{0,400}\| {0,4}(?:" + _COUNT + rb")/(?:" + _COUNT + rb"|\?)|(?:" + _COUNT + rb")it)"
    rb" \[[^\[\]|\r\n,]{0,60}((?:, [^\[\]|\r\n,]{0,200})*)\]"
)  # fmt: skip
BEGINS = re.compile(rb"Epoch [0-9]+:(?: ?:)? {1,4}(?:[0-9]{1,3}%\||[0-9.]+[kMGTP]?it \[)")
FIELDS = re.compile(
    rb", (reduced_train_loss|global_step|train_step_timing in s|TFLOPS_per_GPU|global_batch_size|consumed_samples)"
    rb"=([^,]*)"
)
LOSS, GLOBAL_STEP = b"reduced_train_loss", b"global_step"
BATCH, SAMPLES = b"global_batch_size", b"consumed_samples"
SECONDS, TFLOPS = b"train_step_timing in s", b"TFLOPS_per_GPU"
EXACT = re.compile(rb"[0-9]{1,15}(?:\.0*)?")


class NemoBarLog(StreamedFormat):
    """The format `nemo-bar`: see the top of this file."""

    name = "nemo-bar"
    seconds_are = "one step"
    no_seconds = "the bar shows no train_step_timing for it"

    def seconds_resolution(self, seconds: float) -> float:
        return last_digit(seconds, SIGNIFICANT_DIGITS)

    def rate_resolution(self, rate: float) -> float:
        return last_digit(rate, SIGNIFICANT_DIGITS)

    def recognises(self, head: bytes) -> bool:
        paints = PAINT.finditer(without_colours(head))
        return any(name in paint[1] for paint in paints for name in (SECONDS, LOSS + b"="))

    def reader(self) -> LogReader:
        return _BarReader()


class _BarReader(LogReader):
    """Paints come in lines of any length, so they are found by themselves and not by their lines."""

    def __init__(self) -> None:
        super().__init__()
        self._forget()

    def _forget(self) -> None:
        self._metrics = b""  # painted last
        self._waiting: StepReport | None = None  # the step that may be painted again
        self._was_untimed = False  # the step before it
        self._samples: list[tuple[int, int]] = []  # of the last two steps that printed how many were consumed

    def read_window(self, window: Window) -> Iterator[LogEvent]:
        starts = Starts(window, NEMO_START_LINES, self.tracker)
        while (found := window.text.find(WORD, window.start, window.end + len(WORD) - 1)) >= 0:
            yield from self._pass_starts(starts, found)
            yield from self._paint(window, found)
            window.start = found + len(WORD)
        yield from self._pass_starts(starts, window.end)
        window.start = max(window.start, window.end)

    def _pass_starts(self, starts: Starts, until: int) -> Iterator[LogEvent]:
        if starts.before(until):
            yield from self.finish()
            yield from starts.pass_until(until)

    def finish(self) -> Iterator[LogEvent]:
        """The step whose last paint was the last of the process."""
        yield from self._complete()
        self._forget()

    def _complete(self) -> Iterator[LogEvent]:
        """The step that waited, now that another is painted."""
        if self._waiting is None:
            return
        report, was_untimed = self._waiting, self._was_untimed
        self._was_untimed = report.seconds is None
        if was_untimed and report.seconds is not None:
            report = msgspec.structs.replace(report, excluded_because=FIRST_STEPS_TIME)
        yield event_of(report, self.tracker)

    def _paint(self, window: Window, found: int) -> Iterator[LogEvent]:
        try:
            metrics = _metrics(window, found)
            if not metrics or metrics == self._metrics:
                return
            self._metrics = metrics
            fields = dict(FIELDS.findall(metrics))
            if not fields:
                return
            report = _report(fields)
        except UnreadableError as error:
            skipped = SkippedLine(line=window.line_number(found), reason=str(error))
            yield LogEvent(attempt=self.tracker.attempt, skipped=skipped)
            return
        if self._waiting is not None and self._waiting.step != report.step:
            yield from self._complete()
        self._waiting = msgspec.structs.replace(report, global_batch_size=self._batch(report.step, fields))

    def _batch(self, step: int, fields: dict[bytes, bytes]) -> int | None:
        """As printed; where it is not (NeMo 24.09), what a step added to the samples. A rounded one is unknown."""
        if BATCH in fields:
            return _exact(fields[BATCH])
        samples = _exact(fields.get(SAMPLES, b""))
        if samples is None:
            return None
        self._samples = [*(one for one in self._samples if one[0] != step), (step, samples)][-2:]
        (step_before, samples_before), *now = self._samples
        return (samples - samples_before) // (step - step_before) if now else None


def _metrics(window: Window, found: int) -> bytes:
    """The metrics of a paint, one with colours in it too; none where there is no paint."""
    paint = PAINT.match(window.text, found)
    if paint is None:
        if not BEGINS.match(without_colours(window.text[found : found + 200])):
            return b""
        text, cut = window.line_from(found, BEGINS)
        paint = PAINT.match(text)
        if paint is None and b"=" in text:
            raise UnreadableError(cut or "truncated or mingled: the paint does not end")
    return paint[1] if paint else b""


def _report(fields: dict[bytes, bytes]) -> StepReport:
    for name in (GLOBAL_STEP, LOSS):
        if name not in fields:
            raise UnreadableError(f"no {name.decode()}")
        number_of(name, fields[name])
    step = _exact(fields[GLOBAL_STEP])
    if step is None:
        printed = fields[GLOBAL_STEP].decode(errors="backslashreplace")
        raise UnreadableError(f"global_step={printed} is rounded")
    seconds = number_of(SECONDS, fields[SECONDS]) if SECONDS in fields else None
    if seconds is not None and not can_be_a_time(seconds):
        raise UnreadableError(f"seconds can't be {shown(fields[SECONDS])}")
    return StepReport(
        step=step,
        rank=None,
        seconds=seconds,
        loss=number_of(LOSS, fields[LOSS]),
        tflops_per_device=number_of(TFLOPS, fields[TFLOPS]) if TFLOPS in fields else None,
    )


def _exact(printed: bytes) -> int | None:
    """A whole number that was not rounded."""
    return int(float(printed)) if EXACT.fullmatch(printed) else None
