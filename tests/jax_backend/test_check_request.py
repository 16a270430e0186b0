"""The program that asks jaxlib whether it knows flags, asked about wrong ones of every kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jax_backend import BACKEND
from jax_backend.inside import check_request
from launch.environments import venvs

PROGRAM = Path(check_request.__file__)


def ask(text: str, python: str = sys.executable) -> tuple[int, list[str]]:
    """The exit code and the lines of the program, asked about one XLA_FLAGS."""
    command = [python, "-P", str(PROGRAM), f"--flags={text}"]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def test_without_jaxlib_there_is_no_verdict() -> None:
    code, (line,) = ask("--xla_switch=true")
    assert (code, "No module named 'jaxlib'" in line) == (1, True)


@pytest.mark.slow
def test_each_wrong_flag_has_a_line() -> None:
    python = venvs.ensure(BACKEND.environment("maxtext"))
    text = (
        "--xla_gpu_graph_level=0 --xla_gpu_enable_triton_gemm=maybe "
        "--xla_gpu_disable_async_collectives=ALLREDUCE,FOO --xla_gpu_enable_libnvptxcompiler=true "
        "--xla_gpu_enable_pipelined_all_gather=true"
    )
    code, lines = ask(text, str(python))
    assert code == 2
    assert {*lines} == {
        "--xla_gpu_graph_level=0: unknown to jaxlib 0.12.0.1",
        "--xla_gpu_enable_triton_gemm=maybe: its value is invalid for jaxlib 0.12.0.1",
        "--xla_gpu_disable_async_collectives=ALLREDUCE,FOO: its value is refused by jaxlib 0.12.0.1",
        "--xla_gpu_enable_libnvptxcompiler=true: its value is refused by jaxlib 0.12.0.1",
        "jaxlib 0.12.0.1 checked 5 flags",
    }
