"""task.sh, run as Slurm would: what it tells the program, and what it writes down of its end."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

TASK = Path(__file__).resolve().parents[2] / "launch/slurm/task.sh"
TORCH = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def slurm(phase_dir: Path, rank: int = 5, tasks: int = 8, nodes: int = 4) -> dict[str, str]:
    each = tasks // nodes
    return {
        "PATH": os.environ["PATH"],
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % each),
        "SLURM_NODEID": str(rank // each),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURMD_NODENAME": "node3",
        "STEPMARK_COORDINATOR": "node1:20016",
        "STEPMARK_PHASE_DIR": str(phase_dir),
    }


def start(phase_dir: Path, *command: str, **changes: Any) -> "subprocess.Popen[str]":
    environment = slurm(phase_dir, **changes)
    return subprocess.Popen(
        ["bash", str(TASK), *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ends(phase_dir: Path, *command: str, **changes: Any) -> tuple[int, str, str]:
    task = start(phase_dir, *command, **changes)
    out, err = task.communicate(timeout=30)
    return task.returncode, out, err


def record(phase_dir: Path, rank: int = 5) -> dict[str, Any]:
    (line,) = (phase_dir / f"exits-rank{rank}.jsonl").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_the_program_knows_its_rank_and_where_the_others_are(tmp_path: Path) -> None:
    code, out, _ = ends(tmp_path, "env")
    said = dict(line.split("=", 1) for line in out.splitlines())
    assert code == 0
    assert said["STEPMARK_RANK"] == "5"
    assert said["STEPMARK_COORDINATOR"] == "node1:20016"
    assert [said[name] for name in TORCH] == ["5", "8", "1", "2", "2", "2", "node1", "20016"]


def test_a_task_that_is_alone_waits_for_nobody(tmp_path: Path) -> None:
    _, out, _ = ends(tmp_path, "env", rank=0, tasks=1, nodes=1)
    assert "STEPMARK_COORDINATOR=" not in out
    assert "WORLD_SIZE=1" in out


def test_words_reach_the_program_as_they_are(tmp_path: Path) -> None:
    words = ["a b", "it's", '"', "$HOME", "*", "", "ü"]
    _, out, _ = ends(tmp_path, "printf", "%s|", *words)
    assert out == "|".join(words) + "|"


@pytest.mark.parametrize(
    ("script", "code", "recorded"),
    [
        ("exit 0", 0, 0),
        ("exit 3", 3, 3),
        ("exit 130", 130, 130),
        ("kill -SEGV $$", 139, -11),
        ("kill -KILL $$", 137, -9),
        ("exit 255", 255, 255),
    ],
)
def test_its_end_is_the_programs(tmp_path: Path, script: str, code: int, recorded: int) -> None:
    before = time.time()
    assert ends(tmp_path, "bash", "-c", script)[0] == code
    found = record(tmp_path)
    assert found["exit_code"] == recorded
    assert (found["rank"], found["host"]) == (5, "node3")
    assert before <= found["time"] <= time.time()
    link = tmp_path / "first-failure"
    assert link.is_symlink() == (code != 0)
    assert not code or str(link.readlink()) == str(code)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    code, _, err = ends(tmp_path, "no-such-program")
    assert code == record(tmp_path)["exit_code"] == 127
    assert "no-such-program" in err


def test_the_first_failure_stays_the_first(tmp_path: Path) -> None:
    ends(tmp_path, "bash", "-c", "exit 3", rank=1)
    ends(tmp_path, "bash", "-c", "exit 4", rank=2)
    assert str((tmp_path / "first-failure").readlink()) == "3"
    assert [record(tmp_path, rank)["exit_code"] for rank in (1, 2)] == [3, 4]


def test_it_outlives_the_signals_that_its_program_gets(tmp_path: Path) -> None:
    """Slurm signals both; the program has the default actions, whatever the wrapper does."""
    program = "import signal, sys, time; print(signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL, flush=True)\n"
    program += "signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\ntime.sleep(20)"
    task = start(tmp_path, "python3", "-c", program)
    assert task.stdout is not None
    assert task.stdout.readline() == "True\n"
    for number in (signal.SIGUSR2, signal.SIGTERM):
        task.send_signal(number)  # to the wrapper alone
    time.sleep(0.3)
    assert task.poll() is None
    subprocess.run(["pkill", "-TERM", "-P", str(task.pid)], check=True)
    assert task.wait(10) == 130
    assert record(tmp_path)["exit_code"] == 130


def test_a_folder_that_cannot_be_written_changes_no_exit_code(tmp_path: Path) -> None:
    assert ends(tmp_path / "gone", "bash", "-c", "exit 3")[0] == 3
    assert ends(tmp_path / "gone", "true")[0] == 0
