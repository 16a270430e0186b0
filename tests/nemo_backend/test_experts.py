"""Models with experts on Megatron-Bridge: what is stated, which layouts fit, and what is refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, changed_benchmark
from nemo_backend import BACKEND
from nemo_backend.bridge_planning import overrides
from nemo_backend.experts import STAGES, stages_in

CONFIGS = Configs()
EXPERT = "model.expert_model_parallel_size"
GB200 = {"model": "deepseek_v3", "hardware": "gb200", "gpus": 512, "dtype": "mxfp8"}


def resolved(settings: dict[str, str] | None = None, **wanted: Any) -> Benchmark:
    request = Request(**{"backend": "nemo", "engine": "bridge", "settings": settings or {}, **wanted})
    return resolve(request, CONFIGS, BACKEND)


def refused(settings: dict[str, str] | None = None, **wanted: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        resolved(settings, **wanted)
    return caught.value


@pytest.mark.parametrize(
    ("model", "stated"),
    [
        (
            "deepseek_tiny",
            {
                "multi_latent_attention": "true", "q_lora_rank": "32", "kv_lora_rank": "16", "qk_head_dim": "16",
                "qk_pos_emb_head_dim": "8", "v_head_dim": "16", "qk_layernorm": "true", "softmax_type": "vanilla",
                "num_moe_experts": "8", "moe_router_topk": "2", "moe_ffn_hidden_size": "32", "mtp_num_layers": "null",
                "moe_shared_expert_intermediate_size": "32", "moe_layer_freq": "[0,1,1]", "window_size": "null",
            },
        ),
        (
            "gpt_oss_tiny",
            {
                "multi_latent_attention": "false", "kv_channels": "16", "qk_layernorm": "false",
                "softmax_type": "learnable", "add_bias_linear": "true", "window_size": "[31,0]",
                "window_attn_skip_freq": "2", "moe_shared_expert_intermediate_size": "null", "moe_layer_freq": "1",
            },
        ),
        ("qwen3_moe_tiny", {"qk_layernorm": "true", "add_bias_linear": "false", "expert_tensor_parallel_size": "1"}),
        ("llama3_tiny", {}),
    ],
)  # fmt: skip
def test_every_difference_from_a_llama_is_stated(model: str, stated: dict[str, str]) -> None:
    found = overrides(resolved(model=model, hardware="cpu", gpus=2))
    assert {name: found[f"model.{name}"] for name in stated} == stated
    assert (
        ("model.num_moe_experts" in found) is ("model.moe_router_topk" in found) is (EXPERT in found) is bool(stated)
    )
    assert ("model.kv_channels" in found) is (model != "deepseek_tiny")


def test_the_routing_is_the_benchmarks() -> None:
    published = resolved(**GB200)
    assert (published.routing, published.parallelism.expert) == ("balanced", 64)
    assert overrides(published)["model.moe_router_force_load_balancing"] == "true"
    learned = resolved({"routing": "learned"}, **GB200)
    assert overrides(learned)["model.moe_router_force_load_balancing"] == "false"


@pytest.mark.parametrize(
    ("pattern", "stages"), [("Et*4|(t*4|)*14tmL", 16), ("Et*16|t*16|t*16|t*13mL", 4), ("EttL", 1), ("E|(t|)*2tL", 4)]
)
def test_the_stages_of_a_pipeline_are_counted(pattern: str, stages: int) -> None:
    assert stages_in(pattern) == stages


def test_stages_need_not_share_the_layers_equally() -> None:
    """DeepSeek-V3 has 61 layers, and the embedding and the loss of Qwen3 235B count as layers: 94 + 2 = 8 x 3 x 4."""
    assert resolved(**GB200).parallelism.pipeline == 4
    qwen = {**GB200, "model": "qwen3_235b_a22b"}
    assert resolved(**qwen).parallelism.virtual_pipeline == 3
    uneven = refused({"model.account_for_loss_in_pipeline_split": "false"}, **qwen)
    assert "layers (95) is not divisible" in uneven.what
    assert "has 32 stages" in refused({"model.pipeline_model_parallel_size": "8"}, **GB200).what
    assert "layers (61) is not divisible" in refused({STAGES: "null"}, **GB200).what


@pytest.mark.parametrize(
    ("settings", "wanted", "what", "cure"),
    [
        ({EXPERT: "48"}, GB200, "number of experts (256)", None),
        ({}, {**GB200, "engine": "nemo"}, "no nemo pretrain recipe", "--engine=bridge"),
        ({}, {**GB200, "hardware": "h100", "gpus": 1024}, "does not support mxfp8", "--dtype=bf16"),
        ({"recipe": "llama3_70b_pretrain_64gpu_gb200_fp8mx_config"}, GB200, "of deepseek_v3", "--set=recipe=deep"),
        ({"recipe": "llama3_8b_pretrain_config"}, {"model": "qwen3_moe_tiny"}, "of qwen3_moe", "--set=recipe=qwen3"),
        ({"model.num_moe_experts": "8"}, GB200, "model.num_moe_experts cannot be set", None),
        ({"model.moe_router_force_load_balancing": "true"}, GB200, "cannot be set", None),
        ({EXPERT: "2"}, {"model": "llama3_tiny", "gpus": 2}, "number of experts (1)", None),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(
    settings: dict[str, str], wanted: dict[str, Any], what: str, cure: str | None
) -> None:
    error = refused(settings, **wanted)
    assert what in error.what
    assert cure is None or (error.next_command or "").startswith(cure)


def test_multi_token_prediction_needs_transformer_engine() -> None:
    model = CONFIGS.model("deepseek_tiny")
    without = resolved(model="deepseek_tiny", hardware="cpu")
    (error,) = BACKEND.refusals(changed_benchmark(without, model=replace(model, mtp_modules=1)))
    assert "multi-token prediction" in error.what
