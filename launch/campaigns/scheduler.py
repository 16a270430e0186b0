"""Start the runs of a sweep or a night, as many at once as the site allows, and follow them to their ends.

The code is the same for sweeps and nights. `exclusive_lock` refuses a second launcher of the same sweep or suite.
"""

import contextlib
import fcntl
import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.errors import RequestError, StepmarkError
from benchmarks.request.resolve import Request
from benchmarks.runs.runfolder import new_run_id
from benchmarks.text import duration_text, plural
from benchmarks.values import Benchmark
from launch.terminal.progress import say

if TYPE_CHECKING:
    from launch.running.runners import Runner

FAILED_STARTS = 2  # after this many failures in a row, assume that the site is broken, and start no other run
FIRST_WAIT_SECONDS = 1.0  # the first pause between queries of the runs; later pauses are longer
LONGEST_WAIT_SECONDS = 15.0
LONGEST_SILENCE_SECONDS = 600.0  # long enough for a restart of Slurm's controller


class Work(NamedTuple):
    """One run to start."""

    key: Any  # identifies the run for the caller
    label: str
    runner: "Runner"
    benchmark: Benchmark
    request: Request
    run_id: str = ""  # empty until the run is started


class Scheduler:
    """Starts and follows runs. Calls `started` before each start, and `ended` with the error of a failed start."""

    def __init__(
        self,
        output_dir: Path,
        max_jobs: int,
        started: Callable[[Work], None],
        ended: Callable[[Work, str | None], None],
        sleep: Callable[[float], None] = time.sleep,
        *,
        quiet: bool = False,
    ) -> None:
        """`quiet` hides the output of each run on stdout."""
        self._output_dir = output_dir
        self._max_jobs = max_jobs
        self._started = started
        self._ended = ended
        self._sleep = sleep
        self._quiet = quiet
        self._going: dict[str, Work] = {}
        self._todo: list[Work] = []
        self._failed_starts = 0  # the current number of failures in a row
        self.start_failed = False

    @property
    def going(self) -> list[str]:
        return list(self._going)

    def follow(self, going: Iterable[Work]) -> None:
        """Also follow runs that an earlier launcher started. Some of them may already have ended."""
        self._going |= {work.run_id: work for work in going}
        self.take_ended()

    def run(self, wanted: Sequence[Work], *, wait: bool = True) -> list[Work]:
        """Start the runs and wait until all have ended. Return the runs that were not started."""
        self._todo += wanted
        dropped: list[Work] = []
        while self._todo or self._going:
            while self._todo and len(self._going) < self._max_jobs and self._failed_starts < FAILED_STARTS:
                self._start(self._todo.pop(0))
            if not wait:
                break
            if self._todo and self._failed_starts >= FAILED_STARTS:
                others = plural(len(self._todo), "run")
                say(f"{FAILED_STARTS} starts in a row failed, so the other {others} are not started")
                dropped, self._todo = dropped + self._todo, []
            self._wait_for_one()
        dropped, self._todo = dropped + self._todo, []
        return dropped

    def take_ended(self) -> bool:
        """Report the runs that have ended. Return whether there is any. Raise StepmarkError if the site is silent."""
        ended = self._going[self.going[0]].runner.ended(self.going) if self._going else set()  # any runner can tell
        for run_id in [run_id for run_id in self._going if run_id in ended]:
            self._ended(self._going.pop(run_id), None)
        return bool(ended)

    def _start(self, work: Work) -> None:
        if work.benchmark.instruments.pgle != "off":  # another run may have stored a profile in the meantime
            work = work._replace(benchmark=work.runner.resolve_offline(work.request))
        work = work._replace(run_id=new_run_id(work.benchmark))
        self._started(work)
        self._going[work.run_id] = work
        say(f"{work.label}: {work.run_id}")
        try:
            with contextlib.redirect_stdout(io.StringIO()) if self._quiet else contextlib.nullcontext():
                work.runner.start(work.benchmark, work.run_id)
        except StepmarkError as error:
            say(f"stepmark: {error}")
            self.start_failed = True
            self._failed_starts += 1
            if self._left_nothing(work):
                del self._going[work.run_id]
                self._ended(work, error.what)
        else:
            self._failed_starts = 0

    def _left_nothing(self, work: Work) -> bool:
        """Return whether a failed start left no job. A queue may have accepted a job even if its answer was lost."""
        if not (self._output_dir / work.run_id).is_dir():
            return True
        with contextlib.suppress(StepmarkError):  # `_wait_for_one` asks again
            return work.run_id in work.runner.ended([work.run_id])
        return False

    def _wait_for_one(self) -> None:
        """Wait until a run has ended, with growing pauses. Tolerate a queue that does not answer for some time."""
        pause, silence = FIRST_WAIT_SECONDS, 0.0
        while self._going:
            try:
                if self.take_ended():
                    return
                silence = 0.0
            except StepmarkError as error:
                if silence >= LONGEST_SILENCE_SECONDS:
                    raise
                if not silence:
                    say(f"stepmark: {error}\ntrying again for {duration_text(LONGEST_SILENCE_SECONDS)}")
                silence += pause
            self._sleep(pause)
            pause = min(pause * 1.5, LONGEST_WAIT_SECONDS)


# --- one launcher at a time ---------------------------------------------------------------------


@contextlib.contextmanager
def exclusive_lock(path: Path, work: str) -> Iterator[None]:
    """Lock a sweep or a suite on all machines that share its folder. The lock ends with the process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise RequestError(
            f"the output folder is not writable: {error.strerror}",
            where=str(path.parent),
            why="pass --output_dir=DIR with a writable folder that has space",
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 300, 0).decode(errors="replace").strip()
            raise RequestError(
                f"another launcher is running this {work}: {holder or 'unknown'}",
                where=str(path),
                why="two launchers would start every run twice; wait for the other one, or stop it",
            ) from None
        except OSError as error:
            say(f"cannot lock {path} ({error.strerror}): do not start a second launcher for this {work}")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
