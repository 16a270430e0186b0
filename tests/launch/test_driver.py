"""A driver is held against the CUDA of an environment's lock before the environment is made."""

from collections.abc import Callable

import pytest

from benchmarks import driver
from benchmarks.backend import find_backend
from launch import machine_gpus
from tests.test_lock_files import JAX_CUDA, NEMO_CUDA, pins

LOCKS = {"jax": (JAX_CUDA, "nvidia-cuda-runtime-cu12"), "nemo": (NEMO_CUDA, "nvidia-cuda-runtime")}
Play = Callable[[str], None]


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    machine_gpus.found.cache_clear()


@pytest.mark.parametrize("backend", LOCKS)
def test_the_cuda_of_an_environment_is_that_of_its_lock_file(backend: str) -> None:
    (lock,) = find_backend(backend).environment(find_backend(backend).engines[0], "cuda").locks
    path, runtime = LOCKS[backend]
    assert lock.path == path
    (version,) = pins(path)[runtime]
    assert lock.cuda == tuple(map(int, version.split(".")[:2]))


@pytest.mark.parametrize(("backend", "cuda", "minimum"), [("jax", "12.9", "525"), ("nemo", "13.0", "580")])
def test_a_driver_that_is_too_old_is_named_with_what_is_needed(
    backend: str, cuda: str, minimum: str, play_machine: Play
) -> None:
    spec = find_backend(backend).environment(find_backend(backend).engines[0], "cuda")
    play_machine("old_driver")
    refusal = driver.refusal(spec, machine_gpus.found())
    assert refusal is not None
    assert f"driver 470.256.02 is too old for the CUDA {cuda}" in refusal.what
    assert f"needs driver {minimum} or newer" in refusal.why
    assert "takes CUDA 11.4 at most" in refusal.why
    machine_gpus.found.cache_clear()
    play_machine(f"driver = {minimum}.65.06\ncuda = 13000\n")
    assert driver.refusal(spec, machine_gpus.found()) is None


def test_versions_are_compared_as_numbers(play_machine: Play) -> None:
    spec = find_backend("jax").environment("maxtext", "cuda")
    play_machine("driver = 525.60.13\ncuda = 12000\n")
    assert driver.refusal(spec, machine_gpus.found()) is None
    machine_gpus.found.cache_clear()
    play_machine("driver = 52.999\ncuda = 4000\n")
    assert driver.refusal(spec, machine_gpus.found()) is not None
