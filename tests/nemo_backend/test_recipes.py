"""Recipes of NeMo: which is taken, the published layouts, and the published figures that follow from step times."""

from collections.abc import Callable

import msgspec
import pytest

import jax_backend
import nemo_backend
from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.model.flops import flops_per_token
from benchmarks.request.resolve import NoLayoutError, Request, resolve
from benchmarks.values import Benchmark

CONFIGS = Configs()
Resolve = Callable[..., Benchmark]


# --- pretraining ------------------------------------------------------------------------------


def test_a_machine_takes_the_recipe_for_one_and_a_cluster_nvidias(resolved: Resolve) -> None:
    def name(gpus: int, site: str = "local") -> str:
        return resolved("llama31_8b", hardware="h100", gpus=gpus, site=site).recipe.name

    assert name(4) == name(8) == name(4, "example_pyxis") == "nemo_llama3_small_pretrain"
    assert name(16) == name(8, "example_pyxis") == "nemo_llama31_8b_pretrain"


@pytest.mark.parametrize("task", ["pretrain", "lora"])
@pytest.mark.parametrize("model", ["llama32_1b", "llama32_3b", "llama31_8b"])
def test_both_backends_train_two_sequences_a_gpu_at_every_scale(model: str, task: str) -> None:
    for backend in (jax_backend.BACKEND, nemo_backend.BACKEND):
        for gpus in (1, 2, 4, 8):
            request = Request(backend=backend.name, model=model, task=task, hardware="h200", gpus=gpus)
            benchmark = resolve(request, CONFIGS, backend)
            assert (benchmark.batch.global_batch_size, benchmark.batch.sequence_length) == (2 * gpus, 4096)


@pytest.mark.parametrize("hardware", ["gb200", "gb300"])
@pytest.mark.parametrize("backend", [jax_backend.BACKEND, nemo_backend.BACKEND])
def test_a_tray_of_four_gpus_has_the_small_models_up_to_four(backend: Backend, hardware: str) -> None:
    request = Request(backend=backend.name, model="llama31_8b", hardware=hardware)
    benchmark = resolve(request, CONFIGS, backend)
    assert (benchmark.gpus, benchmark.nodes, benchmark.recipe.global_batch_size) == (4, 1, 8)
    with pytest.raises(NoLayoutError, match=f"8 devices of {hardware}") as refused:
        resolve(msgspec.structs.replace(request, gpus=8), CONFIGS, backend)
    assert refused.value.scales == [1, 2, 4]


# --- LoRA -------------------------------------------------------------------------------------


def test_stated_flops_are_the_counted_ones() -> None:
    """The sources round: 3.94e15 is cut after three digits."""
    rows = [row for row in CONFIGS.recipes() if row.name.startswith("nemo") and row.stated_flops_per_sequence]
    assert len(rows) >= 3
    for recipe in rows:
        length, convention = recipe.sequence_length, "lora" if recipe.task == "lora" else "recipe"
        counted = length * flops_per_token(CONFIGS.model(recipe.models[0]), length, convention)
        assert counted == pytest.approx(recipe.stated_flops_per_sequence, rel=0.003), recipe.name
