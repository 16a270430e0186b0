"""Starts runs, as many at once as the site allows, and waits until all have ended. Knows no night and no verdict."""

import contextlib
import io
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from benchmarks.errors import StepmarkError
from benchmarks.values import Benchmark
from launch.campaigns.patience import wait_for_one

FAILED_STARTS = 2  # in a row: then it is the site


class Runner(Protocol):
    """What a site does with a run (launch.running.runners)."""

    def start(self, benchmark: Benchmark, run_id: str) -> None: ...

    def ended(self, run_ids: Sequence[str]) -> set[str]: ...


class Work(NamedTuple):
    """One run that is wanted."""

    label: str
    runner: Runner
    benchmark: Benchmark
    run_id: str


class Crew:
    """`started` is called before each start; `ended` for each that goes on no more, with what kept it from it."""

    def __init__(
        self,
        max_jobs: int,
        started: Callable[[Work], None],
        ended: Callable[[Work, str | None], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._max_jobs = max_jobs
        self._started = started
        self._ended = ended
        self._sleep = sleep
        self._going: dict[str, Work] = {}
        self._failed_starts = 0

    def run(self, wanted: Sequence[Work], going: Sequence[Work] = ()) -> None:
        """All of `wanted`, beside those that an earlier launcher has left `going`."""
        self._going = {work.run_id: work for work in going}
        todo = list(wanted)
        self._take_ended()
        while todo or self._going:
            while todo and len(self._going) < self._max_jobs:
                self._start(todo.pop(0))
            wait_for_one(self._going, self._take_ended, self._sleep)

    def _start(self, work: Work) -> None:
        if self._failed_starts >= FAILED_STARTS:
            return self._ended(work, f"not started: {FAILED_STARTS} starts in a row had failed")
        self._started(work)
        self._going[work.run_id] = work
        say(f"{work.label}: {work.run_id}")
        try:
            # The night's table alone is the answer; what becomes of each run is said in a line, and is in its folder.
            with contextlib.redirect_stdout(io.StringIO()):
                work.runner.start(work.benchmark, work.run_id)
        except StepmarkError as error:
            say(f"stepmark: {error}")
            self._failed_starts += 1
            if work.run_id in self._ended_now([work.run_id]):
                del self._going[work.run_id]
                self._ended(work, f"could not be started: {error.what}")
        else:
            self._failed_starts = 0
        return None

    def _take_ended(self) -> bool:
        ended = self._ended_now(list(self._going))
        for run_id in [run_id for run_id in self._going if run_id in ended]:
            self._ended(self._going.pop(run_id), None)
        return bool(ended)

    def _ended_now(self, run_ids: Sequence[str]) -> set[str]:
        """One question for all: any runner of a site answers for the others."""
        return self._going[run_ids[0]].runner.ended(run_ids) if run_ids else set()

    @property
    def going(self) -> list[str]:
        return list(self._going)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
