"""Counts parameters and model FLOPs. Every FLOP convention has a name, its formula and its source here.

A convention gives the FLOPs that the model's mathematics needs for one trained token. It excludes recomputation,
which ledger.py counts. Peaks and MFU are in benchmarks/measuring/utilisation.py.

Symbols: L layers, h hidden size, f FFN hidden size, V vocabulary, s sequence length, a attention heads,
g query groups, d head dimension, N parameters (with experts, the active ones). The published formulas write h for
a*d, because both are equal in every Llama. The formulas here do not assume that. For latent attention and experts,
`linear_flops_per_token` has the terms of attention and of the MLP.
"""

from collections.abc import Callable
from typing import Literal

from benchmarks.values import Attention, Lora, Model, Value

# FLOPs per weight and token: a multiply and an add, in the forward pass and for the gradients of input and weight.
FLOPS_PER_WEIGHT = 6


# --- parameters -------------------------------------------------------------------------------


def parameter_count(model: Model) -> int:
    """Return the number of parameters: embedding, layers, final norm, a separate head unless it is tied, and MTP."""
    head = 0 if model.tied_embeddings else embedding_parameters(model)
    rest = embedding_parameters(model) + head + model.hidden_size
    return rest + layers_parameters(model) + model.mtp_modules * mtp_parameters(model)


def active_parameter_count(model: Model) -> int:
    """Return the parameters that process a token: as `parameter_count`, but only the selected and shared experts.

    Published counts of active parameters differ in whether they include the embedding, the head, or MTP modules. This
    count includes the embedding and the head, and excludes MTP modules, which inference does not need.
    """
    without_mtp = parameter_count(model) - model.mtp_modules * mtp_parameters(model)
    return without_mtp - (model.layers - model.dense_layers) * _idle_experts(model) * expert_parameters(model)


def _idle_experts(model: Model) -> int:
    return model.experts.count - model.experts.active if model.experts else 0


def embedding_parameters(model: Model) -> int:
    """Return the size of the token table. Only a tied table is part of a matmul, because it is also the head."""
    return model.vocabulary_size * model.hidden_size


def layers_parameters(model: Model) -> int:
    """Return the parameters of all decoder layers, dense or with experts."""
    sparse = model.layers - model.dense_layers
    return model.dense_layers * dense_layer_parameters(model) + sparse * layer_parameters(model)


def layer_parameters(model: Model) -> int:
    """Return the parameters of the model's largest kind of layer: a layer with experts, if it has any."""
    experts = model.experts
    if experts is None:
        return dense_layer_parameters(model)
    router = model.hidden_size * experts.count + (experts.count if experts.biases else 0)
    return _attention_parameters(model) + router + (experts.count + experts.shared) * expert_parameters(model)


def dense_layer_parameters(model: Model) -> int:
    """Return the parameters of a layer without experts: matmul weights, norms, and attention's small parameters."""
    return _attention_parameters(model) + mlp_weights(model)


def routed_parameters(model: Model) -> int:
    """Return the parameters of all experts of one layer among which the router chooses; 0 for a dense model."""
    return model.experts.count * expert_parameters(model) if model.experts else 0


def expert_parameters(model: Model) -> int:
    """Return the parameters of one expert: gate, up and down matrices and their biases; 0 for a dense model."""
    experts, hidden = model.experts, model.hidden_size
    if experts is None:
        return 0
    biases = 2 * experts.ffn_hidden_size + hidden if experts.biases else 0
    return 3 * hidden * experts.ffn_hidden_size + biases


def mtp_parameters(model: Model) -> int:
    """Return the parameters of an MTP module: a layer, a projection of two states to one, and three norms."""
    return layer_parameters(model) + 2 * model.hidden_size**2 + 3 * model.hidden_size


def _attention_parameters(model: Model) -> int:
    """Return the parameters of a layer's attention and of the layer's two norms."""
    attention = model.attention
    small = latent_norm_parameters(model)
    if attention.query_key_norms:
        small += 2 * model.head_dim
    if attention.biases:
        small += model.head_dim * (model.attention_heads + 2 * model.query_groups) + model.hidden_size
    if attention.sinks:
        small += model.attention_heads
    return attention_weights(model) + small + 2 * model.hidden_size


def latent_norm_parameters(model: Model) -> int:
    """Return the scales of the two norms of latent attention; 0 for other attention."""
    latent = model.attention.latent
    return 0 if latent is None else latent.query_rank + latent.key_value_rank


# Each matrix of a dense layer with grouped heads -> (inputs, outputs) as a function of the model. Fused matmuls count
# as one matrix.
LAYER_MATRICES: dict[str, Callable[[Model], tuple[int, int]]] = {
    "query_key_value": lambda m: (m.hidden_size, (m.attention_heads + 2 * m.query_groups) * m.head_dim),
    "attention_output": lambda m: (m.attention_heads * m.head_dim, m.hidden_size),
    "mlp_input": lambda m: (m.hidden_size, 2 * m.ffn_hidden_size),
    "mlp_output": lambda m: (m.ffn_hidden_size, m.hidden_size),
}


def layer_matmul_weights(model: Model) -> int:
    """Return the matmul weights of one dense layer: attention and MLP."""
    return attention_weights(model) + mlp_weights(model)


def attention_weights(model: Model) -> int:
    """Return the matmul weights of one layer's attention, which is either grouped-query or latent attention."""
    hidden, heads, latent = model.hidden_size, model.attention_heads, model.attention.latent
    if latent is None:
        return 2 * hidden * model.head_dim * (heads + model.query_groups)
    unrotated, rotated, value = latent.unrotated_head_dim, latent.rotated_head_dim, latent.value_head_dim
    queries = latent.query_rank * (hidden + heads * (unrotated + rotated))
    keys_and_values = hidden * (latent.key_value_rank + rotated) + latent.key_value_rank * heads * (unrotated + value)
    return queries + keys_and_values + heads * value * hidden


def mlp_weights(model: Model) -> int:
    """Return the matmul weights of a dense layer's MLP: gate, up and down."""
    return 3 * model.hidden_size * model.ffn_hidden_size


def router_weights(model: Model) -> int:
    return model.hidden_size * model.experts.count if model.experts else 0


def active_expert_weights(model: Model) -> int:
    """Return the matmul weights of the experts that process a token in one layer: the selected and shared ones."""
    experts = model.experts
    if experts is None:
        return 0
    return 3 * model.hidden_size * experts.ffn_hidden_size * (experts.active + experts.shared)


# Matrices that can have an adapter: the matrices of a layer, and the separate parts of the two fused ones.
ADAPTED_MATRICES: dict[str, Callable[[Model], tuple[int, int]]] = {
    **LAYER_MATRICES,
    "query": lambda m: (m.hidden_size, m.attention_heads * m.head_dim),
    "key": lambda m: (m.hidden_size, m.query_groups * m.head_dim),
    "value": lambda m: (m.hidden_size, m.query_groups * m.head_dim),
    "gate": lambda m: (m.hidden_size, m.ffn_hidden_size),
    "up": lambda m: (m.hidden_size, m.ffn_hidden_size),
}


def adapter_parameter_count(model: Model, lora: Lora) -> int:
    """Return the parameters of all adapters. A matrix of n inputs and m outputs has n x rank + rank x m."""
    per_layer = sum(lora.rank * sum(ADAPTED_MATRICES[target](model)) for target in lora.targets)
    return model.layers * per_layer


def trainable_parameter_count(model: Model, lora: Lora | None) -> int:
    """Return the number of parameters that the optimizer updates: those of the adapters, or all without LoRA."""
    return parameter_count(model) if lora is None else adapter_parameter_count(model, lora)


def held_parameter_count(model: Model, lora: Lora | None) -> int:
    """Return the number of all parameters of the trained model, including its adapters."""
    return parameter_count(model) + (0 if lora is None else adapter_parameter_count(model, lora))


# --- FLOPs per token --------------------------------------------------------------------------


def linear_flops_per_token(model: Model) -> float:
    """Return the FLOPs per token of all matmuls with weights: layers, head, and MTP modules with their head."""
    sparse = active_expert_weights(model) + router_weights(model)
    weights = (
        model.layers * attention_weights(model)
        + model.dense_layers * mlp_weights(model)
        + (model.layers - model.dense_layers) * sparse
        + embedding_parameters(model)
        + model.mtp_modules
        * (attention_weights(model) + sparse + 2 * model.hidden_size**2 + embedding_parameters(model))
    )
    return FLOPS_PER_WEIGHT * float(weights)


def attention_core_flops_per_token(model: Model, sequence_length: int) -> float:
    """Return the FLOPs per token of attention scores and weighted values over the whole sequence, without a mask."""
    return (model.layers + model.mtp_modules) * _core_flops(model, sequence_length)


def causal_core_flops_per_token(model: Model, sequence_length: int) -> float:
    """Return the FLOPs per token of attention with a causal mask (half of the square) and the model's windows."""
    window = model.attention.window
    whole = model.layers if window is None else model.layers // window.global_every
    flops = (whole + model.mtp_modules) * _core_flops(model, sequence_length / 2)
    if window is not None:
        flops += (model.layers - whole) * _core_flops(model, positions_in_window(window.tokens, sequence_length))
    return flops


def positions_in_window(tokens: int, sequence_length: int) -> float:
    """Return the average number of positions to which a token attends in a window of that many tokens."""
    if tokens >= sequence_length:
        return sequence_length / 2
    return tokens - tokens * (tokens - 1) / (2 * sequence_length)


def _core_flops(model: Model, positions: float) -> float:
    """Return a layer's training FLOPs per token of the attention core, for the average number of positions."""
    latent, heads = model.attention.latent, model.attention_heads
    widths = 2 * model.head_dim  # of a query, and of a value
    if latent is not None:
        widths = latent.unrotated_head_dim + latent.rotated_head_dim + latent.value_head_dim
    return FLOPS_PER_WEIGHT * float(heads * widths * positions)


def _recipe(model: Model, sequence_length: int) -> float:
    return linear_flops_per_token(model) + attention_core_flops_per_token(model, sequence_length)


def _causal(model: Model, sequence_length: int) -> float:
    return linear_flops_per_token(model) + causal_core_flops_per_token(model, sequence_length)


def _palm(model: Model, sequence_length: int) -> float:
    weights = FLOPS_PER_WEIGHT * float(active_parameter_count(model))
    return weights + attention_core_flops_per_token(model, sequence_length)


def _torchtitan(model: Model, sequence_length: int) -> float:
    # A tied table is multiplied as the head, so only an untied table is excluded.
    looked_up = 0 if model.tied_embeddings else embedding_parameters(model)
    weights = FLOPS_PER_WEIGHT * float(active_parameter_count(model) - looked_up)
    return weights + model.layers * _core_flops(model, sequence_length)  # it does not know MTP modules


def _maxtext(model: Model, sequence_length: int) -> float:
    """Return the FLOPs as MaxText counts them: with a simpler window, and only the layer of each MTP module."""
    window = model.attention.window
    extra = model.mtp_modules * FLOPS_PER_WEIGHT * (2 * model.hidden_size**2 + embedding_parameters(model))
    flops = _causal(model, sequence_length) - extra
    if window is not None:
        tokens = min(window.tokens, sequence_length)
        difference = tokens - tokens**2 / (2 * sequence_length) - positions_in_window(tokens, sequence_length)
        flops += (model.layers - model.layers // window.global_every) * _core_flops(model, difference)
    return flops


def _bridge(model: Model, sequence_length: int) -> float:
    """Return the FLOPs as Megatron-Bridge 0.5 counts them: without routers, with the norms of MLA and of MTP."""
    sparse = model.layers - model.dense_layers + model.mtp_modules
    norms = (model.layers + model.mtp_modules) * latent_norm_parameters(model)
    norms += 3 * model.mtp_modules * model.hidden_size
    weights = norms - sparse * router_weights(model)
    return _causal(model, sequence_length) + FLOPS_PER_WEIGHT * weights


def _megatron_core(model: Model, sequence_length: int) -> float:
    """Return the FLOPs of `bridge`, but with attention over the whole sequence in every layer."""
    without = attention_core_flops_per_token(model, sequence_length) / 2
    return _bridge(model, sequence_length) - causal_core_flops_per_token(model, sequence_length) + without


def _bridge_0_4(model: Model, sequence_length: int) -> float:
    """Return the FLOPs of `megatron_core`, but with two of three matrices in experts whose activation is not SiLU."""
    missing = model.layers * active_expert_weights(model) / 3 if model.family == "gpt_oss" else 0.0
    return _megatron_core(model, sequence_length) - FLOPS_PER_WEIGHT * missing


def adapted_flops_per_token(model: Model, lora: Lora, sequence_length: int) -> float:
    """Return all FLOPs of a program that trains adapters. This is not a convention, because it counts the adapters.

    A frozen matmul has no weight gradient; adapters and the attention core have both gradients.
    """
    frozen = linear_flops_per_token(model) * 2 / 3
    core = attention_core_flops_per_token(model, sequence_length)
    return frozen + core + FLOPS_PER_WEIGHT * adapter_parameter_count(model, lora)


def _lora(model: Model, sequence_length: int) -> float:
    return _causal(model, sequence_length) * 2 / 3


# --- the conventions --------------------------------------------------------------------------


def is_llama(model: Model) -> bool:
    """Return whether a model is a dense Llama, for which the frameworks' own counts agree."""
    return model.experts is None and model.attention == Attention() and model.mtp_modules == 0


class Convention(Value, frozen=True):
    """A convention to count the FLOPs of a token, and the tasks and models that it applies to."""

    name: str
    formula: str
    source: str
    tasks: tuple[str, ...]
    flops_per_token: Callable[[Model, int], float]
    attention_share: float = 1.0  # the counted share of the attention scores: all, or the causal half
    only_matmuls: bool = True  # it counts neither lookups nor norms, so that recomputed matmul FLOPs can be added
    models: Literal["all", "llamas", "others"] = "all"
    reported: bool = True  # results report it; otherwise it only explains numbers that a framework printed

    def applies_to(self, task: str, model: Model) -> bool:
        return task in self.tasks and self.models in ("all", "llamas" if is_llama(model) else "others")


CAUSAL = "6 (L (2 h a d (1 + g/a) + 3 h f) + V h) + 6 L a d s: half of the attention matrix, as with a causal mask"

# The first convention that fits a task and a model is shown first.
CONVENTIONS: dict[str, Convention] = {
    convention.name: convention
    for convention in (
        Convention(
            name="recipe",
            formula="6 (L (2 h a d (1 + g/a) + 3 h f) + V h) + 12 L a d s: the full attention matrix, without a mask",
            source="NVIDIA dgxc-benchmarking Llama pretraining recipes, after Narayanan et al. 2021",
            tasks=("pretrain",),
            flops_per_token=_recipe,
            models="llamas",
        ),
        Convention(
            name="causal",
            formula=f"{CAUSAL}; with experts, also routers, active experts, and MTP modules with their head",
            source="MaxText since 2025-07, Megatron-LM since 2025, Megatron-Bridge; with experts, Stepmark",
            tasks=("pretrain",),
            flops_per_token=_causal,
            attention_share=0.5,
        ),
        Convention(
            name="palm",
            formula="6 N + 12 L a d s: all parameters, including the embedding",
            source="Chowdhery et al. 2022, PaLM, appendix B",
            tasks=("pretrain",),
            flops_per_token=_palm,
            only_matmuls=False,
            models="llamas",
        ),
        Convention(
            name="bridge",
            formula="as causal, but without routers, and with the norms of latent attention and of MTP modules",
            source="Megatron-Bridge 0.5.0 to 0.6.2, training/utils/flop_utils.py",
            tasks=("pretrain",),
            flops_per_token=_bridge,
            attention_share=0.5,
            only_matmuls=False,
            models="others",
        ),
        Convention(
            name="maxtext",
            formula="as causal, but without the head and the projection of MTP modules",
            source="MaxText 0.2.5, utils/maxtext_utils.py: calculate_tflops_training_per_device",
            tasks=("pretrain",),
            flops_per_token=_maxtext,
            attention_share=0.5,
            models="others",
        ),
        Convention(
            name="torchtitan",
            formula="6 (N - V h) + 12 L a d s: active parameters without the embedding, unless it is tied",
            source="pytorch/torchtitan, num_flops_per_token",
            tasks=("pretrain",),
            flops_per_token=_torchtitan,
            only_matmuls=False,
        ),
        Convention(
            name="megatron_core",
            formula="as bridge, but layers with a sliding window also attend to the whole sequence",
            source="Megatron-Core 0.19.2, megatron/training/training.py",
            tasks=("pretrain",),
            flops_per_token=_megatron_core,
            attention_share=0.5,
            only_matmuls=False,
            models="others",
            reported=False,
        ),
        Convention(
            name="bridge_0_4",
            formula="as megatron_core, but with only two of the three matrices in each expert of GPT-OSS",
            source="Megatron-Bridge up to 0.4, corrected on 2026-05-28 by #3947 (baa0259bd)",
            tasks=("pretrain",),
            flops_per_token=_bridge_0_4,
            attention_share=0.5,
            only_matmuls=False,
            models="others",
            reported=False,
        ),
        Convention(
            name="lora",
            formula="2/3 of causal: frozen weights have no gradient; adapters are not counted",
            source="NVIDIA dgxc-benchmarking Llama 3 70B LoRA recipe",
            tasks=("lora", "mlperf"),
            flops_per_token=_lora,
            attention_share=0.5,
        ),
    )
}


def conventions_for(task: str, model: Model, *, printed: bool = False) -> list[str]:
    """Return the conventions that apply to a task and a model. With `printed`, include those of older frameworks."""
    fitting = [one for one in CONVENTIONS.values() if one.applies_to(task, model)]
    return [one.name for one in fitting if one.reported or printed]


def flops_per_token(model: Model, sequence_length: int, convention: str) -> float:
    """Return the model FLOPs to train one token of a sequence of that length."""
    return CONVENTIONS[convention].flops_per_token(model, sequence_length)
