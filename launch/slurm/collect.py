"""Collect a queued run that has ended: write scheduler.json, seal the raw files, make steps.jsonl and result.json."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence

from benchmarks.backend import Backend
from benchmarks.dashboard.events import write_ended
from benchmarks.errors import RequestError
from benchmarks.files import retried
from benchmarks.job_record import SCHEDULER, JobEvent, SchedulerEnd
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import BENCHMARK, RunFolder, write_atomically
from benchmarks.values import json_text
from launch.running.execute import finish

# The largest expected difference between a node's clock and the launcher's.
SKEW_SECONDS = 300.0


@retried
def collect(folder: RunFolder, backend: Backend, ends: Sequence[SchedulerEnd]) -> Result:
    """Collect an ended run and return its result. A second call, also from another shell, returns the same result."""
    with _exclusive(folder):
        for attempt, end in ends_by_attempt(folder, ends).items():
            _write_down(folder, attempt, end)
        result = finish(folder, backend)
        write_ended(folder)
        return result


def ends_by_attempt(folder: RunFolder, ends: Sequence[SchedulerEnd]) -> dict[int, SchedulerEnd]:
    """Return the scheduler's record of each attempt. A job that never started has only attempt 0.

    Each attempt has recorded its job number and how often Slurm had requeued the job. That count is the index of the
    attempt's row among the job's rows that ran. Rows of an older job with the same number are excluded.
    """
    attempts = folder.attempts()
    # Job numbers are reused: a row that ended before the run was submitted belongs to another job.
    oldest = folder.submitted().submitted - SKEW_SECONDS
    own = [end for end in ends if end.ended is None or end.ended >= oldest]
    if not attempts:
        return {0: own[-1]} if own else {}
    starts = [
        next((event for event in folder.job_events(attempt) if event.event == "start"), None) for attempt in attempts
    ]
    found = {}
    for place, (attempt, start) in enumerate(zip(attempts, starts, strict=True)):
        job_id = start.job_id if start else None
        is_last = not any(later is None or later.job_id == job_id for later in starts[place + 1 :])
        end = _of_attempt(own, start, place, is_last=is_last)
        if end is not None:
            found[attempt] = end
    return found


def _of_attempt(
    ends: Sequence[SchedulerEnd], start: JobEvent | None, place: int, *, is_last: bool
) -> SchedulerEnd | None:
    """Return the scheduler's row for the attempt with index `place`, from 0. `start` is its first event."""
    rows = [end for end in ends if start is None or start.job_id in (None, end.job_id)]
    ran = [end for end in rows if end.started is not None]
    if len(ran) == 1 and ran[0].source == "scontrol":  # scontrol only knows the last attempt of a job
        return ran[0] if is_last else None
    restarts = start.restarts if start and start.restarts is not None else place
    if restarts < len(ran):
        return ran[restarts]
    return rows[-1] if rows and is_last else None


def _write_down(folder: RunFolder, attempt: int, end: SchedulerEnd) -> None:
    """Write the scheduler's record of an attempt, but do not replace a known end with UNKNOWN."""
    before = None
    with contextlib.suppress(RequestError):  # an unreadable record is replaced
        before = folder.scheduler_end(attempt)
    if before is not None and (before == end or end.state == "UNKNOWN"):
        return
    write_atomically(folder.attempt_dir(attempt) / SCHEDULER, json_text(end).encode())


@contextlib.contextmanager
def _exclusive(folder: RunFolder) -> Iterator[None]:
    """Let one process at a time collect the run. Without file locks, only atomic writes protect the run."""
    path = folder.path / BENCHMARK
    with path.open("rb+" if os.access(path, os.W_OK) else "rb") as stream:  # NFS needs a writable file for a lock
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
