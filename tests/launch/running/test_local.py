"""The local site with small programs in place of a framework: how tasks start, end, fail and are stopped."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.values import Phase, Step
from launch.machine import processes
from launch.running import local


def phase(script: str, tasks: int = 1) -> Phase:
    return Phase(
        name="perf",
        command=["{python}", "-c", script],
        environment={"WHERE": "{phase_dir}"},
        nodes=tasks,
        tasks_per_node=1,
        devices_per_task=1,
        writes_steps=True,
    )


def run(script: str, folder: Path, tasks: int = 1) -> list[int | None]:
    ended = local.run_phase(phase(script, tasks), folder, Path(sys.executable), list, lambda _: None)
    assert [process.rank for process in ended] == list(range(tasks))
    return [process.exit_code for process in ended]


def log(folder: Path, rank: int = 0) -> str:
    return (folder / f"rank-{rank}.log").read_text()


def test_each_task_gets_its_rank_its_log_and_the_folder(tmp_path: Path) -> None:
    show = "import os; print(os.environ['STEPMARK_RANK'], os.environ['WHERE'], 'STEPMARK_COORDINATOR' in os.environ)"
    assert run(show, tmp_path, tasks=2) == [0, 0]
    assert log(tmp_path, 0).split() == ["0", str(tmp_path), "True"]
    assert log(tmp_path, 1).split() == ["1", str(tmp_path), "True"]


def test_exit_codes_are_written_down(tmp_path: Path) -> None:
    assert run("raise SystemExit(7)", tmp_path) == [7]
    assert '"exit_code":7' in (tmp_path / "exits.jsonl").read_text()


def test_the_others_are_ended_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "GRACE_SECONDS", 0.5)
    wait_for_ever = "import os, time; os.environ['STEPMARK_RANK'] == '1' and exit(3); time.sleep(60)"
    started = time.monotonic()
    assert run(wait_for_ever, tmp_path, tasks=2) == [-signal.SIGTERM, 3]
    assert time.monotonic() - started < 50


def test_a_task_that_ignores_being_asked_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GRACE_SECONDS", 0.5)
    stubborn = (
        "import os, signal, subprocess, sys, time\n"
        "if os.environ['STEPMARK_RANK'] == '1': time.sleep(1); exit(3)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    assert run(stubborn, tmp_path, tasks=2) == [None, 3]
    child = int(log(tmp_path))
    deadline = time.monotonic() + 50
    while _runs(child):
        assert time.monotonic() < deadline, "a grandchild outlived the run"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_tasks_and_is_reported(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for delay in (1.0, 1.01):  # twice, as from an impatient person or a process group
        threading.Timer(delay, os.kill, (os.getpid(), number)).start()
    with processes.interrupted_once():
        ended = local.run_phase(
            phase("import time; time.sleep(60)"), tmp_path, Path(sys.executable), list, lambda _: None
        )
        time.sleep(0.2)
    assert [process.interrupted for process in ended] == [True]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_the_last_steps_are_read_after_the_end(tmp_path: Path) -> None:
    step = Step(step=0, seconds=1.0, loss=1.0, tokens=1)
    waiting = [step]
    seen: list[Step] = []

    def new_steps() -> list[Step]:
        if (tmp_path / "exits.jsonl").exists():
            return [waiting.pop()] if waiting else []
        return []

    local.run_phase(phase("pass"), tmp_path, Path(sys.executable), new_steps, seen.extend)
    assert seen == [step]


@pytest.mark.parametrize(
    "name",
    ["XLA_FLAGS", "XLA_PYTHON_CLIENT_MEM_FRACTION", "JAX_PLATFORMS", "JAX_ENABLE_PGLE", "M_STEPS", "PYTHONPATH"],
)
def test_what_would_steer_past_the_plan_is_not_inherited(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "something")
    assert name not in processes.inherited_environment()
