"""The format `nemo-bar`: the progress bar of NeMo 24.09 and its kin (Lightning on tqdm), painted over itself.

    Epoch 0: : 100%|██████████| 100/100 [20:15<00:00, reduced_train_loss=6.370, global_step=99.00, ...]

One physical line holds hundreds of paints between carriage returns; no more of it is held than a window.

Which step a paint is about. The counter counts finished steps, global_step numbers them from 0: at 100/100 it
is 99. It is exact below 996, and rounded to 3 digits where that is shorter (`2e+3`, almost always from 100,000
on); a rounded one is worked out from the counter and their last exact distance, and must round to what is
printed. The distance is not always 1: a bar is painted when its counter moves, and again when its metrics
change (24.09), or not (2.x); then a paint has the metrics of the step before. So metrics are believed by their
global_step, a step is its last paint, and repaints are neither steps nor other hosts' reports.

The seconds are the printed ones, with 3 significant digits. Where the timer is stopped after the bar is
painted (NeMo 24.09 adds its timer last) they are those of the step before: the first step has none, and the
second, which has the first one's, is left out.
"""

import math
import re
from collections.abc import Iterator

import msgspec

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.logs.log_stream import (
    LogReader,
    Starts,
    StepReport,
    StreamedFormat,
    UnreadableError,
    Window,
    event_of,
    number_of,
    rank_of_line,
    shown,
    without_colours,
)
from nemo_backend.line_logs import NEMO_START_LINES, last_digit

WORD = b"Epoch "
SIGNIFICANT_DIGITS = 3  # tqdm's {:.3g}; Lightning pads it with zeros to 5 characters, which say nothing
LABEL_BYTES = 128  # of a line: a rank's label stands at its start
FIRST_STEPS_TIME = "the first step's time"

_COUNT = rb"[0-9]{1,15}|[0-9.]{1,15}[kMGTP]"
PAINT = re.compile(
    rb"Epoch ([0-9]{1,9}):(?: ?:)? {1,4}"
    rb"(?:[0-9]{1,3}%\|[^|\r\n]{0,400}\| {0,4}(" + _COUNT + rb")/(?:" + _COUNT + rb"|\?)|(" + _COUNT + rb")it)"
    rb" \[[^\[\]|\r\n,]{0,60}((?:, [^\[\]|\r\n,]{0,200})*)\]"
)  # fmt: skip
BEGINS = re.compile(rb"Epoch [0-9]+:(?: ?:)? {1,4}(?:[0-9]{1,3}%\||[0-9.]+[kMGTP]?it \[)")
FIELDS = re.compile(
    rb", (reduced_train_loss|global_step|train_step_timing in s|TFLOPS_per_GPU|global_batch_size|consumed_samples)"
    rb"=([^,]*)"
)
LOSS, GLOBAL_STEP = b"reduced_train_loss", b"global_step"
SECONDS, TFLOPS = b"train_step_timing in s", b"TFLOPS_per_GPU"
BATCH, SAMPLES = b"global_batch_size", b"consumed_samples"
EXACT = re.compile(rb"[0-9]{1,15}(?:\.0*)?")


class NemoBarLog(StreamedFormat):
    """The format `nemo-bar`: see the top of this file."""

    name = "nemo-bar"

    def seconds_resolution(self, seconds: float) -> float:
        return last_digit(seconds, SIGNIFICANT_DIGITS)

    def rate_resolution(self, rate: float) -> float:
        return last_digit(rate, SIGNIFICANT_DIGITS)

    def recognises(self, head: bytes) -> bool:
        paints = PAINT.finditer(without_colours(head))
        return any(name in paint[4] for paint in paints for name in (SECONDS, LOSS + b"="))

    def reader(self) -> LogReader:
        return _BarReader()


# --- one bar ------------------------------------------------------------------------------------


class _Bar:
    """The bar of one rank: what was painted last, and the step that waits for its last paint."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.waiting: StepReport | None = None
        self._painted = 0  # how often, the step that waits
        self._was_untimed = False
        self._epoch = b""
        self._counter = b""
        self._metrics = b""
        self._exact: int | None = None  # the last paint's global_step, where it is exact
        self._distance: int | None = 1  # counter less global_step in a counter's last paint; None: not known yet
        self._told = b""  # metrics of the step told last
        self._samples: tuple[int, int] | None = None  # the step that printed its samples last, and how many
        self._samples_before: tuple[int, int] | None = None  # those of an earlier step

    def paint(self, epoch: bytes, counter: bytes, metrics: bytes) -> StepReport | None:
        """The step that is complete now that another is painted."""
        moved = counter != self._counter or epoch != self._epoch
        if moved:
            self._move(epoch, counter)
        if metrics == self._metrics and (self._exact is not None or not moved):
            return None  # a repaint
        self._metrics, before = metrics, self._metrics
        self._exact = None
        fields = dict(FIELDS.findall(metrics))
        if not fields:
            return None
        try:
            number = self._number(fields, moved)
        except UnreadableError:
            if metrics == before:
                return None  # the counter moved, the metrics will follow
            raise
        report = self._report(number, fields)
        complete = None
        if self.waiting is None or self.waiting.step != number:
            complete = self.waiting
            self._told = before if complete else self._told
            self._painted = 0
        self._painted += 1
        self.waiting = report
        return None if complete is None else self._marked(complete)

    def close(self) -> StepReport | None:
        """The last step, when no more paints come."""
        last, self.waiting = self.waiting, None
        # Under a rounded number the first paint of a step has the metrics of the one before: cut off after it,
        # nothing is known of the step.
        stale = self._exact is None and self._painted == 1 and self._metrics == self._told
        self._metrics = b""
        return None if last is None or stale else self._marked(last)

    def _move(self, epoch: bytes, counter: bytes) -> None:
        if epoch != self._epoch and self._epoch:
            self._distance = None  # the counter begins again, the step does not
        elif self._exact is not None and self._counter.isdigit():
            self._distance = int(self._counter) - self._exact
        self._epoch, self._counter = epoch, counter

    def _number(self, fields: dict[bytes, bytes], moved: bool) -> int:
        printed = fields.get(GLOBAL_STEP)
        self._exact = _exact(printed)
        if self._exact is not None:
            return self._exact
        what = "there is no global_step" if printed is None else f"global_step={printed.decode()} is rounded"
        if printed is not None:
            number_of(GLOBAL_STEP, printed)
        if not self._counter.isdigit():
            raise UnreadableError(f"{what} and the counter {self._counter.decode()} is scaled: the step is not known")
        if self._distance is None:
            raise UnreadableError(f"{what} and the counter began again with epoch {self._epoch.decode()}")
        is_late_bars_last = not moved and self._distance > 1
        number = int(self._counter) - (1 if is_late_bars_last else self._distance)
        if number < 0 or (printed is not None and as_tqdm_prints(number) != float(printed)):
            raise UnreadableError(f"{what} and does not fit the counter {self._counter.decode()}")
        return number

    def _report(self, number: int, fields: dict[bytes, bytes]) -> StepReport:
        if LOSS not in fields:
            raise UnreadableError(f"no {LOSS.decode()}")
        seconds = number_of(SECONDS, fields[SECONDS]) if SECONDS in fields else None
        if seconds is not None and (not math.isfinite(seconds) or seconds < 0):
            raise UnreadableError(f"seconds can't be {shown(fields[SECONDS])}")
        return StepReport(
            step=number,
            rank=self.rank,
            seconds=seconds,
            loss=number_of(LOSS, fields[LOSS]),
            tflops_per_device=number_of(TFLOPS, fields[TFLOPS]) if TFLOPS in fields else None,
            global_batch_size=self._global_batch_size(number, fields),
        )

    def _global_batch_size(self, number: int, fields: dict[bytes, bytes]) -> int | None:
        """As printed; where it is not (NeMo 24.09), what a step added to the samples. A rounded one is unknown."""
        if BATCH in fields:
            return _exact(fields[BATCH])
        samples = _exact(fields.get(SAMPLES))
        if samples is None:
            return None
        if self._samples is not None and self._samples[0] != number:
            self._samples_before = self._samples
        self._samples = (number, samples)
        if self._samples_before is None:
            return None
        step_before, samples_before = self._samples_before
        return (samples - samples_before) // (number - step_before)

    def _marked(self, report: StepReport) -> StepReport:
        was_untimed, self._was_untimed = self._was_untimed, report.seconds is None
        if was_untimed and report.seconds is not None:
            return msgspec.structs.replace(report, excluded_because=FIRST_STEPS_TIME)
        return report


def _exact(printed: bytes | None) -> int | None:
    """A whole number that was not rounded."""
    return int(float(printed)) if printed is not None and EXACT.fullmatch(printed) else None


def as_tqdm_prints(step: int) -> float:
    """The global_step that is printed of a step: rounded to 3 digits where that is shorter."""
    short, whole = f"{float(step):.3g}".replace("e+0", "e+"), str(float(step))
    return float(short if len(short) < len(whole) else whole)


# --- the log ------------------------------------------------------------------------------------


class _BarReader(LogReader):
    """Paints come in lines of any length, so they are found by themselves and not by their lines."""

    def __init__(self) -> None:
        super().__init__()
        self._bars: dict[int | None, _Bar] = {}
        self._bar = _Bar(None)  # the current line's
        self._label_is_next = True  # the line begins where the window does

    def read_window(self, window: Window) -> Iterator[LogEvent]:
        starts = Starts(window, NEMO_START_LINES, self.tracker)
        text, end = window.text, window.end
        find = text.find
        read_to = window.start
        position = find(WORD, read_to, end + len(WORD) - 1)
        while position >= 0:
            if starts.before(position):
                yield from self.finish()
                yield from starts.pass_until(position)
            self._pass_lines(window, read_to, position)
            read_to = position
            event = self._paint(window, position)
            if event is not None:
                yield event
            position = find(WORD, position + len(WORD), end + len(WORD) - 1)
        if starts.before(end):
            yield from self.finish()
            yield from starts.pass_until(end)
        self._pass_lines(window, read_to, end)
        window.start = max(window.start, end)

    def finish(self) -> Iterator[LogEvent]:
        """The steps whose last paint was the last of the process."""
        bars = [self._bar, *(b for b in self._bars.values() if b is not self._bar)]
        last = [report for bar in bars if (report := bar.close()) is not None]
        for report in sorted(last, key=lambda r: r.step):
            yield event_of(report, self.tracker)
        self._bar = _Bar(self._bar.rank)
        self._bars = {self._bar.rank: self._bar}

    def _pass_lines(self, window: Window, start: int, end: int) -> None:
        """Note the rank of the line that is under way at the end."""
        newline = window.text.rfind(b"\n", start, end)
        if newline < 0 and not (self._label_is_next and end > start):
            return
        begin = newline + 1 if newline >= 0 else start
        self._label_is_next = begin == end == window.end
        if self._label_is_next:
            return
        rank = rank_of_line(window.text[begin : begin + LABEL_BYTES])
        if rank != self._bar.rank:
            self._bars.setdefault(self._bar.rank, self._bar)
            self._bar = self._bars.setdefault(rank, _Bar(rank))

    def _paint(self, window: Window, found: int) -> LogEvent | None:
        """What a paint tells: one with colours in it too, or one that is not whole; nothing where it is none."""
        paint = PAINT.match(window.text, found)
        if paint is None:
            if not BEGINS.match(without_colours(window.text[found : found + 200])):
                return None
            text, cut = window.line_from(found, BEGINS)
            paint = PAINT.match(text)
            if paint is None:  # without metrics nothing is lost
                why = cut or "truncated or mingled: the paint does not end"
                return self._skipped(window, found, why) if b"=" in text else None
        epoch, counter, bare_counter, metrics = paint.groups()
        if not metrics:
            return None
        try:
            report = self._bar.paint(epoch, counter or bare_counter, metrics)
        except UnreadableError as error:
            return self._skipped(window, found, str(error))
        return None if report is None else event_of(report, self.tracker)

    def _skipped(self, window: Window, found: int, reason: str) -> LogEvent:
        skipped = SkippedLine(line=window.line_number(found), reason=reason)
        return LogEvent(attempt=self.tracker.attempt, skipped=skipped)
