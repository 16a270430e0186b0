"""Follow a run on Slurm from the queue to its end: show the job's state, then its steps, then its result.

Stepmark reads the steps from the shared folder, which does not load Slurm's controller. It asks the controller
seldom, except when the job's record shows that the job has ended.
"""

import contextlib
import shlex
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable

from benchmarks.backend import Backend
from benchmarks.errors import EXIT_CODES, EXIT_INTERRUPTED, RunError, StepmarkError
from benchmarks.files import passing
from benchmarks.job_record import JOB_SCRIPT, JobEvent, SchedulerEnd
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Benchmark, Step
from launch.machine.processes import interrupted_once
from launch.running.execute import StepSink
from launch.running.screen import Screen, show_result
from launch.slurm.client import Slurm, final_ends, slurm_of
from launch.slurm.collect import collect
from launch.slurm.parsing import explain, permanent_reason
from launch.slurm.run_states import find_job, quiet_limit

WATCHING_PATIENCE = 2.0  # short, because no steps are read while a query to Slurm is retried
LOOK_SECONDS = 0.5  # between two reads of the shared folder
FIRST_ASK_SECONDS = 1.0  # the first pause between queries to Slurm; later pauses are longer
LONGEST_ASK_SECONDS = 20.0
GROWTH = 1.4
GIVE_UP_SECONDS = 600.0  # after this long without an answer from Slurm or a step, stop following the run
UNANSWERED_SECONDS = 60.0  # how long to wait for Slurm's report after the job has recorded its own end
ACCOUNTING_SECONDS = 30.0  # how long the accounting may lag behind the controller


def wait_for(folder: RunFolder, backend: Backend) -> int:
    """Follow a run and show its result; return the exit code. Ctrl-C does not cancel the job."""
    try:
        with interrupted_once():
            slurm = slurm_of(folder, WATCHING_PATIENCE, lambda _text: None)  # the watch reports retries itself
            result = watch(folder, backend, slurm)
    except KeyboardInterrupt:
        place = shlex.quote(str(folder.path))
        print(
            f"Stepmark no longer follows the job, which continues\n"
            f"  to see more:  python launch/status.py --follow {place}\n"
            f"  to end it:    python launch/status.py --cancel {place}",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    except RunError:
        print(
            "Stepmark no longer follows the job, which may continue: python launch/status.py --follow",
            shlex.quote(str(folder.path)),
            file=sys.stderr,
        )
        raise
    show_result(folder, result)
    return EXIT_CODES[result.status]


def watch(folder: RunFolder, backend: Backend, slurm: Slurm) -> Result:
    """Show the run's progress until its job has left the queue. Return its result."""
    benchmark = folder.benchmark()
    require_job(folder, slurm)
    begin = f"job {folder.job_ids()[-1]}: submitted to {benchmark.site.name}"
    with StepSink(folder, benchmark) as sink, Screen(benchmark.steps, begin) as screen:
        _Watch(folder, benchmark, backend, slurm, sink, screen).run()
    return collect(folder, backend, ends_of(slurm, folder))


def require_job(folder: RunFolder, slurm: Slurm) -> None:
    if find_job(folder, slurm) is None:
        raise RunError(
            "the run has no job, because the launcher ended before it submitted the job",
            where=str(folder.path),
            next_command=f"sbatch {shlex.quote(str(folder.path / JOB_SCRIPT))}",
        )


def ends_of(slurm: Slurm, folder: RunFolder) -> list[SchedulerEnd]:
    """Return how the run's attempts ended. If Slurm does not answer, each end is UNKNOWN."""
    numbers = folder.job_ids()
    try:
        ends = final_ends(slurm, numbers, ACCOUNTING_SECONDS)
    except StepmarkError as error:
        note = f"Slurm does not answer: {error.what}"
        return [SchedulerEnd(job_id=job, state="UNKNOWN", source="nobody", note=note) for job in numbers]
    return [end for job in numbers for end in ends[job]]


class _Watch:
    """The state of the loop that follows one run."""

    def __init__(
        self, folder: RunFolder, benchmark: Benchmark, backend: Backend, slurm: Slurm, sink: StepSink, screen: Screen
    ) -> None:
        self._folder, self._benchmark, self._backend, self._slurm = folder, benchmark, backend, slurm
        self._sink, self._screen = sink, screen
        self._phase = folder.measured_phase().name
        self._begun: str | None = None  # the name of the running phase
        self._attempt = 0
        self._new_steps: Callable[[], list[Step]] = list
        self._seconds: deque[float] = deque(maxlen=50)
        self._last_sign = time.monotonic()
        self._said_quiet = False
        self._unanswered_since: float | None = None
        self._cancelled = False

    def run(self) -> None:
        pause, asked = FIRST_ASK_SECONDS, 0.0
        while True:
            with passing():
                self._look()
                if self._has_ended():
                    pause = FIRST_ASK_SECONDS
                if time.monotonic() - asked >= pause:
                    if self._has_left():
                        self._look()
                        return
                    asked, pause = time.monotonic(), min(LONGEST_ASK_SECONDS, pause * GROWTH)
            time.sleep(LOOK_SECONDS if pause > FIRST_ASK_SECONDS else LOOK_SECONDS / 2)

    def _has_left(self) -> bool:
        """Return whether all jobs of the run have left the queue. If Slurm does not answer, ask again later."""
        numbers = self._folder.job_ids()
        try:
            queue = self._slurm.queue(numbers)
        except StepmarkError as error:
            return self._is_unanswered(error)
        if self._unanswered_since is not None:
            self._screen.note("Slurm answers again")
            self._unanswered_since = None
        state = next((queue[number] for number in reversed(numbers) if number in queue), None)
        if state is None:
            return True
        if state.state == "PENDING" or (state.state != "RUNNING" and not self._attempt):
            start = f"; may start at {state.start}" if state.start else ""
            self._screen.waiting(f"job {state.job_id}: {explain(state.state, state.reason)}{start}")
        reason = permanent_reason(state.reason) if state.state == "PENDING" else None
        if reason and not self._cancelled:
            self._screen.note(f"job {state.job_id} was cancelled, because it can never start: {reason}")
            self._slurm.cancel(state.job_id)
            self._cancelled = True
        return False

    def _is_unanswered(self, error: StepmarkError) -> bool:
        """Print once that Slurm does not answer. Return whether the job ended and Slurm is silent for a minute."""
        now = time.monotonic()
        if self._unanswered_since is None:
            self._unanswered_since = now
            self._screen.note(f"{error.what}; the run continues, and Stepmark reads its steps from the run's folder")
        silent = now - max(self._unanswered_since, self._last_sign)
        if not self._has_ended() and silent > GIVE_UP_SECONDS:
            raise RunError(
                f"neither Slurm nor the run has answered for {silent:.0f} s: {error.what}",
                where=str(self._folder.path),
                why="the cluster may be gone; the files of the run are kept",
                next_command=f"python launch/status.py --collect {shlex.quote(str(self._folder.path))}",
            )
        return self._has_ended() and now - self._unanswered_since > UNANSWERED_SECONDS

    def _look(self) -> None:
        """Read the new output of the job, and show it."""
        self._look_for_attempt()
        self._look_for_phase()
        steps = self._new_steps()
        if not steps:
            self._look_for_silence()
            return
        self._last_sign, self._said_quiet = time.monotonic(), False
        self._seconds.extend(step.seconds for step in steps if step.seconds is not None)
        self._screen.show(self._sink.take(steps))

    def _look_for_attempt(self) -> None:
        attempts = self._folder.attempts()
        if not attempts or attempts[-1] == self._attempt:
            return
        if self._attempt:
            self._screen.show(self._sink.take(self._new_steps()))  # the last steps of the previous attempt
        self._attempt = attempts[-1]
        phase_dir = self._folder.phase_dir(self._phase, self._attempt)
        self._new_steps = self._backend.follow(self._benchmark, phase_dir, self._attempt)
        self._last_sign = time.monotonic()
        self._seconds.clear()
        again = f", attempt {self._attempt}" if self._attempt > 1 else ""
        self._screen.waiting(f"job {self._folder.job_ids()[-1]}: starting {self._backend.title}{again}")

    def _look_for_phase(self) -> None:
        """Show a new phase. Even a phase without measured steps shows that the run has not stopped."""
        begun = [event.phase for event in self._events() if event.event == "phase_start"]
        phases = len(self._folder.plan().phases)
        if begun and phases > 1 and begun[-1] != self._begun:
            self._begun = begun[-1]
            self._last_sign = time.monotonic()
            job = self._folder.job_ids()[-1]
            self._screen.waiting(f"job {job}: phase {len(begun)} of {phases}, {self._begun}")

    def _look_for_silence(self) -> None:
        quiet = time.monotonic() - self._last_sign
        if self._said_quiet or not self._attempt or self._has_ended():
            return
        typical = statistics.median(self._seconds) if self._seconds else None
        if quiet > quiet_limit(typical):
            self._said_quiet = True
            usual = f" (a step takes {typical:.3g} s)" if typical is not None else " since the start"
            place = shlex.quote(str(self._folder.path))
            self._screen.note(
                f"no step for {quiet:.0f} s{usual}: the run may hang. To end it: "
                f"python launch/status.py --cancel {place} (run.py --hang_timeout=SECONDS ends such runs by itself)"
            )

    def _has_ended(self) -> bool:
        return any(event.event == "end" for event in self._events())

    def _events(self) -> list[JobEvent]:
        with contextlib.suppress(OSError):
            return self._folder.job_events(self._attempt) if self._attempt else []
        return []
