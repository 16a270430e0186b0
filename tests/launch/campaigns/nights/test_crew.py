"""Runs started and waited for, on a site that is made up."""

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.errors import RequestError, RunError
from launch.campaigns import patience
from launch.campaigns.scheduler import Crew, Work


class Site:
    """A run has ended when it was asked for `polls` times."""

    def __init__(self, polls: int = 2) -> None:
        self.polls = polls
        self.asked: dict[str, int] = {}
        self.most = 0
        self.refuses: set[str] = set()
        self.silent = 0  # so many questions are not answered
        self.questions = 0

    def start(self, _benchmark: Any, run_id: str) -> None:
        if run_id in self.refuses:
            raise RequestError("sbatch said no")
        self.asked[run_id] = 0
        self.most = max(self.most, sum(count < self.polls for count in self.asked.values()))

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        self.questions += 1
        if self.silent:
            self.silent -= 1
            raise RunError("no answer")
        for run_id in run_ids:
            self.asked[run_id] = self.asked.get(run_id, self.polls) + 1
        return {run_id for run_id in run_ids if self.asked[run_id] >= self.polls}


class Told:
    def __init__(self, site: Site, max_jobs: int = 1) -> None:
        self.site = site
        self.started: list[str] = []
        self.ended: dict[str, str | None] = {}
        self.waits: list[float] = []
        self.crew = Crew(max_jobs, self._started, self._ended, self.waits.append)

    def _started(self, work: Work) -> None:
        assert work.run_id not in self.site.asked  # it is written down before it is started
        self.started.append(work.run_id)

    def _ended(self, work: Work, trouble: str | None) -> None:
        self.ended[work.run_id] = trouble

    def run(self, count: int, going: Sequence[str] = ()) -> "Told":
        def work(name: str) -> Work:
            return Work(name, self.site, None, name)  # type: ignore[arg-type]

        self.crew.run([work(f"run{number}") for number in range(count)], [work(name) for name in going])
        return self


@pytest.mark.parametrize("max_jobs", [1, 3])
def test_no_more_at_once_than_the_site_allows_and_all_are_waited_for(max_jobs: int) -> None:
    told = Told(Site(), max_jobs).run(7)
    assert told.site.most == max_jobs
    assert told.started == [f"run{number}" for number in range(7)]
    assert told.ended == dict.fromkeys(told.started)


def test_one_that_cannot_be_started_is_named_and_the_others_go_on() -> None:
    site = Site()
    site.refuses = {"run1"}
    told = Told(site).run(4)
    assert told.ended == {"run0": None, "run1": "could not be started: sbatch said no", "run2": None, "run3": None}


def test_after_two_in_a_row_it_is_the_site_and_nothing_more_is_started() -> None:
    site = Site()
    site.refuses = {"run1", "run2"}
    told = Told(site).run(5)
    assert told.started == ["run0", "run1", "run2"]
    assert told.ended["run4"] == "not started: 2 starts in a row had failed"
    assert len(told.ended) == 5


def test_what_an_earlier_launcher_has_left_is_waited_for_too() -> None:
    told = Told(Site()).run(1, going=["old"])
    assert set(told.ended) == {"old", "run0"}
    assert told.started == ["run0"]


def test_a_site_that_does_not_answer_for_a_while_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(polls=3)
    told = Told(site)

    def silence(_seconds: float) -> None:
        site.silent = 1 if site.questions == 2 else 0

    told.crew = Crew(1, told._started, told._ended, silence)
    assert told.run(1).ended == {"run0": None}
    assert "it is asked again" in capsys.readouterr().err


def test_a_site_that_never_answers_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LONGEST_SILENCE_SECONDS", 20.0)
    site = Site(polls=100)
    told = Told(site)

    def silence(_seconds: float) -> None:
        site.silent = 1000

    told.crew = Crew(1, told._started, told._ended, silence)
    with pytest.raises(RunError, match="no answer"):
        told.run(1)


def test_the_questions_come_more_and_more_seldom() -> None:
    told = Told(Site(polls=14)).run(1)
    assert told.waits[0] == patience.FIRST_WAIT_SECONDS
    assert told.waits == sorted(told.waits)
    assert told.waits[-1] == patience.LONGEST_WAIT_SECONDS
