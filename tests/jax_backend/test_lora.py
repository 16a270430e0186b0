"""LoRA in MaxText's words: patterns of module paths, settings, and what MaxText cannot adapt."""

from typing import Any

import pytest

from benchmarks.errors import RequestError
from benchmarks.model import flops
from benchmarks.values import Lora
from jax_backend import BACKEND, lora
from jax_backend.planning import worker_command
from tests.jax_backend.asked import each, refusal, resolved, settings_of

ALL = ["query", "key", "value", "attention_output", "gate", "up", "mlp_output"]
KNOBS = {lora.RANK: 8, lora.ALPHA: 16.0, lora.PATHS: lora.pattern(ALL)}
# MaxText 0.2.5's own pattern for a model that it has no other for, as it completes it.
MAXTEXTS_OWN = r"decoder/layers(?:_[0-9]+|/[0-9]+)?/.*(self_attention/(query|key|value|out)|mlp/(wi_0|wi_1|wo))"


@pytest.mark.parametrize("targets", [ALL, ["query"], ["key", "mlp_output"], ["gate", "up"], ["attention_output"]])
def test_a_pattern_names_what_it_was_made_for(targets: list[str]) -> None:
    found = BACKEND.lora({**KNOBS, lora.PATHS: lora.pattern(targets)})
    assert found == Lora(rank=8, alpha=16.0, dropout=0.0, targets=targets)
    assert BACKEND.lora_settings_for("maxtext", found)[lora.PATHS] == lora.pattern(targets)


def test_the_recipes_pattern_and_maxtexts_own_mean_what_they_match() -> None:
    assert resolved(task="lora").settings.knobs[lora.PATHS] == lora.pattern(ALL)
    assert BACKEND.lora({**KNOBS, lora.PATHS: MAXTEXTS_OWN}).targets == ALL


@pytest.mark.parametrize("text", ["decoder/layers/self_attention", "decoder/(", "", 0])
def test_what_matches_no_whole_path_is_refused(text: str | int) -> None:
    """As qwix matches it: the beginning of a path would adapt nothing."""
    with pytest.raises(RequestError) as caught:
        BACKEND.lora({**KNOBS, lora.PATHS: text})
    assert caught.value.where == f"--set={lora.PATHS}"


def test_fused_matrices_have_one_adapter_and_no_parts() -> None:
    fused = {"fused_qkv": "true", "fused_mlp": "true", "lora_targets": "qkv,o,gate_up,down"}
    found = resolved(chosen=fused, task="lora")
    assert found.lora is not None
    assert found.lora.targets == ["query_key_value", "attention_output", "mlp_input", "mlp_output"]
    assert "qkv_proj" in str(found.settings.knobs[lora.PATHS])


@pytest.mark.parametrize("model", ["llama2_tiny", "llama3_tiny"])
def test_adapters_are_asked_for_and_may_lie_on_each_device_whole(model: str) -> None:
    benchmark = resolved(model, task="lora")
    settings = settings_of(worker_command(benchmark))
    assert (settings["lora.enable_lora"], settings["lora.lora_rank"]) == ("true", "8")
    assert benchmark.lora is not None
    adapters = flops.adapter_parameter_count(benchmark.model, benchmark.lora)
    share = adapters / flops.held_parameter_count(benchmark.model, benchmark.lora)
    assert float(settings["sharding_tolerance"]) == pytest.approx(0.02 + share, abs=1e-4)
    assert "--task=lora" in worker_command(benchmark)
    pretraining = worker_command(resolved(model))
    assert not [word for word in pretraining if word.startswith(("lora", "sharding_tolerance", "--task="))]


@each("refusals_of_lora", "asked", "words")
def test_what_maxtext_cannot_adapt_is_refused(asked: dict[str, Any], words: str) -> None:
    assert words in refusal(**{"task": "lora", **asked}).what
