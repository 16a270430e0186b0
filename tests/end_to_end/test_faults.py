"""What goes wrong while a run trains: each ends in one message and the right code, and no step is lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.runs import (
    JAX,
    LLAMA3,
    NEMO,
    REPOSITORY,
    TINY,
    Run,
    Start,
    Starter,
    finish,
    verify,
    wait_for_steps,
    workers_of,
)

pytestmark = pytest.mark.slow

LONG = ("--steps=200000",)

# A worker of which one adapter is cut off from the loss, and one frozen weight changes by its last bit in one step.
FAULTY_WORKER = """
import importlib.util, sys
import torch
from lightning.pytorch.callbacks import Callback
spec = importlib.util.spec_from_file_location("worker", {worker!r})
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)

class Fault(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx == 0:
            modules = dict(trainer.strategy.megatron_parallel.named_modules())
            adapter = modules[next(name for name in modules if name.endswith("layers.1.mlp.linear_fc2.adapter"))]
            whole = adapter.forward
            adapter.forward = lambda *args, **kwargs: whole(*args, **kwargs).detach()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx == 1:
            frozen = [p for n, p in trainer.strategy.megatron_parallel.named_parameters() if "final_layernorm" in n]
            with torch.no_grad():
                frozen[0].view(torch.int32)[5] ^= 1

fit = worker.fit
worker.fit = lambda options, build, callbacks, redirect: fit(options, build, [*callbacks, Fault()], redirect)
worker.kit.leave(worker.main(worker.parse(sys.argv[1:])))
"""

# launch/run.py as it is, but for the program that the plan of NeMo's backend names.
LAUNCHER = """
import runpy, sys
from nemo_backend import planning
command = planning.worker_command
faulty = {{"{{repository}}/nemo_backend/inside/worker.py": {faulty!r}}}
planning.worker_command = lambda benchmark: [faulty.get(word, word) for word in command(benchmark)]
sys.path.insert(0, {launch!r})
sys.argv[0] = {launch!r} + "/run.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def rank_of(worker: int) -> int:
    words = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    (rank,) = [word for word in words if word.startswith(b"STEPMARK_RANK=")]
    return int(rank.partition(b"=")[2])


def test_a_killed_rank_fails_the_run_and_is_named(start_nemo: Start, tmp_path: Path) -> None:
    process = start_nemo(tmp_path, NEMO, LLAMA3, "--gpus=2", *LONG)
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
    assert verify(str(run.folder)).returncode == 0


@pytest.mark.parametrize(("fixture", "words"), [("start", (JAX, TINY)), ("start_nemo", (NEMO, LLAMA3))])
def test_ctrl_c_ends_the_workers_keeps_the_steps_and_says_so(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str, words: tuple[str, str]
) -> None:
    process = request.getfixturevalue(fixture)(tmp_path, *words, *LONG)
    folder = wait_for_steps(tmp_path, 20)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # people press it twice
    run = finish(process, tmp_path)
    assert run.code == 1
    assert "interrupted by the user after step" in run.out
    assert len(run.steps) >= 20
    assert not workers_of(folder)
    assert verify(str(run.folder)).returncode == 0


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


@pytest.fixture(scope="module")
def faulty_run(nemo_python: Path, starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Run:  # noqa: ARG001
    place = tmp_path_factory.mktemp("faulty")
    faulty, launcher = place / "faulty_worker.py", place / "launcher.py"
    faulty.write_text(FAULTY_WORKER.format(worker=str(REPOSITORY / "nemo_backend/inside/worker.py")))
    launcher.write_text(LAUNCHER.format(faulty=str(faulty), launch=str(REPOSITORY / "launch")))
    flags = (f"--output_dir={place / 'runs'}", NEMO, LLAMA3, "--task=lora", "--steps=6")
    started = starter([sys.executable, str(launcher), *flags], PYTHONPATH=str(REPOSITORY))
    return finish(started, place / "runs")


def test_one_adapter_without_a_gradient_is_invalid_though_the_others_learn(faulty_run: Run) -> None:
    assert faulty_run.code == 3, faulty_run.err
    assert faulty_run.result["status"] == "invalid"
    assert len(set(faulty_run.losses)) == 6
    (reason,) = [reason for reason in faulty_run.result["reasons"] if "receive no gradient" in reason]
    assert reason.startswith("rank 0: 2 of 16 adapters receive no gradient (first: ")
    assert "layers.1.mlp.linear_fc2.adapter" in reason


def test_one_bit_of_a_frozen_weight_makes_a_run_invalid(faulty_run: Run) -> None:
    assert faulty_run.code == 3, faulty_run.err
    (reason,) = [reason for reason in faulty_run.result["reasons"] if "frozen weights changed" in reason]
    assert reason.startswith("rank 0: 1 of 15 frozen weights changed (first: ")
    assert "final_layernorm.weight" in reason
    assert verify(str(faulty_run.folder)).returncode == 0


# --- whatever trains ---------------------------------------------------------------------------


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while workers_of(folder):
        assert time.monotonic() < deadline, "a worker outlived its launcher"
        time.sleep(0.2)


def test_a_killed_launcher_leaves_no_worker_and_its_steps_can_be_repaired(
    start_toy: Start, toy_variables: dict[str, str], tmp_path: Path
) -> None:
    process = start_toy(tmp_path, *LONG)
    folder = wait_for_steps(tmp_path, 20)
    process.kill()
    process.wait(30)
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
    assert "killed" not in repaired.stdout
