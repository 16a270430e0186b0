"""Runs of the real scripts on real MaxText, each made once and looked at by many tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jax_backend import BACKEND
from launch import environments
from tests.end_to_end.runs import JAX, REPOSITORY, SHARDED, TINY, TOKEN, Run, Start, finish


@pytest.fixture(scope="session")
def jax_python() -> Path:
    """MaxText's environment; made here on a fresh machine, which takes minutes."""
    return environments.ensure(BACKEND.environment(), bar=False)


@pytest.fixture(scope="session")
def start(jax_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:  # noqa: ARG001
    """Starts launch/run.py in a home of its own, with a token in its environment; ends what a test leaves."""
    started: list[subprocess.Popen[str]] = []

    def run(output_dir: Path, *flags: str, **variables: str) -> "subprocess.Popen[str]":
        home = tmp_path_factory.mktemp("home")
        environment = {
            **os.environ,
            "HOME": str(home),
            "STEPMARK_HOME": str(environments.environments_root().parent),
            "HF_TOKEN": TOKEN,
            **variables,
        }
        command = [sys.executable, str(REPOSITORY / "launch/run.py"), f"--output_dir={output_dir}", *flags]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _whole_run(start: Start, output_dir: Path, *flags: str) -> Run:
    return finish(start(output_dir, JAX, TINY, *flags), output_dir)


@pytest.fixture(scope="session")
def tiny(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _whole_run(start, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def sharded(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _whole_run(start, tmp_path_factory.mktemp("sharded"), *SHARDED)


@pytest.fixture(scope="session")
def two_processes(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _whole_run(start, tmp_path_factory.mktemp("two"), *SHARDED, "--nodes=2")
