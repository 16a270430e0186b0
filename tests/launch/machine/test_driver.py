"""A driver is compared with the CUDA of an environment's lock before the environment is made."""

from collections.abc import Callable

import pytest

from benchmarks.backend import find_backend
from benchmarks.machine import refusals
from launch.machine import machine_gpus

Play = Callable[[str], None]


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    machine_gpus.detect.cache_clear()


@pytest.mark.parametrize(("backend", "cuda", "minimum"), [("jax", "12.9", "525"), ("nemo", "13.0", "580")])
def test_a_driver_that_is_too_old_is_named_with_what_is_needed(
    backend: str, cuda: str, minimum: str, play_machine: Play
) -> None:
    spec = find_backend(backend).environment(find_backend(backend).engines[0], "cuda")
    play_machine("old_driver")
    refusal = refusals.old_driver(spec, machine_gpus.detect())
    assert refusal is not None
    assert f"driver 470.256.02 is too old for the CUDA {cuda}" in refusal.what
    assert f"needs driver {minimum} or newer" in refusal.why
    assert "supports CUDA 11.4 at most" in refusal.why
    machine_gpus.detect.cache_clear()
    play_machine(f"driver = {minimum}.65.06\ncuda = 13000\n")
    assert refusals.old_driver(spec, machine_gpus.detect()) is None
