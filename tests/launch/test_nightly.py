"""launch/nightly.py on a suite of naps: the whole way, from the first night to a regression and back.

Its workers are simulated (toy_suite.py). Real ones: the night that is interrupted here, those in a queue
(nights/test_nights_on_slurm.py) and those of MaxText and NeMo (end_to_end/test_nightly_runs.py).
"""

import json
import os
import shutil
import signal
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.campaigns.scheduler import exclusive_lock
from tests.launch.campaigns.nights.toy_suite import LONG, SHORT, SUITE, Naps, cell, judged, naps_in, used_as

NIGHTS = 10


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Naps:
    """Ten nights, made once; tests that add to them take a copy."""
    naps = naps_in(tmp_path_factory.mktemp("past"))
    for number in range(NIGHTS):
        done = naps.night()
        assert done.returncode == 0, done.stderr
        assert f"verdict comes {NIGHTS - number} night" in done.stdout
    return naps


@pytest.fixture
def naps(past: Naps, tmp_path: Path) -> Iterator[Naps]:
    """The same suite, with a copy of its results."""
    shutil.copytree(past.results, tmp_path / "results")
    naps = Naps(tmp_path, past.variables)
    suite = naps.suite_text()
    yield naps
    naps.write_suite(suite)


@pytest.fixture
def fresh(tmp_path: Path) -> Naps:
    return naps_in(tmp_path)


# --- from the first night to a regression and back ----------------------------------------------------


@pytest.mark.slow
def test_too_little_history_is_not_tested_and_no_failure(past: Naps) -> None:
    first, *_, last = past.reports()
    assert [report["exit_code"] for report in past.reports()] == [0] * NIGHTS
    assert first["verdict"] == last["verdict"] == "not tested"
    assert judged(first, SHORT)["nights_needed"] == 10
    assert judged(last, SHORT)["nights_needed"] == 1
    assert all(report["finished"] for report in past.reports())
    assert len(list(past.nights.glob("*.md"))) == NIGHTS


@pytest.mark.slow
def test_a_slowed_night_is_a_regression_by_its_own_re_runs(naps: Naps) -> None:
    outputs = [f"--{name}={naps.folder}/night.{name}" for name in ("junit", "markdown", "html")]
    done = naps.night("--inject_slowdown=0.5", *outputs, GITHUB_STEP_SUMMARY=str(naps.folder / "summary"))
    assert done.returncode == 3, done.stderr
    report = naps.last()
    assert report["verdict"] == "worse"
    assert report["slowed_by"] == 0.5
    for name in (SHORT, LONG):
        found = judged(report, name)
        assert (found["verdict"], found["suspicion"], found["since"]) == ("worse", "confirmed", report["night"])
        assert 30 < found["effect_percent"] < 90
        assert found["low_percent"] < found["effect_percent"] < found["high_percent"]
        assert len(found["confirmations"]) == 3
        assert len(cell(report, name)["rerun_ids"]) == 3
        assert found["why"] in done.stdout
    assert report["budget"] == {"allowed": 6, "used": 6, "refused": []}
    assert done.stdout.strip().startswith("TRIAL, slowed by 50% · suite naps")
    assert "re-runs        6 used, 6 allowed" in done.stdout
    suite = ET.parse(naps.folder / "night.junit").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("2", "0")
    for name in ("night.markdown", "summary"):
        assert (naps.folder / name).read_text().startswith("## `TRIAL, slowed by 50% · ")
    assert "regression" in (naps.folder / "night.html").read_text()
    # A slowed night is not part of the history.
    again = naps.night("--max_reruns=0")
    left_out = [point for point in cell(naps.last(), SHORT)["left_out"] if "slowed on purpose" in point["why"]]
    assert [point["night"] for point in left_out] == [report["night"]]
    assert used_as(naps.last(), SHORT).count("baseline") == 10
    assert again.returncode == 0, again.stdout  # nothing is a regression that no re-run confirms


@pytest.mark.slow
def test_an_accepted_level_begins_a_new_baseline(naps: Naps) -> None:
    early = naps.night(f"--accept={SHORT}", "--because=too early")
    assert early.returncode == 2
    assert "no new level to accept" in early.stderr
    naps.nap_longer(1.6)
    assert naps.night().returncode == 3
    unsaid = naps.night(f"--accept={SHORT}")
    assert unsaid.returncode == 2
    assert "--because is missing" in unsaid.stderr
    accepted = naps.night(f"--accept={SHORT}", "--because=the new container stays")
    assert accepted.returncode == 0, accepted.stderr
    twice = naps.night(f"--accept={SHORT}", "--because=the new container stays")
    assert twice.returncode == 2
    assert "no new level to accept" in twice.stderr
    (line,) = (naps.nights / "decisions.jsonl").read_text().splitlines()
    assert json.loads(line)["because"] == "the new container stays"
    assert naps.night().returncode == 3  # the other cell is as slow, which was not accepted
    assert judged(naps.last(), LONG)["verdict"] == "worse"
    assert judged(naps.last(), LONG)["confirmations"] == []  # confirmed the night before, it stands
    assert naps.last()["budget"]["used"] == 0
    assert judged(naps.last(), SHORT)["verdict"] == "not tested"
    assert judged(naps.last(), SHORT)["nights_needed"] == 9
    assert naps.night("--accept=nothing", "--because=x").returncode == 2


# --- a control ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_slow_night_of_the_machine_is_no_regression_if_the_control_cell_sees_it(fresh: Naps) -> None:
    fresh.write_suite(SUITE + f"control: {SHORT}\n")
    assert f"the control is {SHORT}" in fresh.night("--dry_run").stdout
    for _ in range(NIGHTS):
        assert fresh.night().returncode == 0
    fresh.nap_longer(1.1)
    done = fresh.night()
    assert done.returncode == 0, done.stdout
    assert judged(fresh.last(), LONG)["suspicion"] == "shared"
    assert cell(fresh.last(), LONG)["rerun_ids"] == []
    assert cell(fresh.last(), SHORT)["verdict"] == "worse"
    assert f"the control cell {SHORT} is worse" in done.stdout
    fresh.nap_longer(1.0)
    fresh.write_suite(
        fresh.suite_text()
        .replace("{nap_seconds: 0.03}", "{nap_seconds: 0.04}")
        .replace("rerun_budget: 6", "rerun_budget: 6\nbaseline_across: [benchmark]")
    )
    assert fresh.night().returncode == 3
    assert judged(fresh.last(), LONG)["verdict"] == "worse"


# --- re-runs that end otherwise ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_re_run_that_failed_is_made_again(naps: Naps) -> None:
    naps.nap_longer(1.6)
    naps.let_fail(3)  # after the first run of both cells
    done = naps.night("--max_reruns=7")
    assert done.returncode == 3, done.stdout
    assert naps.last()["budget"] == {"allowed": 7, "used": 7, "refused": []}
    assert sorted(len(one["rerun_ids"]) for one in naps.last()["cells"]) == [3, 4]
    assert [len(judged(naps.last(), name)["confirmations"]) for name in (SHORT, LONG)] == [3, 3]


# --- what goes wrong ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_that_fails_hides_no_other_cell(naps: Naps) -> None:
    naps.write_suite(naps.suite_text().replace("{nap_seconds: 0.01}", "{nap_seconds: 0.01, fault: raise@3}"))
    done = naps.night()
    assert done.returncode == 1, done.stdout
    assert cell(naps.last(), SHORT)["status"] == "failed"
    assert "told to" in " ".join(cell(naps.last(), SHORT)["reasons"])
    assert cell(naps.last(), LONG)["status"] == "valid"
    assert used_as(naps.last(), LONG).count("baseline") == 10
    assert "exit code      1: a run failed" in done.stdout


def test_a_cell_that_cannot_work_is_named_and_the_others_run(fresh: Naps) -> None:
    fresh.write_suite(SUITE.replace("{nap_seconds: 0.01}", "{nap_seconds: 2}"))
    done = fresh.night()
    assert done.returncode == 1
    assert cell(fresh.last(), SHORT)["reasons"] == ["refused: too deep a sleep"]
    assert cell(fresh.last(), LONG)["status"] == "valid"
    dry = fresh.night("--dry_run")
    assert dry.returncode == 2
    assert "too deep a sleep" in dry.stderr


@pytest.mark.slow
def test_the_same_command_goes_on_with_a_night_that_somebody_interrupted(fresh: Naps) -> None:
    """Here launcher and worker are real."""
    fresh.write_suite(SUITE.replace("{nap_seconds: 0.03}", "{nap_seconds: 0.5}"))
    old = fresh.folder / "night.xml"
    old.write_text("<testsuite/>")
    process = fresh.start("--suite=naps", f"--output_dir={fresh.results}", f"--junit={old}")
    deadline = time.monotonic() + 240
    while not any(one["status"] == "running" and one["cell"] == LONG for r in fresh.reports() for one in r["cells"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in out + err
    assert process.returncode == 130
    assert "to resume it" in err
    assert not old.exists()
    goes_on(fresh)


def test_the_same_command_goes_on_with_a_night_that_was_killed(fresh: Naps) -> None:
    old = fresh.folder / "night.xml"
    old.write_text("<testsuite/>")
    fresh.let_kill(2)
    assert fresh.night(f"--junit={old}").returncode == -signal.SIGKILL
    assert not old.exists()
    goes_on(fresh)


def goes_on(fresh: Naps) -> None:
    """With the second run of a night of two, which was cut off."""
    (left,) = fresh.reports()
    assert left["finished"] is None
    done = fresh.night()
    assert done.returncode == 0, done.stderr
    assert f"resuming night {left['night']}" in done.stderr
    (report,) = fresh.reports()
    assert report["finished"]
    assert cell(report, SHORT)["run_id"] == cell(left, SHORT)["run_id"]  # it had ended, and is not run again
    assert cell(report, LONG)["run_id"] != cell(left, LONG)["run_id"]
    assert any("its launcher was killed" in note for note in cell(report, LONG)["notes"])
    assert fresh.night().returncode == 0
    assert len(fresh.reports()) == 2


def test_a_night_of_a_suite_that_was_changed_since_is_not_gone_on_with(fresh: Naps) -> None:
    assert fresh.night().returncode == 0
    fresh.leave_unfinished()
    fresh.write_suite(SUITE.replace("label: short", "label: brief"))
    done = fresh.night()
    assert done.returncode == 0, done.stderr
    assert "the suite has changed" in done.stderr
    first, second = fresh.reports()
    assert {one["run_id"] for one in first["cells"]} & {one["run_id"] for one in second["cells"]} == set()


def test_two_launchers_do_not_run_one_suite(fresh: Naps) -> None:
    with exclusive_lock(fresh.nights / ".lock", "suite"):
        done = fresh.night()
    assert done.returncode == 2
    assert f"running this suite: process {os.getpid()}" in done.stderr
    assert fresh.reports() == []
    assert fresh.night().returncode == 0


# --- words ----------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_cells_and_writes_nothing(fresh: Naps) -> None:
    done = fresh.night("--dry_run")
    assert done.returncode == 0, done.stderr
    assert SHORT in done.stdout
    assert "suspect cell, 6 at most" in done.stdout
    assert "gate: seconds/step; other metrics: excess" in done.stdout
    assert not fresh.results.exists()


def test_a_rehearsal_leaves_nothing_behind_and_takes_a_run_of_the_newest_night_where_there_is_one(
    fresh: Naps,
) -> None:
    done = fresh.night("--rehearse")
    assert done.returncode == 0, done.stderr
    assert "(made just now)" in done.stdout
    assert "every run is 5% slower" in done.stdout
    assert not fresh.results.exists()
    assert fresh.night().returncode == 0
    before = {path: path.read_bytes() for path in fresh.results.rglob("*") if path.is_file()}
    starts = fresh.machine.started.read_text()
    done = fresh.night("--rehearse")
    assert f"{cell(fresh.last(), SHORT)['run_id']} (night {fresh.last()['night']})" in done.stdout
    assert fresh.machine.started.read_text() == starts
    assert {path: path.read_bytes() for path in fresh.results.rglob("*") if path.is_file()} == before


def test_a_rehearsal_without_a_valid_run_says_why(fresh: Naps) -> None:
    fresh.let_fail(1)
    done = fresh.night("--rehearse")
    assert done.returncode == 1
    assert "cannot be used for a rehearsal: " in done.stderr
    assert "next:  python launch/run.py --backend=toy" in done.stderr


def test_own_suites_are_listed_with_those_of_the_checkout(fresh: Naps) -> None:
    own = Path(fresh.variables["STEPMARK_HOME"]) / "suites"
    own.mkdir(parents=True)
    (own / "mine.yml").write_text(SUITE.replace("name: naps", "name: mine"))
    (own / "broken.yml").write_text("name: broken\n")
    listed = fresh.call("--list").stdout
    assert "naps    Naps (2 cells)" in listed
    assert f"mine    Naps (2 cells)\n          {own}/mine.yml" in listed
    assert "broken  refused: " in listed
    (own / "slip.yml").write_text(SUITE.replace("name: naps", "name: slip") + "exclude: [{model: none}]\n")
    assert "slip    refused: " in fresh.call("--list").stdout
    refused = fresh.call("--suite=slip", "--dry_run")
    assert (refused.returncode, refused.stdout, "where: suites/slip.yml" in refused.stderr) == (2, "", True)
    done = fresh.call("--suite=mine", "--dry_run", f"--output_dir={fresh.results}")
    assert (done.returncode, SHORT in done.stdout) == (0, True)
