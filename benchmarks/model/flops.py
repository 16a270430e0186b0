"""Counts parameters and model FLOPs. Every FLOP convention has a name, its formula and its source here.

A convention gives the FLOPs that the model's mathematics needs for one trained token. It excludes recomputation,
which ledger.py counts. Peaks and MFU are in benchmarks/measuring/utilisation.py.

Symbols: L layers, h hidden size, f FFN hidden size, V vocabulary, s sequence length, a attention heads,
g query groups, d head dimension, N all parameters. The published formulas write h for a*d, because
both are equal in every Llama. The formulas here do not assume that.
"""

from collections.abc import Callable

from benchmarks.values import Lora, Model, Value

# FLOPs per weight and token: a multiply and an add, in the forward pass and for the gradients of input and weight.
FLOPS_PER_WEIGHT = 6


# --- parameters -------------------------------------------------------------------------------


def parameter_count(model: Model) -> int:
    """Return the number of parameters: embedding, layers, final norm, and a separate head unless it is tied."""
    head = 0 if model.tied_embeddings else embedding_parameters(model)
    return embedding_parameters(model) + model.layers * layer_parameters(model) + model.hidden_size + head


def embedding_parameters(model: Model) -> int:
    """Return the size of the token table. It takes part in a matmul only if it is tied, as it is then the head."""
    return model.vocabulary_size * model.hidden_size


def layer_parameters(model: Model) -> int:
    """Return the parameters of one decoder layer: its matmul weights and the scales of its two norms."""
    return layer_matmul_weights(model) + 2 * model.hidden_size


# Each matrix of a layer -> (inputs, outputs) as a function of the model. Fused matmuls count as one matrix.
LAYER_MATRICES: dict[str, Callable[[Model], tuple[int, int]]] = {
    "query_key_value": lambda m: (m.hidden_size, (m.attention_heads + 2 * m.query_groups) * m.head_dim),
    "attention_output": lambda m: (m.attention_heads * m.head_dim, m.hidden_size),
    "mlp_input": lambda m: (m.hidden_size, 2 * m.ffn_hidden_size),
    "mlp_output": lambda m: (m.ffn_hidden_size, m.hidden_size),
}


def layer_matmul_weights(model: Model) -> int:
    """Return the matmul weights of one layer: attention (query, key, value, output) and MLP (gate, up, down)."""
    sizes = [matrix(model) for matrix in LAYER_MATRICES.values()]
    return sum(numbers_in * numbers_out for numbers_in, numbers_out in sizes)


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
    """Return the FLOPs per token of all matmuls with weights: the layers and the head."""
    return FLOPS_PER_WEIGHT * float(model.layers * layer_matmul_weights(model) + embedding_parameters(model))


def attention_core_flops_per_token(model: Model, sequence_length: int) -> float:
    """Return the FLOPs per token of attention scores and weighted values over the whole sequence, without a mask."""
    return 12.0 * model.layers * model.attention_heads * model.head_dim * sequence_length


def _recipe(model: Model, sequence_length: int) -> float:
    return linear_flops_per_token(model) + attention_core_flops_per_token(model, sequence_length)


def _causal(model: Model, sequence_length: int) -> float:
    return linear_flops_per_token(model) + attention_core_flops_per_token(model, sequence_length) / 2


def _palm(model: Model, sequence_length: int) -> float:
    weights = FLOPS_PER_WEIGHT * float(parameter_count(model))
    return weights + attention_core_flops_per_token(model, sequence_length)


def _torchtitan(model: Model, sequence_length: int) -> float:
    # A tied table is multiplied as the head, so only an untied table is excluded.
    looked_up = 0 if model.tied_embeddings else embedding_parameters(model)
    weights = FLOPS_PER_WEIGHT * float(parameter_count(model) - looked_up)
    return weights + attention_core_flops_per_token(model, sequence_length)


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


class Convention(Value, frozen=True):
    """A convention to count the FLOPs of a token, and the tasks that it applies to."""

    name: str
    formula: str
    source: str
    tasks: tuple[str, ...]
    flops_per_token: Callable[[Model, int], float]
    attention_share: float = 1.0  # the counted share of the attention scores: all, or the causal half
    only_matmuls: bool = True  # it counts neither lookups nor norms, so that recomputed matmul FLOPs can be added


# The first convention that fits a task is shown first.
CONVENTIONS: dict[str, Convention] = {
    convention.name: convention
    for convention in (
        Convention(
            name="recipe",
            formula="6 (L (2 h a d (1 + g/a) + 3 h f) + V h) + 12 L a d s: attention over the whole square",
            source="NVIDIA dgxc-benchmarking Llama pretraining recipes, after Narayanan et al. 2021",
            tasks=("pretrain",),
            flops_per_token=_recipe,
        ),
        Convention(
            name="causal",
            formula="6 (L (2 h a d (1 + g/a) + 3 h f) + V h) + 6 L a d s: the attention core halved",
            source="MaxText since 2025-07, Megatron-LM since 2025, Megatron-Bridge",
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
        ),
        Convention(
            name="torchtitan",
            formula="6 (N - V h) + 12 L a d s: parameters without the embedding, unless it is tied",
            source="pytorch/torchtitan, num_flops_per_token",
            tasks=("pretrain",),
            flops_per_token=_torchtitan,
            only_matmuls=False,
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


def conventions_for(task: str) -> list[str]:
    """Return the names of the conventions that apply to a task."""
    return [convention.name for convention in CONVENTIONS.values() if task in convention.tasks]


def flops_per_token(model: Model, sequence_length: int, convention: str) -> float:
    """Return the model FLOPs to train one token of a sequence of that length."""
    return CONVENTIONS[convention].flops_per_token(model, sequence_length)
