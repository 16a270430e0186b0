"""What goes wrong while real MaxText trains: each ends in one message and the right code, and no step is lost."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.runs import JAX, TINY, Start, finish, verify, wait_for_steps, workers_of

pytestmark = pytest.mark.slow

LONG = ("--steps=200000",)


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while workers_of(folder):
        assert time.monotonic() < deadline, "a worker outlived its launcher"
        time.sleep(0.2)


def test_a_killed_worker_fails_the_run_and_keeps_its_steps(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path, JAX, TINY, *LONG)
    folder = wait_for_steps(tmp_path, 20)
    (worker,) = workers_of(folder)
    os.kill(worker, signal.SIGKILL)
    run = finish(process, tmp_path)
    assert run.code == 1
    assert run.result["status"] == "failed"
    assert "rank 0 was killed by signal 9 after step" in run.result["reasons"][0]
    assert len(run.steps) >= 20
    assert run.result["seconds_per_step"]["median"] is None
    assert verify(str(run.folder)).returncode == 0


def test_ctrl_c_ends_the_workers_keeps_the_steps_and_says_so(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path, JAX, TINY, *LONG)
    folder = wait_for_steps(tmp_path, 20)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # people press it twice
    run = finish(process, tmp_path)
    assert run.code == 1
    assert "interrupted by the user after step" in run.out
    assert len(run.steps) >= 20
    assert not workers_of(folder)
    assert verify(str(run.folder)).returncode == 0


def test_a_killed_launcher_leaves_no_worker_and_its_steps_can_be_repaired(start: Start, tmp_path: Path) -> None:
    process = start(tmp_path, JAX, TINY, *LONG)
    folder = wait_for_steps(tmp_path, 20)
    process.kill()
    process.wait(30)
    wait_until_gone(folder)
    unfinished = verify(str(folder))
    assert unfinished.returncode == 2
    assert "result.json is missing" in unfinished.stderr
    assert "--repair" in unfinished.stderr
    repaired = verify("--repair", str(folder))
    assert repaired.returncode == 0, repaired.stderr
    assert "the launcher was killed" in repaired.stdout
    assert (folder / "steps.jsonl").read_bytes().count(b"\n") >= 20
    assert verify(str(folder)).returncode == 0


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


def test_a_full_disk_ends_the_run_with_one_message_and_keeps_what_was_written(start: Start, small_disk: Path) -> None:
    run = finish(start(small_disk / "results", JAX, TINY, *LONG), small_disk / "results")
    assert run.code == 1
    assert "No space left on device" in run.out + run.err
    assert "kept" in run.err or "failed" in run.out
    assert not workers_of(run.folder)
    kept = (run.folder / "steps.jsonl").read_bytes().count(b"\n")
    assert kept >= 5
