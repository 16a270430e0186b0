"""Memory of one device as Megatron stores it: by hand for the published layouts, which must all fit their GPUs."""

from collections.abc import Callable

import pytest

from benchmarks.capacity import activation_widths, memory_by_part, total_bytes
from benchmarks.configs import Configs
from benchmarks.flops import adapter_parameter_count, parameter_count
from benchmarks.ledger import LAYER_MATMULS, Recompute
from benchmarks.values import Benchmark
from nemo_backend import BACKEND
from nemo_backend.memory import ALL_ACTIVATIONS, USABLE

CONFIGS = Configs()
RECIPES = [recipe for recipe in CONFIGS.recipes() if (recipe.backend, recipe.engine) == ("nemo", "nemo")]
PUBLISHED = [
    (recipe.models[0], recipe.task, recipe.defaults.hardware, dtype, layout.gpus)
    for recipe in RECIPES
    if recipe.defaults.hardware != "cpu"
    for dtype in recipe.dtypes[recipe.defaults.hardware]
    for layout in recipe.layouts
]
Resolve = Callable[..., Benchmark]
EVERYTHING = frozenset(LAYER_MATMULS)

TP4_PP8 = {
    "trainer.strategy.pipeline_model_parallel_size": 8,
    "trainer.strategy.context_parallel_size": 1,
}


def parts(benchmark: Benchmark) -> dict[str, float]:
    return memory_by_part(benchmark, BACKEND.storage(benchmark))


def test_every_published_scale_is_here() -> None:
    assert len(PUBLISHED) == 2 * (6 + 5 + 3 + 3 + 3)


@pytest.mark.parametrize(("model", "task", "hardware", "dtype", "gpus"), PUBLISHED)
def test_a_published_layout_fits_its_gpus(
    resolved: Resolve, model: str, task: str, hardware: str, dtype: str, gpus: int
) -> None:
    benchmark = resolved(model, task=task, hardware=hardware, dtype=dtype, gpus=gpus)
    stored = BACKEND.storage(benchmark)
    assert stored.usable_fraction == USABLE == 0.94
    memory_gb = CONFIGS.hardware(hardware).memory_gb
    assert memory_gb is not None
    assert 0.2 < total_bytes(benchmark, stored) / (memory_gb * 1e9 * USABLE) < 1


@pytest.mark.parametrize("gpus", [64, 128, 256, 512, 1024, 2048])
def test_the_fp8_layout_that_nvidia_took_later_fits_too(resolved: Resolve, gpus: int) -> None:
    """v25.04 of the same recipe: TP4 PP8 CP1 VP5, the same global batch."""
    benchmark = resolved("llama31_70b", TP4_PP8, dtype="fp8", gpus=gpus)
    assert benchmark.parallelism.short() == f"TP4 PP8 CP1 VP5 DP{gpus // 32}"
    assert benchmark.global_batch_size == 2 * gpus
    assert total_bytes(benchmark, BACKEND.storage(benchmark)) < 80e9 * USABLE


def test_the_parts_of_llama31_70b_by_hand(resolved: Resolve) -> None:
    benchmark = resolved("llama31_70b", gpus=64)
    shard = parameter_count(benchmark.model) / (4 * 4)
    found = parts(benchmark)
    assert found["parameters"] == found["gradients"] == 2 * shard  # gradients are reduced as they are
    assert found["optimizer"] == 12 * shard / 4  # over data 2 x context 2
    assert found["gathered_layers"] == found["attention_scores"] == 0
    # Layer input, two norms, attention's output and projection, query and both keys, gate and up, their product.
    width = 5 * 8192 + (8192 + 2 * 1024) + 3 * 28672
    tokens = 8192 / 2 / 4
    assert found["saved_activations"] == pytest.approx(2 * width * 80 * tokens * (1 + 3 / 20))
    assert found["logits"] == 2 * 4 * tokens * 128256


def test_adapters_are_what_is_trained_and_frozen_weights_are_only_held(resolved: Resolve) -> None:
    benchmark = resolved("llama3_70b", task="lora", hardware="b200", gpus=8)
    assert benchmark.lora is not None
    adapters = adapter_parameter_count(benchmark.model, benchmark.lora) / 4
    found = parts(benchmark)
    assert found["parameters"] == 2 * (parameter_count(benchmark.model) / 4 + adapters)
    assert found["gradients"] == 2 * adapters
    assert found["optimizer"] == 12 * adapters / 2  # over two replicas


def test_gradients_are_summed_in_float32_unless_a_recipe_says_otherwise(resolved: Resolve) -> None:
    def gradient_bytes(**chosen: str) -> int:
        settings = {name.replace("__", "."): text for name, text in chosen.items()}
        return BACKEND.storage(resolved("llama31_70b", settings)).gradient_bytes

    assert gradient_bytes() == 2
    assert gradient_bytes(trainer__plugins__grad_reduce_in_fp32="true") == 4
    assert BACKEND.storage(resolved(dtype="bf16")).gradient_bytes == 4
    in_full = {"trainer.plugins.grad_reduce_in_fp32": "false"}
    assert BACKEND.storage(resolved(chosen=in_full, dtype="fp32")).gradient_bytes == 4


def test_mixed_precision_keeps_a_master_weight(resolved: Resolve) -> None:
    full, mixed = (BACKEND.storage(resolved(dtype=dtype)) for dtype in ("fp32", "bf16"))
    assert (full.weight_bytes, full.optimizer_bytes) == (4, 8)
    assert (mixed.weight_bytes, mixed.optimizer_bytes) == (2, 12)


def test_only_a_distributed_optimizer_is_shared_out(resolved: Resolve) -> None:
    for shared, replicas in (("true", 4), ("false", 1)):
        benchmark = resolved("llama31_70b", {"optim.config.use_distributed_optimizer": shared}, gpus=64)
        assert BACKEND.storage(benchmark).optimizer_replicas == replicas
    assert BACKEND.storage(resolved(gpus=8)).optimizer_replicas == 1


def test_full_recomputation_keeps_a_layers_input_alone(resolved: Resolve) -> None:
    granularity = "model.config.recompute_granularity"
    kept = {
        name: BACKEND.storage(resolved("llama31_70b", {granularity: name})).saved_activations
        for name in ("full", "selective")
    }
    assert kept == {"full": frozenset(), "selective": ALL_ACTIVATIONS}
    assert activation_widths(CONFIGS.model("llama31_70b")).keys() >= ALL_ACTIVATIONS


FULL = {"model.config.recompute_granularity": "full", "model.config.recompute_method": "uniform"}


def test_without_a_word_nothing_is_computed_again(resolved: Resolve) -> None:
    assert BACKEND.storage(resolved("llama31_70b")).recompute == Recompute()


def test_full_recomputation_runs_all_of_a_layer_again(resolved: Resolve) -> None:
    """Its last matmul too: torch drops nothing."""
    uniform = FULL | {"model.config.recompute_num_layers": "4"}
    assert BACKEND.storage(resolved("llama31_70b", uniform)).recompute == Recompute(matmuls=EVERYTHING)


@pytest.mark.parametrize(("of_a_stage", "of_all"), [(1, 20), (3, 60), (9, 80)])
def test_block_runs_the_first_layers_of_every_stage_again(resolved: Resolve, of_a_stage: int, of_all: int) -> None:
    """64 GPUs: 4 stages of 5 interleaved parts, of 4 layers each."""
    block = FULL | {"model.config.recompute_method": "block", "model.config.recompute_num_layers": str(of_a_stage)}
    benchmark = resolved("llama31_70b", block, gpus=64)
    assert benchmark.parallelism.pipeline * benchmark.parallelism.virtual_pipeline == 20
    assert BACKEND.storage(benchmark).recompute == Recompute(matmuls=EVERYTHING, layers=of_all)


def test_selective_runs_attentions_core_again(resolved: Resolve) -> None:
    chosen = {"model.config.recompute_granularity": "selective"}
    assert BACKEND.storage(resolved("llama31_70b", chosen)).recompute == Recompute(matmuls=frozenset({"context"}))


@pytest.mark.parametrize(
    ("modules", "again"),
    [
        ("core_attn", {"context"}),
        ("[core_attn, mlp]", {"context", "mlpwi_0", "mlpwi_1", "mlpwo"}),
        ("layernorm", set()),
        ("moe", None),
    ],
)
def test_the_bridge_chooses_modules(resolved: Resolve, modules: str, again: set[str] | None) -> None:
    chosen = {"model.recompute_granularity": "selective", "model.recompute_modules": modules}
    benchmark = resolved("llama3_70b", chosen, engine="bridge", hardware="gb200", gpus=64)
    found = BACKEND.storage(benchmark).recompute
    assert found == (None if again is None else Recompute(matmuls=frozenset(again)))


def test_the_bridges_recipes_that_compute_some_layers_again(resolved: Resolve) -> None:
    """Five layers of 32; one of each of the pipeline's stages."""
    small = resolved("llama3_8b", engine="bridge", hardware="h100", dtype="fp8", gpus=8)
    assert BACKEND.storage(small).recompute == Recompute(matmuls=EVERYTHING, layers=5)
    weights = {"checkpoint.pretrained_checkpoint": "/weights"}
    lora = resolved("llama3_70b", weights, task="lora", engine="bridge", hardware="h100", dtype="bf16", gpus=8)
    assert lora.parallelism.pipeline > 1
    stages = lora.parallelism.pipeline * lora.parallelism.virtual_pipeline
    assert BACKEND.storage(lora).recompute == Recompute(matmuls=EVERYTHING, layers=stages)


def test_only_a_cpu_writes_attentions_scores(resolved: Resolve) -> None:
    assert BACKEND.storage(resolved()).writes_attention_scores
    assert not BACKEND.storage(resolved(hardware="h100")).writes_attention_scores
