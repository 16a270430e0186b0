"""Runs started and waited for, on a site that is made up."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.errors import RequestError, RunError
from benchmarks.values import Instruments
from launch.campaigns import scheduler
from launch.campaigns.scheduler import Scheduler, Work

PLAIN: Any = SimpleNamespace(instruments=Instruments(pgle="off"))
GUIDED: Any = SimpleNamespace(instruments=Instruments(pgle="nsys"))


class Site:
    """A run has ended when it was asked for `polls` times."""

    def __init__(self, polls: int = 2) -> None:
        self.polls = polls
        self.asked: dict[str, int] = {}
        self.most = 0
        self.refuses: set[str] = set()
        self.silent = 0  # so many questions are not answered
        self.benchmarks: list[Any] = []
        self.questions: list[list[str]] = []

    def resolve_offline(self, request: Any) -> Any:
        return SimpleNamespace(instruments=Instruments(pgle="nsys"), request=request, runs_before=len(self.asked))

    def start(self, benchmark: Any, run_id: str) -> None:
        self.benchmarks.append(benchmark)
        if run_id in self.refuses:
            raise RequestError("sbatch said no")
        self.asked[run_id] = 0
        self.most = max(self.most, sum(count < self.polls for count in self.asked.values()))

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        self.questions.append(list(run_ids))
        if self.silent:
            self.silent -= 1
            raise RunError("no answer")
        for run_id in run_ids:
            self.asked[run_id] = self.asked.get(run_id, self.polls) + 1
        return {run_id for run_id in run_ids if self.asked[run_id] >= self.polls}


class Told:
    """What a scheduler tells its caller."""

    def __init__(self, site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch, max_jobs: int = 1) -> None:
        names = iter(range(100))
        monkeypatch.setattr(scheduler, "new_run_id", lambda _benchmark: f"run{next(names)}")
        self.site = site
        self.started: list[str] = []
        self.ended: dict[str, str | None] = {}
        self.left: list[Work] = []
        self.waits: list[float] = []
        self.scheduler = Scheduler(folder, max_jobs, self._started, self._ended, self._sleep)

    def _started(self, work: Work) -> None:
        assert work.run_id not in self.site.asked  # recorded before it is started
        self.started.append(work.run_id)

    def _ended(self, work: Work, trouble: str | None) -> None:
        self.ended[work.run_id] = trouble

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def run(self, count: int, *, wait: bool = True, benchmark: Any = PLAIN) -> "Told":
        site: Any = self.site
        wanted = [Work(number, f"cell{number}", site, benchmark, PLAIN) for number in range(count)]
        self.left = self.scheduler.run(wanted, wait=wait)
        return self


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    return lambda site, max_jobs=1: Told(site, tmp_path, monkeypatch, max_jobs)


@pytest.mark.parametrize("max_jobs", [1, 3])
def test_no_more_run_at_once_than_the_site_allows(told: Callable[..., Told], max_jobs: int) -> None:
    site = Site()
    seen = told(site, max_jobs).run(7)
    assert site.most == max_jobs
    assert seen.started == [f"run{number}" for number in range(7)]
    assert seen.ended == dict.fromkeys(seen.started)
    assert max(map(len, site.questions)) == max_jobs  # one question for all


def test_pgle_is_resolved_again_before_each_start(told: Callable[..., Told]) -> None:
    """An earlier run may have left a profile."""
    site = Site()
    told(site).run(2)
    assert site.benchmarks == [PLAIN, PLAIN]
    told(site := Site()).run(3, benchmark=GUIDED)
    assert [one.runs_before for one in site.benchmarks] == [0, 1, 2]


def test_nothing_is_started_after_two_failed_starts_in_a_row(told: Callable[..., Told]) -> None:
    site = Site()
    site.refuses = {"run1", "run2"}
    seen = told(site, 2).run(5)
    assert seen.started == ["run0", "run1", "run2"]
    assert [work.key for work in seen.left] == [3, 4]
    assert seen.ended == {"run0": None, "run1": "sbatch said no", "run2": "sbatch said no"}


def test_a_site_that_is_silent_for_a_while_is_asked_again(
    told: Callable[..., Told], capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(polls=3)
    site.silent = 5
    assert told(site).run(1).ended == {"run0": None}
    assert capsys.readouterr().err.count("no answer\nit is asked again, for 10 min") == 1


def test_the_questions_become_rarer(told: Callable[..., Told]) -> None:
    waits = told(Site(polls=14)).run(1).waits
    assert waits[0] == scheduler.FIRST_WAIT_SECONDS
    assert waits == sorted(waits)
    assert waits[-1] == scheduler.LONGEST_WAIT_SECONDS
