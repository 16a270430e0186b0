"""--inject_slowdown over several processes: what the worker added is held to the run's own time, and marked wherever
one looks. That real runs so slowed take as much longer is shown by test_nightly_runs.py.
"""

import json
import re
from pathlib import Path

import pytest

from tests.end_to_end.runs import JAX, SHARDED, TINY, Run, Start, finish, verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs")]

TOLD = re.compile(r"--inject_slowdown=[\d.]+: (\d+) steps of ([\d.]+) s by themselves lasted ([\d.]+) s")


def made_longer(run: Run, rank: int) -> float:
    """The part of their own time by which the worker says that its steps after the first grew, or 0.

    What it says they lasted is what the events say they took.
    """
    notes = [note for event in run.events(rank) if event["event"] == "end" for note in event["notes"]]
    told = [found for found in map(TOLD.fullmatch, notes) if found]
    seconds = [step["seconds"] for step in run.steps if step["rank"] == rank and step["step"] > 0]
    for found in told:
        assert int(found[1]) == len(seconds)
        assert float(found[3]) == pytest.approx(sum(seconds), rel=0.05)
    return sum(float(found[3]) / float(found[2]) - 1 for found in told)


def marked(run: Run, fraction: float, **variables: str) -> None:
    assert run.code == 0, run.err
    flag = f"--inject_slowdown={fraction}"
    assert (run.result["status"], run.result["slowed_by"]) == ("valid", fraction)
    assert f"slowed on purpose: every step by {fraction:.0%} ({flag})" in run.result["notes"]
    assert f"slowed on purpose: every step by {fraction:.0%} ({flag})" in run.out
    assert json.loads((run.folder / "benchmark.json").read_text())["inject_slowdown"] == fraction
    assert flag in run.provenance["phases"]["perf"]["argv"]
    assert verify(str(run.folder), **variables).returncode == 0


def test_of_maxtexts_processes_the_first_sleeps_and_the_other_waits(
    start: Start, two_processes: Run, tmp_path: Path
) -> None:
    """All steps after the first take both the same time, of which the first rank sleeps three fifths."""
    flags = (*SHARDED, "--nodes=2", "--steps=12", "--inject_slowdown=1.5")
    run = finish(start(tmp_path, JAX, TINY, *flags), tmp_path)
    marked(run, 1.5)
    took = [sum(step["seconds"] for step in run.steps if step["rank"] == rank and step["step"]) for rank in (0, 1)]
    assert took[1] == pytest.approx(took[0], rel=0.15)
    assert made_longer(run, 0) == pytest.approx(1.5, abs=0.4)
    assert made_longer(run, 1) == 0
    # A sleep beside the step's program does not change it.
    assert run.provenance["worker"][0]["program"] == two_processes.provenance["worker"][0]["program"]


def test_a_backend_of_another_package_naps_longer_on_every_rank(
    tmp_path: Path, start_toy: Start, toy_variables: dict[str, str]
) -> None:
    flags = ("--gpus=2", "--steps=15", "--set=nap_seconds=0.15", "--inject_slowdown=0.5")
    run = finish(start_toy(tmp_path, *flags), tmp_path)
    marked(run, 0.5, **toy_variables)
    assert [made_longer(run, rank) for rank in (0, 1)] == pytest.approx([0.5] * 2, abs=0.1)
