"""Wait for a job whose parts each write a file: show its progress, and cancel the job if it is silent for too long.

Stepmark looks often at the shared folder, which does not load Slurm's controller, and seldom at the queue.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RunError
from benchmarks.job_record import SchedulerEnd
from benchmarks.runs.runfolder import write_atomically
from benchmarks.text import duration_text
from benchmarks.values import Site
from launch.slurm.client import Slurm, final_ends
from launch.slurm.commands import by_hand
from launch.slurm.helper_job import job_environment
from launch.slurm.parsing import NOT_ENDED, explain, permanent_reason
from launch.terminal.progress import Show, shown

LOOK_SECONDS = 0.25
FIRST_ASK_SECONDS = 1.0
LONGEST_ASK_SECONDS = 10.0
FILES_SECONDS = 3.0  # the delay of files on a shared file system after the end of the job
ACCOUNTING_SECONDS = 20.0


class Limits(NamedTuple):
    queue_seconds: float  # how long the job may wait for its nodes
    quiet_seconds: float  # how long a running job may write nothing
    further: str = ""  # the next command if the job did not start; empty: the command that shows the partitions


class Progress(NamedTuple):
    news: int  # grows with any output, such as bytes of a log
    text: str
    done: int = 0  # of `total`, for a bar
    total: int = 0


def run_parts(
    site: Site,
    script: Path,
    text: str,
    ends: Sequence[Path],
    written: Callable[[str], int],
    describe: Callable[[int, int], str],
    limits: Limits,
) -> tuple[str, SchedulerEnd | None]:
    """Submit a job whose parts each write a file when they end, and wait. Return its number and the result of `wait`.

    `written` returns the bytes that the job has written so far, as a sign of life during a long part.
    `describe` makes the progress text from the number of finished parts and the number of bytes.
    """
    script.parent.mkdir(parents=True)
    write_atomically(script, text.encode())
    slurm = Slurm(site)
    job_id = slurm.submit(script, job_environment())

    def done() -> int:
        return sum(end.is_file() and end.stat().st_size > 0 for end in ends)  # a new file may be empty for a moment

    def progress() -> Progress:
        parts, size = done(), written(job_id)
        return Progress(parts * 10**15 + size, describe(parts, size), parts, len(ends))

    return job_id, wait(slurm, job_id, progress, lambda: done() == len(ends), limits)


def wait(
    slurm: Slurm, job_id: str, progress: Callable[[], Progress], done: Callable[[], bool], limits: Limits
) -> SchedulerEnd | None:
    """Wait until `done`, or until the job has ended. Cancel a job that is silent for too long.

    Return the scheduler's record if the job ended, otherwise None.
    """
    try:
        with shown() as show:
            return _wait(slurm, job_id, progress, done, limits, show)
    except (KeyboardInterrupt, RunError):
        slurm.cancel(job_id)
        raise


def _wait(
    slurm: Slurm, job_id: str, progress: Callable[[], Progress], done: Callable[[], bool], limits: Limits, show: Show
) -> SchedulerEnd | None:
    submitted = news = asked = time.monotonic()
    came, runs, queued, pause = 0, False, "submitted", FIRST_ASK_SECONDS
    while not done():
        now = time.monotonic()
        new = progress()
        if new.news > came:
            came, news, runs = new.news, now, True
        waited = duration_text(now - submitted)
        if runs:
            show(f"job {job_id}", new.done, new.total, f"{new.text} ({waited})")
        else:
            show(f"job {job_id}: {queued}", 0, 0, waited)
        if now - asked >= pause:
            state = slurm.queue([job_id]).get(job_id)
            asked, pause = time.monotonic(), min(pause * 1.5, LONGEST_ASK_SECONDS)
            if state is None or state.state not in NOT_ENDED:
                return _end(slurm, job_id, done)
            queued = explain(state.state, state.reason)
            if state.state == "RUNNING" and not runs:
                runs, news = True, now
            if state.state == "PENDING" and (impossible := permanent_reason(state.reason)):
                raise _not_started(job_id, impossible, by_hand(slurm.site, f"scontrol show job {job_id}"))
        if not runs and now - submitted > limits.queue_seconds:
            why = f"{queued} for more than {limits.queue_seconds:g} s"
            raise _not_started(job_id, why, limits.further or by_hand(slurm.site, "sinfo -s"))
        if runs and now - news > limits.quiet_seconds:
            slurm.cancel(job_id)
            return None
        time.sleep(LOOK_SECONDS)
    return None


def _not_started(job_id: str, why: str, next_command: str) -> RunError:
    return RunError(f"job {job_id} did not start and was cancelled", why=why, next_command=next_command)


def _end(slurm: Slurm, job_id: str, done: Callable[[], bool]) -> SchedulerEnd | None:
    """Wait for the last files of a job that left the queue. Return None if they arrive, otherwise Slurm's record."""
    deadline = time.monotonic() + FILES_SECONDS
    while time.monotonic() < deadline:
        if done():
            return None
        time.sleep(LOOK_SECONDS)
    return final_ends(slurm, [job_id], ACCOUNTING_SECONDS)[job_id][-1]
