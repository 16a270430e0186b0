"""Waits for a job that many nodes or files report to: shows how far it is, and gives up in good time.

The shared folder is looked at often, the queue seldom: a look costs Slurm nothing.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.errors import RunError
from benchmarks.jobs.job_record import SchedulerEnd
from benchmarks.rendering.report import duration_text
from launch.slurm.client import Slurm
from launch.slurm.reasons import explain, never

LOOK_SECONDS = 0.25
FIRST_ASK_SECONDS = 1.0
LONGEST_ASK_SECONDS = 10.0
GROWTH = 1.5
PLAIN_LINE_SECONDS = 5.0
FILES_SECONDS = 3.0  # what a shared file system may lag behind the end of the job
ACCOUNTING_SECONDS = 20.0
OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL"} | {
    "DEADLINE",
    "UNKNOWN",
}

Ended = SchedulerEnd | None


@dataclass(frozen=True)
class Limits:
    queue_seconds: float  # how long the job may wait for its nodes
    quiet_seconds: float  # how long nothing may come from a job that runs


def wait(
    slurm: Slurm, job_id: str, progress: Callable[[], tuple[int, str]], done: Callable[[], bool], limits: Limits
) -> Ended:
    """Until `done`, or the job has ended, or nothing has come for too long; the job is then cancelled.

    `progress` counts what has come, and says it in words. The scheduler's end where it was the job that ended,
    None otherwise.
    """
    try:
        with _shown() as show:
            return _Wait(slurm, job_id, progress, done, limits, show).run()
    except KeyboardInterrupt:
        slurm.cancel(job_id)
        raise


class _Wait:
    def __init__(
        self,
        slurm: Slurm,
        job_id: str,
        progress: Callable[[], tuple[int, str]],
        done: Callable[[], bool],
        limits: Limits,
        show: Callable[[str], None],
    ) -> None:
        self._slurm, self._job_id, self._progress, self._done = slurm, job_id, progress, done
        self._limits, self._show = limits, show
        self._submitted = self._news = time.monotonic()
        self._came = 0
        self._queue_text = "submitted"
        self._runs = False
        self._asked, self._ask_after = time.monotonic(), FIRST_ASK_SECONDS

    def run(self) -> Ended:
        while True:
            self._look()
            if self._done():
                return None
            if self._ask_is_due() and not self._ask():
                return self._ended()
            if self._give_up():
                self._slurm.cancel(self._job_id)
                return None
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        came, text = self._progress()
        if came > self._came:
            self._came, self._news, self._runs = came, time.monotonic(), True
        waited = duration_text(time.monotonic() - self._submitted)
        self._show(f"job {self._job_id}: {text if self._runs else self._queue_text} ({waited})")

    def _ask_is_due(self) -> bool:
        return time.monotonic() - self._asked >= self._ask_after

    def _ask(self) -> bool:
        """Whether the job is still in the queue."""
        state = self._slurm.queue([self._job_id]).get(self._job_id)
        self._asked, self._ask_after = time.monotonic(), min(self._ask_after * GROWTH, LONGEST_ASK_SECONDS)
        if state is None or state.state in OVER:
            return False
        self._queue_text = explain(state.state, state.reason)
        if state.state == "RUNNING" and not self._runs:
            self._runs, self._news = True, time.monotonic()
        impossible = never(state.reason) if state.state == "PENDING" else None
        if impossible:
            self._refuse(impossible, "scontrol show job " + self._job_id)
        return True

    def _give_up(self) -> bool:
        if not self._runs and time.monotonic() - self._submitted > self._limits.queue_seconds:
            self._refuse(
                f"{self._queue_text} for more than {self._limits.queue_seconds:g} s",
                "--queue_limit=<seconds> to wait longer, --nodelist=<idle nodes>, or --noexclusive",
            )
        return self._runs and time.monotonic() - self._news > self._limits.quiet_seconds

    def _refuse(self, why: str, next_command: str) -> None:
        self._slurm.cancel(self._job_id)
        raise RunError(f"job {self._job_id} did not start, and was cancelled", why=why, next_command=next_command)

    def _ended(self) -> Ended:
        """The job is over: its last files may still come, and the accounting may lag behind."""
        deadline = time.monotonic() + FILES_SECONDS
        while not self._done() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        self._look()
        if self._done():
            return None
        deadline = time.monotonic() + ACCOUNTING_SECONDS
        while True:
            ends = self._slurm.ends([self._job_id]).get(self._job_id, [])
            if (ends and ends[-1].state in OVER) or time.monotonic() > deadline:
                return ends[-1] if ends else SchedulerEnd(job_id=self._job_id, state="UNKNOWN", source="nobody")
            time.sleep(1.0)


def say(text: str) -> None:
    """For Slurm's own `on_wait`: that the controller does not answer."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[str], None]]:
    """A live line on a terminal, a plain line now and then without one. On stderr: stdout keeps the report."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("") as status:
            yield status.update
        return
    last = -PLAIN_LINE_SECONDS

    def line(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_LINE_SECONDS:
            print(text, file=sys.stderr, flush=True)
            last = time.monotonic()

    yield line
