"""Runs of the real scripts on the real frameworks, each made once and looked at by many tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jax_backend
import nemo_backend
from launch.environments import venvs
from tests import toy_backend
from tests.end_to_end.runs import (
    JAX,
    LLAMA3,
    NEMO,
    REPOSITORY,
    SHARDED,
    STRATEGY,
    TINY,
    TOKEN,
    Run,
    Start,
    Starter,
    finish,
    measure_peak,
)
from tests.megatron_dataset import write_dataset

WORDS = ("the", "cluster", "trains", "a", "model", "and", "each", "step", "takes", "as", "long", "as", "before")


@pytest.fixture(scope="session")
def jax_python() -> Path:
    """MaxText's environment; made here on a fresh machine, which takes minutes."""
    return venvs.ensure(jax_backend.BACKEND.environment("maxtext"))


@pytest.fixture(scope="session")
def nemo_python() -> Path:
    """NeMo's environment; made here on a fresh machine, which takes minutes."""
    return venvs.ensure(nemo_backend.BACKEND.environment("nemo"))


@pytest.fixture(scope="session")
def bridge_python() -> Path:
    """Megatron-Bridge's environment; made here on a fresh machine, which takes minutes."""
    return venvs.ensure(nemo_backend.BACKEND.environment("bridge"))


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """Start a program in its own home, with a token in its environment; end what a test leaves."""
    started: list[subprocess.Popen[str]] = []

    def start(command: list[str], **variables: str) -> "subprocess.Popen[str]":
        home = tmp_path_factory.mktemp("home")
        environment = {
            **os.environ,
            "HOME": str(home),
            "STEPMARK_HOME": str(venvs.environments_root().parent),
            "HF_TOKEN": TOKEN,
            **variables,
        }
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _start_of(starter: Starter) -> Start:
    """Starts launch/run.py."""

    def start(output_dir: Path, *flags: str, **variables: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(REPOSITORY / "launch/run.py"), f"--output_dir={output_dir}", *flags]
        return starter(command, **variables)

    return start


@pytest.fixture(scope="session")
def start(jax_python: Path, starter: Starter) -> Start:  # noqa: ARG001 - the environment exists
    return _start_of(starter)


@pytest.fixture(scope="session")
def start_nemo(nemo_python: Path, starter: Starter) -> Start:  # noqa: ARG001 - the environment exists
    return _start_of(starter)


@pytest.fixture(scope="session")
def start_bridge(bridge_python: Path, starter: Starter) -> Start:  # noqa: ARG001 - the environment exists
    return _start_of(starter)


@pytest.fixture(scope="session")
def toy_variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With these the scripts find another package's backend, whose worker naps: for tests of the launcher."""
    package = tmp_path_factory.mktemp("toy")
    variables = toy_backend.install(package)
    toy_backend.make_environment_in(package)
    return variables


@pytest.fixture(scope="session")
def start_toy(starter: Starter, toy_variables: dict[str, str]) -> Start:
    def start(output_dir: Path, *flags: str) -> "subprocess.Popen[str]":
        return _start_of(starter)(output_dir, "--backend=toy", TINY, *flags, **toy_variables)

    return start


# --- MaxText ----------------------------------------------------------------------------------


def _whole_run(start: Start, output_dir: Path, *flags: str) -> Run:
    return finish(start(output_dir, JAX, TINY, *flags), output_dir)


@pytest.fixture(scope="session")
def tiny(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _whole_run(start, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def jax_peak(jax_python: Path, starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    return measure_peak(starter, tmp_path_factory.mktemp("jax_peak"), JAX)


@pytest.fixture(scope="session")
def sharded(start: Start, jax_peak: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Its MFU uses the peak that was measured here."""
    flags = (*SHARDED, "--steps=12", f"--measured_peak={jax_peak}")
    return _whole_run(start, tmp_path_factory.mktemp("sharded"), *flags)


@pytest.fixture(scope="session")
def two_processes(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Slowed on purpose, which changes neither its losses nor its program."""
    flags = (*SHARDED, "--nodes=2", "--steps=12", "--inject_slowdown=1.5")
    return _whole_run(start, tmp_path_factory.mktemp("two"), *flags)


# --- NeMo -------------------------------------------------------------------------------------


def _nemo_run(start_nemo: Start, output_dir: Path, *flags: str, **variables: str) -> Run:
    return finish(start_nemo(output_dir, NEMO, LLAMA3, *flags, **variables), output_dir)


@pytest.fixture(scope="session")
def nemo_pretrain(start_nemo: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _nemo_run(start_nemo, tmp_path_factory.mktemp("nemo"))


@pytest.fixture(scope="session")
def nemo_lora(start_nemo: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _nemo_run(start_nemo, tmp_path_factory.mktemp("nemo_lora"), "--task=lora")


@pytest.fixture(scope="session")
def nemo_pipeline_parallel(start_nemo: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same two sequences a step as nemo_pretrain, one after the other through two stages.

    The second of its processes runs under a substitute for nsys.
    """
    pipeline = ("--gpus=2", f"{STRATEGY}.pipeline_model_parallel_size=2", "--steps=12")
    batch = ("--set=micro_batch_size=1", "--set=gradient_accumulation=2")
    profile = ("--profile=nsys", "--profile_start_step=6", "--profile_stop_step=8", "--profile_ranks=1")
    path = f"{REPOSITORY / 'tests/stand_ins'}{os.pathsep}{os.environ['PATH']}"
    return _nemo_run(start_nemo, tmp_path_factory.mktemp("nemo_pp"), *pipeline, *batch, *profile, PATH=path)


@pytest.fixture(scope="session")
def nemo_lora_tensor_parallel(start_nemo: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Started as within a Slurm job of another size, whose variables must mean nothing."""
    flags = ("--task=lora", "--gpus=2", f"{STRATEGY}.tensor_model_parallel_size=2", "--steps=8")
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "16", "SLURM_PROCID": "5"}
    place = {"SLURM_LOCALID": "5", "SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_NODELIST": "node[1-2]"}
    torchrun = {"RANK": "3", "WORLD_SIZE": "16", "LOCAL_RANK": "3", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1"}
    return _nemo_run(start_nemo, tmp_path_factory.mktemp("nemo_lora_tp"), *flags, **job, **place, **torchrun)


@pytest.fixture(scope="session")
def text_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences that repeat, so that a model can learn them, as token numbers; 0 ends a document."""
    words = range(1, len(WORDS) + 1)
    sentences = [[*words[start:], *words[:start], 0] for start in range(len(words))] * 40
    return write_dataset(tmp_path_factory.mktemp("set"), ("a", "b"), sentences)
