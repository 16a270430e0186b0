"""compare.py: what may be typed for a side, which runs it finds, how it ends. On copies of a real run."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.compare.sides import Sides, conditions_of, is_filter
from benchmarks.history.filters import parse_condition
from benchmarks.request.resolve import Request
from benchmarks.runs.runfolder import RESULT, RunFolder
from benchmarks.sweeps.sweep import Cell, Sweep, SweepRun
from benchmarks.values import json_text
from launch.terminal.run_index import open_index
from tests import forked
from tests.benchmarks.compare.made import Document, folder
from tests.benchmarks.sweeps.test_scaling import scale

REPOSITORY = Path(__file__).resolve().parents[2]


def run_of(place: Path, number: int, seconds: float, tag: str) -> RunFolder:
    """Return a run with its own name, and the tag in its labels."""
    run_id = f"20261122T06{number:02}00Z-jax-llama2_tiny-pretrain-bf16-1xcpu-00{number:02}"

    def result(document: Document) -> None:
        document["run_id"] = run_id
        document["seconds_per_step"] |= {"median": seconds, "mean": seconds, "ci95": [seconds * 0.99, seconds * 1.01]}

    def provenance(document: Document) -> None:
        document |= {"run_id": run_id, "labels": {"tags": [tag], "nightly": None}}

    return folder(place, run_id, result=result, provenance=provenance)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs tagged before alternate with three tagged after, which are 5% slower."""
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    place = tmp_path / "results"
    place.mkdir()
    for number in range(6):
        slow = number % 2
        run_of(place, number, (1.05 if slow else 1.0) + 0.001 * (number // 2), "after" if slow else "before")
    return place


def compare(*words: str, place: Path | None = None) -> subprocess.CompletedProcess[str]:
    output_dir = [f"--output_dir={place}"] if place else []
    return forked.run(REPOSITORY / "launch/compare.py", *output_dir, *words, cwd=REPOSITORY)


# --- how it ends ----------------------------------------------------------------------------------


def test_two_tags_are_compared(runs: Path) -> None:
    done = compare("tag=before", "tag=after", "--explain", place=runs)
    assert (done.returncode, done.stderr) == (0, "")
    sentence, head, row, *_ = done.stdout.splitlines()
    assert sentence.startswith("WORSE: after takes 1.051 s")
    assert head.split()[:4] == ["A:", "before", "B:", "after"]
    assert row.startswith("  Step time ") and "+5.00%" in row
    assert row.endswith("worse")
    assert "no recorded fact about these runs differs" in done.stdout


@pytest.mark.parametrize(("make", "says"), [(os.mkfifo, "it is a pipe"), (os.mkdir, "Is a directory")])
def test_what_is_no_file_where_the_result_should_be_is_named(
    runs: Path, make: Callable[[Path], None], says: str
) -> None:
    place = next(runs.glob("*0001"))
    (place / RESULT).unlink()
    make(place / RESULT)
    done = compare("0000", "0001", place=runs)
    assert done.returncode == 3 and says in done.stdout


def test_names_of_runs_and_folders_are_sides_too(runs: Path) -> None:
    done = compare("0000,0002,0004", f"0001,0003,{next(runs.glob('*0005'))}", "--json", place=runs)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [name[-4:] for name in found["b"]["run_ids"]] == ["0001", "0003", "0005"]
    assert found["verdict"] == found["differences"][0]["verdict"] == "worse"
    assert found["causes"] is None


def test_a_verdict_is_no_failure_and_a_refusal_is_exit_code_3(runs: Path) -> None:
    broken = next(runs.glob("*0001")) / RESULT
    document = json.loads(broken.read_text())
    broken.write_text(json.dumps({**document, "not_comparable": ["profiled (--profile=nsys)"]}))
    done = compare("0000", "0001", place=runs)
    assert done.returncode == 3
    assert done.stdout.startswith("A and B cannot be compared: B has no comparable run (profiled (--profile=nsys))")
    assert len(re.findall("profiled", done.stdout)) == 1
    assert done.stderr == f"stepmark: next:  python launch/report.py runs {runs}\n"


def test_a_side_without_runs_is_refused_with_the_list_of_runs(runs: Path) -> None:
    done = compare("tag=befor", "tag=after", place=runs)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no run matches tag=befor" in done.stderr
    assert done.stderr.endswith(f"next:  python launch/report.py runs {runs}\n")


@pytest.mark.parametrize(("fail_on", "code"), [("not_comparable", 0), ("worse", 3)])
def test_a_workflow_gets_markdown_and_fails_where_it_shall(
    fail_on: str, code: int, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, file = tmp_path / "summary", tmp_path / "comparison.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = compare("tag=before", "tag=after", "--verbose", f"--fail_on={fail_on}", f"--markdown={file}", place=runs)
    assert (done.returncode, "B is worse" in done.stderr) == (code, code == 3)
    heading, _, rest = done.stdout.strip().partition("\n")
    assert file.read_text().startswith(f"## `{heading}`\n\n```text\n")
    assert rest.strip("\n") in file.read_text()
    assert summary.read_text() == file.read_text() + "\n"


def test_markdown_is_not_written_into_a_run(runs: Path) -> None:
    inside = next(runs.iterdir()) / "result.json"
    done = compare("tag=before", "tag=after", f"--markdown={inside}", place=runs)
    assert (done.returncode, "cannot be written" in done.stderr) == (2, True)


# --- what a side may be ---------------------------------------------------------------------------


def test_a_side_may_be_a_folder_of_runs(runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for slow in sorted(runs.iterdir())[1::2]:
        slow.rename(other / slow.name)
    a, b = Sides(tmp_path / "none", open_index).chosen(str(runs), str(other))
    assert [len(side.runs) for side in (a, b)] == [3, 3]
    assert {run.name for run in b.runs} == {path.name for path in other.iterdir()}


@pytest.mark.parametrize(
    ("typed", "conditions"),
    [
        ("dtype=bf16", ["dtype=bf16"]),
        ("dtype=bf16,fp8", ["dtype=bf16,fp8"]),
        ("dtype=bf16,commit=abc", ["dtype=bf16", "commit=abc"]),
        ("dtype=bf16+commit=abc", ["dtype=bf16", "commit=abc"]),
        ("dtype=bf16 commit=abc", ["dtype=bf16", "commit=abc"]),
        ("dtype=bf16, fp8 , gpus>=64", ["dtype=bf16,fp8", "gpus>=64"]),
        ("date>=2026-11-01T03:45,model!=x,y", ["date>=2026-11-01T03:45", "model!=x,y"]),
    ],
)
def test_conditions_are_joined_by_commas_plus_signs_or_blanks(typed: str, conditions: list[str]) -> None:
    assert is_filter(typed)
    assert conditions_of(typed) == [parse_condition(text) for text in conditions]


def test_runs_of_a_sweep_know_their_repeat(runs: Path) -> None:
    names = sorted(path.name for path in runs.iterdir())
    asked = Request(backend="jax", model="llama2_tiny")
    record = Sweep(
        schema_version=1, sweep_id="sweep-1", key="k", command=[], repeats=3, refused=[],
        cells=[Cell(request=asked, digest=digest, scale=scale(1)) for digest in "ab"],
        runs=[SweepRun(run_id=n, cell=i % 2, repeat=i // 2 + 1, started=0.0) for i, n in enumerate(names)],
    )  # fmt: skip
    (runs / "sweep-1.json").write_text(json_text(record))
    (runs / "sweep-2.json").write_text("{")
    a, b = Sides(runs, open_index).chosen("0000,0002,0004", "0001,0003,0005")
    assert [(run.pair.cell, run.pair.repeat) for run in (*a.runs, *b.runs) if run.pair] == [
        (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip
