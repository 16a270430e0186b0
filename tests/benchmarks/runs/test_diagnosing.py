"""launch/doctor.py logs LOG: files, folders, patterns and packed logs; what it says, and with which exit code."""

import fcntl
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.runs.diagnosing import diagnosis_of
from benchmarks.runs.runfolder import RESULT, STEPS
from tests import forked
from tests.launch.test_doctor import DOCTOR

REPOSITORY = Path(__file__).resolve().parents[3]
HEALTHY = REPOSITORY / "tests/jax_backend/logs/maxtext-0.2.5.log"
STORED = REPOSITORY / "tests/launch/stored_runs"
REPAIR = "python launch/verify.py --repair"
MEMORY = "2026-11-22 10:00:05 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
WATCHDOG = "2026-11-22 10:30:05 [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)\n"


def doctor(*words: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    done = forked.run(DOCTOR, *words, cwd=cwd)
    assert "Traceback (" not in done.stderr, done.stderr
    return done


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs/deep").mkdir(parents=True)
    (tmp_path / "logs/rank-0.log").write_text(WATCHDOG)
    with gzip.open(tmp_path / "logs/deep/rank-3.log.gz", "wb") as stream:
        stream.write(MEMORY.encode())
    (tmp_path / "logs/model.bin").write_bytes(b"CUDA out of memory")
    return tmp_path


@pytest.mark.parametrize(
    "place", [["./logs"], ["logs", "logs"], ["logs/**/rank-*"], ["logs/rank-0.log", "logs/deep/rank-3.log.gz"]]
)
def test_files_folders_and_patterns(logs: Path, place: list[str]) -> None:
    done = doctor(*place, cwd=logs)
    assert done.returncode == 3, done.stderr
    first, cause, line, *_ = done.stdout.splitlines()
    assert first.startswith("2 logs, ")
    assert "first cause  GPU out of memory, rank 3, 2026-11-22 10:00:05" in cause
    assert "logs/deep/rank-3.log.gz:1: torch.OutOfMemoryError" in line
    assert "meaning" in done.stdout
    assert "TP=8 for Llama 2 70B" in done.stdout
    assert "then         NCCL timeout, rank 0" in done.stdout


def test_json_holds_all_of_it(logs: Path) -> None:
    found = json.loads(doctor("--json", "logs", cwd=logs).stdout)
    assert (found["failed"], [one["id"] for one in found["entries"]]) == (True, ["gpu_memory", "nccl_timeout"])
    assert found["entries"][0]["first"]["rank"] == 3
    assert set(found["entries"][0]) >= {"title", "means", "do", "ranks", "phase", "kind"}


def test_a_healthy_log(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(HEALTHY.read_text() + "training finished\n")
    done = doctor("a.log", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no error found (12 steps)" in done.stdout


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(MEMORY.encode() * 100)[:12])
    for place, words in (("none.log", "'none.log' does not exist"), ("empty", "found no log"),
                         ("cut.log.gz", "the log cannot be read")):  # fmt: skip
        done = doctor(place, cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stdout == ""


def test_logs_that_are_all_empty_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.log").touch()
    assert doctor("a.log", cwd=tmp_path).returncode == 2
    (tmp_path / "b.log").write_text("step 1: loss 2.5\ntraining finished\n")
    assert doctor("a.log", "b.log", cwd=tmp_path).returncode == 0


def test_a_pipe_in_a_folder_is_left_alone(logs: Path) -> None:
    os.mkfifo(logs / "logs/pipe.log")
    assert diagnosis_of([str(logs / "logs")]).files == 2


@pytest.mark.parametrize(
    "stored",
    [
        gzip.compress(MEMORY.encode()),
        gzip.compress(MEMORY.encode()) + b"no gzip",
    ],
    ids=["gzip", "gzip with more behind it"],
)
def test_however_a_log_is_stored(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "a.log").write_bytes(stored)
    assert [one.id for one in diagnosis_of([str(tmp_path / "a.log")]).entries] == ["gpu_memory"]


def test_a_pipe_is_the_standard_input(tmp_path: Path) -> None:
    command = f"echo '{MEMORY.strip()}' | {sys.executable} {DOCTOR} logs -"
    assert subprocess.run(command, check=False, shell=True, capture_output=True).returncode == 3
    (tmp_path / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    assert "compressed with zstd" in doctor("a.zst", cwd=tmp_path).stderr


@pytest.mark.parametrize("name", ["job.e1234", "train.log.1", "rank_0", "rank-3.gz"])
def test_what_logs_in_a_folder_are_called(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(MEMORY)
    assert diagnosis_of([str(tmp_path)]).files == 1


def test_a_packed_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = gzip.compress(MEMORY.encode() + os.urandom(20_000))
    (tmp_path / "rank-0.log.gz").write_bytes(whole[:-4_000])
    done = doctor("rank-0.log.gz", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "GPU out of memory" in done.stdout


@pytest.mark.parametrize("steps", [True, False])
def test_a_run_whose_launcher_was_killed_has_failed(tmp_path: Path, steps: bool) -> None:
    run = tmp_path / "run"
    shutil.copytree(STORED / "nemo_lora", run)
    (run / RESULT).unlink()
    for log in [] if steps else run.rglob("rank-*.log"):
        log.write_text("")
    done = doctor("logs", run, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    assert f"not running\n          {REPAIR} {run}" in done.stdout


def test_the_reasons_of_a_result_are_shown_where_the_logs_show_none(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(STORED / "nemo_lora", run)
    result = json.loads((run / RESULT).read_bytes())
    (run / RESULT).write_text(json.dumps({**result, "status": "failed", "reasons": ["it stopped\x1b[31m"]}))
    done = doctor("logs", run, cwd=tmp_path)
    assert done.returncode == 3
    assert "do not show the reason\n  result  it stopped" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_run_that_goes_on_or_waits_has_not_failed(tmp_path: Path) -> None:
    for name, words in (("nemo_lora", "the run is still running"), ("jax_on_slurm", "is not collected yet")):
        shutil.copytree(STORED / name, tmp_path / name)
        (tmp_path / name / RESULT).unlink()
        with (tmp_path / name / STEPS).open("rb") as launcher:
            fcntl.flock(launcher, fcntl.LOCK_EX)
            done = doctor("logs", tmp_path / name, cwd=tmp_path)
        assert done.returncode == 0
        assert words in done.stdout


@pytest.mark.parametrize("damaged", ["", "null", '{"status": "running"}'])
def test_a_run_whose_result_cannot_be_read_is_none_that_went_well(tmp_path: Path, damaged: str) -> None:
    shutil.copytree(STORED / "jax_local", tmp_path / "run")
    (tmp_path / "run" / RESULT).write_text(damaged)
    done = doctor("logs", "run", cwd=tmp_path)
    assert done.returncode == 3
    assert "result.json" in done.stdout


def test_a_job_that_failed_and_was_not_collected_has_failed(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    shutil.copytree(STORED / "jax_on_slurm", run)
    (run / RESULT).unlink()
    path = run / "attempt-1" / "scheduler.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "state": "FAILED"}))
    done = doctor("logs", run, cwd=tmp_path)
    assert done.returncode == 3
    assert "the job ended (FAILED) and is" in done.stdout
    assert f"python launch/status.py --collect '{run}'" in done.stdout
