"""What launch/ingest.py prints of a log: the public JSON, or a table for people."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from benchmarks.logs.ingest import ReadLog, gaps, stride
from benchmarks.rendering.columns import Rows, aligned, columns
from benchmarks.values import Step

if TYPE_CHECKING:
    from benchmarks.mlperf.story import Story
    from benchmarks.references.nearest_reference import Nearest

SHOWN_LINES = 10  # skipped lines and gaps in the table; --json has all
FLAGS_OF_A_BENCHMARK = "--model --hardware --gpus --dtype --global_batch_size --sequence_length"


class Outcome(NamedTuple):
    """The figures of a log, and the published ones they are compared with."""

    result: dict[str, object]
    reference: "Nearest"


class Report(NamedTuple):
    format: str
    log: ReadLog
    other_formats: list[str]
    outcome: Outcome | None  # None: no benchmark was given
    stories: "list[Story] | None"  # of an MLLOG

    def data(self) -> dict[str, object]:
        """The public JSON. What is not a number in JSON (nan, inf) is null."""
        found: dict[str, object] = {
            "format": self.format,
            "attempts": [{"steps": steps} for steps in self.log.attempts],
            "duplicates": self.log.duplicates,
            "skipped_lines": self.log.skipped,
            "other_formats": self.other_formats,
        }
        if self.stories is not None:
            found["mlperf"] = self.stories
        if self.outcome is not None:
            reference, why = self.outcome.reference
            found |= {"result": self.outcome.result, "reference": reference, "no_reference_because": why or None}
        return found

    def table(self) -> str:
        """A line for each attempt, then what was left out."""
        skipped = self.log.skipped
        rows = [("attempt", "steps", "count", "median s/step", "missing steps"), *map(_row, self.log.attempts)]
        lines = [f"format: {self.format}", *columns(rows, numbers=(0, 1, 2, 3))]
        lines.append(f"duplicates: {self.log.duplicates} (further reports of the same steps)")
        lines.append(f"skipped lines: {len(skipped)}")
        lines += [f"  line {one.line}: {one.reason}" for one in skipped[:SHOWN_LINES]]
        if len(skipped) > SHOWN_LINES:
            lines.append(f"  and {len(skipped) - SHOWN_LINES} more (--json has all)")
        if self.other_formats:
            names = ", ".join(self.other_formats)
            lines.append(f"other formats: {names} (a part of the log is theirs, and was not read)")
        for number, story in enumerate(self.stories or [], start=1):
            from benchmarks.mlperf import story as mlperf_story

            lines.append("\n  ".join([f"run {number}:", *mlperf_story.lines(story)]))
        if self.outcome is not None:
            from benchmarks.references.nearest_reference import text

            last = self.log.last_timed()
            lines.append(f"result of attempt {last[0].attempt}:" if last else "result:")
            lines += aligned([*_result_rows(self.outcome.result), ("reference", text(self.outcome.reference))])
        elif self.log.last_timed():
            lines.append(f"for tokens/s and MFU, add {FLAGS_OF_A_BENCHMARK}")
        return "\n".join(lines)


def _result_rows(result: dict[str, object]) -> Rows:
    """As at the end of a run."""
    from benchmarks.measuring.figures import Figures
    from benchmarks.rendering.report import count_text, folded, speed_rows, window_text

    reasons = folded(msgspec.convert(result["reasons"], type=list[str]))
    rows: Rows = [("status", "\n".join([str(result["status"]), *(f"- {reason}" for reason in reasons)]))]
    if "window" not in result:  # no step has seconds
        return rows
    own = {name: result[name] for name in Figures.__struct_fields__ if name in result}
    figures = msgspec.convert({**own, "complaints": []}, type=Figures)
    rows += speed_rows(figures)
    days = figures.days_per_trillion_tokens
    rows += [] if days is None else [("1T tokens", f"{count_text(days) if days >= 1000 else f'{days:.2f}'} days")]
    return [*rows, ("steps", window_text(figures)), ("notes", "\n".join(figures.notes))]


def _row(steps: Sequence[Step]) -> tuple[str, ...]:
    numbers = sorted(step.step for step in steps)
    seconds = [step.seconds for step in steps if step.seconds is not None]
    median = f"{statistics.median(seconds):.3f}" if seconds else "unknown"
    missing = gaps(numbers)
    named = [str(first) if first == last else f"{first}-{last}" for first, last in missing[:SHOWN_LINES]]
    notes = [", ".join(named) or "none"]
    notes += [f"{len(missing) - SHOWN_LINES} more gaps"] if len(missing) > SHOWN_LINES else []
    notes += [f"one line every {stride(numbers)} steps"] if stride(numbers) > 1 else []
    notes += [f"{len(steps) - len(seconds)} without seconds"] if len(seconds) < len(steps) else []
    return str(steps[0].attempt), f"{numbers[0]}-{numbers[-1]}", str(len(steps)), median, "; ".join(notes)
