"""--inject_slowdown on real MaxText and NeMo: steps that take as much longer as was asked, marked wherever one looks.

A busy machine makes a whole run slower than its neighbour. So what the worker added is held to the run's own time,
and two runs one after the other to a wide band, in up to three pairs.
"""

import json
import re
import statistics
from pathlib import Path

import pytest

from tests.end_to_end.runs import JAX, LLAMA3, NEMO, TINY, Run, Start, finish, verify

pytestmark = pytest.mark.slow

FRACTION = 0.5
SLOWED = f"--inject_slowdown={FRACTION}"
BAND = (1.25, 1.9)
PAIRS = 3
TOLD = re.compile(r"--inject_slowdown=[\d.]+: (\d+) steps of ([\d.]+) s by themselves lasted ([\d.]+) s")
# Steps long enough that what the loop does between two of them is little beside them.
MAXTEXT = (JAX, TINY, "--steps=30", "--set=micro_batch_size=24")
TWO_PROCESSES = {
    "start": (JAX, TINY, "--steps=30", "--set=micro_batch_size=4", "--gpus=2", "--nodes=2"),
    "start_nemo": (NEMO, LLAMA3, "--steps=30", "--set=micro_batch_size=4", "--gpus=2"),
}


def fast_seconds(run: Run) -> float:
    """Of a fast step, which nothing else on the machine disturbed: the first tenth of those after the first few."""
    seconds = [step["seconds"] for step in run.steps if step["rank"] == 0 and step["step"] >= 5]
    return statistics.quantiles(seconds, n=10)[0]


def made_longer(run: Run, rank: int = 0) -> float:
    """The part of their own time by which the worker says that its steps after the first grew, or 0.

    What it says they lasted is what the events say they took.
    """
    notes = [note for event in run.events(rank) if event["event"] == "end" for note in event["notes"]]
    told = [found for found in map(TOLD.fullmatch, notes) if found]
    seconds = [step["seconds"] for step in run.steps if step["rank"] == rank and step["step"] > 0]
    for found in told:
        assert int(found[1]) == len(seconds)
        assert float(found[3]) == pytest.approx(sum(seconds), rel=0.03)
    return sum(float(found[3]) / float(found[2]) - 1 for found in told)


def program_of(run: Run) -> str | None:
    """The digest of the step's program, which a sleep beside it does not change."""
    found: str | None = run.provenance["worker"][0]["program"]
    return found


def marked(run: Run) -> None:
    assert run.code == 0, run.err
    assert (run.result["status"], run.result["slowed_by"]) == ("valid", FRACTION)
    assert f"slowed on purpose: every step by 50% ({SLOWED})" in run.result["notes"]
    assert f"slowed on purpose: every step by 50% ({SLOWED})" in run.out
    assert json.loads((run.folder / "benchmark.json").read_text())["inject_slowdown"] == FRACTION
    assert SLOWED in run.provenance["phases"]["perf"]["argv"]


def unmarked(run: Run) -> None:
    assert run.code == 0, run.err
    assert run.result["slowed_by"] == 0
    assert not [note for note in run.result["notes"] if "slow" in note]
    assert not [word for word in run.provenance["phases"]["perf"]["argv"] if "slow" in word]


@pytest.mark.alone
def test_every_step_takes_that_much_longer(start: Start, tmp_path: Path) -> None:
    ratios = list[float]()
    for pair in range(PAIRS):
        as_it_is, slowed = (
            finish(start(place, *MAXTEXT, *flags), place)
            for place, flags in ((tmp_path / f"{pair}", ()), (tmp_path / f"{pair}-slowed", (SLOWED,)))
        )
        unmarked(as_it_is)
        marked(slowed)
        agreed = verify(str(slowed.folder))
        assert agreed.returncode == 0, agreed.stdout
        assert made_longer(slowed) == pytest.approx(FRACTION, abs=0.08)
        assert program_of(slowed) == program_of(as_it_is)
        ratios.append(fast_seconds(slowed) / fast_seconds(as_it_is))
        if BAND[0] < ratios[-1] < BAND[1]:
            return
    raise AssertionError(f"the slowed run took {ratios} times as long")


@pytest.mark.parametrize("name", TWO_PROCESSES)
def test_of_two_processes_the_first_sleeps_and_the_other_waits(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    """All steps after the first take both the same time, of which the first rank sleeps two thirds."""
    start: Start = request.getfixturevalue(name)
    run = finish(start(tmp_path, *TWO_PROCESSES[name], "--inject_slowdown=2"), tmp_path)
    assert run.code == 0, run.err
    assert (run.result["status"], run.result["slowed_by"]) == ("valid", 2)
    took = [sum(step["seconds"] for step in run.steps if step["rank"] == rank and step["step"]) for rank in (0, 1)]
    assert took[1] == pytest.approx(took[0], rel=0.15)
    assert made_longer(run, rank=0) == pytest.approx(2, abs=0.5)
    assert made_longer(run, rank=1) == 0


def test_a_backend_of_another_package_naps_longer_on_every_rank(tmp_path: Path, start_toy: Start) -> None:
    run = finish(start_toy(tmp_path, "--gpus=2", "--steps=15", "--set=nap_seconds=0.15", SLOWED), tmp_path)
    marked(run)
    assert [made_longer(run, rank) for rank in (0, 1)] == pytest.approx([FRACTION] * 2, abs=0.1)
