"""Estimates the memory that a training step needs on one device, part by part, in bytes.

Parameters and optimizer state are exact. Activations are those that the step keeps for the backward pass. Temporary
buffers count with their largest size. The estimate is high on purpose, to refuse a run that cannot fit.
"""

from math import ceil

from benchmarks.model.flops import (
    adapter_parameter_count,
    attention_weights,
    dense_layer_parameters,
    embedding_parameters,
    expert_parameters,
    layer_matmul_weights,
    layer_parameters,
    layers_parameters,
    mlp_weights,
    mtp_parameters,
    parameter_count,
    routed_parameters,
)
from benchmarks.values import QUANTIZED, Benchmark, LayerLoop, Model, Storage

FLOAT32_BYTES = 4
BFLOAT16_BYTES = 2

# The backward pass still holds one layer's weights while the next layer's weights are gathered.
GATHERED_LAYERS = 2
# XLA also keeps the gathered experts in the order that the kernel of grouped matmuls needs.
COPIES_OF_EXPERTS = 2
# In float32: the logits and their gradient.
LOGIT_COPIES = 2
# Gathered hidden states of a tensor group: the inputs of attention and the MLP, the gradients of their outputs, and
# the sums for the gradients of three inputs. XLA's programs hold these.
WHOLE_STATES = 7
# Sequences that a context group gathers: keys, values, and the gradients of both.
WHOLE_KEYS = 4

# The output of a fused matmul -> the outputs of the separate matmuls. A program has one kind or the other.
FUSED: dict[str, frozenset[str]] = {
    "qkv_proj": frozenset({"query_proj", "key_proj", "value_proj"}),
    "kv_proj": frozenset({"key_proj", "value_proj"}),
    "mlpwi": frozenset({"mlpwi_0", "mlpwi_1"}),
}


# All activations of a layer that are not part of another activation in this list.
DISTINCT = (
    "layer_input", "attention_norm", "qkv_proj", "context", "out_proj", "mlp_norm", "mlpwi", "mlp_product", "mlpwo",
    "dispatched", "combined",
)  # fmt: skip


def memory_by_part(benchmark: Benchmark, storage: Storage) -> dict[str, float]:
    """Return the bytes of each part on a device, at the moment of a step that needs the most memory."""
    if storage.layer_loop is not None:
        state = _state(benchmark, storage, stage_parameters(benchmark, storage))
        return state | _in_the_layer_loop(benchmark, storage, storage.layer_loop)
    if storage.stages:
        found = (_on_listed_stage(benchmark, storage, stage) for stage in range(benchmark.parallelism.pipeline))
        return max(found, key=lambda parts: sum(parts.values()))
    ends = [False, True] if benchmark.parallelism.pipeline > 1 else [True]
    return max((_on_stage(benchmark, storage, last=last) for last in ends), key=lambda parts: sum(parts.values()))


def _state(benchmark: Benchmark, storage: Storage, parameters: float) -> dict[str, float]:
    """Return the bytes of weights and optimizer state on one device of a stage with `parameters` parameters."""
    trained = trained_parameters(benchmark, storage, parameters)
    frozen = parameters / weight_shards(benchmark, storage) if benchmark.lora else 0.0
    return {
        "parameters": storage.numbers.weight_bytes * (trained + frozen),
        "optimizer": storage.numbers.optimizer_bytes * trained / storage.optimizer_replicas,
    }


def _on_stage(benchmark: Benchmark, storage: Storage, *, last: bool) -> dict[str, float]:
    """Return the bytes on the first pipeline stage, with most activations, or on the last, with the logits."""
    parameters = _parameters_at_end(benchmark, storage, last=last)
    has_head = last or storage.tables_on_every_stage
    logits = _bytes_at_the_loss(benchmark, storage) if has_head else 0.0
    scores = attention_score_bytes(benchmark, storage) if storage.writes_attention_scores else 0.0
    working = layer_working_bytes(benchmark, storage)
    one_of_each = layer_matmul_weights(benchmark.model) * compute_bytes(benchmark) / benchmark.parallelism.tensor
    lasting = one_of_each if storage.dummy_gradients else 0.0
    # The loss, the backward pass of an MLP and that of attention happen at different times, so the largest counts.
    return _state(benchmark, storage, parameters) | {
        "gradients": storage.numbers.gradient_bytes * trained_parameters(benchmark, storage, parameters),
        "gathered_layers": gathered_bytes(benchmark) if storage.gathers_layers else 0.0,
        "saved_activations": saved_activation_bytes(benchmark, storage, last=last),
        "logits": logits,
        "attention_scores": max(0.0, scores - max(logits, working)),
        "workspace": lasting
        + max(0.0, working - logits)
        + (gathered_activation_bytes(benchmark) if storage.whole_states else 0.0),
    }


def _bytes_at_the_loss(benchmark: Benchmark, storage: Storage) -> float:
    """Return the larger of two sizes: the logits, or the gradients of the logits and the head together."""
    gradients = compute_bytes(benchmark) * _vocabulary_numbers(benchmark, storage)
    if benchmark.lora is None:
        gradients += embedding_parameters(benchmark.model) * compute_bytes(benchmark) / benchmark.parallelism.tensor
    return max(logit_bytes(benchmark, storage), gradients)


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
    """Return the bytes in a layer's backward pass. The head's gradient, if it exists, counts as `gathered_head`."""
    trains_all = benchmark.lora is None
    waits = trains_all and loop.gradient_of_logits_waits
    one_hot = loop.one_hot_tokens * compute_bytes(benchmark)
    layers = trained_parameters(benchmark, storage)
    if trains_all:
        layers = stage_layers(benchmark) * layer_parameters(benchmark.model) / weight_shards(benchmark, storage)
    layer_bytes = _layer_weights(benchmark) * compute_bytes(benchmark)
    last_state = tokens_per_device(benchmark) * benchmark.model.hidden_size * compute_bytes(benchmark)
    return {
        "gradients": _accumulated_bytes(benchmark, storage) + storage.numbers.gradient_bytes * layers,
        "gathered_layers": 0.0 if _is_whole(benchmark, storage) else _gathered_layer_bytes(benchmark, storage),
        "gathered_head": _head_bytes(benchmark, loop) if trains_all and not waits else 0.0,
        "pipelined_layers": loop.pipelined_layers * layer_bytes,
        "attention_scores": attention_score_bytes(benchmark, storage) if storage.writes_attention_scores else 0.0,
        "logits": (one_hot + waits * loop.head_number_bytes) * _vocabulary_numbers(benchmark, storage),
        "workspace": layer_working_bytes(benchmark, storage)
        + (gathered_activation_bytes(benchmark) if storage.whole_states else 0.0)
        + dispatch_bytes(benchmark, storage)
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


def _gathered_layer_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the bytes of one layer's weights, without the MLP's last matrix, which the backward pass frees first."""
    model, number = benchmark.model, storage.numbers.matrix_bytes or compute_bytes(benchmark)
    if model.experts:
        # A loop over groups of different layers gathers the weights of a whole group.
        return storage.recomputed_together * COPIES_OF_EXPERTS * _layer_weights(benchmark) * number
    rest = layer_parameters(model) - model.hidden_size * model.ffn_hidden_size
    return rest * number / benchmark.parallelism.tensor


def _layer_weights(benchmark: Benchmark) -> float:
    """Return the number of weights of a layer on one device: its share of the experts, and all other weights."""
    routed = routed_parameters(benchmark.model)
    rest = layer_parameters(benchmark.model) - routed
    return rest / benchmark.parallelism.tensor + routed / benchmark.parallelism.expert


def _head_bytes(benchmark: Benchmark, loop: LayerLoop) -> float:
    """Return the bytes of the head, or of the head's gradient, on one device. The tensor axis shards both."""
    return embedding_parameters(benchmark.model) * loop.head_number_bytes / benchmark.parallelism.tensor


def _vocabulary_numbers(benchmark: Benchmark, storage: Storage) -> float:
    """Return the number of elements in an array of a device's tokens by the device's part of the vocabulary."""
    share = benchmark.parallelism
    sharers = share.tensor * (share.pipeline if storage.tables_on_every_stage else 1)
    return tokens_per_device(benchmark) * benchmark.model.vocabulary_size / sharers


# --- stages that list their layers ----------------------------------------------------------------

EMBEDDING, LAYER, MTP, LOSS = "EtmL"  # the letters of Storage.stages
ATTENTION = frozenset({"attention_norm", "qkv_proj", "rotated", "latent_down", "latent_norm", "context", "out_proj"})
DENSE_MLP = frozenset({"mlp_norm", "mlpwi", "mlp_product"})
SPARSE_MLP = frozenset(
    {"router_input", "routed_input", "routed_wi", "routed_product", "shared_wi", "shared_product"},
)
# Megatron adds the experts' biases in float32: the outputs, their sums with the biases, and these sums in one tensor.
BIASED_COPIES = 5
ROUTER_BYTES = FLOAT32_BYTES + 1  # of a token and expert: its score, and whether it is chosen


def _on_listed_stage(benchmark: Benchmark, storage: Storage, stage: int) -> dict[str, float]:
    """Return the bytes on a pipeline stage whose layers are listed: dense ones, those with experts, MTP modules."""
    model, share, numbers = benchmark.model, benchmark.parallelism, storage.numbers
    parts = range(stage, len(storage.stages), share.pipeline)
    text = "".join(storage.stages[part] for part in parts)
    dense = sum(_dense_layers(benchmark, storage, part) for part in parts)
    sparse, modules = text.count(LAYER) - dense, text.count(MTP)
    table = embedding_parameters(model)
    head = table if LOSS in text else 0
    routed = (sparse + modules) * routed_parameters(model) / share.expert
    rest = (
        dense * dense_layer_parameters(model)
        + sparse * (layer_parameters(model) - routed_parameters(model))
        + modules * (mtp_parameters(model) - routed_parameters(model))
        + (table if EMBEDDING in text or modules else 0)
        + (head + model.hidden_size if head else 0)
    ) / share.tensor
    # Transformer Engine repeats latent attention's down projections on each device of a tensor group.
    repeated = activation_widths(model)["latent_down"] * model.hidden_size * (1 - 1 / share.tensor)
    rest += (dense + sparse + modules) * repeated
    group = share.data * share.context
    shards, expert_shards = (group, group * share.tensor / share.expert) if storage.optimizer_replicas > 1 else (1, 1)
    tokens = tokens_per_device(benchmark) / share.tensor
    number = compute_bytes(benchmark)
    logits = (1 + modules) * logit_bytes(benchmark, storage)
    # Each use of the head makes a gradient. If there are several, their sum needs memory as well.
    heads = (1 + modules + (modules > 0)) * table * number / share.tensor
    at_the_loss = max(logits + table * number / share.tensor, heads) if head else 0.0
    one_of_each = attention_weights(model) + expert_parameters(model) + (mlp_weights(model) if dense else 0)
    lasting = one_of_each * number / share.tensor if storage.dummy_gradients else 0.0
    return {
        "parameters": numbers.weight_bytes * (rest + routed),
        "optimizer": numbers.optimizer_bytes * (rest / shards + routed / expert_shards),
        "gradients": numbers.gradient_bytes * (rest + routed),
        "saved_activations": tokens * _listed_activations(benchmark, storage, stage),
        "logits": at_the_loss,
        "attention_scores": attention_score_bytes(benchmark, storage) if storage.writes_attention_scores else 0.0,
        "workspace": lasting + max(0.0, tokens * _sparse_working_bytes(benchmark, storage) - at_the_loss),
    }


def _dense_layers(benchmark: Benchmark, storage: Storage, part: int) -> int:
    """Return the number of dense layers of one listed part. The model's first layers are dense."""
    before = sum(text.count(LAYER) for text in storage.stages[:part])
    return min(storage.stages[part].count(LAYER), max(0, benchmark.model.dense_layers - before))


def _listed_activations(benchmark: Benchmark, storage: Storage, stage: int) -> float:
    """Return the saved bytes per token on a stage, summed over the micro-batches in flight of each part.

    Megatron runs `pipeline` micro-batches through a part before those of the next part.
    """
    share, model = benchmark.parallelism, benchmark.model
    after, parts = share.pipeline - 1 - stage, len(storage.stages) // share.pipeline
    passes = (2 * after + (parts - 1) * share.pipeline if parts > 1 else after) + 1
    passes = min(passes, parts * benchmark.batch.gradient_accumulation)
    order = [number // share.pipeline % parts for number in range(passes)]
    dense, sparse = (listed_layer_bytes(benchmark, storage, sparse=kind) for kind in (False, True))
    state = model.hidden_size * compute_bytes(benchmark)
    module = sparse + 2 * state + 2 * model.hidden_size * _small_bytes(benchmark, storage)
    total = 0.0
    for part in order:
        place = part * share.pipeline + stage
        text, flat = storage.stages[place], _dense_layers(benchmark, storage, place)
        total += flat * dense + (text.count(LAYER) - flat) * sparse
        total += text.count(MTP) * module + (2 * state if LOSS in text else 0)
    return total


def listed_layer_bytes(benchmark: Benchmark, storage: Storage, *, sparse: bool) -> float:
    """Return the saved bytes per token of a layer with experts, or of a dense layer of such a model."""
    model, number, small = benchmark.model, compute_bytes(benchmark), _small_bytes(benchmark, storage)
    widths, state = activation_widths(model), float(model.hidden_size * number)
    if not sparse:
        widths |= {"mlpwi": 2 * model.ffn_hidden_size, "mlp_product": model.ffn_hidden_size}
    kept = storage.saved_activations & (ATTENTION | (SPARSE_MLP if sparse else DENSE_MLP))
    found = state + model.attention_heads * FLOAT32_BYTES  # the input, and attention's sums
    for name in kept:
        found += widths[name] * (small if name in storage.one_byte_activations else number)
    if model.attention.latent and small < number and "attention_norm" in kept & storage.one_byte_activations:
        found += widths["attention_norm"] * small  # both down projections keep a copy
    found += ROUTER_BYTES * model.experts.count if sparse and model.experts else 0
    again = storage.input_only_layers / model.layers
    return (1 - again) * found + again * state / storage.recomputed_together


def _small_bytes(benchmark: Benchmark, storage: Storage) -> float:
    quantized = benchmark.dtype in QUANTIZED
    return storage.quantized_number_bytes if quantized else compute_bytes(benchmark)


def _sparse_working_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the temporary bytes per token at the largest of three moments.

    In the backward pass, the experts' outputs and products have gradients. That of attention comes later, when the
    layer's own MLP has freed what it kept. In the forward pass, rows are exchanged.
    """
    widths, number = activation_widths(benchmark.model), compute_bytes(benchmark)
    again = sum(widths[name] for name in SPARSE_MLP - storage.saved_activations)
    if storage.input_only_layers:
        again = storage.recomputed_together * sum(widths[name] for name in ATTENTION | SPARSE_MLP)
    mlp = widths["combined"] + widths["routed_product"] + again
    if benchmark.model.experts and benchmark.model.experts.biases:
        mlp = max(mlp, BIASED_COPIES * widths["combined"])
    attention = 2 * widths["qkv_proj"] + widths["context"]
    freed = sum(widths[name] for name in SPARSE_MLP & storage.saved_activations)
    exchanged = (2 * storage.dispatched_rows + (benchmark.dtype in QUANTIZED)) * widths["dispatched"]
    return max(mlp, attention - freed, exchanged) * number


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
    """Return among how many devices of a pipeline stage each weight is divided. The data axis replicates weights."""
    parallelism = benchmark.parallelism
    context = parallelism.context if storage.weights_over_context else 1
    return parallelism.fsdp * parallelism.tensor * context


def stage_layers(benchmark: Benchmark) -> int:
    """Return the number of layers of the largest pipeline stage."""
    return ceil(benchmark.model.layers / benchmark.parallelism.pipeline)


def fullest_stages(benchmark: Benchmark) -> list[tuple[int, bool]]:
    """Return the stages that may need the most memory: the number of layers, and whether the stage has the head.

    If the layers do not divide evenly, the stage with the head has fewer layers, as in Megatron.
    """
    return [(benchmark.model.layers // benchmark.parallelism.pipeline, True), (stage_layers(benchmark), False)]


def stage_parameters(benchmark: Benchmark, storage: Storage) -> int:
    """Return the number of parameters on the largest stage."""
    return max(_parameters_at_end(benchmark, storage, last=last) for last in (False, True))


def _parameters_at_end(benchmark: Benchmark, storage: Storage, *, last: bool) -> int:
    """Return the number of parameters on the last stage, or on the largest other stage.

    Each end has a copy of a tied embedding, and fewer layers if the layers do not divide evenly.
    The last stage has the MTP modules and, for them, another copy of the embedding.
    """
    model, pipeline = benchmark.model, benchmark.parallelism.pipeline
    if pipeline == 1:
        return parameter_count(model)
    fewer, most = (layers * layer_parameters(model) for layers in (model.layers // pipeline, stage_layers(benchmark)))
    tables, modules = embedding_parameters(model), model.mtp_modules * mtp_parameters(model)
    if storage.tables_on_every_stage:
        tables = parameter_count(model) - layers_parameters(model)
        return fewer + tables if last else most + tables
    if last:
        return fewer + tables + model.hidden_size + modules + (tables if modules else 0)
    return max(most, fewer + tables)


def stage_trained_parameters(benchmark: Benchmark, storage: Storage, parameters: float | None = None) -> float:
    """Return how many of a stage's `parameters` are trained. The default is the largest stage."""
    if benchmark.lora is None:
        return stage_parameters(benchmark, storage) if parameters is None else parameters
    return adapter_parameter_count(benchmark.model, benchmark.lora) / benchmark.parallelism.pipeline


def trained_parameters(benchmark: Benchmark, storage: Storage, parameters: float | None = None) -> float:
    """Return how many parameters a device's optimizer updates, before they are sharded over replicas."""
    whole = benchmark.lora is not None and storage.whole_adapters
    shards = 1 if whole else weight_shards(benchmark, storage)
    trained = stage_trained_parameters(benchmark, storage, parameters)
    if storage.expert_shards is None or benchmark.lora:
        return trained / shards
    experts = min(stage_layers(benchmark), benchmark.model.layers - benchmark.model.dense_layers)
    routed = experts * routed_parameters(benchmark.model)
    return (trained - routed) / shards + routed / storage.expert_shards


def gathered_bytes(benchmark: Benchmark) -> float:
    """Return the bytes of weights that a device gathers to compute: two layers and the head, in the compute type."""
    model = benchmark.model
    tables = embedding_parameters(model) / benchmark.parallelism.tensor
    return (GATHERED_LAYERS * _layer_weights(benchmark) + tables) * compute_bytes(benchmark)


def gathered_activation_bytes(benchmark: Benchmark) -> float:
    """Return the bytes of activations that a device gathers from its tensor or context group in a layer."""
    model, share, tokens = benchmark.model, benchmark.parallelism, tokens_per_device(benchmark)
    states = WHOLE_STATES * tokens * model.hidden_size if share.tensor > 1 else 0.0
    keys = WHOLE_KEYS * tokens * share.context * model.query_groups * model.head_dim if share.context > 1 else 0.0
    return (states + keys / share.tensor) * compute_bytes(benchmark)


def saved_activation_bytes(benchmark: Benchmark, storage: Storage, *, last: bool = False) -> float:
    """Return the bytes of saved activations. A pipeline stage has fewer layers, but more micro-batches in flight."""
    whole_layers = benchmark.model.layers - storage.input_only_layers - storage.absent_layers
    per_token = whole_layers * _kept_bytes(benchmark, storage, storage.saved_activations)
    inputs = storage.input_only_layers / storage.recomputed_together
    per_token += inputs * _kept_bytes(benchmark, storage, frozenset())
    passes = microbatches_in_flight(benchmark, last=last)
    return per_token * tokens_per_device(benchmark) * passes / benchmark.parallelism.tensor


def microbatches_in_flight(benchmark: Benchmark, *, last: bool = False) -> float:
    """Return how many micro-batches' activations the first or last stage holds, in forward passes of the whole model.

    The first stage holds one micro-batch per stage, up to all micro-batches of a step. The last stage holds one.
    Interleaved stages hold parts of micro-batches: (parts - 1) x stages + 2 x later stages + 1 (Narayanan 2021).
    """
    share, micro_batches = benchmark.parallelism, benchmark.batch.gradient_accumulation
    after, parts = 0 if last else share.pipeline - 1, share.virtual_pipeline
    ahead = 2 * after + (parts - 1) * share.pipeline if parts > 1 else after
    return min((ahead + 1) / parts, micro_batches) / share.pipeline


def _kept_bytes(benchmark: Benchmark, storage: Storage, saved: frozenset[str]) -> float:
    """Return the saved bytes per token and layer, summed over a tensor group."""
    widths = _group_widths(benchmark, storage)
    kept = {"layer_input"} | {name for name in saved & widths.keys() if not _split(name, saved)}
    small = kept & storage.one_byte_activations
    return sum(widths[name] for name in kept - small) * compute_bytes(benchmark) + sum(widths[name] for name in small)


def layer_working_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the temporary bytes of a layer's backward pass: recomputed activations and the gradients of its MLP.

    The logits are freed before this pass, so only the bytes that exceed the logits add to the peak of a step.
    """
    widths = _group_widths(benchmark, storage)
    kept = frozenset[str]() if storage.input_only_layers else storage.saved_activations
    whole = kept | {"layer_input"} | {name for name, parts in FUSED.items() if parts <= kept}  # all parts are kept
    needed = [name for name in DISTINCT if name not in whole | storage.unneeded_activations]
    anew = storage.recomputed_together * sum(widths[name] for name in needed)
    gradients = widths["mlpwi"] + widths["mlp_product"]
    size = (anew + gradients) * compute_bytes(benchmark)
    return size * tokens_per_device(benchmark) / benchmark.parallelism.tensor


def dispatch_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the bytes of the two buffers in which devices exchange tokens for experts: sent, and sent back."""
    if benchmark.parallelism.expert == 1:
        return 0.0
    width = 2 * activation_widths(benchmark.model)["dispatched"]
    return storage.dispatched_rows * width * tokens_per_device(benchmark) * compute_bytes(benchmark)


def _group_widths(benchmark: Benchmark, storage: Storage) -> dict[str, int]:
    """Return each activation's elements per token in a tensor group. Unsharded activations count once per device."""
    copies = dict.fromkeys(storage.whole_activations, benchmark.parallelism.tensor)
    return {name: width * copies.get(name, 1) for name, width in activation_widths(benchmark.model).items()}


def _split(name: str, saved_activations: frozenset[str]) -> bool:
    return bool(FUSED.get(name, frozenset()) & saved_activations)


def activation_widths(model: Model) -> dict[str, int]:
    """Return the width of each named activation of a layer, per token."""
    queries = model.attention_heads * model.head_dim
    keys = model.query_groups * model.head_dim
    latent = model.attention.latent
    values, context = (keys, queries) if latent is None else (model.attention_heads * latent.value_head_dim,) * 2
    ffn, chosen, experts = model.ffn_hidden_size, 0, model.experts
    if experts:
        ffn, chosen = (experts.active + experts.shared) * experts.ffn_hidden_size, experts.active
    return {
        "layer_input": model.hidden_size,
        "attention_norm": model.hidden_size,
        "query_proj": queries,
        "key_proj": keys,
        "value_proj": values,
        "kv_proj": keys + values,
        "qkv_proj": queries + keys + values,
        "context": context,
        "attention_out": context,
        "out_proj": model.hidden_size,
        "mlp_norm": model.hidden_size,
        "mlpwi_0": ffn,
        "mlpwi_1": ffn,
        "mlpwi": 2 * ffn,
        "mlp_product": ffn,
        "mlpwo": model.hidden_size,
        # In layers with experts: a token's copies for its experts, and their outputs.
        "dispatched": chosen * model.hidden_size,
        "combined": chosen * model.hidden_size,
        "router_input": model.hidden_size,
        "routed_input": chosen * model.hidden_size,
        **_expert_widths(model),
        # In latent attention: the outputs of the two down projections, and their norms.
        "latent_down": latent.query_rank + latent.key_value_rank + latent.rotated_head_dim if latent else 0,
        "latent_norm": latent.query_rank + latent.key_value_rank if latent else 0,
        # Second copies of other activations: query and key after rotation, context in fp8, and a device's share of a
        # norm's output, if an adapter keeps the whole output.
        "rotated": queries + keys,
        "context_in_fp8": context,
        "attention_norm_share": model.hidden_size,
        "mlp_norm_share": model.hidden_size,
    }


def _expert_widths(model: Model) -> dict[str, int]:
    """Return the widths inside the experts that a token activates: those the router chooses, and the shared ones."""
    routed, shared = (0, 0) if model.experts is None else (model.experts.active, model.experts.shared)
    width = 0 if model.experts is None else model.experts.ffn_hidden_size
    return {
        "routed_wi": 2 * routed * width,
        "routed_product": routed * width,
        "shared_wi": 2 * shared * width,
        "shared_product": shared * width,
    }


def attention_score_bytes(benchmark: Benchmark, storage: Storage) -> float:
    """Return the bytes of one layer's attention scores, for kernels that write them to memory."""
    heads = benchmark.model.attention_heads / benchmark.parallelism.tensor
    scores = heads * tokens_per_device(benchmark) * benchmark.batch.sequence_length
    return storage.score_bytes * scores


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
