"""Find the state of each run of a folder: from the run's files, and for queued runs from Slurm.

Stepmark queries each cluster once for all of its runs.
"""

import contextlib
import shlex
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from benchmarks.backend import find_backend
from benchmarks.errors import StepmarkError
from benchmarks.job_record import JOB_SCRIPT, SUBMITTED, SchedulerEnd
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import RESULT, RunFolder, is_followed
from benchmarks.runs.worker_events import FIRST_RANK
from benchmarks.text import duration_text, folded
from benchmarks.values import Benchmark
from launch.slurm.client import Slurm, slurm_of
from launch.slurm.collect import collect
from launch.slurm.parsing import QueueState, explain, permanent_reason

# A run may hang if it has written no step for both QUIET_SECONDS and QUIET_STEPS times its step time.
QUIET_SECONDS = 60.0
QUIET_STEPS = 20
FIRST_STEP_SECONDS = 600.0  # for joining, loading and compiling


@dataclass
class RunState:
    """One run as a row of the status table. `state` is one or two words, and `detail` explains it."""

    folder: RunFolder
    state: str
    detail: str = ""
    job_ids: list[str] = field(default_factory=list)
    site: str = ""
    step: int | None = None
    steps: int | None = None
    seconds_per_step: float | None = None
    quiet_seconds: float | None = None  # time since the last output of a running run
    impossible: str | None = None  # Slurm's reason why a queued job can never start
    problems: list[str] = field(default_factory=list)
    just_collected: bool = False  # the result has not been shown yet

    @property
    def job_id(self) -> str | None:
        """The newest job. A run has several jobs if the user submitted its script again by hand."""
        return self.job_ids[-1] if self.job_ids else None

    @property
    def ended(self) -> bool:
        return self.state in ("valid", "invalid", "failed", "cancelled")


def states(folders: Iterable[RunFolder]) -> list[RunState]:
    """Return the state of each run. Runs whose jobs have ended are collected."""
    found = [_from_files(folder) for folder in folders]
    waiting: dict[str, list[RunState]] = {}
    for row in found:
        if row.state == "queued":
            waiting.setdefault(row.site, []).append(row)
    for rows in waiting.values():
        try:
            _ask(rows)
        except StepmarkError as error:  # a cluster that does not answer makes only the states of its runs unknown
            for row in rows:
                row.state, row.detail = "unknown", error.what
                row.problems.append(str(error))
    return found


def _from_files(folder: RunFolder) -> RunState:
    try:
        benchmark = folder.benchmark()
        row = RunState(folder, state="running", site=benchmark.site.name, steps=benchmark.steps)
        if not is_followed(folder):
            row.state = "cut off"
            place = shlex.quote(str(folder.path))
            row.detail = f"its launcher has ended; to make its result: python launch/verify.py --repair {place}"
        if (folder.path / SUBMITTED).exists():
            row.state, row.job_ids, row.detail = "queued", folder.job_ids(), ""
        if (folder.path / RESULT).exists() and folder.is_collected():
            _take_result(row, folder.stored_result())
        else:
            _take_last_step(row, benchmark)
            if row.state == "running":
                row.detail = _hangs(row, "the run may hang, or its launcher has ended")
    except (StepmarkError, OSError) as error:
        return RunState(folder, state="unreadable", detail=_words(error), problems=[str(error)])
    return row


def _take_result(row: RunState, result: Result) -> None:
    cancelled = result.status == "failed" and _was_cancelled(row.folder, result)
    row.state, row.detail = "cancelled" if cancelled else result.status, next(iter(folded(result.reasons)), "")
    row.seconds_per_step = result.seconds_per_step.median
    row.step = result.window.last_step


def _was_cancelled(folder: RunFolder, result: Result) -> bool:
    """Return whether the last attempt or the waiting job was cancelled, but not because it could never start."""
    outcome = result.attempts[-1].outcome if result.attempts else ""
    end = folder.scheduler_end(0) if outcome == "never_started" else None
    return outcome == "cancelled" or (
        end is not None and end.state == "CANCELLED" and not permanent_reason(end.reason)
    )


def _take_last_step(row: RunState, benchmark: Benchmark) -> None:
    attempts = row.folder.attempts()
    if not attempts:
        return
    with contextlib.suppress(OSError):
        phase_dir = row.folder.phase_dir(row.folder.measured_phase().name, attempts[-1])
        # The time since rank 0 last wrote, or since the phase began, from the modification times of the files.
        words = phase_dir / FIRST_RANK
        row.quiet_seconds = time.time() - (words if words.exists() else phase_dir).stat().st_mtime
        follow = find_backend(benchmark.backend).follow(benchmark, phase_dir, attempts[-1])
        steps = follow()
        if steps:
            row.step = steps[-1].step
            seconds = [step.seconds for step in steps[1:] if step.seconds is not None]
            row.seconds_per_step = statistics.median(seconds) if seconds else None


def _ask(rows: list[RunState]) -> None:
    slurm = slurm_of(rows[0].folder)
    for row in rows:
        if not row.job_ids and (found := find_job(row.folder, slurm)):
            row.job_ids = [found]
    queue = slurm.queue([number for row in rows for number in row.job_ids])
    gone = [row for row in rows if row.job_ids and not any(number in queue for number in row.job_ids)]
    ends = slurm.ends([number for row in gone for number in row.job_ids])
    for row in rows:
        in_queue = next((queue[number] for number in reversed(row.job_ids) if number in queue), None)
        _judge(row, in_queue, [end for number in row.job_ids for end in ends.get(number, [])])


def find_job(folder: RunFolder, slurm: Slurm) -> str | None:
    """Return the number of a run's job. If the launcher died before it recorded the number, take it from the job's
    own record or from the queue.
    """
    submitted = folder.submitted()
    job_id = submitted.job_id or next(iter(folder.job_ids()), None) or slurm.find(folder.run_id)
    if job_id and not submitted.job_id:
        with contextlib.suppress(StepmarkError):  # without write access the number is searched for each time
            folder.write(SUBMITTED, msgspec.structs.replace(submitted, job_id=job_id))
    return job_id


def _judge(row: RunState, in_queue: QueueState | None, ends: list[SchedulerEnd]) -> None:
    if not row.job_ids:
        row.state = "not submitted"
        script = shlex.quote(str(row.folder.path / JOB_SCRIPT))
        row.detail = f"the launcher ended before it submitted the job; to submit it: sbatch {script}"
    elif in_queue is None:
        try:
            backend = find_backend(row.folder.benchmark().backend)
            _take_result(row, collect(row.folder, backend, ends))
            row.just_collected = True
        except (StepmarkError, OSError) as error:
            row.state, row.detail = "not collected", _words(error)
            row.problems.append(str(error))
    else:
        row.state = in_queue.state.lower()
        row.detail = explain(in_queue.state, in_queue.reason)
        row.impossible = permanent_reason(in_queue.reason) if in_queue.state == "PENDING" else None
        if in_queue.state == "PENDING" and row.step is not None:  # a requeued job: the next attempt starts again
            row.detail += f"; attempt {row.folder.attempts()[-1]} ended after step {row.step}"
            row.step = row.seconds_per_step = None
        if in_queue.state == "RUNNING":
            row.detail = _hangs(row, "the run may hang")


def _hangs(row: RunState, what: str) -> str:
    quiet = row.quiet_seconds or 0.0
    return f"no step for {duration_text(quiet)}: {what}" if quiet > quiet_limit(row.seconds_per_step) else ""


def _words(error: Exception) -> str:
    return error.what if isinstance(error, StepmarkError) else str(error)


def quiet_limit(seconds_per_step: float | None) -> float:
    """Return the seconds of silence after which a run may hang. The limit for the first step includes compilation."""
    return FIRST_STEP_SECONDS if seconds_per_step is None else max(QUIET_SECONDS, QUIET_STEPS * seconds_per_step)
