"""Recipes of NeMo: which is taken, the published layouts, and the published figures that follow from step times."""

from collections.abc import Callable

import msgspec
import pytest

import jax_backend
import nemo_backend
from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.measuring.flops import flops_per_token
from benchmarks.measuring.utilisation import workload_of
from benchmarks.request.resolve import NoLayoutError, Request, resolve
from benchmarks.values import Benchmark
from nemo_backend.planning import needs_transformer_engine

CONFIGS = Configs()
Resolve = Callable[..., Benchmark]

DELAYED = {
    "trainer.plugins.fp8_recipe": "delayed",
    "trainer.plugins.fp8_margin": 0,
    "trainer.plugins.fp8_amax_history_len": 1024,
    "trainer.plugins.fp8_amax_compute_algo": "max",
    "trainer.plugins.fp8_param_gather": True,
}


def assert_precision_is_stated(benchmark: Benchmark) -> None:
    """fp8 is scaled once a tensor, with delay; bf16 says nothing of fp8."""
    fp8 = {name: value for name, value in benchmark.knobs.items() if name.startswith("trainer.plugins.fp8")}
    assert fp8 == (DELAYED if benchmark.dtype == "fp8" else {})


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
            assert (benchmark.global_batch_size, benchmark.sequence_length) == (2 * gpus, 4096)


@pytest.mark.parametrize("hardware", ["gb200", "gb300"])
@pytest.mark.parametrize("backend", [jax_backend.BACKEND, nemo_backend.BACKEND])
def test_a_tray_of_four_gpus_has_the_small_models_up_to_four(backend: Backend, hardware: str) -> None:
    request = Request(backend=backend.name, model="llama31_8b", hardware=hardware)
    benchmark = resolve(request, CONFIGS, backend)
    assert (benchmark.gpus, benchmark.nodes, benchmark.recipe.global_batch_size) == (4, 1, 8)
    with pytest.raises(NoLayoutError, match=f"8 devices of {hardware}") as refused:
        resolve(msgspec.structs.replace(request, gpus=8), CONFIGS, backend)
    assert refused.value.scales == [1, 2, 4]


def test_in_bf16_nothing_needs_transformer_engine_and_fp8_does(resolved: Resolve) -> None:
    for model, task in (("llama32_1b", "pretrain"), ("llama31_8b", "lora")):
        needs = {
            dtype: needs_transformer_engine(resolved(model, task=task, hardware="h100", dtype=dtype, gpus=1))
            for dtype in ("bf16", "fp8")
        }
        assert needs["bf16"] == {}
        assert "fp8" in needs["fp8"]


# --- LoRA -------------------------------------------------------------------------------------

# Hardware, GPUs a node, GPUs, length, tp, pp, cp, dp, vp, mbs, gbs, ga: a row of each published table.
LORA_ROWS = [
    ("gb200", 4, 32, 2048, 1, 4, 1, 8, 20, 1, 256, 32),
    ("b200", 8, 16, 4096, 1, 4, 1, 4, 20, 1, 64, 16),
    ("h100", 8, 8, 4096, 2, 4, 1, 1, 20, 1, 32, 32),
]


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("row", LORA_ROWS, ids=lambda row: f"{row[0]}-{row[2]}")
def test_rows_of_the_lora_tables(resolved: Resolve, row: tuple[object, ...], dtype: str) -> None:
    hardware, a_node, gpus, length, tp, pp, cp, dp, vp, mbs, gbs, ga = row
    benchmark = resolved("llama3_70b", task="lora", hardware=hardware, dtype=dtype, gpus=gpus)
    assert benchmark.recipe.name == f"nemo_llama3_70b_lora_{hardware}"
    share = benchmark.parallelism
    assert (share.tensor, share.pipeline, share.context, share.data) == (tp, pp, cp, dp)
    assert (share.virtual_pipeline, share.fsdp) == (vp, 1)
    assert (benchmark.micro_batch_size, benchmark.global_batch_size) == (mbs, gbs)
    assert (benchmark.gradient_accumulation, benchmark.sequence_length) == (ga, length)
    assert benchmark.gpus == benchmark.nodes * int(str(a_node))
    assert (benchmark.steps, benchmark.window, benchmark.model.layers) == (50, "35-44", 80)
    assert_precision_is_stated(benchmark)


def test_stated_flops_are_the_counted_ones() -> None:
    """The sources round: 3.94e15 is cut after three digits."""
    rows = [row for row in CONFIGS.recipes() if row.name.startswith("nemo") and row.stated_flops_per_sequence]
    assert len(rows) >= 3
    for recipe in rows:
        length, convention = recipe.sequence_length, "lora" if recipe.task == "lora" else "recipe"
        counted = length * flops_per_token(CONFIGS.model(recipe.models[0]), length, convention)
        assert counted == pytest.approx(recipe.stated_flops_per_sequence, rel=0.003), recipe.name


# --- published figures ------------------------------------------------------------------------------------


def tokens_and_mfu(benchmark: Benchmark, seconds: float, convention: str) -> tuple[float, float]:
    """By the recipes' own two formulas."""
    peak = benchmark.hardware.peaks[benchmark.dtype].tflops * 1e12
    flops = workload_of(benchmark).flops_per_step(convention)
    return benchmark.tokens_per_step / seconds, 100 * flops / seconds / benchmark.gpus / peak


# Seconds a step, tokens/s, MFU in percent; benchmarks/references recomputes all published rows.
@pytest.mark.parametrize(
    ("model", "dtype", "gpus", "row"),
    [
        ("llama31_70b", "bf16", 512, (14.89, 563372, 53.48)),
        ("llama31_70b", "fp8", 2048, (11.39, 2945955, 34.96)),
        ("llama31_8b", "bf16", 8, (12.27, 85459, 62.47)),
    ],
)
def test_published_figures_follow_from_the_step_time(
    resolved: Resolve, model: str, dtype: str, gpus: int, row: tuple[float, float, float]
) -> None:
    """Within 0.2%: the recipes take model FLOPs of three digits, and for bf16 a peak a little over their 989."""
    seconds, tokens, mfu = row
    found = tokens_and_mfu(resolved(model, dtype=dtype, gpus=gpus), seconds, "recipe")
    assert found == (pytest.approx(tokens, rel=1e-5), pytest.approx(mfu, rel=0.002))


def test_the_worked_example_of_lora_follows_from_its_step_time(resolved: Resolve) -> None:
    """The source says 4.225 s and divides by 4.229 s; both of its figures are those of 4.229 s."""
    benchmark = resolved("llama3_70b", task="lora", hardware="gb200", gpus=8)
    tokens, mfu = tokens_and_mfu(benchmark, 4.229, "lora")
    assert tokens == pytest.approx(30991.25, rel=1e-4)
    assert mfu == pytest.approx(44.84, abs=0.05)


# --- the tiny models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["pretrain", "lora"])
@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_a_laptop_walks_the_whole_path(resolved: Resolve, gpus: int, task: str) -> None:
    for model in ("llama2_tiny", "llama3_tiny"):
        benchmark = resolved(model, task=task, gpus=gpus)
        assert (benchmark.hardware.name, benchmark.dtype, benchmark.nodes) == ("cpu", "fp32", 1)
        assert (benchmark.parallelism.data, benchmark.global_batch_size) == (gpus, 2 * gpus)
        assert benchmark.data == "mock"
