"""What launch/ingest.py prints of a log: the public JSON, or a table for people. Both take events as they come."""

import shutil
import sys
import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, cast

import msgspec

from benchmarks.backend import LogEvent, SkippedLine
from benchmarks.logs import ingest
from benchmarks.values import Step

if TYPE_CHECKING:
    from benchmarks.mlperf.story import Story
    from benchmarks.references.nearest_reference import Nearest

IN_MEMORY_BYTES = 8 << 20  # of what can't be printed yet, or can't be read twice; the rest waits on disk
STEPS_A_WRITE = 512  # few enough to stay in the processor's cache
SHOWN_LINES = 10  # skipped lines and gaps in the table; --json has all


class Outcome(NamedTuple):
    """The figures of a log, and the published ones they stand beside."""

    result: dict[str, object]
    reference: "Nearest"


def kept_aside() -> BinaryIO:
    """What can't be printed yet, or can't be read twice: in memory, and on disk when it is much."""
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES))


class Report(Protocol):
    """Takes the events as they come, and what can only be said at the end."""

    def add(self, events: Iterable[LogEvent]) -> None: ...

    def finish(
        self,
        last: ingest.LastTimedAttempt,
        other_formats: list[str],
        outcome: Outcome | None,
        stories: "list[Story] | None",
    ) -> None: ...


class JsonReport:
    """The public JSON, written while the log is read. What is not a number in JSON (nan, inf) is null."""

    def __init__(self, format_name: str) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._out = sys.stdout.buffer
        self._steps: list[Step] = []
        self._attempt = 0
        self._separator = b""  # before the next steps of the attempt
        self._duplicates = 0
        self._skipped = SkippedLines()
        self._out.write(b'{"format": ' + self._encode(format_name) + b', "attempts": [')

    def add(self, events: Iterable[LogEvent]) -> None:
        for event in events:
            self._duplicates += event.duplicates
            if event.skipped is not None:
                self._skipped.add(event.skipped)
            if event.step is not None:
                if event.attempt != self._attempt:
                    self._begin_attempt(event.attempt)
                self._steps.append(event.step)
                if len(self._steps) == STEPS_A_WRITE:
                    self._write_steps()

    def finish(
        self,
        last: ingest.LastTimedAttempt,  # noqa: ARG002
        other_formats: list[str],
        outcome: Outcome | None,
        stories: "list[Story] | None",
    ) -> None:
        self._end_attempt()
        self._out.write(b'], "duplicates": ' + self._encode(self._duplicates) + b', "skipped_lines": [')
        self._skipped.write_to(self._out)
        self._out.write(b'], "other_formats": ' + self._encode(other_formats))
        if stories is not None:
            self._out.write(b', "mlperf": ' + self._encode(stories))
        if outcome is not None:
            found, why = outcome.reference
            self._out.write(b', "result": ' + self._encode(outcome.result))
            self._out.write(b', "reference": ' + self._encode(found))
            self._out.write(b', "no_reference_because": ' + self._encode(why or None))
        self._out.write(b"}\n")
        self._out.flush()

    def _begin_attempt(self, attempt: int) -> None:
        self._end_attempt()
        self._out.write(b'{"steps": [\n' if self._attempt == 0 else b',\n{"steps": [\n')
        self._attempt, self._separator = attempt, b""

    def _end_attempt(self) -> None:
        if self._attempt:
            self._write_steps()
            self._out.write(b"\n]}")

    def _write_steps(self) -> None:
        if self._steps:
            # One list of many steps is encoded far quicker than many steps.
            self._out.write(self._separator + self._encode(self._steps)[1:-1])
            self._separator = b",\n"
            self._steps.clear()


class SkippedLines:
    """The lines left out, kept until they can be printed: in memory, and on disk when they are many."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._kept = kept_aside()

    def add(self, skipped: SkippedLine) -> None:
        self._kept.write((b",\n" if self._kept.tell() else b"") + self._encode(skipped))

    def write_to(self, out: BinaryIO) -> None:
        with self._kept:
            self._kept.seek(0)
            shutil.copyfileobj(self._kept, out)


class TableReport:
    """A line for each attempt, then what was left out."""

    def __init__(self, format_name: str) -> None:
        self._outline: ingest.OutlineMaker | None = None
        self._attempt = 0
        self._duplicates = 0
        self._skipped = 0
        self._first_skipped: list[SkippedLine] = []
        print(f"format: {format_name}")
        print(f"{'attempt':>7}  {'steps':>15}  {'count':>7}  {'median s/step':>13}  missing steps")

    def add(self, events: Iterable[LogEvent]) -> None:
        for event in events:
            self._duplicates += event.duplicates
            if event.skipped is not None:
                self._skipped += 1
                if self._skipped <= SHOWN_LINES:
                    self._first_skipped.append(event.skipped)
            if event.step is not None:
                if self._outline is None or event.attempt != self._attempt:
                    self._print_attempt()
                    self._outline, self._attempt = ingest.OutlineMaker(event.attempt), event.attempt
                self._outline.add(event.step)

    def finish(
        self,
        last: ingest.LastTimedAttempt,
        other_formats: list[str],
        outcome: Outcome | None,
        stories: "list[Story] | None",
    ) -> None:
        self._print_attempt()
        print(f"duplicates: {self._duplicates} (further reports of the same steps)")
        print(f"skipped lines: {self._skipped}")
        for skipped in self._first_skipped:
            print(f"  line {skipped.line}: {skipped.reason}")
        if self._skipped > SHOWN_LINES:
            print(f"  and {self._skipped - SHOWN_LINES} more (--json has all)")
        if other_formats:
            print(f"other formats: {', '.join(other_formats)} (a part of the log is theirs, and was not read)")
        for number, story in enumerate(stories or [], start=1):
            from benchmarks.mlperf.story import lines

            print("\n  ".join([f"run {number}:", *lines(story)]))
        if outcome is not None:
            from benchmarks.references.nearest_reference import text

            print(f"result of attempt {last.steps[0].attempt}:" if last.steps else "result:")
            print(msgspec.json.format(msgspec.json.encode(outcome.result), indent=2).decode())
            print("reference: " + text(outcome.reference).replace("\n", "\n  "))
        sys.stdout.flush()

    def _print_attempt(self) -> None:
        if self._outline is not None:
            print(_row(self._outline.outline()))


def _row(outline: ingest.AttemptOutline) -> str:
    median = "unknown" if outline.median_seconds is None else f"{outline.median_seconds:.3f}"
    steps = f"{outline.first_step}-{outline.last_step}"
    row = f"{outline.attempt:>7}  {steps:>15}  {outline.count:>7}  {median:>13}  {_gaps(outline.gaps)}"
    row += f"; one line every {outline.every} steps" if outline.every > 1 else ""
    return row + (f"; {outline.without_seconds} without seconds" if outline.without_seconds else "")


def _gaps(gaps: list[tuple[int, int]]) -> str:
    named = [str(first) if first == last else f"{first}-{last}" for first, last in gaps[:SHOWN_LINES]]
    more = f" and {len(gaps) - SHOWN_LINES} more gaps" if len(gaps) > SHOWN_LINES else ""
    return ", ".join(named) + more if named else "none"
