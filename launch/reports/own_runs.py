"""What the record of a run of Stepmark says of the logs in its folder: what was measured, and what disturbed it."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.backend import LogEvent
from benchmarks.errors import RequestError
from benchmarks.logs.timing_table import FIGURES, INCOMPLETE, NOT_COMPARED, SUCCESS, UNREADABLE, Row
from benchmarks.measuring.figures import RECORDED
from benchmarks.measuring.summary import not_comparable
from benchmarks.runs.runfolder import BENCHMARK, PLAN, RunFolder
from benchmarks.values import Benchmark

RUN_FILES = (BENCHMARK, PLAN)  # a folder that has both is a run


class OwnRun(NamedTuple):
    """A run's record, as far as its logs are concerned."""

    path: Path  # absolute
    measured: str | None  # the phase whose steps are the result
    not_compared: list[str]  # why no table may take its figures
    left_out: dict[int, str]  # steps that hold more than training -> why
    unknown: str | None  # what of this can't be known

    def marked(self, event: LogEvent) -> LogEvent:
        """The same event; a step that the run itself leaves out is left out here too."""
        why = self.left_out.get(event.step.step) if event.step is not None else None
        if event.step is None or why is None:
            return event
        step = msgspec.structs.replace(event.step, excluded_because=why)
        return msgspec.structs.replace(event, step=step)

    def judged(self, row: Row, log: Path) -> Row:
        """The row of one of its logs, without figures where they are not those of an undisturbed measurement."""
        parts = log.absolute().relative_to(self.path).parts
        phase = parts[1] if len(parts) == 3 else None  # attempt-N/PHASE/rank-R.log
        another = self.measured is not None and phase not in (None, self.measured)
        why = [f"of phase {phase}: not measured"] if another else self.not_compared
        if row.status == UNREADABLE:
            return row
        reason = "; ".join([*([row.reason] if row.reason else []), *why, *([self.unknown] if self.unknown else [])])
        row = msgspec.structs.replace(row, reason=reason or None)
        if not why:
            return row
        return msgspec.structs.replace(
            row,
            status=NOT_COMPARED if row.status in (SUCCESS, INCOMPLETE) else row.status,
            steps_counted=0,
            **dict.fromkeys(FIGURES),
        )


def is_run(place: Path) -> bool:
    return all((place / name).is_file() for name in RUN_FILES)


def read_run(path: Path) -> OwnRun:
    """A record that can't be read says nothing; its logs' rows say that."""
    place = path.absolute()
    folder = RunFolder(place)
    try:
        benchmark, measured = folder.benchmark(), folder.measured_phase().name
    except (RequestError, OSError):
        unknown = "the record of its run can't be read: whether a profiler ran is unknown"
        return OwnRun(place, None, [], {}, unknown)
    reasons = not_comparable(benchmark)
    left_out, unknown_steps = ({}, None) if reasons else _left_out(folder, benchmark)
    return OwnRun(place, measured, reasons, left_out, unknown_steps)


def _left_out(folder: RunFolder, benchmark: Benchmark) -> tuple[dict[int, str], str | None]:
    """The steps in which PGLE profiled and compiled: the same in every attempt, each begins at the first step."""
    if benchmark.pgle == "off":
        return {}, None
    try:
        steps = folder.stored_steps()
    except (RequestError, OSError):
        return {}, "its steps.jsonl can't be read: steps in which PGLE recorded may be counted"
    return {step.step: why for step in steps if (why := step.excluded_because) in RECORDED and why}, None
