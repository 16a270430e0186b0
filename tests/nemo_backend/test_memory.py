"""Memory of one device as Megatron stores it: by hand for the published layouts, which must all fit their GPUs."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.model.capacity import activation_widths, layer_working_bytes, memory_by_part, total_bytes
from benchmarks.model.flops import adapter_parameter_count, parameter_count
from benchmarks.model.ledger import LAYER_MATMULS
from benchmarks.values import Benchmark, Recompute, Storage
from nemo_backend import BACKEND
from nemo_backend.memory import ALL_ACTIVATIONS, USABLE

CONFIGS = Configs()
PUBLISHED = [
    (recipe.engine, recipe.models[0], recipe.task, hardware, dtype, layout.gpus)
    for recipe in CONFIGS.recipes()
    if recipe.engine == "bridge" or (recipe.engine == "nemo" and recipe.source.startswith("NVIDIA"))
    for hardware in (recipe.dtypes if recipe.engine == "bridge" else [recipe.defaults.hardware])
    for dtype in recipe.dtypes[hardware]
    for layout in recipe.layouts
]
# Its optimizer is shared out among 32 devices instead of 64. A GB200 shows 198.7e9 bytes (189471 MiB) where the
# datasheet's 186 GB are counted here (docs/planning.md), so it fits all the same.
OVER_THE_DATASHEET = ("bridge", "llama3_70b", "pretrain", "gb200", "bf16", 32)
Resolve = Callable[..., Benchmark]
Stored = Callable[..., Storage]
Parts = Callable[..., dict[str, float]]


@pytest.fixture
def parts(resolved: Resolve) -> Parts:
    def of(*request: Any, **wanted: Any) -> dict[str, float]:
        benchmark = resolved(*request, **wanted)
        return memory_by_part(benchmark, BACKEND.storage(benchmark))

    return of


@pytest.fixture
def stored(resolved: Resolve) -> Stored:
    return lambda *request, **wanted: BACKEND.storage(resolved(*request, **wanted))


@pytest.fixture
def share(resolved: Resolve) -> Callable[..., float]:
    """Of the usable memory of its device."""

    def of(*request: Any, **wanted: Any) -> float:
        benchmark = resolved(*request, **wanted)
        memory_gb = benchmark.hardware.memory_gb
        assert memory_gb is not None
        return total_bytes(benchmark, BACKEND.storage(benchmark)) / (memory_gb * 1e9 * USABLE)

    return of


@pytest.mark.parametrize(("engine", "model", "task", "hardware", "dtype", "gpus"), PUBLISHED)
def test_a_published_layout_fits_its_gpus(
    share: Callable[..., float], engine: str, model: str, task: str, hardware: str, dtype: str, gpus: int
) -> None:
    weights = {"checkpoint.pretrained_checkpoint": "/weights"} if (engine, task) == ("bridge", "lora") else {}
    found = share(model, weights, task=task, engine=engine, hardware=hardware, dtype=dtype, gpus=gpus)
    if (engine, model, task, hardware, dtype, gpus) == OVER_THE_DATASHEET:
        assert 1 < found < 1.02
    else:
        assert 0.2 < found < 1


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
def test_what_fits_one_machine(share: Callable[..., float], model: str, task: str, least: int, dtype: str) -> None:
    asked = {"task": task, "hardware": "h100", "dtype": dtype, "recipe": f"nemo_llama3_small_{task}"}
    fitting = [gpus for gpus in (1, 2, 4, 8) if share(model, gpus=gpus, **asked) < 0.9]
    assert fitting == [gpus for gpus in (1, 2, 4, 8) if gpus >= least]


# --- the parts by hand ---------------------------------------------------------------------------

# What a token leaves of one layer of a Llama 3 70B: layer input, two norms, attention's output and projection, query
# and both keys, gate and up, their product.
WIDTH = 5 * 8192 + (8192 + 2 * 1024) + 3 * 28672
TOKENS = 8192 / 2 / 4  # of a sequence, by context and tensor
INTERLEAVED = 1 + 3 / 20  # PP4 VP5 keeps so much more than its share


def test_the_parts_of_llama31_70b(resolved: Resolve, parts: Parts) -> None:
    shard = parameter_count(resolved("llama31_70b", gpus=64).model) / (4 * 4)
    found = parts("llama31_70b", gpus=64)
    assert found["parameters"] == found["gradients"] == 2 * shard  # gradients are reduced as they are
    assert found["optimizer"] == 12 * shard / 4  # over data 2 x context 2
    assert found["gathered_layers"] == found["attention_scores"] == 0
    assert found["saved_activations"] == pytest.approx(2 * WIDTH * 80 * TOKENS * INTERLEAVED)
    assert found["logits"] == 2 * 4 * TOKENS * 128256


def test_adapters_are_what_is_trained_and_frozen_weights_are_only_held(resolved: Resolve, parts: Parts) -> None:
    benchmark = resolved("llama3_70b", task="lora", hardware="b200", gpus=8)
    assert benchmark.lora is not None
    adapters = adapter_parameter_count(benchmark.model, benchmark.lora) / 4
    found = parts("llama3_70b", task="lora", hardware="b200", gpus=8)
    assert found["parameters"] == 2 * (parameter_count(benchmark.model) / 4 + adapters)
    assert found["gradients"] == 2 * adapters
    assert found["optimizer"] == 12 * adapters / 2  # over two replicas


def test_attention_without_transformer_engine_writes_its_scores(parts: Parts) -> None:
    def scores(site: str = "local", dtype: str = "bf16", **chosen: str) -> float:
        return parts("llama32_1b", chosen, hardware="h100", site=site, dtype=dtype, gpus=1)["attention_scores"]

    assert scores() == 2 * 4 * 32 * 4096 * 4096
    assert scores(dtype="fp8") == scores(**{"model.config.apply_rope_fusion": "true"}) == 0
    assert scores(site="example_pyxis") == 0


@pytest.mark.parametrize(
    ("model", "chosen", "dtype", "gradient_bytes"),
    [
        ("llama31_70b", {}, "bf16", 2),
        ("llama31_70b", {"trainer.plugins.grad_reduce_in_fp32": "true"}, "bf16", 4),
        ("llama3_tiny", {}, "bf16", 4),
        ("llama3_tiny", {"trainer.plugins.grad_reduce_in_fp32": "false"}, "fp32", 4),
    ],
)
def test_gradients_are_summed_in_float32_unless_a_recipe_says_otherwise(
    stored: Stored, model: str, chosen: dict[str, str], dtype: str, gradient_bytes: int
) -> None:
    assert stored(model, chosen, dtype=dtype).gradient_bytes == gradient_bytes


def test_only_a_distributed_optimizer_is_shared_out(stored: Stored) -> None:
    for shared, replicas in (("true", 4), ("false", 1)):
        chosen = {"optim.config.use_distributed_optimizer": shared}
        assert stored("llama31_70b", chosen, gpus=64).optimizer_replicas == replicas
    assert stored(gpus=8).optimizer_replicas == 1


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
def test_what_the_optimizer_holds_of_a_weight(stored: Stored, chosen: dict[str, object], size: int) -> None:
    settings = {f"optim.config.{name}": value for name, value in chosen.items()}
    assert stored("llama31_70b", settings, gpus=64, dtype="bf16").optimizer_bytes == size


@pytest.mark.parametrize(
    ("hardware", "dtype", "size"), [("h100", "fp8", 12), ("gb200", "bf16", 12), ("h100", "bf16", 10)]
)
def test_megatron_keeps_whole_master_weights_of_fp8_weights_and_under_fsdp(
    stored: Stored, hardware: str, dtype: str, size: int
) -> None:
    aware = {"optimizer.use_precision_aware_optimizer": True}
    found = stored("llama3_70b", aware, engine="bridge", hardware=hardware, dtype=dtype, gpus=64)
    assert found.optimizer_bytes == size


def test_transformer_engines_loss_writes_over_the_logits(stored: Stored) -> None:
    bridge = stored("llama3_70b", engine="bridge", hardware="gb200", gpus=64)  # as all its benchmark recipes have it
    assert bridge.logit_number_bytes == 2
    te = {"model.config.cross_entropy_loss_fusion": True, "model.config.cross_entropy_fusion_impl": "te"}
    for chosen, size in (({}, 8), (te, 2), (te | {"model.config.cross_entropy_loss_fusion": False}, 8)):
        assert stored("llama31_70b", chosen, gpus=64).logit_number_bytes == size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.config.cpu_offloading_weights", "true"),
        ("optim.config.optimizer_cpu_offload", "true"),
        ("optim.config.exp_avg_dtype", "float4"),
    ],
)
def test_what_changes_memory_and_is_not_known_is_named(stored: Stored, name: str, value: str) -> None:
    assert stored("llama31_70b", gpus=64).uncounted == ()
    assert stored("llama31_70b", {name: value}, gpus=64).uncounted == (f"{name}={value}",)


# --- what is computed again, and not kept --------------------------------------------------------

FULL = {"model.config.recompute_granularity": "full", "model.config.recompute_method": "uniform"}
EVERYTHING = frozenset(LAYER_MATMULS)


def test_full_recomputation_keeps_a_layers_input_alone(stored: Stored, parts: Parts) -> None:
    assert stored("llama31_70b", FULL, gpus=64).input_only_layers == 80
    kept = parts("llama31_70b", FULL, gpus=64)["saved_activations"]
    assert kept == pytest.approx(2 * 8192 * 80 * TOKENS * INTERLEAVED)
    assert activation_widths(CONFIGS.model("llama31_70b")).keys() >= ALL_ACTIVATIONS


@pytest.mark.parametrize(("of_a_part", "again"), [(0, 0), (1, 20), (3, 60), (4, 80), (9, 80)])
def test_block_runs_the_first_layers_of_every_part_again_and_keeps_all_of_the_others(
    stored: Stored, parts: Parts, of_a_part: int, again: int
) -> None:
    """64 GPUs: 4 stages of 5 interleaved parts, of 4 layers each."""
    chosen = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": of_a_part}
    settings = {f"model.config.{name}": value for name, value in chosen.items()}
    assert stored("llama31_70b", settings, gpus=64).recompute == Recompute(matmuls=EVERYTHING, layers=again)
    numbers = (80 - again) * WIDTH + again * 8192
    kept = parts("llama31_70b", settings, gpus=64)["saved_activations"]
    assert kept == pytest.approx(2 * numbers * TOKENS * INTERLEAVED)


def test_uniform_keeps_one_input_for_layers_that_it_computes_again_together(resolved: Resolve, parts: Parts) -> None:
    def chosen(number: int) -> dict[str, object]:
        return FULL | {"model.config.recompute_num_layers": number}

    def working(number: int) -> float:
        benchmark = resolved("llama31_70b", chosen(number), gpus=64)
        return layer_working_bytes(benchmark, BACKEND.storage(benchmark))

    one, two = (parts("llama31_70b", chosen(number), gpus=64)["saved_activations"] for number in (1, 2))
    assert two == one / 2
    assert working(2) - working(1) == (working(4) - working(2)) / 2 > 0
    assert working(9) == working(4)  # there are no more in a row: PP4 VP5


@pytest.mark.parametrize(
    ("modules", "width", "again"),
    [
        (None, WIDTH, {"context"}),
        ("core_attn", WIDTH, {"context"}),
        ("layernorm", WIDTH, set()),  # its norms are fused with the matmuls behind them: Megatron leaves them alone
        ("[mlp]", WIDTH - 8192 - 3 * 28672, {"mlpwi_0", "mlpwi_1", "mlpwo"}),
        ("core_attn, mlp", WIDTH - 8192 - 3 * 28672, {"context", "mlpwi_0", "mlpwi_1", "mlpwo"}),
        ("moe", WIDTH, None),
    ],
)
def test_selective_recomputation_forgets_what_its_modules_made(
    stored: Stored, parts: Parts, modules: str | None, width: int, again: set[str] | None
) -> None:
    wanted = {"engine": "bridge", "hardware": "h100", "dtype": "bf16", "gpus": 64}
    chosen = {"model.recompute_granularity": "selective"} | ({"model.recompute_modules": modules} if modules else {})
    kept, everything = (parts("llama3_70b", one, **wanted)["saved_activations"] for one in (chosen, {}))
    assert kept / everything == pytest.approx(width / WIDTH)
    found = stored("llama3_70b", chosen, **wanted).recompute
    assert found == (None if again is None else Recompute(matmuls=frozenset(again)))


@pytest.mark.parametrize(
    ("chosen", "layers"),
    [
        ({}, 60),  # the recipe sends 20 of 80 away
        ({"cpu_offloading_num_layers": 35}, 45),
        ({"cpu_offloading": False}, 80),
        ({"cpu_offloading_activations": False}, 80),
    ],
)
def test_layers_that_wait_in_the_hosts_memory_keep_nothing_on_the_device(
    parts: Parts, chosen: dict[str, object], layers: int
) -> None:
    settings = {f"model.{name}": value for name, value in chosen.items()}
    found = parts("llama3_70b", settings, engine="bridge", hardware="gb200", gpus=64)["saved_activations"]
    assert found / (2 * 8192 * WIDTH) == pytest.approx(layers)
