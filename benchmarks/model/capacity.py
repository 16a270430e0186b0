"""Estimates what a training step holds in the memory of one device, part by part, in bytes.

The state of training is exact. Activations are those a step keeps by name, and temporary buffers are the
largest of their kind: an estimate near the top, made to refuse what cannot fit before it is tried.
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

# Backward still holds a layer's weights while the next layer's are fetched.
GATHERED_LAYERS = 2
# In float32: the logits and their gradient; an attention's scores and their softmax.
LOGIT_COPIES = 2
SCORE_COPIES = 2
# Gathered hidden states of a tensor group: the inputs of attention and the MLP, the gradients of their outputs, and
# the sums for the gradients of three inputs. XLA's programs hold these.
WHOLE_STATES = 7
# Gathered sequences of a context group: keys, values, and the gradients of both.
WHOLE_KEYS = 4

# A fused matmul has one output that goes by another name than its parts; a program has one or the other.
FUSED: dict[str, frozenset[str]] = {
    "qkv_proj": frozenset({"query_proj", "key_proj", "value_proj"}),
    "kv_proj": frozenset({"key_proj", "value_proj"}),
    "mlpwi": frozenset({"mlpwi_0", "mlpwi_1"}),
}


# Every activation of a layer, without those that are part of another one.
DISTINCT = (
    "layer_input", "attention_norm", "qkv_proj", "context", "out_proj", "mlp_norm", "mlpwi", "mlp_product", "mlpwo",
)  # fmt: skip


def memory_by_part(benchmark: Benchmark, storage: Storage) -> dict[str, float]:
    """Bytes a device holds at the peak of a step."""
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
    """The largest of two moments: the loss, and the backward pass of a layer at its MLP."""
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
    """Return the bytes at the loss: logits and the whole head exist, but gradients do not."""
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
    """Return the bytes in a layer. Gradients of embedding and head are missing or in the type of activations."""
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
    """Return the bytes of gradients summed over micro-steps, without those of the current one."""
    several = benchmark.batch.gradient_accumulation > 1
    return storage.numbers.gradient_bytes * trained_parameters(benchmark, storage) if several else 0.0


def _is_whole(benchmark: Benchmark, storage: Storage) -> bool:
    """Whether a device computes with its weights as they are stored, not gathered and of no other type."""
    gathered = benchmark.parallelism.fsdp * benchmark.parallelism.context > 1
    return not gathered and storage.numbers.weight_bytes == (storage.numbers.matrix_bytes or compute_bytes(benchmark))


def _layer_bytes(benchmark: Benchmark) -> float:
    return layer_parameters(benchmark.model) * compute_bytes(benchmark) / benchmark.parallelism.tensor


def _gathered_layer_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """One layer's weights; those that its MLP ends with are used first in the backward pass, and gone."""
    model, number = benchmark.model, storage.numbers.matrix_bytes or compute_bytes(benchmark)
    rest = layer_parameters(model) - model.hidden_size * model.ffn_hidden_size
    return rest * number / benchmark.parallelism.tensor


def _head_bytes(benchmark: Benchmark, loop: LayerLoop) -> float:
    """The head, or its gradient, for the whole vocabulary of a tensor group's device."""
    return embedding_parameters(benchmark.model) * loop.head_number_bytes / benchmark.parallelism.tensor


def _vocabulary_numbers(benchmark: Benchmark, storage: Storage) -> float:
    """Return the elements of an array of a device's tokens by its part of the vocabulary."""
    share = benchmark.parallelism
    sharers = share.tensor * (share.pipeline if storage.tables_on_every_stage else 1)
    return tokens_per_device(benchmark) * benchmark.model.vocabulary_size / sharers


def total_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the bytes that a device needs for a step."""
    return sum(memory_by_part(benchmark, storage).values())


def usable_bytes(benchmark: Benchmark, storage: Storage) -> float | None:
    """Return the bytes of a device for a step; None for a CPU, whose devices share the memory of the host."""
    memory_bytes = benchmark.hardware.memory_bytes
    return None if memory_bytes is None else memory_bytes * storage.usable_fraction


def fits(benchmark: Benchmark, storage: Storage) -> bool:
    """Whether a device has the memory; of a CPU that is not known here."""
    usable = usable_bytes(benchmark, storage)
    return usable is None or total_bytes(benchmark, storage) <= usable


def weight_shards(benchmark: Benchmark, storage: Storage) -> int:
    """Over how many devices of a pipeline stage a weight is spread; the data axis repeats weights instead."""
    parallelism = benchmark.parallelism
    context = parallelism.context if storage.weights_over_context else 1
    return parallelism.fsdp * parallelism.tensor * context


def stage_layers(benchmark: Benchmark) -> int:
    """The most layers of a pipeline stage."""
    return ceil(benchmark.model.layers / benchmark.parallelism.pipeline)


def fullest_stages(benchmark: Benchmark) -> list[tuple[int, bool]]:
    """Return the stages that can be the fullest: layers, and whether the head is on it.

    If the layers do not divide evenly, the stage with the head has fewer, as Megatron splits them.
    """
    return [(benchmark.model.layers // benchmark.parallelism.pipeline, True), (stage_layers(benchmark), False)]


def stage_parameters(benchmark: Benchmark, storage: Storage) -> int:
    """The model's parameters on the fullest stage. If embedding and head are tied, both ends have a copy."""
    model = benchmark.model
    others = parameter_count(model) - model.layers * layer_parameters(model)
    if benchmark.parallelism.pipeline > 1 and not storage.tables_on_every_stage:
        others = embedding_parameters(model) + model.hidden_size  # the head and the norm before it
    return max(layers * layer_parameters(model) + last * others for layers, last in fullest_stages(benchmark))


def stage_trained_parameters(benchmark: Benchmark, storage: Storage) -> float:
    """Return the parameters of the fullest stage that the optimizer changes."""
    if benchmark.lora is None:
        return stage_parameters(benchmark, storage)
    return adapter_parameter_count(benchmark.model, benchmark.lora) / benchmark.parallelism.pipeline


def trained_parameters(benchmark: Benchmark, storage: Storage) -> float:
    """Return the parameters that the optimizer of a device updates, before they are sharded over replicas."""
    whole = benchmark.lora is not None and storage.whole_adapters
    return stage_trained_parameters(benchmark, storage) / (1 if whole else weight_shards(benchmark, storage))


def gathered_bytes(benchmark: Benchmark) -> float:
    """The whole weights that a device computes with: two layers and the head, in the compute type."""
    model = benchmark.model
    weights = GATHERED_LAYERS * layer_parameters(model) + embedding_parameters(model)
    return weights * compute_bytes(benchmark) / benchmark.parallelism.tensor


def gathered_activation_bytes(benchmark: Benchmark) -> float:
    """Return the bytes of activations that a layer gathers from its tensor or context group."""
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
    """Micro-batches whose activations the first stage holds, in forward passes of the whole model.

    One for each stage, as far as a step has so many. With interleaved stages, part of a further one for each other
    stage (Narayanan et al. 2021).
    """
    share, micro_batches = benchmark.parallelism, benchmark.batch.gradient_accumulation
    extra = (share.pipeline - 1) / share.virtual_pipeline if share.virtual_pipeline > 1 else 0.0
    return min(share.pipeline + extra, micro_batches) / share.pipeline


def _kept_bytes(benchmark: Benchmark, storage: Storage, saved: frozenset[str]) -> float:
    """Return the saved bytes per token and layer of a whole tensor group."""
    widths = _group_widths(benchmark, storage)
    kept = {"layer_input"} | {name for name in saved & widths.keys() if not _split(name, saved)}
    small = kept & storage.one_byte_activations
    return sum(widths[name] for name in kept - small) * compute_bytes(benchmark) + sum(widths[name] for name in small)


def layer_working_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the temporary bytes of a layer's backward pass: recomputed activations and the gradients of its MLP.

    The logits are freed by then, so only the bytes beyond theirs add to the peak of a step.
    """
    widths = _group_widths(benchmark, storage)
    kept = frozenset[str]() if storage.input_only_layers else storage.saved_activations
    whole = kept | {"layer_input"} | {name for name, parts in FUSED.items() if parts <= kept}  # or all its parts
    anew = storage.recomputed_together * sum(widths[name] for name in DISTINCT if name not in whole)
    gradients = widths["mlpwi"] + widths["mlp_product"]
    size = (anew + gradients) * compute_bytes(benchmark)
    return size * tokens_per_device(benchmark) / benchmark.parallelism.tensor


def _group_widths(benchmark: Benchmark, storage: Storage) -> dict[str, int]:
    """Numbers that a token leaves in a tensor group: those that each device has whole, once for each device."""
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
    """One layer's scores, where attention writes them out."""
    heads = benchmark.model.attention_heads / benchmark.parallelism.tensor
    scores = heads * tokens_per_device(benchmark) * benchmark.batch.sequence_length
    return SCORE_COPIES * FLOAT32_BYTES * scores


def logit_bytes(benchmark: Benchmark, storage: Storage) -> float:
    return storage.numbers.logit_number_bytes * _vocabulary_numbers(benchmark, storage)


def tokens_per_device(benchmark: Benchmark) -> float:
    """Tokens of a micro-step that a device works on; devices of a tensor or pipeline group share theirs.

    This starts from the global batch, because frameworks define the batch of a device differently.
    """
    parallelism = benchmark.parallelism
    sequences = benchmark.batch.global_batch_size / benchmark.batch.gradient_accumulation
    sequences_of_a_group = sequences / (parallelism.data * parallelism.fsdp)
    return sequences_of_a_group * benchmark.batch.sequence_length / parallelism.context


def compute_bytes(benchmark: Benchmark) -> int:
    """The size of an activation: bfloat16 under every precision but fp32 itself."""
    return FLOAT32_BYTES if benchmark.dtype == "fp32" else BFLOAT16_BYTES
