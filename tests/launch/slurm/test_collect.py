"""Collecting a queued run: scheduler rows go to their attempts, known facts are kept, all is sealed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.compare.facts import facts_of
from benchmarks.compare.runs import read_run
from benchmarks.job_record import SCHEDULER, SchedulerEnd
from benchmarks.runs.recompute import differences, recompute
from benchmarks.runs.runfolder import RESULT, RunFolder
from benchmarks.values import to_builtins
from jax_backend import BACKEND
from launch.slurm.collect import collect, ends_by_attempt
from tests.benchmarks.conftest import events_of, write_events
from tests.launch.slurm.conftest import SUBMITTED_AT

REPOSITORY = Path(__file__).resolve().parents[3]


def row(state: str, started: float | None = 10.0, **more: Any) -> SchedulerEnd:
    """A row of the accounting; times count from the submission."""
    known = {"job_id": "7", "source": "sacct", "nodes": "node1" if started else None, "ended": SUBMITTED_AT + 500}
    start = None if started is None else SUBMITTED_AT + started
    return SchedulerEnd(**{**known, "state": state, "started": start, **more})


def add_attempt(folder: RunFolder, number: int, restarts: int | None = None, job_id: str = "7") -> None:
    phase_dir = folder.phase_dir("perf", number)
    write_events(phase_dir, events_of(steps=3))
    (phase_dir / "exits-rank0.jsonl").write_text('{"rank": 0, "exit_code": 0, "time": 1.5, "host": "node1"}\n')
    start = {"event": "start", "time": 5.0, "job_id": job_id, "nodes": "node1"}
    if restarts is not None:
        start["restarts"] = restarts
    (folder.attempt_dir(number) / "job.jsonl").write_text(json.dumps(start) + "\n")


@pytest.mark.parametrize("case", yaml.safe_load(Path(__file__).with_name("attempts.yml").read_text()))
def test_rows_go_to_their_attempts(run: RunFolder, case: dict[str, Any]) -> None:
    for number, start in enumerate(case["attempts"], start=1):
        add_attempt(run, number, **start)
    rows = []
    for one in case["rows"]:
        ended = {"ended": one["ended"] and SUBMITTED_AT + one["ended"]} if "ended" in one else {}
        rows.append(row(**{"started": None, **one, **ended}))
    assert {attempt: end.state for attempt, end in ends_by_attempt(run, rows).items()} == case["found"]


# --- collecting ----------------------------------------------------------------------------------------


def test_a_collected_run_is_sealed_and_its_result_follows_from_its_files(run: RunFolder) -> None:
    add_attempt(run, 1, restarts=0)
    result = collect(run, BACKEND, [row("COMPLETED")])
    assert result.status == "valid"
    assert run.scheduler_end(1) == row("COMPLETED")
    assert run.changed_since_sealed() == []
    assert f"attempt-1/{SCHEDULER}" in run.provenance()["files"]
    assert [fact["parameters"] for fact in run.provenance()["worker"]] == [106_816]
    again, steps = recompute(run, BACKEND)
    assert differences(run.stored_result(), again, run.stored_steps(), steps) == []
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert collect(run, BACKEND, [row("COMPLETED")]) == result
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_run_is_explained_by_the_attempt_that_gives_its_figures(run: RunFolder) -> None:
    """The one after it, of the script submitted again, found another version and failed."""
    add_attempt(run, 1, job_id="7")
    add_attempt(run, 2, job_id="8")
    write_events(run.phase_dir("perf", 2), [{**events_of()[0], "versions": {"maxtext": "9.9"}}])
    collect(run, BACKEND, [row("COMPLETED"), row("FAILED", 600.0, job_id="8", ended=SUBMITTED_AT + 900)])
    found = read_run(run)
    assert [one.outcome for one in found.result.attempts] == ["completed", "failed"]
    assert facts_of(found)["version"]["maxtext"] == events_of()[0]["versions"]["maxtext"]


def test_a_scheduler_that_has_forgotten_the_job_takes_nothing_back(run: RunFolder) -> None:
    add_attempt(run, 1, restarts=0)
    collect(run, BACKEND, [row("TIMEOUT")])
    forgotten = row("UNKNOWN", None, source="nobody", ended=None, note="purged")
    result = collect(run, BACKEND, [forgotten])
    assert result.attempts[0].outcome == "timeout"
    assert collect(run, BACKEND, []).attempts[0].outcome == "timeout"


def test_two_shells_at_once_leave_one_whole_result(run: RunFolder) -> None:
    """With different records of the scheduler, so that the second shell changes a file that the first has sealed."""
    add_attempt(run, 1, restarts=0)
    code = (
        "import sys, json, msgspec\n"
        "from pathlib import Path\n"
        "from benchmarks.job_record import SchedulerEnd\n"
        "from benchmarks.runs.runfolder import RunFolder\n"
        "from jax_backend import BACKEND\n"
        "from launch.slurm.collect import collect\n"
        "ends = [msgspec.convert(json.loads(text), SchedulerEnd) for text in sys.argv[2:]]\n"
        "for turn in range(10):\n"
        "    collect(RunFolder(Path(sys.argv[1])), BACKEND, [ends[turn % 2]])\n"
    )
    ends = [row("COMPLETED", exit_code="0:0"), row("COMPLETED", source="scontrol")]
    words = [json.dumps(to_builtins(end)) for end in ends]
    shells = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(run.path), *order], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
        )
        for order in (words, words[::-1])
    ]
    for shell in shells:
        _, error = shell.communicate(timeout=120)
        assert (shell.returncode, error) == (0, "")
    assert run.changed_since_sealed() == []
    result, steps = recompute(run, BACKEND)
    assert differences(run.stored_result(), result, run.stored_steps(), steps) == []
    assert (run.path / RESULT).is_file()
    assert not [path.name for path in run.path.rglob(".*")]
