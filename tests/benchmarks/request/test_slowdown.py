"""--inject_slowdown: what may be asked, what is refused, and who is told. Runs: tests/end_to_end/test_slowdown.py."""

import math
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


def told(benchmark: Benchmark) -> list[str]:
    phases = BACKENDS[benchmark.backend].plan(benchmark).phases
    return [word for phase in phases for word in phase.command if "slow" in word]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(("fraction", "word"), [(0.5, "0.5"), (1e-3, "0.001"), (10, "10")])
def test_the_worker_is_told_before_the_frameworks_own_settings(
    backend: str, gpus: int, fraction: float, word: str
) -> None:
    benchmark = resolved(backend, gpus=gpus, inject_slowdown=fraction)
    assert benchmark.instruments.inject_slowdown == fraction
    assert told(benchmark) == [f"--inject_slowdown={word}"]
    command = BACKENDS[backend].plan(benchmark).phases[-1].command
    assert command.index(f"--inject_slowdown={word}") < command.index("--")


@pytest.mark.parametrize("fraction", [-0.1, -0.0001, 10.01, math.inf, -math.inf, math.nan])
def test_a_slowdown_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(RequestError, match="it must be from 0 to 10") as refused:
        resolved(inject_slowdown=fraction)
    assert (refused.value.where, refused.value.next_command) == ("--inject_slowdown", "--inject_slowdown=0.5")


@pytest.mark.parametrize(
    ("wanted", "says", "leave_out"),
    [
        ({"profile": "xplane"}, "does not go with --profile=xplane", "--profile"),
        ({"hardware": "h100", "profile": "nccl"}, "does not go with --profile=nccl", "--profile"),
        ({"hardware": "h100", "pgle": "auto"}, "does not go with --pgle=auto", "--pgle"),
        ({"hardware": "h100", "pgle": "nsys"}, "does not go with --pgle=nsys", "--pgle"),
    ],
)
def test_what_a_slowed_run_says_nothing_of_is_refused(wanted: dict[str, Any], says: str, leave_out: str) -> None:
    with pytest.raises(RequestError, match=says) as refused:
        resolved(**wanted)
    assert refused.value.where.startswith("--inject_slowdown=0.5 --")
    assert refused.value.next_command == f"leave --inject_slowdown or {leave_out} out"
    assert resolved(**wanted, inject_slowdown=0.0).instruments.inject_slowdown == 0


def test_a_program_that_nothing_of_ours_runs_in_is_refused() -> None:
    """Megatron-Bridge has no worker of ours; another backend may not know the option."""
    bridge = {"model": "llama3_8b", "engine": "bridge", "hardware": "h100", "gpus": 8}
    with pytest.raises(RequestError, match="with engine bridge has no --inject_slowdown") as refused:
        resolved("nemo", **bridge)
    assert "--engine=bridge" in refused.value.where
    assert told(resolved("nemo", **bridge, inject_slowdown=0.0)) == []
