"""A GPU with too little memory is refused."""

import msgspec
import pytest

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.machine import refusals
from benchmarks.request.resolve import Request, resolve


@pytest.mark.parametrize("backend", ["nemo", "jax"])
def test_too_little_memory_is_refused_and_enough_is_not(backend: str) -> None:
    configs, own = Configs(), find_backend(backend)
    asked = Request(backend=backend, model="llama31_8b", hardware="h100", gpus=8)
    assert refusals.of_memory(resolve(asked, configs, own), own) is None
    configs.register_hardware(msgspec.structs.replace(configs.hardware("h100"), memory_gb=8.0, compile_target=None))
    refusal = refusals.of_memory(resolve(asked, configs, own), own)
    assert refusal is not None
    assert "8.0 GB" in refusal.why
    assert refusal.next_command.startswith("python launch/plan.py layouts ")
