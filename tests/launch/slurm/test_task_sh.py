"""task.sh, run as by Slurm: the variables that it sets, and its record of the program's end."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

TASK = Path(__file__).resolve().parents[3] / "launch/slurm/task.sh"
TORCH = [
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
]  # fmt: skip


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
    out, err = task.communicate(timeout=120)
    return task.returncode, out, err


def record(phase_dir: Path, rank: int = 5) -> dict[str, Any]:
    (line,) = (phase_dir / f"exits-rank{rank}.jsonl").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_the_program_knows_its_rank_and_where_the_others_are(tmp_path: Path) -> None:
    code, out, _ = ends(tmp_path, "env")
    reported = dict(line.split("=", 1) for line in out.splitlines())
    assert code == 0
    assert reported["STEPMARK_RANK"] == "5"
    assert reported["STEPMARK_COORDINATOR"] == "node1:20016"
    assert [reported[name] for name in TORCH] == ["5", "8", "1", "2", "2", "2", "node1", "20016"]


def test_a_task_that_is_alone_waits_for_nobody(tmp_path: Path) -> None:
    _, out, _ = ends(tmp_path, "env", rank=0, tasks=1, nodes=1)
    assert "STEPMARK_COORDINATOR=" not in out
    assert "WORLD_SIZE=1" in out


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
    assert not code or str(link.readlink()) == f"{code} rank 5"


def test_the_first_failure_stays_the_first(tmp_path: Path) -> None:
    ends(tmp_path, "bash", "-c", "exit 3", rank=1)
    ends(tmp_path, "bash", "-c", "exit 4", rank=2)
    assert str((tmp_path / "first-failure").readlink()) == "3 rank 1"
    assert [record(tmp_path, rank)["exit_code"] for rank in (1, 2)] == [3, 4]


def test_it_outlives_the_signals_that_its_program_gets(tmp_path: Path) -> None:
    """Slurm signals both; the program has the default actions, unlike the wrapper."""
    program = "import signal, sys, time; print(signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL, flush=True)\n"
    program += "signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\ntime.sleep(20)"
    task = start(tmp_path, "python3", "-c", program)
    assert task.stdout is not None
    assert task.stdout.readline() == "True\n"
    for number in (signal.SIGUSR2, signal.SIGTERM):
        task.send_signal(number)  # only to the wrapper
    time.sleep(0.3)
    assert task.poll() is None
    subprocess.run(["pkill", "-TERM", "-P", str(task.pid)], check=True)
    assert task.wait(60) == 130
    assert record(tmp_path)["exit_code"] == 130


def test_a_folder_that_cannot_be_written_changes_no_exit_code(tmp_path: Path) -> None:
    assert ends(tmp_path / "gone", "bash", "-c", "exit 3")[0] == 3
    assert ends(tmp_path / "gone", "true")[0] == 0


# --- binding to its own GPU ---------------------------------------------------------------------

NVIDIA_SMI = """#!/bin/bash
[ "$2" = --query-gpu=pci.bus_id ] || exit 2
case $1 in --id=0) echo 00000000:1B:00.0 ;; --id=1 | --id=GPU-b) echo 00000008:01:00.0 ;; *) exit 6 ;; esac
"""
NUMACTL = '#!/bin/bash\nexport BY_NUMACTL="$1 $2"\nshift 2\nexec "$@"\n'
SAYS = 'grep Cpus_allowed_list /proc/self/status; echo "numactl ${BY_NUMACTL:-none}"'


def can_unshare() -> bool:
    return subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False).returncode == 0


class Machine:
    """Two GPUs at two NUMA nodes of one processor each: folders that lie over this machine's /sys for one task."""

    def __init__(self, folder: Path) -> None:
        self.phase_dir, self.programs, self.sys = folder / "phase", folder / "bin", folder / "sys"
        self.phase_dir.mkdir()
        self.write(self.programs / "nvidia-smi", NVIDIA_SMI)
        for node, gpu in enumerate(("0000:1b:00.0", "0008:01:00.0")):
            self.write(self.sys / f"bus/pci/devices/{gpu}/numa_node", f"{node}\n")
            self.write(self.sys / f"devices/system/node/node{node}/cpulist", f"{node}\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def task(self, local_rank: int, **variables: str) -> tuple[str, dict[str, Any], str]:
        """What the program saw, what was written down of it, and what was said."""
        over = [f"mount --bind {self.sys / name} /sys/{name}" for name in ("bus/pci/devices", "devices/system/node")]
        words = ["bash", str(TASK), "bash", "-c", SAYS]
        environment = slurm(self.phase_dir, rank=local_rank, tasks=2, nodes=1) | {"STEPMARK_BIND": "gpu"} | variables
        environment["PATH"] = f"{self.programs}:{os.environ['PATH']}"
        done = subprocess.run(
            ["unshare", "--map-root-user", "--mount", "bash", "-c", f'{" && ".join(over)} && exec "$@"', "x", *words],
            env=environment, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        return done.stdout, record(self.phase_dir, local_rank)["binding"], done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if not can_unshare() or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs a mount namespace and two processors")
    return Machine(tmp_path)


def test_a_task_is_bound_to_the_node_of_its_own_gpu(machine: Machine) -> None:
    """By numactl, processors and memory; without it by taskset, which binds the processors."""
    machine.write(machine.programs / "numactl", NUMACTL)
    saw, binding, reported = machine.task(0)
    assert (saw.splitlines()[-1], reported) == ("numactl --cpunodebind=0 --membind=0", "")
    assert binding == {"gpu": "0000:1b:00.0", "node": 0, "cpus": "0", "by": "numactl", "why": ""}
    machine.write(machine.programs / "numactl", "#!/bin/bash\nexit 1\n")  # as in a container that forbids it
    saw, binding, reported = machine.task(1)
    assert (saw.split(), reported) == (["Cpus_allowed_list:", "1", "numactl", "none"], "")
    assert binding == {"gpu": "0008:01:00.0", "node": 1, "cpus": "1", "by": "taskset", "why": ""}


def test_the_gpu_is_the_one_that_slurm_shows_the_task(machine: Machine) -> None:
    assert machine.task(0, CUDA_VISIBLE_DEVICES="1,0")[1]["node"] == 1
    (machine.phase_dir / "exits-rank1.jsonl").unlink(missing_ok=True)
    assert machine.task(1, CUDA_VISIBLE_DEVICES="GPU-b")[1]["node"] == 1  # each task only sees its own


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("bin/nvidia-smi", "nvidia-smi does not show the GPU of this task"),
        ("sys/bus/pci/devices/0000:1b:00.0/numa_node", "/sys names no NUMA node of the GPU"),
        ("sys/devices/system/node/node0/cpulist", "neither numactl nor taskset can bind to processors 4000 here"),
    ],
)
def test_what_cannot_be_bound_runs_all_the_same_and_says_why(machine: Machine, change: str, why: str) -> None:
    texts = {"numa_node": "-1\n", "cpulist": "4000\n", "nvidia-smi": "#!/bin/bash\nexit 9\n"}
    path = machine.phase_dir.parent / change
    machine.write(path, texts[path.name])
    saw, binding, reported = machine.task(0)
    assert "numactl none" in saw
    assert (binding["by"], binding["why"]) == ("", why)
    assert reported == f"stepmark: this rank is bound to no NUMA node: {why}\n"


def test_nothing_is_bound_where_tasks_have_no_gpu_of_their_own(tmp_path: Path) -> None:
    ends(tmp_path, "true")
    assert record(tmp_path)["binding"] is None
