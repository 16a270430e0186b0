"""A layout to begin with, where the recipe has none for so many devices."""

import pytest

from benchmarks.backend import find_backend
from benchmarks.errors import RequestError
from benchmarks.model.capacity import fits
from benchmarks.model.seeding import with_layout
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Parallelism
from tests.benchmarks.planned import CONFIGS


def seeded(request: Request) -> Benchmark:
    backend = find_backend(request.backend)
    return resolve(with_layout(request, CONFIGS, backend), CONFIGS, backend)


def request(gpus: int, backend: str = "nemo", model: str = "llama31_70b", **settings: str) -> Request:
    return Request(backend=backend, model=model, hardware="h100", gpus=gpus, settings=settings)


def test_a_request_that_has_a_layout_stays_as_it_is() -> None:
    asked = request(64)
    assert with_layout(asked, CONFIGS, find_backend("nemo")) is asked


@pytest.mark.parametrize("gpus", [96, 4096])
def test_a_replica_stays_as_the_recipe_has_it_and_there_are_more_of_them(gpus: int) -> None:
    found = seeded(request(gpus))
    assert found.parallelism == Parallelism(tensor=4, pipeline=4, context=2, virtual_pipeline=5, data=gpus // 32)
    assert found.global_batch_size == 2 * gpus
    assert found.micro_batch_size == 1


def test_where_the_recipes_own_kind_does_not_fit_another_does() -> None:
    found = seeded(request(32, "jax", "llama2_70b"))
    assert fits(found, find_backend("jax").storage(found))
    assert found.parallelism.fsdp < 32
    assert found.global_batch_size == 64


def test_what_cannot_be_shared_says_why() -> None:
    with pytest.raises(RequestError, match="llama31_70b cannot be shared among 100 devices") as refusal:
        seeded(request(100))
    assert "100 devices cannot be shared evenly among 13 nodes" in refusal.value.why
    assert refusal.value.next_command


def test_other_refusals_stay() -> None:
    with pytest.raises(RequestError, match="unknown model"):
        seeded(request(96, model="llama9"))
    with pytest.raises(RequestError, match="no nemo pretrain recipe trains model 'llama31_405b'") as refusal:
        seeded(request(96, model="llama31_405b"))
    assert "with models: [llama31_405b]" in refusal.value.next_command
    with pytest.raises(RequestError, match="no nemo pretrain recipe trains model 'llama3_70b'") as refusal:
        seeded(request(64, model="llama3_70b"))
    assert refusal.value.next_command == "--engine=bridge"  # which has a published row of it
