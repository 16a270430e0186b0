"""Parameters and FLOPs against published figures: MaxText's count and the recipes' worked examples."""

from collections.abc import Iterable

import pytest

from benchmarks.configs import Configs
from benchmarks.model.flops import (
    ADAPTED_MATRICES,
    LAYER_MATRICES,
    active_parameter_count,
    adapter_parameter_count,
    conventions_for,
    flops_per_token,
    held_parameter_count,
    is_llama,
    layer_matmul_weights,
    parameter_count,
    trainable_parameter_count,
)
from benchmarks.model.ledger import framework_differences
from benchmarks.values import Lora

CONFIGS = Configs()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama2_7b", 6_738_415_616),
        ("llama2_13b", 13_015_864_320),
        ("llama2_70b", 68_976_648_192),
        ("llama3_8b", 8_030_261_248),
        ("llama31_70b", 70_553_706_496),
        ("llama31_405b", 405_853_388_800),
        ("llama32_1b", 1_235_814_400),
        ("llama32_3b", 3_212_749_824),
        ("llama3_tiny", 426_624),
    ],
)
def test_parameter_count_is_the_published_one(name: str, parameters: int) -> None:
    assert parameter_count(CONFIGS.model(name)) == parameters


# --- adapters -----------------------------------------------------------------------------------


def lora_on(*targets: str, rank: int = 8) -> Lora:
    return Lora(rank=rank, alpha=16.0, dropout=0.0, targets=list(targets))


@pytest.mark.parametrize(
    ("target", "of_a_layer"),
    [
        ("query_key_value", 8 * (128 + (4 + 2 + 2) * 32)),
        ("attention_output", 8 * (128 + 128)),
        ("mlp_input", 8 * (128 + 2 * 256)),
        ("mlp_output", 8 * (256 + 128)),
    ],
)
def test_an_adapter_is_two_thin_matrices(target: str, of_a_layer: int) -> None:
    """The tiny Llama 3: hidden 128, FFN 256, 4 heads and 2 groups of 32, 2 layers."""
    assert adapter_parameter_count(CONFIGS.model("llama3_tiny"), lora_on(target)) == 2 * of_a_layer


def test_adapters_of_the_tiny_model_are_what_nemo_counted() -> None:
    """NeMo 2.7.3: 26,624 of 453,248 parameters are trainable."""
    model, lora = CONFIGS.model("llama3_tiny"), lora_on(*LAYER_MATRICES)
    assert adapter_parameter_count(model, lora) == 26_624
    assert trainable_parameter_count(model, lora) == 26_624
    assert held_parameter_count(model, lora) == 453_248


@pytest.mark.parametrize(
    "matrices",
    [LAYER_MATRICES, ("query", "key", "value", "attention_output", "gate", "up", "mlp_output")],
    ids=["fused", "separate"],
)
def test_the_adapted_matrices_are_all_of_a_layer(matrices: Iterable[str]) -> None:
    for model in filter(is_llama, map(CONFIGS.model, CONFIGS.names("models"))):
        sizes = [ADAPTED_MATRICES[matrix](model) for matrix in matrices]
        assert sum(numbers_in * numbers_out for numbers_in, numbers_out in sizes) == layer_matmul_weights(model)


# --- FLOPs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "sequence_length", "convention", "flops", "digits"),
    [
        pytest.param("llama2_70b", 4096, "recipe", 1.82064e15, 1e-5, id="the MaxText recipe, as 1.82E+15"),
        pytest.param("llama2_70b", 4096, "causal", 1.75467e15, 1e-5, id="MaxText's own count"),
        # The published table leaves the norms out of N: 2e-5 of the count.
        pytest.param("llama2_70b", 4096, "palm", 1.82706e15, 3e-5, id="4.4606e11 a token"),
        pytest.param("llama2_70b", 4096, "torchtitan", 1.82063e15, 3e-5, id="4.4449e11 a token"),
        pytest.param("llama31_70b", 8192, "recipe", 3.94391e15, 1e-5, id="the NeMo recipe, as 3.94E+15"),
        pytest.param("llama31_70b", 8192, "causal", 3.68003e15, 1e-5, id="MaxText's own count, 8192"),
        pytest.param("llama3_70b", 2048, "lora", 5.8067e14, 1e-3, id="the LoRA recipe, from rounded terms"),
        pytest.param("llama3_70b", 4096, "lora", 1.18e15, 5e-3, id="the LoRA recipe, three digits"),
    ],
)
def test_flops_of_a_sequence(model: str, sequence_length: int, convention: str, flops: float, digits: float) -> None:
    counted = sequence_length * flops_per_token(CONFIGS.model(model), sequence_length, convention)
    assert counted == pytest.approx(flops, rel=digits)


# GFLOP per token at 4,096 tokens, by the frameworks' own functions: MaxText 0.2.5's, Megatron-Bridge 0.6.2's,
# Megatron-Core 0.19.2's, and that of Megatron-Bridge 0.4. test_framework_flops.py asks the functions again.
BY_FRAMEWORK = {
    "qwen3_30b_a3b": (23.082, 23.006, 23.006, 23.006),
    "qwen3_235b_a22b": (148.331, 148.035, 148.035, 148.035),
    "gpt_oss_20b": (22.925, 22.912, 24.046, 19.268),
    "gpt_oss_120b": (32.710, 32.630, 34.331, 27.164),
    "deepseek_v3": (254.465, 259.993, 259.993, 259.993),
    "kimi_k2": (205.468, 204.477, 204.477, 204.477),
}


@pytest.mark.parametrize("name", BY_FRAMEWORK)
def test_experts_are_counted_as_each_framework_counts_them(name: str) -> None:
    model, conventions = CONFIGS.model(name), ("maxtext", "bridge", "megatron_core", "bridge_0_4")
    counted = [flops_per_token(model, 4096, convention) / 1e9 for convention in conventions]
    assert counted == pytest.approx(BY_FRAMEWORK[name], abs=6e-4)
    assert {*conventions} < {*conventions_for("pretrain", model, printed=True)}


@pytest.mark.parametrize("name", BY_FRAMEWORK)
def test_the_differences_explain_what_each_framework_counts(name: str) -> None:
    model = CONFIGS.model(name)
    found = framework_differences(model, 4096)

    def common(convention: str) -> float:
        own = sum(one.flops_per_token for one in found if convention in one.counted_by)
        return flops_per_token(model, 4096, convention) - own

    assert [common(name) for name in ("maxtext", "bridge", "megatron_core")] == pytest.approx(
        [common("causal")] * 3, rel=1e-5
    )  # MaxText's window differs by a millionth


def test_a_dense_llama_has_no_differences() -> None:
    assert framework_differences(CONFIGS.model("llama3_70b"), 8192) == []
    assert conventions_for("pretrain", CONFIGS.model("llama3_70b")) == ["recipe", "causal", "palm", "torchtitan"]


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("qwen3_30b_a3b", 30_532_122_624, 3.353e9),
        ("qwen3_235b_a22b", 235_093_634_560, 22.191e9),
        ("gpt_oss_20b", 20_914_757_184, 4.187e9),
        ("gpt_oss_120b", 116_829_156_672, 5.712e9),
        ("deepseek_v3", 682_636_472_320, 37.552e9),
        ("kimi_k2", 1_026_408_209_408, 32.861e9),
    ],
)
def test_parameters_of_models_with_experts(name: str, total: int, active: float) -> None:
    """As in MaxText's abstract arrays; the active ones with the embedding, the head, and without MTP modules."""
    assert parameter_count(CONFIGS.model(name)) == total
    assert active_parameter_count(CONFIGS.model(name)) == pytest.approx(active, rel=2e-4)
