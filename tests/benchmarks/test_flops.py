"""Parameters and FLOPs against published figures: MaxText's count and the recipes' worked examples."""

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.flops import (
    CONVENTIONS,
    conventions_for,
    embedding_parameters,
    flops_per_token,
    parameter_count,
)
from benchmarks.values import Model, to_builtins

CONFIGS = Configs()


def changed(model: Model, **changes: object) -> Model:
    return Model(**(to_builtins(model) | changes))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama2_7b", 6_738_415_616),
        ("llama2_13b", 13_015_864_320),
        ("llama2_70b", 68_976_648_192),
        ("llama3_8b", 8_030_261_248),
        ("llama31_70b", 70_553_706_496),
        ("llama31_405b", 405_853_388_800),
        ("llama3_tiny", 426_624),
    ],
)
def test_parameter_count_is_the_published_one(name: str, parameters: int) -> None:
    assert parameter_count(CONFIGS.model(name)) == parameters


def test_tied_embeddings_save_the_head() -> None:
    model = CONFIGS.model("llama2_70b")
    tied = changed(model, tied_embeddings=True)
    assert parameter_count(model) - parameter_count(tied) == embedding_parameters(model) == 32000 * 8192


@pytest.mark.parametrize(
    ("convention", "flops"),
    [("recipe", 4.4449e11), ("causal", 4.2839e11), ("palm", 4.4606e11), ("torchtitan", 4.4449e11)],
)
def test_conventions_of_llama2_70b_at_4096(convention: str, flops: float) -> None:
    # The published table leaves the norms out of N for palm and torchtitan: 2e-5 of the count.
    assert flops_per_token(CONFIGS.model("llama2_70b"), 4096, convention) == pytest.approx(flops, rel=3e-5)


@pytest.mark.parametrize(
    ("model", "sequence_length", "convention", "flops", "digits"),
    [
        pytest.param("llama2_70b", 4096, "recipe", 1.82064e15, 1e-5, id="the MaxText recipe, as 1.82E+15"),
        pytest.param("llama2_70b", 4096, "causal", 1.75467e15, 1e-5, id="MaxText's own count"),
        pytest.param("llama31_70b", 8192, "recipe", 3.94391e15, 1e-5, id="the NeMo recipe, as 3.94E+15"),
        pytest.param("llama31_70b", 8192, "causal", 3.68003e15, 1e-5, id="MaxText's own count, 8192"),
        pytest.param("llama3_70b", 2048, "lora", 5.8067e14, 1e-3, id="the LoRA recipe, from rounded terms"),
        pytest.param("llama3_70b", 4096, "lora", 1.18e15, 5e-3, id="the LoRA recipe, three digits"),
    ],
)
def test_flops_of_a_sequence(model: str, sequence_length: int, convention: str, flops: float, digits: float) -> None:
    counted = sequence_length * flops_per_token(CONFIGS.model(model), sequence_length, convention)
    assert counted == pytest.approx(flops, rel=digits)


def test_the_recipe_convention_is_the_published_formula_where_attention_is_square() -> None:
    for name in CONFIGS.names("models"):
        m, s = CONFIGS.model(name), 4096
        assert m.attention_heads * m.head_dim == m.hidden_size
        h, groups = m.hidden_size, m.query_groups / m.attention_heads
        attention = 12 * m.layers * h**2 * (1 + groups + s / h)
        published = attention + 18 * m.layers * m.ffn_hidden_size * h + 6 * m.vocabulary_size * h
        assert flops_per_token(m, s, "recipe") == pytest.approx(published, rel=1e-12)


def test_a_head_dimension_of_its_own_counts() -> None:
    model = CONFIGS.model("llama2_70b")
    wider = changed(model, head_dim=256)
    grown = flops_per_token(wider, 4096, "recipe") - flops_per_token(model, 4096, "recipe")
    assert grown == pytest.approx(12 * 80 * 8192 * (8192 * (1 + 8 / 64) + 4096))


def test_torchtitan_keeps_a_tied_table_because_it_is_the_head() -> None:
    model = CONFIGS.model("llama2_70b")
    tied = changed(model, tied_embeddings=True)
    assert flops_per_token(tied, 4096, "torchtitan") == flops_per_token(model, 4096, "torchtitan")


def test_every_convention_says_what_it_is_and_each_task_has_its_own() -> None:
    assert list(CONVENTIONS) == ["recipe", "causal", "palm", "torchtitan", "lora"]
    assert all(name == row.name and row.formula and row.source for name, row in CONVENTIONS.items())
    assert conventions_for("pretrain") == ["recipe", "causal", "palm", "torchtitan"]
    assert conventions_for("lora") == ["lora"]


def test_an_unknown_convention_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="'casual': did you mean 'causal'"):
        flops_per_token(CONFIGS.model("llama2_7b"), 4096, "casual")
