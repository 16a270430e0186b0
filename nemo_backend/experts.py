"""Models with experts on Megatron-Bridge: their settings, and the reasons to refuse them. Pure.

A run states every value in which such a model differs from a Llama, so that no default of a recipe applies. Facts are
for Megatron-core 0.19.2.
"""

import re
from collections.abc import Iterator, Mapping

from benchmarks.errors import RequestError
from benchmarks.request.framework import text_of
from benchmarks.values import Benchmark, Model
from nemo_backend.layout import EXPERT

ROUTING = "model.moe_router_force_load_balancing"
STAGES = "model.pipeline_model_parallel_layout"
COUNTED_AS_LAYERS = ("model.account_for_embedding_in_pipeline_split", "model.account_for_loss_in_pipeline_split")
# Settings of `architecture`, which --set cannot change.
ARCHITECTURE = (
    "multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim",
    "qk_layernorm", "add_bias_linear", "add_qkv_bias", "softmax_type", "window_size", "window_attn_skip_freq",
    "num_moe_experts", "moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size",
    "moe_layer_freq", "mtp_num_layers",
)  # fmt: skip

# Megatron-core's own experts run one after the other, and its all-to-all needs no other library.
WITHOUT_TRANSFORMER_ENGINE: Mapping[str, str] = {
    "model.moe_grouped_gemm": "false",
    "model.moe_permute_fusion": "false",
    "model.moe_router_fusion": "false",
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_flex_dispatcher_backend": "null",
    "model.moe_shared_expert_overlap": "false",
    "model.bias_activation_fusion": "false",
    "model.cuda_graph_impl": "none",
    "model.cuda_graph_scope": "null",
    "model.use_te_rng_tracker": "false",
    "rng.te_rng_tracker": "false",
    "optimizer.use_precision_aware_optimizer": "false",
    "optimizer.main_grads_dtype": "float32",
    "optimizer.exp_avg_dtype": "float32",
    "optimizer.exp_avg_sq_dtype": "float32",
}


def overrides(benchmark: Benchmark) -> dict[str, str]:
    """Return the settings of a model with experts and of its routing; none for a dense model."""
    if benchmark.model.experts is None:
        return {}
    return {
        **{f"model.{name}": value for name, value in architecture(benchmark.model).items()},
        EXPERT: str(benchmark.parallelism.expert),
        "model.expert_tensor_parallel_size": "1",
        ROUTING: text_of(benchmark.routing == "balanced"),
    }


def architecture(model: Model) -> dict[str, str]:
    """Return the differences from a Llama in Megatron's names; none for a dense model."""
    attention, experts, latent, window = (
        model.attention,
        model.experts,
        model.attention.latent,
        model.attention.window,
    )
    if experts is None:
        return {}
    ranks = {} if latent is None else {
        "q_lora_rank": latent.query_rank,
        "kv_lora_rank": latent.key_value_rank,
        "qk_head_dim": latent.unrotated_head_dim,
        "qk_pos_emb_head_dim": latent.rotated_head_dim,
        "v_head_dim": latent.value_head_dim,
    }  # fmt: skip
    # A pattern with one number for each layer: 0 is a dense layer, 1 has experts.
    pattern = ",".join("0" if layer < experts.dense_layers else "1" for layer in range(model.layers))
    return {
        "multi_latent_attention": text_of(latent is not None),
        **{name: str(size) for name, size in ranks.items()},
        "qk_layernorm": text_of(attention.query_key_norms or latent is not None),
        "add_bias_linear": text_of(attention.biases),
        "softmax_type": "learnable" if attention.sinks else "vanilla",
        "window_size": f"[{window.tokens - 1},0]" if window else "null",
        "window_attn_skip_freq": str(window.global_every) if window else "null",
        "num_moe_experts": str(experts.count),
        "moe_router_topk": str(experts.active),
        "moe_ffn_hidden_size": str(experts.ffn_hidden_size),
        "moe_shared_expert_intermediate_size": str(experts.shared * experts.ffn_hidden_size or "null"),
        "moe_layer_freq": f"[{pattern}]" if experts.dense_layers else "1",
        "mtp_num_layers": str(model.mtp_modules or "null"),
    }


def layers_in_pipeline(benchmark: Benchmark) -> int | None:
    """Return the number of layers that the pipeline's stages share equally; None if a setting lists the stages.

    Megatron can count the embedding and the loss as layers.
    """
    knobs = benchmark.settings.knobs
    if knobs.get(STAGES, "null") != "null":
        return None
    return benchmark.model.layers + sum(knobs.get(name) is True for name in COUNTED_AS_LAYERS)


def stages_in(pattern: str) -> int:
    """Return the number of stages in a text such as Et*4|(t*4|)*14tmL, in which (...)*14 repeats its content."""
    return 1 + re.sub(r"\(([^()]*)\)\*(\d+)", lambda part: part[1] * int(part[2]), pattern).count("|")


def refusals(benchmark: Benchmark, *, without_transformer_engine: bool) -> Iterator[RequestError]:
    model, share = benchmark.model, benchmark.parallelism
    stages, pattern = share.pipeline * share.virtual_pipeline, str(benchmark.settings.knobs.get(STAGES, "null"))
    if pattern != "null" and stages_in(pattern) != stages:
        yield RequestError(
            f"the pipeline has {stages} stages, but the setting for their layers lists {stages_in(pattern)}",
            where=f"--set={STAGES}={pattern}",
            why=f"it lists one stage for each of pipeline x virtual pipeline; {model.name} has {model.layers} layers",
        )
    if without_transformer_engine and model.mtp_modules:
        yield RequestError(
            f"{model.name} has a module for multi-token prediction, which needs Transformer Engine",
            where=f"--model={model.name}",
            why="Megatron-Bridge builds this module only from Transformer Engine's layers",
            next_command="--runtime=container",
        )
