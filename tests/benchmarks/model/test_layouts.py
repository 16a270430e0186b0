"""All layouts of a request: which there are, in what order, and why."""

from collections import Counter
from functools import cache

import pytest

from benchmarks.backend import find_backend
from benchmarks.errors import RequestError
from benchmarks.model.capacity import fits
from benchmarks.model.layouts import CLOSE, Ranking, is_same_layout, rank, with_layout
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Parallelism
from tests.benchmarks.planned import CONFIGS


@cache
def ranking(backend: str = "jax", model: str = "llama2_70b", **asked: object) -> Ranking:
    request = Request(backend=backend, model=model, **{"hardware": "h100", "gpus": 64, **asked})  # type: ignore[arg-type]
    return rank(request, CONFIGS, find_backend(backend))


LARGE = [("jax", "llama2_70b", "fp8"), ("nemo", "llama31_70b", None)]


@pytest.mark.parametrize(("backend", "model", "dtype"), LARGE)
def test_the_best_comes_first_and_each_has_its_place(backend: str, model: str, dtype: str | None) -> None:
    found = ranking(backend, model, dtype=dtype)
    assert [one.rank for one in found.layouts] == list(range(1, len(found.layouts) + 1))
    assert found.by == "bound"
    times = [one.really_seconds or 0.0 for one in found.layouts]
    close = sum(time <= min(times) * (1 + CLOSE) for time in times)
    traffic = [one.traffic_seconds for one in found.layouts[:close]]
    assert traffic == pytest.approx(sorted(traffic), rel=0.01)  # figures with the same three digits are the same
    assert times[close:] == pytest.approx(sorted(times[close:]), rel=0.01)
    assert max(times[:close]) < min(times[close:], default=float("inf"))
    assert len(found.layouts) + found.refused + found.too_large == found.tried
    assert max(Counter((one.layout, one.micro_batch_size) for one in found.layouts).values()) == 1


LOADS = [("bridge", "lora")]  # it trains adapters only of weights that it has read


# A submission's layout is its own program's: plan.py ranks none of it.
RANKED = [recipe.name for recipe in CONFIGS.recipes() if not recipe.engine.startswith("mlperf_")]


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("name", RANKED)
def test_the_layout_of_every_recipe_is_among_its_own(name: str) -> None:
    made = CONFIGS.recipe(name)
    model = "llama2_tiny" if made.models == ["*"] else made.models[0]
    for device in made.hardware if made.hardware != ["*"] else ["cpu"]:
        for gpus in sorted({row.gpus for row in made.layouts})[: 1 if CONFIGS.model(model).experts else 2]:
            dtype = made.dtypes.get(device, made.dtypes.get("*", []))[0]
            weights = {"checkpoint.pretrained_checkpoint": "/weights"} if (made.engine, made.task) in LOADS else {}
            request = Request(made.backend, model, made.task, made.engine, dtype, device, gpus, settings=weights)
            backend = find_backend(made.backend)
            asked = resolve(request, CONFIGS, backend)
            if asked.recipe.name != name or not fits(asked, backend.storage(asked)):
                continue
            if asked.model.layers % (asked.parallelism.pipeline * asked.parallelism.virtual_pipeline):
                continue  # plan.py layouts ranks only stages of equal size
            found = rank(request, CONFIGS, backend)
            assert any(is_same_layout(one, asked) for one in found.layouts), (device, gpus, asked.parallelism)


def test_every_layout_does_the_same_work_and_resolves_to_itself() -> None:
    for backend, model, dtype in LARGE:
        for one in ranking(backend, model, dtype=dtype).layouts[:20]:
            request = Request(
                backend=backend, model=model, hardware="h100", gpus=64, dtype=dtype, settings=one.settings
            )
            benchmark = resolve(request, CONFIGS, find_backend(backend))
            assert benchmark.parallelism == one.parallelism
            assert benchmark.batch.global_batch_size == 128
            assert (benchmark.batch.micro_batch_size, benchmark.batch.gradient_accumulation) == (
                one.micro_batch_size,
                one.gradient_accumulation,
            )
            assert fits(benchmark, find_backend(backend).storage(benchmark))


def test_without_any_speed_memory_decides() -> None:
    found = ranking(model="llama2_tiny", hardware="cpu", gpus=8)
    assert found.by == "memory"
    sizes = [one.bytes_needed for one in found.layouts]
    assert sizes == sorted(sizes)


# --- a layout to begin with ---------------------------------------------------------------------


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
    assert found.batch.global_batch_size == 2 * gpus
    assert found.batch.micro_batch_size == 1


def test_where_the_recipes_own_kind_does_not_fit_another_does() -> None:
    found = seeded(request(32, "jax", "llama2_70b"))
    assert fits(found, find_backend("jax").storage(found))
    assert found.parallelism.fsdp < 32
    assert found.batch.global_batch_size == 64


def test_what_cannot_be_shared_says_why() -> None:
    with pytest.raises(RequestError, match="no layout that divides") as refusal:
        seeded(request(100))
    assert "evenly among 13 nodes" in refusal.value.why
    assert refusal.value.next_command


def test_other_refusals_stay() -> None:
    with pytest.raises(RequestError, match="unknown model"):
        seeded(request(96, model="llama9"))
    with pytest.raises(RequestError, match="no nemo pretrain recipe trains model 'llama2_70b'"):
        seeded(request(96, model="llama2_70b"))
