"""What a machine must have before a training step is compiled on it."""

from pathlib import Path

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, resolve
from jax_backend import BACKEND
from launch.checks import compile_check
from launch.checks.compile_check import refuse_to_compile
from launch.machine import this_machine


def refusal(flag: str = "", *, make_environment: bool = False) -> RequestError | None:
    name, _, value = flag.partition("=")
    request = Request(backend="jax", model="llama2_70b", gpus=64, settings={name: value} if name else {})
    benchmark = resolve(request, Configs(), BACKEND)
    try:
        refuse_to_compile(benchmark, BACKEND, BACKEND.compile_program(), make_environment=make_environment)
    except RequestError as refused:
        return refused
    return None


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no environment."""
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(this_machine, "available_memory_bytes", lambda: 8 * 10**9)
    return tmp_path


def test_the_compiler_is_installed_only_where_it_is_asked_for(bare: Path) -> None:
    refused = refusal()
    assert refused is not None
    assert "about 6 GB" in refused.what
    assert str(bare / "home" / "environments") in refused.where
    assert "GB of disk are free there" in refused.why
    assert refused.next_command.endswith("--make_environment")
    assert not (bare / "home").exists()
    assert refusal(make_environment=True) is None


@pytest.mark.usefixtures("bare")
def test_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "available_memory_bytes", lambda: 1_200_000_000)
    refused = refusal(make_environment=True)
    assert refused is not None
    assert "1.20 of 1.5 GB" in refused.what


@pytest.mark.usefixtures("bare")
def test_the_compiler_is_asked_about_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """How it is asked, and what becomes of its answer, is in test_flags_check.py."""
    asked = []
    monkeypatch.setattr(compile_check, "refuse_unknown_flags", lambda benchmark, _: asked.append(benchmark.xla_flags))
    assert refusal("xla_gpu_nonsense=1", make_environment=True) is None
    assert asked[0]["xla_gpu_nonsense"] == "1"


def test_available_memory_is_no_more_than_there_is() -> None:
    assert 0 < this_machine.available_memory_bytes() <= this_machine.host_memory_bytes()
