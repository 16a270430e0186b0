"""Stored results follow from their raw files: MaxText here and on Slurm, and LoRA on NeMo.

The folders are real runs on a CPU. Paths, the host's name and all but the last lines of the logs were
removed, and the digests of the changed files were updated.
"""

import fcntl
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from benchmarks.errors import EXIT_INVALID, EXIT_REFUSED, EXIT_VALID
from benchmarks.runs.runfolder import RunFolder
from tests import forked
from tests.benchmarks.test_files import HOSTILE

STORED = sorted(Path(__file__).with_name("stored_runs").iterdir())
SCRIPT = Path(__file__).resolve().parents[2] / "launch" / "verify.py"


def test_steps_and_ranks_are_counted_apart(tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(STORED[0], tmp_path / "run"))
    first, second = (f"attempt-1/perf/events-rank{rank}.jsonl" for rank in (0, 1))
    shutil.copy(run.path / first, run.path / second)
    about = json.loads((run.path / "provenance.json").read_text())
    about["files"][second] = about["files"][first]
    (run.path / "provenance.json").write_text(json.dumps(about))
    assert forked.run(SCRIPT, "--repair", run.path).returncode == EXIT_VALID
    assert "agrees (30 steps of each of 2 ranks, status" in forked.run(SCRIPT, run.path).stdout


def test_their_figures_are_the_same_today() -> None:
    done = forked.run(SCRIPT, *STORED)
    assert [line.rpartition(" (")[0] for line in done.stdout.splitlines()] == [f"{run}: agrees" for run in STORED]
    assert done.returncode == EXIT_VALID
    assert len(STORED) == 3


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.name)
def test_a_figure_that_was_changed_is_found_and_repaired(stored: Path, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(stored, tmp_path / stored.name))
    result = json.loads((run.path / "result.json").read_text())
    result["seconds_per_step"]["median"] *= 1.01
    run.write("result.json", result)
    done = forked.run(SCRIPT, run.path)
    assert done.returncode == EXIT_INVALID
    assert "seconds_per_step: median: stored" in done.stdout
    assert forked.run(SCRIPT, "--repair", run.path).returncode == EXIT_VALID
    assert forked.run(SCRIPT, run.path).returncode == EXIT_VALID


@pytest.mark.parametrize("words", [("verify.py",), ("verify.py", "--repair"), ("status.py", "--collect")])
def test_a_run_of_a_version_that_judged_otherwise_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    run = shutil.copytree(next(path for path in STORED if (path / "job.json").exists()), tmp_path / "run")
    text = (run / "provenance.json").read_text()
    (run / "provenance.json").write_text(text.replace('"stepmark": "0.13.0"', '"stepmark": "0.12.0"'))
    stored = (run / "result.json").read_bytes()
    script, *rest = words
    done = forked.run(SCRIPT.with_name(script), *rest, run)
    assert done.returncode == EXIT_REFUSED
    for part in ("comes from Stepmark 0.12.0", f"where: {run}", "why: "):
        assert part in done.stderr
    assert (run / "result.json").read_bytes() == stored


@pytest.mark.parametrize("words", [(), ("--repair",)])
def test_a_run_that_a_launcher_still_writes_is_not_judged(words: tuple[str, ...], tmp_path: Path) -> None:
    stored = next(path for path in STORED if not (path / "job.json").exists())
    run = shutil.copytree(stored, tmp_path / stored.name)
    (run / "result.json").unlink()
    old = time.time() - 3600
    for path in run.glob("attempt-1/*/events-rank*.jsonl"):
        os.utime(path, (old, old))
    with (run / "steps.jsonl").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = forked.run(SCRIPT, *words, run)
        state = forked.run(SCRIPT.with_name("status.py"), run)
    assert done.returncode == EXIT_REFUSED
    assert "the run is still running" in done.stderr
    assert not (run / "result.json").exists()
    assert "running" in state.stdout
    assert "no step for 1 h" in state.stdout
    assert "its launcher has ended" in state.stdout
    assert forked.run(SCRIPT, "--repair", run).returncode == EXIT_VALID


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("verify.py", "local"), 0, "jax_local: agrees"),
        (("report.py", "html", "page.html", "local"), 0, "page.html: "),
        (("doctor.py", "logs", "local"), 0, "ended well"),
        (("compare.py", "local", "lora"), 3, "cannot be compared"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_run_is_found_by_a_part_of_its_name(words: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    (tmp_path / "results").symlink_to(STORED[0].parent)
    script, *rest = words
    done = forked.run(SCRIPT.with_name(script), *rest, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize(
    "name", ["benchmark.json", "provenance.json", "result.json", "steps.jsonl", "events", "exits"]
)
def test_a_hostile_file_gets_one_message_and_hides_no_other_run(tmp_path: Path, name: str, kind: str) -> None:
    run = shutil.copytree(STORED[-1], tmp_path / "run")
    places = {"events": "attempt-1/perf/events-rank0.jsonl", "exits": "attempt-1/perf/exits.jsonl"}
    (run / places.get(name, name)).unlink()
    HOSTILE[kind](run / places.get(name, name))
    done = forked.run(SCRIPT, run, STORED[-1])
    assert done.returncode in (EXIT_REFUSED, EXIT_INVALID), done.stderr
    assert "Traceback" not in done.stderr
    assert f"{STORED[-1]}: agrees" in done.stdout


def test_what_a_file_says_moves_no_cursor(tmp_path: Path) -> None:
    """And a document of --json is the same document."""
    hostile = "\x1b]0;title\x07\x1b[2J\x9b1m\u202e"
    run = shutil.copytree(STORED[-1], tmp_path / hostile)
    for words in ((), ("--json",)):
        done = forked.run(SCRIPT, *words, run)
        assert done.returncode == EXIT_VALID, done.stderr
        assert not set(hostile) & set("\x1b\x07\x9b\u202e") & set(done.stdout + done.stderr)
    assert Path(json.loads(done.stdout)["runs"][0]["path"]).name == hostile
