"""Adapters in words that both backends understand, and what each makes of them."""

from typing import Any

import pytest

from benchmarks.backend import backends
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.capacity import memory_by_part
from benchmarks.model.flops import adapter_parameter_count
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Lora

CONFIGS = Configs()
BACKENDS = backends()
WORDS = {"lora_rank": "4", "lora_alpha": "8", "lora_targets": "q,k,v,o,gate,up,down"}


def resolved(backend: str, words: dict[str, str], **asked: Any) -> Benchmark:
    request = Request(backend=backend, **{"model": "llama3_tiny", "task": "lora", **asked}, settings=words)
    return resolve(request, CONFIGS, BACKENDS[backend])


def test_the_same_words_make_the_same_adapters_in_both_backends() -> None:
    jax, nemo = (resolved(name, WORDS).lora for name in ("jax", "nemo"))
    assert jax is not None
    assert nemo is not None
    assert sorted(jax.targets) == sorted(nemo.targets)
    assert (jax.rank, jax.alpha, jax.dropout) == (nemo.rank, nemo.alpha, nemo.dropout) == (4, 8.0, 0.0)
    model = CONFIGS.model("llama3_tiny")
    assert adapter_parameter_count(model, jax) == adapter_parameter_count(model, nemo) == 2 * 4 * 2048


@pytest.mark.parametrize("backend", ["jax", "nemo"])
def test_one_word_leaves_the_recipe_the_others(backend: str) -> None:
    own, changed = resolved(backend, {}).lora, resolved(backend, {"lora_rank": "2"}).lora
    assert own is not None
    assert changed == Lora(rank=2, alpha=own.alpha, dropout=own.dropout, targets=own.targets)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"lora_rank": "0"}, "lora_rank is 0"),
        ({"lora_rank": "x"}, "whole number"),
        ({"lora_rank": "1.5"}, "whole number"),
        ({"lora_alpha": "0"}, "above 0"),
        ({"lora_alpha": "nan"}, "a finite number"),
        ({"lora_targets": "q,qkv"}, "query would have two adapters"),
        ({"lora_targets": "q,q"}, "query would have two"),
        ({"lora_targets": "q,kk"}, "'kk' is not a matrix"),
        ({"lora_targets": ""}, "'' is not a matrix"),
    ],
)
@pytest.mark.parametrize("backend", ["jax", "nemo"])
def test_words_that_mean_nothing_are_refused(backend: str, words: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        resolved(backend, words)
    assert next(iter(words)) in caught.value.where


def test_words_without_adapters_are_refused() -> None:
    with pytest.raises(RequestError, match="lora_rank has no effect on task pretrain") as caught:
        resolved("jax", {"lora_rank": "4"}, task="pretrain")
    assert caught.value.next_command == "--task=lora"


@pytest.mark.parametrize(("backend", "own"), [("jax", "lora.lora_rank"), ("nemo", "peft.dim")])
def test_a_setting_given_in_two_ways_is_refused(backend: str, own: str) -> None:
    with pytest.raises(RequestError, match=f"{own} is already set by lora_rank"):
        resolved(backend, {"lora_rank": "4", own: "8"})


def a_lora(**changes: Any) -> Lora:
    return Lora(**{"rank": 8, "alpha": 16.0, "dropout": 0.0, "targets": ["query_key_value", "mlp_output"], **changes})


def test_maxtexts_adapters_lie_whole_on_each_device() -> None:
    """Frozen weights are sharded, so each of eight devices holds an eighth of them."""
    memory = {}
    for gpus in (1, 8):
        benchmark = resolved("jax", {}, gpus=gpus)
        memory[gpus] = memory_by_part(benchmark, BACKENDS["jax"].storage(benchmark))
    adapters = adapter_parameter_count(CONFIGS.model("llama3_tiny"), benchmark.lora or a_lora())
    for part in ("optimizer", "gradients"):
        assert memory[1][part] == memory[8][part] >= 4 * adapters
    assert memory[1]["parameters"] - memory[8]["parameters"] == 4 * 426_624 * 7 / 8
