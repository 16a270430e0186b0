"""Parameters and FLOPs against published figures: MaxText's count and the recipes' worked examples."""

from collections.abc import Iterable

import pytest

from benchmarks.configs import Configs
from benchmarks.model.flops import (
    ADAPTED_MATRICES,
    LAYER_MATRICES,
    adapter_parameter_count,
    flops_per_token,
    held_parameter_count,
    layer_matmul_weights,
    parameter_count,
    trainable_parameter_count,
)
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
    for name in CONFIGS.names("models"):
        model = CONFIGS.model(name)
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
