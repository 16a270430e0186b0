"""The program that asks jaxlib whether it knows flags: on words that jaxlib said, a played one, and the real one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jax_backend import BACKEND
from jax_backend.inside import check_request
from launch.environments import venvs
from tests.jax_backend.asked import each

PROGRAM = Path(check_request.__file__)

# --- a played jaxlib ------------------------------------------------------------------------------------

# A package jaxlib that knows three flags, reads them as XLA does, and says of them what XLA says.
PLAYED = """
import os, sys, signal
KNOWN = ("xla_switch", "xla_list", "xla_crash")
def die(text):
    print(text, file=sys.stderr, flush=True)
    os.kill(os.getpid(), getattr(signal, os.environ.get("PLAYED_SIGNAL", "SIGABRT")))
def make_cpu_client():
    with open(os.environ["PLAYED_TRACE"], "a") as trace:
        trace.write(os.environ["XLA_FLAGS"] + "\\n")
    if os.environ["JAX_PLATFORMS"] != "cpu" or os.environ.get("PLAYED_BROKEN"):
        raise RuntimeError("no client today")
    unknown = []
    for word in os.environ["XLA_FLAGS"].split():
        name, _, value = word.removeprefix("--").partition("=")
        if name == "xla_switch" and value not in ("true", "false"):
            print(f"Couldn't interpret value {value} for flag {name}.", file=sys.stderr)
            die("Flag parsing failed.")
        elif name == "xla_list" and value not in ("", "A", "B", "A,B"):
            die("Check failed: Flag parsing failed.")
        elif name == "xla_crash":
            die("")
        elif name not in KNOWN or "=" not in word:
            unknown.append(word)
    if unknown:
        die("Unknown flag" + "s" * (len(unknown) > 1) + " in XLA_FLAGS: " + " ".join(unknown))
"""


Asks = Callable[..., tuple[int, list[str]]]


def ask(text: str, python: str = sys.executable, **variables: str) -> tuple[int, list[str]]:
    """The exit code and the lines of the program, asked about one XLA_FLAGS."""
    done = subprocess.run(
        [python, "-P", str(PROGRAM), f"--flags={text}"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def played(tmp_path: Path) -> Asks:
    """Asks the played jaxlib, which leaves the flags of every client that was made in a file `trace`."""
    for name, text in {
        "jaxlib/__init__.py": "",
        "jaxlib/xla_client.py": PLAYED,
        "jaxlib-9.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: jaxlib\nVersion: 9.9\n",
    }.items():
        path = tmp_path / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    variables = {"PYTHONPATH": str(tmp_path / "packages"), "PLAYED_TRACE": str(tmp_path / "trace")}
    return lambda text, **more: ask(text, **variables | more)


@each("asked_flags", "flags", "code", "lines", "clients")
def test_each_wrong_flag_has_a_line(
    played: Asks, tmp_path: Path, flags: str, code: int, lines: list[str], clients: int | None
) -> None:
    found, printed = played(flags)
    assert (found, len(printed)) == (code, len(lines))
    assert all(words in line for words, line in zip(lines, printed, strict=True)), printed
    assert clients is None or len((tmp_path / "trace").read_text().splitlines()) == clients


def test_a_jaxlib_that_gives_no_answer_is_no_verdict(played: Asks) -> None:
    no_client = ["jaxlib 9.9 could not be asked: RuntimeError: no client today"]
    assert played("--xla_switch=true", PLAYED_BROKEN="1") == (1, no_client)
    code, (line,) = played("--xla_switch=true", PYTHONPATH="")
    assert (code, "No module named 'jaxlib'" in line) == (1, True)


# --- the real one ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_real_jaxlib() -> None:
    python = venvs.ensure(BACKEND.environment("maxtext"))
    text = (
        "--xla_gpu_graph_level=0 --xla_gpu_enable_triton_gemm=maybe "
        "--xla_gpu_disable_async_collectives=ALLREDUCE,FOO --xla_gpu_enable_libnvptxcompiler=true "
        "--xla_gpu_enable_command_buffer --xla_gpu_enable_pipelined_all_gather=true"
    )
    code, lines = ask(text, str(python))
    assert code == 2
    assert set(lines) == {
        "--xla_gpu_graph_level=0: unknown to jaxlib 0.12.0.1",
        "--xla_gpu_enable_triton_gemm=maybe: its value cannot be read by jaxlib 0.12.0.1",
        "--xla_gpu_disable_async_collectives=ALLREDUCE,FOO: its value is refused by jaxlib 0.12.0.1",
        "--xla_gpu_enable_libnvptxcompiler=true: its value is refused by jaxlib 0.12.0.1",
        "--xla_gpu_enable_command_buffer: write =VALUE behind it; without one it is unknown to jaxlib 0.12.0.1",
        "jaxlib 0.12.0.1 was asked about 6 flags",
    }
