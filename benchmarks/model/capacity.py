"""Estimates the memory that a training step needs on one device, part by part, in bytes.

Parameters and optimizer state are exact. Activations are those that the step keeps for the backward pass. Temporary
buffers count with their largest size. The estimate is high on purpose, to refuse a run that cannot fit.
"""

from math import ceil

from benchmarks.model.flops import (
    adapter_parameter_count,
    embedding_parameters,
    layer_parameters,
    parameter_count,
)
from benchmarks.values import Benchmark, LayerLoop, Model, Storage

FLOAT32_BYTES = 4
BFLOAT16_BYTES = 2

# The backward pass still holds one layer's weights while the next layer's weights are gathered.
GATHERED_LAYERS = 2
# Float32 copies: the logits and their gradient; the attention scores and their softmax.
LOGIT_COPIES = 2
SCORE_COPIES = 2
# Hidden states that a tensor group gathers: the inputs of attention and MLP, the gradients of their outputs, and the
# sums for the gradients of three inputs. Programs compiled by XLA hold all of them.
WHOLE_STATES = 7
# Sequences that a context group gathers: keys, values, and the gradients of both.
WHOLE_KEYS = 4

# The output of a fused matmul -> the outputs of the separate matmuls; a program has either the first or the others.
FUSED: dict[str, frozenset[str]] = {
    "qkv_proj": frozenset({"query_proj", "key_proj", "value_proj"}),
    "kv_proj": frozenset({"key_proj", "value_proj"}),
    "mlpwi": frozenset({"mlpwi_0", "mlpwi_1"}),
}


# All activations of a layer, without those that are a part of another one here.
DISTINCT = (
    "layer_input", "attention_norm", "qkv_proj", "context", "out_proj", "mlp_norm", "mlpwi", "mlp_product", "mlpwo",
)  # fmt: skip


def memory_by_part(benchmark: Benchmark, storage: Storage) -> dict[str, float]:
    """Return the bytes that a device holds at the peak of a step, by part."""
    shards = weight_shards(benchmark, storage)
    trained = trained_parameters(benchmark, storage)
    frozen = stage_parameters(benchmark, storage) / shards if benchmark.lora else 0.0
    state = {
        "parameters": storage.numbers.weight_bytes * (trained + frozen),
        "optimizer": storage.numbers.optimizer_bytes * trained / storage.optimizer_replicas,
    }
    if storage.layer_loop is not None:
        return state | _in_the_layer_loop(benchmark, storage, storage.layer_loop)
    return state | {
        "gradients": storage.numbers.gradient_bytes * trained,
        "gathered_layers": gathered_bytes(benchmark) if storage.gathers_layers else 0.0,
        "saved_activations": saved_activation_bytes(benchmark, storage),
        "attention_scores": attention_score_bytes(benchmark) if storage.writes_attention_scores else 0.0,
        "logits": logit_bytes(benchmark, storage),
        "workspace": max(0.0, layer_working_bytes(benchmark, storage) - logit_bytes(benchmark, storage))
        + (gathered_activation_bytes(benchmark) if storage.whole_states else 0.0),
    }


def _in_the_layer_loop(benchmark: Benchmark, storage: Storage, loop: LayerLoop) -> dict[str, float]:
    """Return the bytes at the larger of two moments: at the loss, and in a layer's MLP in the backward pass."""
    shards = weight_shards(benchmark, storage)
    lasting = {
        "reordered_weights": storage.numbers.weight_bytes
        * stage_layers(benchmark)
        * loop.reordered_parameters
        / shards,
        "saved_activations": saved_activation_bytes(benchmark, storage),
    }
    moments = (_at_the_loss(benchmark, storage, loop), _in_a_layer(benchmark, storage, loop))
    largest = max(moments, key=lambda parts: sum(parts.values()))
    return {"gradients": largest["gradients"]} | lasting | largest


def _at_the_loss(benchmark: Benchmark, storage: Storage, loop: LayerLoop) -> dict[str, float]:
    """Return the bytes at the loss, when the logits and the whole head exist, but the layers' gradients do not."""
    tokens = tokens_per_device(benchmark) / benchmark.parallelism.tensor
    ahead = int(loop.gathers_ahead)
    states = (1 + 2 * ahead) * benchmark.model.hidden_size * compute_bytes(benchmark)
    one_hot = loop.one_hot_tokens * compute_bytes(benchmark)
    last_layer = ahead * _kept_bytes(benchmark, storage, storage.saved_activations)
    return {
        "gradients": _accumulated_bytes(benchmark, storage),
        "gathered_layers": ahead * _gathered_layer_bytes(benchmark, storage),
        "gathered_head": 0.0 if _is_whole(benchmark, storage) else _head_bytes(benchmark, loop),
        "logits": logit_bytes(benchmark, storage) + one_hot * _vocabulary_numbers(benchmark, storage),
        "workspace": tokens * (states + last_layer),
    }


def _in_a_layer(benchmark: Benchmark, storage: Storage, loop: LayerLoop) -> dict[str, float]:
    """Return the bytes in a layer's backward pass. Embedding and head have no gradient, or one in compute type."""
    trains_all = benchmark.lora is None
    waits = trains_all and loop.gradient_of_logits_waits
    one_hot = loop.one_hot_tokens * compute_bytes(benchmark)
    layers = trained_parameters(benchmark, storage)
    if trains_all:
        layers = stage_layers(benchmark) * layer_parameters(benchmark.model) / weight_shards(benchmark, storage)
    last_state = tokens_per_device(benchmark) * benchmark.model.hidden_size * compute_bytes(benchmark)
    return {
        "gradients": _accumulated_bytes(benchmark, storage) + storage.numbers.gradient_bytes * layers,
        "gathered_layers": 0.0 if _is_whole(benchmark, storage) else _gathered_layer_bytes(benchmark, storage),
        "gathered_head": _head_bytes(benchmark, loop) if trains_all and not waits else 0.0,
        "pipelined_layers": loop.pipelined_layers * _layer_bytes(benchmark),
        "attention_scores": attention_score_bytes(benchmark) if storage.writes_attention_scores else 0.0,
        "logits": (one_hot + waits * loop.head_number_bytes) * _vocabulary_numbers(benchmark, storage),
        "workspace": layer_working_bytes(benchmark, storage)
        + (gathered_activation_bytes(benchmark) if storage.whole_states else 0.0)
        + waits * last_state / benchmark.parallelism.tensor,
    }


def _accumulated_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the bytes of the gradients that are summed over micro-steps, without those of the current micro-step."""
    several = benchmark.batch.gradient_accumulation > 1
    return storage.numbers.gradient_bytes * trained_parameters(benchmark, storage) if several else 0.0


def _is_whole(benchmark: Benchmark, storage: Storage) -> bool:
    """Return whether a device computes with its weights as they are stored: neither gathered nor in another type."""
    gathered = benchmark.parallelism.fsdp * benchmark.parallelism.context > 1
    return not gathered and storage.numbers.weight_bytes == (storage.numbers.matrix_bytes or compute_bytes(benchmark))


def _layer_bytes(benchmark: Benchmark) -> float:
    return layer_parameters(benchmark.model) * compute_bytes(benchmark) / benchmark.parallelism.tensor


def _gathered_layer_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the bytes of one layer's weights, without the MLP's last matrix, which the backward pass frees first."""
    model, number = benchmark.model, storage.numbers.matrix_bytes or compute_bytes(benchmark)
    rest = layer_parameters(model) - model.hidden_size * model.ffn_hidden_size
    return rest * number / benchmark.parallelism.tensor


def _head_bytes(benchmark: Benchmark, loop: LayerLoop) -> float:
    """Return the bytes of the head or of its gradient on one device, which has the head's share of a tensor group."""
    return embedding_parameters(benchmark.model) * loop.head_number_bytes / benchmark.parallelism.tensor


def _vocabulary_numbers(benchmark: Benchmark, storage: Storage) -> float:
    """Return the size of an array of a device's tokens by its part of the vocabulary, in elements."""
    share = benchmark.parallelism
    sharers = share.tensor * (share.pipeline if storage.tables_on_every_stage else 1)
    return tokens_per_device(benchmark) * benchmark.model.vocabulary_size / sharers


def total_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the bytes that a device needs for a step."""
    return sum(memory_by_part(benchmark, storage).values())


def usable_bytes(benchmark: Benchmark, storage: Storage) -> float | None:
    """Return the bytes that a step can use on a device; None for a CPU, whose devices share the host's memory."""
    memory_bytes = benchmark.hardware.memory_bytes
    return None if memory_bytes is None else memory_bytes * storage.usable_fraction


def fits(benchmark: Benchmark, storage: Storage) -> bool:
    """Return whether a device has enough memory; True for a CPU, whose memory is unknown here."""
    usable = usable_bytes(benchmark, storage)
    return usable is None or total_bytes(benchmark, storage) <= usable


def weight_shards(benchmark: Benchmark, storage: Storage) -> int:
    """Return the number of devices in a pipeline stage that share each weight. The data axis replicates weights."""
    parallelism = benchmark.parallelism
    context = parallelism.context if storage.weights_over_context else 1
    return parallelism.fsdp * parallelism.tensor * context


def stage_layers(benchmark: Benchmark) -> int:
    """Return the number of layers of the largest pipeline stage."""
    return ceil(benchmark.model.layers / benchmark.parallelism.pipeline)


def fullest_stages(benchmark: Benchmark) -> list[tuple[int, bool]]:
    """Return the stages that may need the most memory: the number of layers, and whether the stage has the head.

    If the layers do not divide evenly, the stage with the head has fewer, as Megatron splits them.
    """
    return [(benchmark.model.layers // benchmark.parallelism.pipeline, True), (stage_layers(benchmark), False)]


def stage_parameters(benchmark: Benchmark, storage: Storage) -> int:
    """Return the parameters of the fullest stage. Tied weights are on the first and on the last stage."""
    model = benchmark.model
    others = parameter_count(model) - model.layers * layer_parameters(model)
    if benchmark.parallelism.pipeline > 1 and not storage.tables_on_every_stage:
        others = embedding_parameters(model) + model.hidden_size  # the head, and the norm in front of it
    return max(layers * layer_parameters(model) + last * others for layers, last in fullest_stages(benchmark))


def stage_trained_parameters(benchmark: Benchmark, storage: Storage) -> float:
    """Return the parameters of the fullest stage that the optimizer changes."""
    if benchmark.lora is None:
        return stage_parameters(benchmark, storage)
    return adapter_parameter_count(benchmark.model, benchmark.lora) / benchmark.parallelism.pipeline


def trained_parameters(benchmark: Benchmark, storage: Storage) -> float:
    """Return the parameters that one device trains, before the optimizer shards them over replicas."""
    whole = benchmark.lora is not None and storage.whole_adapters
    return stage_trained_parameters(benchmark, storage) / (1 if whole else weight_shards(benchmark, storage))


def gathered_bytes(benchmark: Benchmark) -> float:
    """Return the bytes of weights that a device gathers to compute: two layers and the head, in the compute type."""
    model = benchmark.model
    weights = GATHERED_LAYERS * layer_parameters(model) + embedding_parameters(model)
    return weights * compute_bytes(benchmark) / benchmark.parallelism.tensor


def gathered_activation_bytes(benchmark: Benchmark) -> float:
    """Return the bytes of activations that a device gathers from its tensor or context group in a layer."""
    model, share, tokens = benchmark.model, benchmark.parallelism, tokens_per_device(benchmark)
    states = WHOLE_STATES * tokens * model.hidden_size if share.tensor > 1 else 0.0
    keys = WHOLE_KEYS * tokens * share.context * model.query_groups * model.head_dim if share.context > 1 else 0.0
    return (states + keys / share.tensor) * compute_bytes(benchmark)


def saved_activation_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the saved bytes of all layers. A pipeline stage has fewer layers, but more micro-batches in flight."""
    whole_layers = benchmark.model.layers - storage.input_only_layers - storage.absent_layers
    per_token = whole_layers * _kept_bytes(benchmark, storage, storage.saved_activations)
    inputs = storage.input_only_layers / storage.recomputed_together
    per_token += inputs * _kept_bytes(benchmark, storage, frozenset())
    return per_token * tokens_per_device(benchmark) * microbatches_in_flight(benchmark) / benchmark.parallelism.tensor


def microbatches_in_flight(benchmark: Benchmark) -> float:
    """Return the number of micro-batches whose activations the first stage holds, as a share of the whole model.

    The stage holds one micro-batch for each stage, but at most all micro-batches of a step. Interleaved stages hold a
    part of one more for each other stage (Narayanan et al. 2021).
    """
    share, micro_batches = benchmark.parallelism, benchmark.batch.gradient_accumulation
    extra = (share.pipeline - 1) / share.virtual_pipeline if share.virtual_pipeline > 1 else 0.0
    return min(share.pipeline + extra, micro_batches) / share.pipeline


def _kept_bytes(benchmark: Benchmark, storage: Storage, saved: frozenset[str]) -> float:
    """Return the saved bytes per token and layer, summed over a tensor group."""
    widths = _group_widths(benchmark, storage)
    kept = {"layer_input"} | {name for name in saved & widths.keys() if not _split(name, saved)}
    small = kept & storage.one_byte_activations
    return sum(widths[name] for name in kept - small) * compute_bytes(benchmark) + sum(widths[name] for name in small)


def layer_working_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the temporary bytes of a layer's backward pass: recomputed activations and the gradients of its MLP.

    The logits are freed before that, so only the bytes beyond those of the logits add to the peak of a step.
    """
    widths = _group_widths(benchmark, storage)
    kept = frozenset[str]() if storage.input_only_layers else storage.saved_activations
    whole = kept | {"layer_input"} | {name for name, parts in FUSED.items() if parts <= kept}  # or all parts are kept
    anew = storage.recomputed_together * sum(widths[name] for name in DISTINCT if name not in whole)
    gradients = widths["mlpwi"] + widths["mlp_product"]
    size = (anew + gradients) * compute_bytes(benchmark)
    return size * tokens_per_device(benchmark) / benchmark.parallelism.tensor


def _group_widths(benchmark: Benchmark, storage: Storage) -> dict[str, int]:
    """Return the elements per token of each activation, over a tensor group. Unsharded ones count once per device."""
    copies = dict.fromkeys(storage.whole_activations, benchmark.parallelism.tensor)
    return {name: width * copies.get(name, 1) for name, width in activation_widths(benchmark.model).items()}


def _split(name: str, saved_activations: frozenset[str]) -> bool:
    return bool(FUSED.get(name, frozenset()) & saved_activations)


def activation_widths(model: Model) -> dict[str, int]:
    """Return the width of each named activation of a layer, per token."""
    queries = model.attention_heads * model.head_dim
    keys = model.query_groups * model.head_dim
    return {
        "layer_input": model.hidden_size,
        "attention_norm": model.hidden_size,
        "query_proj": queries,
        "key_proj": keys,
        "value_proj": keys,
        "kv_proj": 2 * keys,
        "qkv_proj": queries + 2 * keys,
        "context": queries,
        "attention_out": queries,
        "out_proj": model.hidden_size,
        "mlp_norm": model.hidden_size,
        "mlpwi_0": model.ffn_hidden_size,
        "mlpwi_1": model.ffn_hidden_size,
        "mlpwi": 2 * model.ffn_hidden_size,
        "mlp_product": model.ffn_hidden_size,
        "mlpwo": model.hidden_size,
    }


def attention_score_bytes(benchmark: Benchmark) -> float:
    """Return the bytes of one layer's attention scores, for attention that writes them to memory."""
    heads = benchmark.model.attention_heads / benchmark.parallelism.tensor
    scores = heads * tokens_per_device(benchmark) * benchmark.batch.sequence_length
    return SCORE_COPIES * FLOAT32_BYTES * scores


def logit_bytes(benchmark: Benchmark, storage: Storage) -> float:
    return storage.numbers.logit_number_bytes * _vocabulary_numbers(benchmark, storage)


def tokens_per_device(benchmark: Benchmark) -> float:
    """Return the tokens of a micro-step per device. Devices of a tensor or pipeline group work on the same tokens.

    The formula starts from the global batch, because frameworks define the batch of a device differently.
    """
    parallelism = benchmark.parallelism
    sequences = benchmark.batch.global_batch_size / benchmark.batch.gradient_accumulation
    sequences_of_a_group = sequences / (parallelism.data * parallelism.fsdp)
    return sequences_of_a_group * benchmark.batch.sequence_length / parallelism.context


def compute_bytes(benchmark: Benchmark) -> int:
    """Return the bytes of one number of an activation: bfloat16 for every precision except fp32."""
    return FLOAT32_BYTES if benchmark.dtype == "fp32" else BFLOAT16_BYTES
