"""LoRA in MaxText's words: patterns of module paths, what is told, and what MaxText cannot adapt."""

from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.measuring import flops
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Lora
from jax_backend import BACKEND, lora
from jax_backend.planning import maxtext_argv, worker_command

CONFIGS = Configs()
ALL = ["query", "key", "value", "attention_output", "gate", "up", "mlp_output"]
KNOBS = {lora.RANK: 8, lora.ALPHA: 16.0, lora.PATHS: lora.pattern(ALL)}
# MaxText 0.2.5's own pattern for a model that it has no other for, as it completes it.
MAXTEXTS_OWN = r"decoder/layers(?:_[0-9]+|/[0-9]+)?/.*(self_attention/(query|key|value|out)|mlp/(wi_0|wi_1|wo))"


def resolved(chosen: dict[str, str] | None = None, **asked: Any) -> Benchmark:
    request = Request(backend="jax", **{"model": "llama2_tiny", "task": "lora", **asked}, settings=chosen or {})
    return resolve(request, CONFIGS, BACKEND)


def refusal(chosen: dict[str, str], **asked: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        resolved(chosen, **asked)
    return caught.value


# --- patterns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", [ALL, ["query"], ["key", "mlp_output"], ["gate", "up"], ["attention_output"]])
def test_a_pattern_names_what_it_was_made_for(targets: list[str]) -> None:
    found = BACKEND.lora({**KNOBS, lora.PATHS: lora.pattern(targets)})
    assert found == Lora(rank=8, alpha=16.0, dropout=0.0, targets=targets)
    assert BACKEND.lora_settings_for("maxtext", found)[lora.PATHS] == lora.pattern(targets)


def test_the_recipe_writes_its_pattern_as_it_is_made() -> None:
    assert resolved().knobs[lora.PATHS] == lora.pattern(ALL)


def test_a_pattern_of_maxtexts_own_means_what_it_matches() -> None:
    assert BACKEND.lora({**KNOBS, lora.PATHS: MAXTEXTS_OWN}).targets == ALL


def test_a_pattern_must_match_a_path_whole() -> None:
    """As qwix matches it: the beginning of a path would adapt nothing."""
    with pytest.raises(RequestError, match="names no matrix of a layer"):
        BACKEND.lora({**KNOBS, lora.PATHS: "decoder/layers/self_attention"})


@pytest.mark.parametrize("text", ["decoder/(", "", 0])
def test_what_is_no_pattern_is_refused(text: str | int) -> None:
    with pytest.raises(RequestError) as caught:
        BACKEND.lora({**KNOBS, lora.PATHS: text})
    assert caught.value.where == f"--set={lora.PATHS}"


def test_fused_matrices_have_one_adapter_and_no_parts() -> None:
    fused = {"fused_qkv": "true", "fused_mlp": "true"}
    found = resolved({**fused, "lora_targets": "qkv,o,gate_up,down"})
    assert found.lora is not None
    assert found.lora.targets == ["query_key_value", "attention_output", "mlp_input", "mlp_output"]
    assert "qkv_proj" in str(found.knobs[lora.PATHS])
    assert "fused_qkv is true" in refusal({**fused, "lora_targets": "q,k,v"}).what
    assert "not all of qkv,o" in refusal({"lora_targets": "qkv,o"}).what
    assert "fused_qkv is false" in refusal({"lora_targets": "qkv"}).what


# --- what a run is told -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["llama2_tiny", "llama3_tiny"])
def test_adapters_are_asked_for_and_may_lie_on_each_device_whole(model: str) -> None:
    benchmark = resolved(model=model)
    told = dict(word.split("=", 1) for word in maxtext_argv(benchmark))
    assert told["lora.enable_lora"] == "true"
    assert told["lora.lora_rank"] == "8"
    assert benchmark.lora is not None
    share = flops.adapter_parameter_count(benchmark.model, benchmark.lora) / flops.held_parameter_count(
        benchmark.model, benchmark.lora
    )
    assert float(told["sharding_tolerance"]) == pytest.approx(0.02 + share, abs=1e-4)
    assert "--task=lora" in worker_command(benchmark)


def test_pretraining_is_told_nothing_of_it() -> None:
    benchmark = resolved(task="pretrain")
    assert not [word for word in maxtext_argv(benchmark) if word.startswith(("lora", "sharding_tolerance"))]
    assert "--task=" not in " ".join(worker_command(benchmark))


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"weight_dtype": "bfloat16"}, "adapters of bfloat16 beside a layer that computes in float32"),
        ({"gradient_accumulation": "2"}, "accumulates the gradients of frozen weights"),
        ({"lora.lora_rank": "0"}, "lora.lora_rank is 0"),
        ({"lora.enable_lora": "false"}, "not set directly"),
        ({"lora.lora_weight_qtype": "nf4"}, "not set directly"),
        ({"lora_input_adapters_path": "somewhere"}, "not set directly"),
        ({"lora": "{enable_lora: false}"}, "not set directly"),
    ],
)
def test_what_maxtext_cannot_adapt_is_refused(chosen: dict[str, str], said: str) -> None:
    assert said in refusal(chosen).what


def test_a_float32_weight_below_bfloat16_is_refused() -> None:
    error = refusal({"weight_dtype": "float32"}, dtype="bf16")
    assert error.what == "adapters of float32 beside a layer that computes in bfloat16"
    assert error.next_command == "--set=weight_dtype=bfloat16"


@pytest.mark.parametrize("dtype", ["fp8", "int8"])
def test_a_recipe_of_adapters_has_no_quantised_matmuls(dtype: str) -> None:
    with pytest.raises(RequestError, match=dtype):
        resolved(dtype=dtype)


def test_settings_of_adapters_mean_nothing_without_them() -> None:
    assert "no effect on task pretrain" in refusal({"lora.lora_rank": "4"}, task="pretrain").what
