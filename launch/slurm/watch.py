"""Follows a run on Slurm from the queue to its end: the job's state, then its steps as they come, then its result.

Steps are read from the shared folder, which costs Slurm nothing; the controller is asked seldom, and at once when the
job's own record says that it has ended.
"""

import contextlib
import shlex
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable

import msgspec

from benchmarks.backend import Backend
from benchmarks.errors import RunError
from benchmarks.queue.job_record import SUBMITTED, JobEvent, SchedulerEnd, Submitted
from benchmarks.runfolder import RunFolder
from benchmarks.summary import Result
from benchmarks.values import Benchmark, Step
from launch.cli import EXIT_INTERRUPTED
from launch.screen import Screen
from launch.showing import EXIT_CODES, show_result
from launch.slurm.asking import slurm_of
from launch.slurm.client import QueueState, Slurm, explain, never
from launch.slurm.collect import collect
from launch.step_sink import StepSink

LOOK_SECONDS = 0.5  # between two looks at the shared folder
FIRST_ASK_SECONDS = 1.0  # between the first two questions to Slurm; then ever longer
LONGEST_ASK_SECONDS = 20.0
GROWTH = 1.4
# A run without a step for so long, and for so many times what a step takes, may hang.
QUIET_SECONDS = 60.0
QUIET_STEPS = 20
ACCOUNTING_SECONDS = 30.0  # what the accounting may lag behind the controller
NOT_OVER = {"PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED", "CONFIGURING", "RESIZING"}


def wait_for(folder: RunFolder, backend: Backend) -> int:
    """Follow a run and show its result; the exit code. Ctrl-C leaves the job where it is."""
    try:
        result = watch(folder, backend, slurm_of(folder))
    except KeyboardInterrupt:
        place = shlex.quote(str(folder.path))
        print(
            f"no longer followed; the job goes on\n"
            f"  to see more:  python launch/status.py --follow {place}\n"
            f"  to end it:    python launch/status.py --cancel {place}",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    except RunError:
        print(
            f"no longer followed; the job may go on: python launch/status.py --follow {folder.path}", file=sys.stderr
        )
        raise
    show_result(folder, result)
    return EXIT_CODES[result.status]


def watch(folder: RunFolder, backend: Backend, slurm: Slurm) -> Result:
    """Until the job has left the queue; then its result."""
    benchmark, submitted = folder.benchmark(), folder.submitted()
    job_id = find_job(folder, submitted, slurm)
    with (
        StepSink(folder, benchmark) as sink,
        Screen(benchmark.steps, f"job {job_id}: submitted to {benchmark.site.name}") as screen,
    ):
        _Watch(folder, benchmark, backend, slurm, job_id, sink, screen).run()
    return collect(folder, backend, ends_of(slurm, job_id))


def find_job(folder: RunFolder, submitted: Submitted, slurm: Slurm) -> str:
    """The job's number; looked for in the queue where the launcher died before it could write it down."""
    job_id = submitted.job_id or slurm.find(folder.run_id)
    if job_id is None:
        raise RunError(
            "the run has no job: the launcher ended before Slurm had taken it",
            where=str(folder.path),
            next_command=f"sbatch {folder.path}/job.sbatch, or start it anew",
        )
    if submitted.job_id is None:
        folder.write(SUBMITTED, msgspec.structs.replace(submitted, job_id=job_id))
    return job_id


def ends_of(slurm: Slurm, job_id: str) -> list[SchedulerEnd]:
    """How its attempts ended; the accounting is given a moment to hear of it."""
    deadline = time.monotonic() + ACCOUNTING_SECONDS
    pause = 0.2
    while True:
        ends = slurm.ends([job_id])[job_id]
        if (ends and ends[-1].state not in NOT_OVER) or time.monotonic() > deadline:
            return ends
        time.sleep(pause)
        pause = min(2.0, pause * GROWTH)


class _Watch:
    """One run that is being followed."""

    def __init__(
        self,
        folder: RunFolder,
        benchmark: Benchmark,
        backend: Backend,
        slurm: Slurm,
        job_id: str,
        sink: StepSink,
        screen: Screen,
    ) -> None:
        self._folder, self._benchmark, self._backend = folder, benchmark, backend
        self._slurm, self._job_id = slurm, job_id
        self._sink, self._screen = sink, screen
        self._phase = folder.measured_phase()
        self._attempt = 0
        self._new_steps: Callable[[], list[Step]] = list
        self._seconds: deque[float] = deque(maxlen=50)
        self._last_sign = time.monotonic()
        self._said_quiet = False
        self._can_write = True

    def run(self) -> None:
        pause, asked, cancelled = FIRST_ASK_SECONDS, 0.0, False
        while True:
            self._look()
            if self._has_ended():
                pause = FIRST_ASK_SECONDS
            if time.monotonic() - asked >= pause:
                state = self._slurm.queue([self._job_id]).get(self._job_id)
                asked, pause = time.monotonic(), min(LONGEST_ASK_SECONDS, pause * GROWTH)
                if state is None:
                    self._look()
                    return
                self._say(state)
                reason = never(state.reason) if state.state == "PENDING" else None
                if reason and not cancelled:
                    self._screen.note(f"job {self._job_id} can never start: {reason}; it is taken out of the queue")
                    self._slurm.cancel(self._job_id)
                    cancelled, pause = True, FIRST_ASK_SECONDS
            time.sleep(LOOK_SECONDS if pause > FIRST_ASK_SECONDS else LOOK_SECONDS / 2)

    def _look(self) -> None:
        """What the job has written since the last look."""
        self._look_for_attempt()
        steps = self._new_steps()
        if not steps:
            self._look_for_silence()
            return
        self._last_sign, self._said_quiet = time.monotonic(), False
        self._seconds.extend(step.seconds for step in steps if step.seconds is not None and step.rank == 0)
        self._screen.show(self._written(steps))

    def _written(self, steps: list[Step]) -> list[Step]:
        """A full disk here ends no job: its own files are what the result is made from."""
        if self._can_write:
            try:
                return self._sink.take(steps)
            except RunError as error:
                self._screen.note(str(error))
                self._can_write = False
        return steps

    def _look_for_attempt(self) -> None:
        attempts = self._folder.attempts()
        if not attempts or attempts[-1] == self._attempt:
            return
        if self._attempt:
            self._screen.show(self._written(self._new_steps()))  # the last words of the attempt before
        self._attempt = attempts[-1]
        phase_dir = self._folder.phase_dir(self._phase, self._attempt)
        self._new_steps = self._backend.follow(self._benchmark, phase_dir, self._attempt)
        self._last_sign = time.monotonic()
        self._seconds.clear()
        again = f", attempt {self._attempt}" if self._attempt > 1 else ""
        self._screen.waiting(f"job {self._job_id}: starting {self._backend.title}{again}")

    def _look_for_silence(self) -> None:
        quiet = time.monotonic() - self._last_sign
        if self._said_quiet or not self._seconds or self._has_ended():
            return
        typical = statistics.median(self._seconds)
        if quiet > max(QUIET_SECONDS, QUIET_STEPS * typical):
            self._said_quiet = True
            self._screen.note(
                f"no step for {quiet:.0f} s, though one takes {typical:.3g} s: it may hang. To end it: "
                f"python launch/status.py --cancel {self._folder.path} (--hang_timeout=SECONDS ends such runs itself)"
            )

    def _has_ended(self) -> bool:
        return any(event.event == "end" for event in self._events())

    def _events(self) -> list[JobEvent]:
        with contextlib.suppress(OSError):
            return self._folder.job_events(self._attempt) if self._attempt else []
        return []

    def _say(self, state: QueueState) -> None:
        if state.state != "RUNNING" and (not self._attempt or state.state == "PENDING"):
            self._screen.waiting(f"job {self._job_id}: {explain(state.state, state.reason)}{_when(state)}")


def _when(state: QueueState) -> str:
    return f"; may start at {state.start}" if state.start else ""
