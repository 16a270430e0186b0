"""Memory of one device as Megatron stores it: by hand for the published layouts, which must all fit their GPUs."""

from collections.abc import Callable

import pytest

from benchmarks.configs import Configs
from benchmarks.measuring.flops import adapter_parameter_count, parameter_count
from benchmarks.measuring.ledger import LAYER_MATMULS, Recompute
from benchmarks.planning.capacity import activation_widths, layer_working_bytes, memory_by_part, total_bytes
from benchmarks.values import Benchmark
from nemo_backend import BACKEND
from nemo_backend.memory import ALL_ACTIVATIONS, USABLE

CONFIGS = Configs()
RECIPES = [recipe for recipe in CONFIGS.recipes() if (recipe.backend, recipe.engine) == ("nemo", "nemo")]
PUBLISHED = [
    (recipe.models[0], recipe.task, recipe.defaults.hardware, dtype, layout.gpus)
    for recipe in RECIPES
    if recipe.source.startswith("NVIDIA")
    for dtype in recipe.dtypes[recipe.defaults.hardware]
    for layout in recipe.layouts
]
Resolve = Callable[..., Benchmark]
EVERYTHING = frozenset(LAYER_MATMULS)


def parts(benchmark: Benchmark) -> dict[str, float]:
    return memory_by_part(benchmark, BACKEND.storage(benchmark))


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


# Least GPUs of 80 GB that hold a step of the recipes for one machine.
@pytest.mark.parametrize(
    ("model", "task", "least"),
    [
        ("llama32_1b", "pretrain", 1),
        ("llama32_3b", "pretrain", 1),
        ("llama31_8b", "pretrain", 4),
        ("llama31_8b", "lora", 1),
    ],
)
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_what_fits_one_machine(resolved: Resolve, model: str, task: str, least: int, dtype: str) -> None:
    def share(gpus: int) -> float:
        name = f"nemo_llama3_small_{task}"
        benchmark = resolved(model, task=task, hardware="h100", dtype=dtype, gpus=gpus, recipe=name)
        return total_bytes(benchmark, BACKEND.storage(benchmark)) / (80e9 * USABLE)

    assert [gpus for gpus in (1, 2, 4, 8) if share(gpus) < 0.9] == [n for n in (1, 2, 4, 8) if n >= least]


def test_attention_without_transformer_engine_writes_its_scores(resolved: Resolve) -> None:
    def scores(site: str = "local", dtype: str = "bf16", **chosen: str) -> float:
        benchmark = resolved("llama32_1b", chosen, hardware="h100", site=site, dtype=dtype, gpus=1)
        return parts(benchmark)["attention_scores"]

    assert scores() == 2 * 4 * 32 * 4096 * 4096
    assert scores(dtype="fp8") == scores(**{"model.config.apply_rope_fusion": "true"}) == 0
    assert scores(site="example_pyxis") == 0


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


def test_only_a_distributed_optimizer_is_shared_out(resolved: Resolve) -> None:
    for shared, replicas in (("true", 4), ("false", 1)):
        benchmark = resolved("llama31_70b", {"optim.config.use_distributed_optimizer": shared}, gpus=64)
        assert BACKEND.storage(benchmark).optimizer_replicas == replicas
    assert BACKEND.storage(resolved(gpus=8)).optimizer_replicas == 1


FULL = {"model.config.recompute_granularity": "full", "model.config.recompute_method": "uniform"}
# What a token leaves of one layer of a Llama 3 70B, see the parts by hand.
WIDTH = 5 * 8192 + (8192 + 2 * 1024) + 3 * 28672


def test_full_recomputation_keeps_a_layers_input_alone(resolved: Resolve) -> None:
    benchmark = resolved("llama31_70b", FULL, gpus=64)
    assert BACKEND.storage(benchmark).input_only_layers == 80
    tokens = 8192 / 2 / 4
    assert parts(benchmark)["saved_activations"] == pytest.approx(2 * 8192 * 80 * tokens * (1 + 3 / 20))
    assert activation_widths(CONFIGS.model("llama31_70b")).keys() >= ALL_ACTIVATIONS


@pytest.mark.parametrize(("of_a_part", "again"), [(0, 0), (1, 20), (4, 80)])
def test_block_keeps_all_of_the_layers_that_it_does_not_compute_again(
    resolved: Resolve, of_a_part: int, again: int
) -> None:
    chosen = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": of_a_part}
    benchmark = resolved("llama31_70b", {f"model.config.{name}": value for name, value in chosen.items()}, gpus=64)
    numbers = (80 - again) * WIDTH + again * 8192
    tokens = 8192 / 2 / 4
    assert parts(benchmark)["saved_activations"] == pytest.approx(2 * numbers * tokens * (1 + 3 / 20))


def test_uniform_keeps_one_input_for_layers_that_it_computes_again_together(resolved: Resolve) -> None:
    def together(number: int) -> Benchmark:
        return resolved("llama31_70b", FULL | {"model.config.recompute_num_layers": number}, gpus=64)

    assert parts(together(2))["saved_activations"] == parts(together(1))["saved_activations"] / 2
    one, two, four = (layer_working_bytes(together(n), BACKEND.storage(together(n))) for n in (1, 2, 4))
    assert two - one == (four - two) / 2 > 0
    assert BACKEND.storage(together(9)).recomputed_together == 4  # there are no more in a row: PP4 VP5


@pytest.mark.parametrize(
    ("modules", "width"),
    [
        (None, WIDTH),
        ("core_attn", WIDTH),
        ("layernorm", WIDTH),  # its norms are fused with the matmuls behind them, and Megatron leaves them alone
        ("[mlp]", WIDTH - 8192 - 3 * 28672),
        ("core_attn,mlp", WIDTH - 8192 - 3 * 28672),
    ],
)
def test_selective_recomputation_forgets_what_its_modules_made(
    resolved: Resolve, modules: str | None, width: int
) -> None:
    chosen = {"model.recompute_granularity": "selective"} | ({"model.recompute_modules": modules} if modules else {})
    without = resolved("llama3_70b", engine="bridge", hardware="h100", dtype="bf16", gpus=64)
    benchmark = resolved("llama3_70b", chosen, engine="bridge", hardware="h100", dtype="bf16", gpus=64)
    kept = parts(benchmark)["saved_activations"] / parts(without)["saved_activations"]
    assert kept == pytest.approx(width / WIDTH)


def test_layers_that_wait_in_the_hosts_memory_keep_nothing_on_the_device(resolved: Resolve) -> None:
    def kept(**chosen: object) -> float:
        settings = {f"model.{name}": value for name, value in chosen.items()}
        found = resolved("llama3_70b", settings, engine="bridge", hardware="gb200", gpus=64)
        return parts(found)["saved_activations"] / (2 * 8192 * WIDTH)

    assert kept() == pytest.approx(60)  # the recipe sends 20 of 80 away
    assert kept(cpu_offloading_num_layers=35) == pytest.approx(45)
    assert kept(cpu_offloading=False) == kept(cpu_offloading_activations=False) == pytest.approx(80)


# --- the published layouts of Megatron-Bridge ----------------------------------------------------

BRIDGE = [
    (recipe.models[0], recipe.task, hardware, dtype, layout.gpus)
    for recipe in CONFIGS.recipes()
    if recipe.engine == "bridge"
    for hardware, dtypes in recipe.dtypes.items()
    for dtype in dtypes
    for layout in recipe.layouts
]
# Its optimizer is shared out among 32 devices instead of 64. A GB200 shows 198.7e9 bytes (189471 MiB) where the
# datasheet's 186 GB are counted here (docs/planning.md), so it fits all the same.
OVER_THE_DATASHEET = ("llama3_70b", "pretrain", "gb200", "bf16", 32)


@pytest.mark.parametrize(("model", "task", "hardware", "dtype", "gpus"), BRIDGE)
def test_a_published_layout_of_the_bridge_fits_its_gpus(
    resolved: Resolve, model: str, task: str, hardware: str, dtype: str, gpus: int
) -> None:
    weights = {"checkpoint.pretrained_checkpoint": "/weights"} if task == "lora" else {}
    benchmark = resolved(model, weights, task=task, engine="bridge", hardware=hardware, dtype=dtype, gpus=gpus)
    memory_gb = CONFIGS.hardware(hardware).memory_gb
    assert memory_gb is not None
    share = total_bytes(benchmark, BACKEND.storage(benchmark)) / (memory_gb * 1e9 * USABLE)
    if (model, task, hardware, dtype, gpus) == OVER_THE_DATASHEET:
        assert 1 < share < 1.02
    else:
        assert 0.2 < share < 1


# --- the optimizer, and the loss ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "size"),
    [
        ({}, 12),
        ({"optimizer": "sgd"}, 8),
        ({"use_precision_aware_optimizer": True}, 10),  # half of the master weight is the weight itself
        ({"use_precision_aware_optimizer": True, "store_param_remainders": False}, 12),
        ({"use_precision_aware_optimizer": True, "exp_avg_dtype": "bfloat16"}, 8),
        ({"use_precision_aware_optimizer": True, "main_params_dtype": "torch.float16"}, 10),
    ],
)
def test_what_the_optimizer_holds_of_a_weight(resolved: Resolve, chosen: dict[str, object], size: int) -> None:
    settings = {f"optim.config.{name}": value for name, value in chosen.items()}
    assert BACKEND.storage(resolved("llama31_70b", settings, gpus=64, dtype="bf16")).optimizer_bytes == size


def test_megatron_keeps_whole_master_weights_of_fp8_weights_and_under_fsdp(resolved: Resolve) -> None:
    aware = {"optimizer.use_precision_aware_optimizer": True}
    fp8 = resolved("llama3_70b", aware, engine="bridge", hardware="h100", dtype="fp8", gpus=64)
    fsdp = resolved("llama3_70b", aware, engine="bridge", hardware="gb200", dtype="bf16", gpus=64)
    plain = resolved("llama3_70b", aware, engine="bridge", hardware="h100", dtype="bf16", gpus=64)
    assert [BACKEND.storage(one).optimizer_bytes for one in (fp8, fsdp, plain)] == [12, 12, 10]


def test_transformer_engines_loss_writes_over_the_logits(resolved: Resolve) -> None:
    bridge = resolved(
        "llama3_70b", engine="bridge", hardware="gb200", gpus=64
    )  # as all its benchmark recipes have it
    assert BACKEND.storage(bridge).logit_number_bytes == 2
    assert BACKEND.storage(resolved("llama31_70b", gpus=64)).logit_number_bytes == 8
    chosen = {"model.config.cross_entropy_loss_fusion": True, "model.config.cross_entropy_fusion_impl": "te"}
    assert BACKEND.storage(resolved("llama31_70b", chosen, gpus=64)).logit_number_bytes == 2
    apart = chosen | {"model.config.cross_entropy_loss_fusion": False}
    assert BACKEND.storage(resolved("llama31_70b", apart, gpus=64)).logit_number_bytes == 8


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.config.cpu_offloading_weights", "true"),
        ("optim.config.optimizer_cpu_offload", "true"),
        ("optim.config.exp_avg_dtype", "float4"),
    ],
)
def test_what_changes_memory_and_is_not_known_is_named(resolved: Resolve, name: str, value: str) -> None:
    assert BACKEND.storage(resolved("llama31_70b", gpus=64)).uncounted == ()
    assert BACKEND.storage(resolved("llama31_70b", {name: value}, gpus=64)).uncounted == (f"{name}={value}",)


# --- what is computed again -----------------------------------------------------------------------


@pytest.mark.parametrize(("of_a_stage", "of_all"), [(1, 20), (3, 60), (9, 80)])
def test_block_runs_the_first_layers_of_every_stage_again(resolved: Resolve, of_a_stage: int, of_all: int) -> None:
    """64 GPUs: 4 stages of 5 interleaved parts, of 4 layers each."""
    block = FULL | {"model.config.recompute_method": "block", "model.config.recompute_num_layers": str(of_a_stage)}
    benchmark = resolved("llama31_70b", block, gpus=64)
    assert benchmark.parallelism.pipeline * benchmark.parallelism.virtual_pipeline == 20
    assert BACKEND.storage(benchmark).recompute == Recompute(matmuls=EVERYTHING, layers=of_all)


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
