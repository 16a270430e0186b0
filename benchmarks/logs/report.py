"""The output of launch/ingest.py for a log: the public JSON, or a table."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from benchmarks import statistics
from benchmarks.backend import LogFormat, SkippedLine
from benchmarks.logs.foreign import ForeignResult, summarise_foreign
from benchmarks.logs.templates import backend_of_format
from benchmarks.logs.timing_table import excluded_steps
from benchmarks.measuring.utilisation import Workload
from benchmarks.measuring.window import NO_TIME, choose_window
from benchmarks.mlperf.run_report import RunReport
from benchmarks.reading.read_log import ReadLog, gaps, one_series, stride
from benchmarks.references.nearest_reference import Nearest, NearestRow
from benchmarks.text import Rows, aligned, columns, digits, first_few, spans_text
from benchmarks.values import Step, Value

SHOWN_LINES = 10  # the most skipped lines, and gaps, that the table shows; --json has all
HEADINGS = ("attempt", "steps", "lines", "counted", "median s/step", "missing steps")
FLAGS_OF_A_BENCHMARK = "--model --hardware --gpus --dtype --global_batch_size --sequence_length"


class Outcome(NamedTuple):
    """The metrics of a log, and the published row that the report compares with them."""

    result: ForeignResult
    reference: Nearest


def outcome_of(
    steps: list[Step], workload: Workload, window: str, log_format: LogFormat, configs_root: Path
) -> Outcome:
    """Return the metrics of the attempt whose steps are given, and the published row to compare with them."""
    result = summarise_foreign(
        steps,
        workload,
        window,
        log_format.seconds_resolution,
        log_format.rate_resolution,
        prints_loss=log_format.prints_loss,
    )
    if not steps:
        why = log_format.no_seconds
        reasons = [f"no step of the log has a step time{why and ': ' + why}"]
        result = msgspec.structs.replace(result, status="invalid", reasons=reasons, notes=[])
    return Outcome(result, _nearest(result, workload, window, log_format, configs_root))


def _nearest(
    result: ForeignResult, workload: Workload, window: str, log_format: LogFormat, configs_root: Path
) -> Nearest:
    """Return the published row to compare with, or the reason why there is no such row."""
    if result.status != "valid":
        return None, "the metrics are invalid"
    from benchmarks.measuring.summary import BenchmarkFigures
    from benchmarks.model.published_rows import read_references
    from benchmarks.references import nearest_reference

    backend = backend_of_format(log_format)
    if backend is None:
        return None, f"no published row has a log of format {log_format.name}"
    ours = BenchmarkFigures(
        **msgspec.structs.asdict(result.benchmark),
        backend=backend.name,
        engine=backend.engines[0] if len(backend.engines) == 1 else "",
        nodes=0,  # logs do not contain it
        parallelism={} if workload.gpus > 1 else {"data": 1},
    )
    speed, rows = result.tokens_per_second_per_gpu, read_references(configs_root)
    return nearest_reference.nearest(ours, window, speed, rows)


class Attempt(Value, frozen=True):
    steps: list[Step]


class IngestDocument(Value, frozen=True):
    """The public JSON of ingest.py. Values that JSON does not have (NaN, infinity) become null."""

    format: str
    attempts: list[Attempt]
    duplicates: int
    skipped_lines: list[SkippedLine]
    other_formats: list[str]
    seconds_are: str | None
    seconds_null_because: str | None
    mlperf: list[RunReport] | UnsetType = UNSET  # only for an MLLOG
    # Only if the flags describe the benchmark of the log:
    result: ForeignResult | UnsetType = UNSET
    reference: NearestRow | UnsetType | None = UNSET
    no_reference_because: str | UnsetType | None = UNSET


class Report(NamedTuple):
    log_format: LogFormat
    log: ReadLog
    other_formats: list[str]
    outcome: Outcome | None  # None: the flags do not describe the benchmark
    stories: list[RunReport] | None  # only for an MLLOG
    window: str  # the rule that selects the counted steps

    def data(self) -> IngestDocument:
        reference, why = self.outcome.reference if self.outcome else (UNSET, UNSET)
        return IngestDocument(
            format=self.log_format.name,
            attempts=[Attempt(steps=steps) for steps in self.log.attempts],
            duplicates=self.log.duplicates,
            skipped_lines=self.log.skipped,
            other_formats=self.other_formats,
            seconds_are=self.log_format.seconds_are or None,
            seconds_null_because=self._why_no_seconds(),
            mlperf=UNSET if self.stories is None else self.stories,
            result=self.outcome.result if self.outcome else UNSET,
            reference=reference,
            no_reference_because=why or None if self.outcome else UNSET,
        )

    def _why_no_seconds(self) -> str | None:
        without = any(step.seconds is None for steps in self.log.attempts for step in steps)
        return (self.log_format.no_seconds or "the line of the step has no step time") if without else None

    def table(self) -> str:
        """Return the text for the screen: a line per attempt, the excluded and skipped lines, and the result."""
        skipped = self.log.skipped
        attempts = [choose_window(one_series(steps), self.window)[1] for steps in self.log.attempts]
        rows = [_row(steps) for steps in attempts]
        lines = [f"format: {self.log_format.name}"]
        lines += columns([HEADINGS, *rows], numbers=(0, 1, 2, 3, 4)) if rows else []
        for steps in attempts:
            where = f"excluded from attempt {steps[0].attempt}"
            excluded = excluded_steps(steps)
            if _has_no_times(steps):  # the line `steps without seconds` gives the reason
                excluded.pop(NO_TIME, None)
            lines += [f"{where}: {reason}: {which}" for reason, which in excluded.items()]
            lines += _suspicious_steps(steps)
        lines += [f"seconds: {self.log_format.seconds_are}"] if self.log_format.seconds_are else []
        why = self._why_no_seconds()
        lines += [f"steps without seconds: {why}"] if why else []
        lines.append(f"duplicates: {self.log.duplicates} (more lines for the same steps)")
        lines.append(f"skipped lines: {len(skipped)}")
        lines += [f"  line {one.line}: {one.reason}" for one in skipped[:SHOWN_LINES]]
        if len(skipped) > SHOWN_LINES:
            lines.append(f"  and {len(skipped) - SHOWN_LINES} more (--json has all)")
        if self.other_formats:
            names = ", ".join(self.other_formats)
            lines.append(f"other formats: {names} (lines in these formats were not read)")
        for number, story in enumerate(self.stories or [], start=1):
            from benchmarks.mlperf.run_report import report_lines

            lines.append("\n  ".join([f"run {number}:", *report_lines(story, story.findings)]))
        return "\n".join([*lines, *self._result_lines()])

    def _result_lines(self) -> list[str]:
        if self.outcome is None:
            timed = self.log.last_timed() or self.log_format.no_seconds
            needed = f"tokens/s and MFU need facts that no log has: add {FLAGS_OF_A_BENCHMARK}"
            return [needed] if timed and self.stories is None else []
        from benchmarks.references.nearest_reference import text

        last = self.log.last_timed()
        lines = [f"result of attempt {last[0].attempt}:" if last else "result:"]
        return lines + aligned([*_result_rows(self.outcome.result), ("reference", text(self.outcome.reference))])


def _result_rows(result: ForeignResult) -> Rows:
    """Return the metrics as rows, in the form that run.py shows at the end of a run."""
    from benchmarks.measuring.result_text import speed_rows, window_text
    from benchmarks.text import count_text, folded

    rows: Rows = [("status", "\n".join([result.status, *(f"- {reason}" for reason in folded(result.reasons))]))]
    rows += speed_rows(result)
    days = result.days_per_trillion_tokens
    rows += [] if days is None else [("1T tokens", f"{count_text(days) if days >= 1000 else f'{days:.2f}'} days")]
    named = [
        f"{name.removesuffix('_median')} {digits(value)}"
        for name, value in result.reported_by_framework.items()
        if isinstance(value, float | int)
    ]
    rows += [("printed", "\n".join(named))] if named else []
    rows += [("steps", window_text(result))]
    return rows + ([("notes", "\n".join(result.notes))] if result.notes else [])


def _row(marked: Sequence[Step]) -> tuple[str, ...]:
    numbers = sorted(step.step for step in marked)
    counted = [step.seconds for step in marked if step.excluded_because is None and step.seconds is not None]
    median = statistics.median(counted)
    every, missing = stride(numbers), gaps(numbers)
    named = [str(first) if first == last else f"{first}-{last}" for first, last in missing[:SHOWN_LINES]]
    notes = [", ".join(named) or "none"]
    notes += [f"{len(missing) - SHOWN_LINES} more gaps"] if len(missing) > SHOWN_LINES else []
    notes += [f"one line every {every} steps"] if every > 1 else []
    without = sum(step.seconds is None for step in marked)
    notes += [f"{without} without seconds"] if without else []
    return (
        str(marked[0].attempt),
        f"{numbers[0]}-{numbers[-1]}",
        str(len(marked)),
        "-" if _has_no_times(marked) else str(len(counted)),
        "-" if median is None else digits(median),
        "; ".join(notes),
    )


def _has_no_times(steps: Sequence[Step]) -> bool:
    return all(step.seconds is None for step in steps)


def _suspicious_steps(marked: Sequence[Step]) -> list[str]:
    """Return notes on steps of an attempt that have implausible numbers."""
    broken = [step.step for step in marked if step.loss is not None and not math.isfinite(step.loss)]
    untimed = [step.step for step in marked if step.seconds == 0]
    return [
        f"attempt {marked[0].attempt}: {what}: {first_few(spans_text(steps).split(','))}"
        for what, steps in (("loss not finite", broken), ("printed as taking 0 s", untimed))
        if steps
    ]
