"""--inject_slowdown: valid values, refusals, and the workers' options. Runs: tests/end_to_end/test_slowdown.py."""

from typing import Any

import pytest

import jax_backend
import nemo_backend
from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark

CONFIGS = Configs()
BACKENDS: dict[str, Backend] = {"jax": jax_backend.BACKEND, "nemo": nemo_backend.BACKEND}


def resolved(backend: str = "jax", **wanted: Any) -> Benchmark:
    request = Request(**{"backend": backend, "model": "llama2_tiny", "inject_slowdown": 0.5, **wanted})
    return resolve(request, CONFIGS, BACKENDS[backend])


def worker_options(benchmark: Benchmark) -> list[str]:
    phases = BACKENDS[benchmark.backend].plan(benchmark).phases
    return [word for phase in phases for word in phase.command if "slow" in word]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(("fraction", "word"), [(0.5, "0.5"), (1e-3, "0.001"), (10, "10")])
def test_the_slowdown_comes_before_the_frameworks_own_settings(
    backend: str, gpus: int, fraction: float, word: str
) -> None:
    benchmark = resolved(backend, gpus=gpus, inject_slowdown=fraction)
    assert benchmark.instruments.inject_slowdown == fraction
    assert worker_options(benchmark) == [f"--inject_slowdown={word}"]
    command = BACKENDS[backend].plan(benchmark).phases[-1].command
    assert command.index(f"--inject_slowdown={word}") < command.index("--")


def test_a_program_that_nothing_of_ours_runs_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the backend of another package, which does not know the option."""
    jax = BACKENDS["jax"]
    planned = jax.plan(resolved(inject_slowdown=0.0))
    monkeypatch.setattr(type(jax), "plan", lambda *_: planned)
    with pytest.raises(RequestError, match="does not support --inject_slowdown") as refused:
        resolved()
    assert "--engine=maxtext" in refused.value.where
