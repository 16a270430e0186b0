"""launch/report.py over the runs of a folder, as a user runs it: lists, archives and their verification."""

import csv
import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runs.runfolder import RESULT
from benchmarks.values import json_text
from tests import forked
from tests.benchmarks.history.made_runs import put, quick_run, whole_run
from tests.benchmarks.pages import samples

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "launch" / "report.py"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    place = tmp_path / "results"
    for number, dtype in enumerate(("bf16", "fp8", "bf16")):
        quick_run(place, f"2026112{number}T000000Z-{dtype}", dtype=dtype, gpus=8 * (number + 1), tags=["all"])
    (place / "plots").mkdir()
    (place / "plots" / "file").write_text("")
    return place


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Any:
    def call(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"STEPMARK_HOME": str(home)}
        done = forked.run(SCRIPT, *arguments, env=environment, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return call


def test_a_night_is_found_by_its_name_and_its_next_command_where_it_was_moved(run: Any, tmp_path: Path) -> None:
    night = samples.night()
    record = tmp_path / "moved" / "nights" / night.suite / f"{night.night}.json"
    record.parent.mkdir(parents=True)
    record.write_text(json_text(night))
    quick_run(tmp_path / "moved", f"{night.night}-jax-of-the-same-second")
    run("html", "page.html", night.night, "--output_dir=moved")
    page = (tmp_path / "page.html").read_text()
    assert night.title in page
    assert "--output_dir=moved --explain" in page
    assert f"--output_dir={night.history[0]}" not in page


# --- lists ----------------------------------------------------------------------------------------


def test_the_runs_that_fit_in_each_format(run: Any, results: Path) -> None:
    chosen = ("runs", results, "--where=dtype=bf16", "--where=gpus>8")
    table = run(*chosen)
    assert table.stdout.splitlines()[2].endswith("bf16")
    assert "20261120T000000Z-bf16" not in table.stdout
    assert "1 run in" in table.stdout
    assert "1 folder is skipped" in table.stderr
    assert "plots: not a run" in table.stderr
    assert [row["gpus"] for row in csv.DictReader(io.StringIO(run(*chosen, "--format=csv").stdout))] == ["24"]
    found = json.loads(run(*chosen, "--json").stdout)
    assert [one["run_id"] for one in found["runs"]] == ["20261122T000000Z-bf16"]
    assert [one["folder"] for one in found["problems"]] == ["plots"]


def test_the_index_lies_in_the_users_own_folder_and_may_be_deleted(run: Any, results: Path, home: Path) -> None:
    before = sorted(results.rglob("*"))
    run("runs", results)
    assert len(list((home / "index").glob("*.sqlite"))) == 1
    assert sorted(results.rglob("*")) == before
    shutil.rmtree(home)
    assert "3 runs in" in run("runs", results).stdout


# --- archives -------------------------------------------------------------------------------------

RUN = "20261122T034511Z-jax-llama2_tiny-pretrain-bf16-1xcpu-eeab"
BOTH = ("eeab", "beef")


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    place = tmp_path / "results"
    whole_run(place, RUN)
    whole_run(place, RUN.replace("eeab", "beef"))
    return place


def test_an_archive_is_verified_where_the_runs_are_not(run: Any, two_runs: Path) -> None:
    made = run("archive", "x.tar.gz", *BOTH)
    assert "2 runs" in made.stdout
    assert "without tensorboard/ of each" in made.stdout
    shutil.rmtree(two_runs)
    found = run("verify_archive", "x.tar.gz")
    assert f"{RUN}: agrees" in found.stdout
    assert "2 of 2 runs agree with their raw files" in found.stdout
    sums_lines = [line for line in made.stdout.splitlines() if "SHA256SUMS" in line]
    assert sums_lines
    assert sums_lines[0] in found.stdout.splitlines()


def test_an_archive_says_which_files_hold_secrets_and_what_it_left_out(run: Any, two_runs: Path) -> None:
    (two_runs / RUN / ".env").write_text("A=1")
    (two_runs / RUN / "note.txt").write_text("HF_TOKEN=SeCrEtSeCrEt")
    errors = run("archive", "x.tar.gz", *BOTH).stderr
    assert f"runs/{RUN}/note.txt" in errors
    assert "look like secrets" in errors
    assert ".env" in errors
    assert "rank-0.log" not in errors


def test_a_result_that_differs_from_its_raw_files_is_reported(run: Any, two_runs: Path) -> None:
    """The archive is whole: it was made of a run whose result had been changed."""
    path = two_runs / RUN / RESULT
    put(path, path.read_text().replace('"gpus": 1', '"gpus": 1 ').replace('"counted": ', '"counted": 1'))
    run("archive", "x.tar.gz", *BOTH)
    found = run("verify_archive", "x.tar.gz", code=3)
    assert "between the stored result and the raw files" in found.stdout
    assert "1 of 2 runs agree" in found.stdout


@pytest.mark.usefixtures("two_runs")
def test_a_changed_archive_is_reported_and_not_used(run: Any, tmp_path: Path) -> None:
    run("archive", "x.tar.gz", *BOTH)
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path) as tar:
        found = [(member, stream.read()) for member in tar if (stream := tar.extractfile(member))]
    changed = [(m, d.replace(b"0.25", b"0.20") if m.name.endswith("rank0.jsonl") else d) for m, d in found]
    with gzip.GzipFile(path, "wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for member, data in changed:
            tar.addfile(member, io.BytesIO(data))
    sums_lines = run("verify_archive", "x.tar.gz", code=3)
    assert "changed or incomplete" in sums_lines.stdout
    assert "its sha256 differs" in sums_lines.stderr
    assert "agree" not in sums_lines.stdout
    run("archive", "y.tar.gz", *BOTH)
    path.write_bytes((tmp_path / "y.tar.gz").read_bytes()[:-20])
    assert "incomplete, damaged" in run("verify_archive", "x.tar.gz", code=3).stderr
    path.write_text("not an archive")
    assert "changed or incomplete" in run("verify_archive", "x.tar.gz", code=3).stdout
