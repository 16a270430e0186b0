"""A driver is held against the CUDA of an environment's lock before the environment is made."""

from collections.abc import Callable

import pytest

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.machine import refusals
from benchmarks.request.resolve import Request, RuntimeOptions, resolve
from launch.environments import container
from launch.environments.container_programs import Program
from launch.environments.selection import runtime_of
from launch.machine import machine_gpus

Play = Callable[[str], None]


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    machine_gpus.found.cache_clear()


@pytest.mark.parametrize(("backend", "cuda", "minimum"), [("jax", "12.9", "525"), ("nemo", "13.0", "580")])
def test_a_driver_that_is_too_old_is_named_with_what_is_needed(
    backend: str, cuda: str, minimum: str, play_machine: Play
) -> None:
    spec = find_backend(backend).environment(find_backend(backend).engines[0], "cuda")
    play_machine("old_driver")
    refusal = refusals.old_driver(spec, machine_gpus.found())
    assert refusal is not None
    assert f"driver 470.256.02 is too old for the CUDA {cuda}" in refusal.what
    assert f"needs driver {minimum} or newer" in refusal.why
    assert "takes CUDA 11.4 at most" in refusal.why
    machine_gpus.found.cache_clear()
    play_machine(f"driver = {minimum}.65.06\ncuda = 13000\n")
    assert refusals.old_driver(spec, machine_gpus.found()) is None


GEFORCE = "[gpu]\nname = NVIDIA GeForce RTX 4090\nuuid = GPU-1\npci = 0:1:0\nmemory_mib = 24564\n"
CENTRE = GEFORCE.replace("GeForce RTX 4090", "H100 80GB HBM3")
IMAGES = {  # driver, GPU -> engines whose image does not take it: MaxText's has CUDA 13, NeMo's CUDA 12
    "new": ("580.65.06", GEFORCE, []),
    "between": ("570.133.20", GEFORCE, ["maxtext", "bridge"]),
    "too old": ("520.61.05", CENTRE, ["maxtext", "nemo", "bridge"]),
    "a branch that cuda-compat serves": ("535.161.08", CENTRE, []),
    "not on a GeForce": ("535.161.08", GEFORCE, ["maxtext", "bridge"]),
    "not so early in the branch": ("470.42.01", CENTRE, ["maxtext", "nemo", "bridge"]),
}


@pytest.mark.parametrize(("number", "gpu", "refused"), IMAGES.values(), ids=IMAGES)
def test_the_cuda_of_an_image_is_held_against_the_driver(
    number: str, gpu: str, refused: list[str], play_machine: Play
) -> None:
    play_machine(f"driver = {number}\ncuda = 12000\n{gpu}")
    found = {}
    for backend, engine in (("jax", "maxtext"), ("nemo", "nemo"), ("nemo", "bridge")):
        spec = find_backend(backend).environment(engine, "cuda")
        assert isinstance(spec.image, str)
        found[engine] = refusals.old_driver_for_image(spec, spec.image, machine_gpus.found())
        assert refusals.old_driver_for_image(spec, "registry.example/own:1", machine_gpus.found()) is None
        in_venv = refusals.old_driver(spec, machine_gpus.found())
        if in_venv is not None:
            assert ("--runtime=container" in in_venv.next_command) == (found[engine] is None)
    assert [engine for engine, why in found.items() if why] == refused
    assert all(f"driver {number} is too old" in why.what for why in found.values() if why)


def test_an_image_that_the_driver_does_not_take_is_not_pulled(
    play_machine: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_machine(f"driver = 570.133.20\ncuda = 12080\n{GEFORCE}")
    docker = Program(name="docker", path="/none/docker", version="docker")
    monkeypatch.setattr(container, "select_program", lambda _: docker)
    monkeypatch.setattr(container, "image_argument", lambda *_: pytest.fail("it was looked for"))
    asked = Request(
        backend="jax", model="llama2_tiny", hardware="h100", gpus=1, runs_in=RuntimeOptions(runtime="container")
    )
    backend = find_backend("jax")
    benchmark = resolve(asked, Configs(), backend)
    with pytest.raises(RequestError, match=r"too old for the CUDA 13.3 of this container image"):
        runtime_of(benchmark, backend).refuse()
