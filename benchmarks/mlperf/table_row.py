"""An MLLOG in the table of many logs: its status is what its last run says of itself. Pure."""

from collections.abc import Sequence

import msgspec

from benchmarks.logs.timing_table import FAILED, INCOMPLETE, SUCCESS, Row
from benchmarks.mlperf.run_log import LoggedRun

STATUS = {"success": SUCCESS, "aborted": FAILED, "fail": FAILED}


def row_of_runs(row: Row, runs: Sequence[LoggedRun]) -> Row:
    """The row of its steps, with the status of the last run that it holds; the other runs in the reason."""
    if not runs:
        return row
    said = [_said(run) for run in runs]
    reason = f"MLPerf {said[-1]}"
    if len(runs) > 1:
        reason += f"; the runs before it: {'; '.join(said[:-1])}"
    if row.steps_counted == 0:
        reason += "; no step of the window was tracked"
    last = runs[-1]
    status = STATUS.get(last.status, FAILED if last.status_text else INCOMPLETE)
    return msgspec.structs.replace(row, status=status, reason=reason)


def _said(run: LoggedRun) -> str:
    words = [run.benchmark or "(no benchmark named)", run.status_text or "without run_stop"]
    if run.seconds is not None:
        words.append(f"after {run.seconds / 60:.3f} min")
    if run.samples is not None:
        words.append(f"and {run.samples} samples")
    if run.evaluations:
        value = run.evaluations[-1].value
        words.append(f"(evaluation {len(run.evaluations)}: {'no number' if value is None else f'{value:.4f}'})")
    return " ".join(words)
