"""What goes wrong while a run trains: each ends in one message and the right code, and no step is lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.runs import LLAMA3, NEMO, REPOSITORY, Start, Starter, finish, verify, wait_for_steps, workers_of

pytestmark = pytest.mark.slow

LONG = ("--steps=200000",)


def rank_of(worker: int) -> int:
    words = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    (rank,) = [word for word in words if word.startswith(b"STEPMARK_RANK=")]
    return int(rank.partition(b"=")[2])


def test_a_killed_rank_fails_the_run_and_is_named(
    start_toy: Start, toy_variables: dict[str, str], tmp_path: Path
) -> None:
    process = start_toy(tmp_path, "--gpus=2", *LONG)
    folder = wait_for_steps(tmp_path, 20)
    workers = {rank_of(worker): worker for worker in workers_of(folder)}
    assert sorted(workers) == [0, 1]
    os.kill(workers[1], signal.SIGKILL)
    run = finish(process, tmp_path)
    assert run.code == 1
    assert run.result["status"] == "failed"
    assert [reason for reason in run.result["reasons"] if "rank 1 was killed by signal 9 after step" in reason]
    assert "rank 1 was killed by signal 9" in run.out
    assert not workers_of(folder)
    assert len(run.losses) >= 10
    assert run.result["seconds_per_step"]["median"] is None
    assert verify(str(run.folder), **toy_variables).returncode == 0


def test_ctrl_c_ends_the_workers_keeps_the_steps_and_says_so(start_nemo: Start, tmp_path: Path) -> None:
    """Lightning has its own way with signals."""
    process = start_nemo(tmp_path, NEMO, LLAMA3, *LONG)
    folder = wait_for_steps(tmp_path, 20)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # people press it twice
    run = finish(process, tmp_path)
    assert run.code == 130
    assert "stepmark: interrupted" in run.err
    assert "interrupted by the user after step" in run.out
    assert len(run.steps) >= 20
    assert not workers_of(folder)
    assert verify(str(run.folder)).returncode == 0


# Runs launch/run.py, and sends it a signal at the N-th call of a function after that of a certain one.
INTERRUPTED = """
import os, runpy, sys
calls = [-1]
def count(frame, event, _):
    if event == "call":
        code = frame.f_code
        if calls[0] >= 0 or f"{code.co_filename}:{code.co_name}".endswith(os.environ["AFTER"]):
            calls[0] += 1
        if calls[0] == int(os.environ["AT"]):
            calls[0] += 1
            os.kill(os.getpid(), int(os.environ["NUMBER"]))
sys.setprofile(count)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(("at", "number"), [(0, signal.SIGINT), (100, signal.SIGTERM), (3000, signal.SIGINT)])
def test_no_signal_costs_the_result_of_a_run_that_has_ended(
    at: int, number: signal.Signals, starter: Starter, toy_variables: dict[str, str], tmp_path: Path
) -> None:
    script = str(REPOSITORY / "launch/run.py")
    flags = ["--backend=toy", "--model=llama2_tiny", f"--output_dir={tmp_path}"]
    variables = {**toy_variables, "AFTER": "running/local.py:stop", "AT": str(at), "NUMBER": str(number.value)}
    run = finish(starter([sys.executable, "-c", INTERRUPTED, script, *flags], **variables), tmp_path)
    assert run.result["status"] == "valid", run.err
    assert "Traceback" not in run.err
    assert run.code == 0


def test_an_interrupt_before_the_workers_start_leaves_no_folder(
    starter: Starter, toy_variables: dict[str, str], tmp_path: Path
) -> None:
    flags = ["--backend=toy", "--model=llama2_tiny", f"--output_dir={tmp_path / 'results'}"]
    variables = {**toy_variables, "AFTER": "running/execute.py:_begin_events", "AT": "0", "NUMBER": "2"}
    process = starter([sys.executable, "-c", INTERRUPTED, str(REPOSITORY / "launch/run.py"), *flags], **variables)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, "stepmark: interrupted" in error) == (130, True)
    assert list((tmp_path / "results").iterdir()) == []


def test_a_loss_that_is_no_number_is_invalid(start_nemo: Start, tmp_path: Path) -> None:
    run = finish(start_nemo(tmp_path, NEMO, LLAMA3, "--set=optim.config.lr=1e30", "--steps=6"), tmp_path)
    assert run.code == 3
    assert run.result["status"] == "invalid"
    reasons = " ".join(run.result["reasons"])
    assert "rank 0: the loss is not finite in 4 steps (first: 2, 3, 4, 5)" in reasons
    assert "rank 0: the gradient norm is not finite" in reasons
    assert run.losses[2:] == [None] * 4
    assert run.result["loss"]["last"] is None
    assert "loss.last" in run.result["null_because"]
    assert verify(str(run.folder)).returncode == 0


# --- any framework -----------------------------------------------------------------------------


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + 120
    while workers_of(folder):
        assert time.monotonic() < deadline, "a worker outlived its launcher"
        time.sleep(0.2)


def test_a_killed_launcher_leaves_no_worker_and_its_steps_can_be_repaired(
    start_toy: Start, toy_variables: dict[str, str], tmp_path: Path
) -> None:
    process = start_toy(tmp_path, *LONG)
    folder = wait_for_steps(tmp_path, 20)
    process.kill()
    process.wait(60)
    wait_until_gone(folder)
    unfinished = verify(str(folder), **toy_variables)
    assert unfinished.returncode == 2
    assert "result.json is missing" in unfinished.stderr
    assert "--repair" in unfinished.stderr
    repaired = verify("--repair", str(folder), **toy_variables)
    assert repaired.returncode == 0, repaired.stderr
    assert "its launcher was killed" in repaired.stdout
    assert (folder / "steps.jsonl").read_bytes().count(b"\n") >= 20
    assert verify(str(folder), **toy_variables).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a host is named in a namespace, which takes root")
def test_a_host_whose_name_is_no_text(toy_variables: dict[str, str], tmp_path: Path) -> None:
    name = "import os, socket, sys; socket.sethostname(b'b\\xff\\x1b[2J'); os.execvp(sys.argv[1], sys.argv[1:])"
    words = ["launch/run.py", "--backend=toy", "--model=llama2_tiny", "--steps=40", "--set=nap_seconds=0.05"]
    done = subprocess.run(
        [
            "unshare",
            "--uts",
            sys.executable,
            "-c",
            name,
            sys.executable,
            *words,
            f"--output_dir={tmp_path / 'results'}",
        ],
        cwd=REPOSITORY,
        env=os.environ | toy_variables,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "results").iterdir()
    assert "unreadable" not in (run / "result.json").read_text()
    assert verify(str(run), **toy_variables).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("a full disk is made by mounting a small file system, which needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_ends_the_run_with_one_message_and_keeps_what_was_written(
    start_toy: Start, toy_variables: dict[str, str], small_disk: Path
) -> None:
    run = finish(start_toy(small_disk / "results", *LONG, "--set=nap_seconds=0.001"), small_disk / "results")
    assert run.code == 1
    assert "No space left on device" in run.out + run.err
    assert "kept" in run.err or "failed" in run.out
    assert not workers_of(run.folder)
    kept = (run.folder / "steps.jsonl").read_bytes().count(b"\n")
    assert kept >= 5
    subprocess.run(["mount", "-o", "remount,size=9m", str(small_disk)], check=True)
    repaired = verify("--repair", str(run.folder), **toy_variables)
    assert "No space left on device" in repaired.stdout
