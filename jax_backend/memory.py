"""The memory of MaxText's training step: the type and the sharding of its state (by default float32, sharded like the
weights), and the results that it recomputes instead of storing."""

from benchmarks.errors import RequestError
from benchmarks.model.capacity import FLOAT32_BYTES, LOGIT_COPIES, compute_bytes
from benchmarks.model.flops import layer_parameters
from benchmarks.model.ledger import FORWARD, LAYER_MATMULS, forward_flops
from benchmarks.values import Benchmark, LayerLoop, NumberBytes, Recompute, Scalar, Storage

MEMORY_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
XLA_DEFAULT_FRACTION = "0.75"

# How often a tensor group exchanges a layer's hidden states, counted in XLA's programs of the 70B model. 8 would
# suffice, but query, key, value, gate and up are exchanged separately, and recomputation repeats exchanges.
EXCHANGES, WITH_SOME_AGAIN, WITH_ALL_AGAIN = 14.0, 18.0, 21.0


def storage(benchmark: Benchmark) -> Storage:
    on_the_device, _ = kept(benchmark.settings.knobs)
    again = recompute(benchmark)
    weight = _bytes_of(benchmark, "weight_dtype")
    gradient = _bytes_of(benchmark, "grad_dtype")  # accumulated gradients have the weights' type until the last sum
    loop = layer_loop(benchmark)
    saved, together = on_the_device - _NEVER_READ, layers_together(benchmark)
    rows = 1.0
    if benchmark.model.experts is not None and benchmark.parallelism.expert > 1:
        from jax_backend import experts

        rows = experts.dispatched_rows(benchmark)
    exchanges = WITH_SOME_AGAIN if again.matmuls else EXCHANGES
    if "query_proj" in again.matmuls:
        exchanges = WITH_ALL_AGAIN
    return Storage(
        saved_activations=saved,
        input_only_layers=benchmark.model.layers if together > 1 and not saved else 0,
        recomputed_together=together,
        numbers=NumberBytes(
            weight_bytes=weight,
            gradient_bytes=weight if benchmark.batch.gradient_accumulation > 1 else min(weight, gradient),
            optimizer_bytes=_optimizer_bytes(benchmark, weight),
            matrix_bytes=1 if benchmark.dtype == "fp8" else None,
            logit_number_bytes=_logit_number_bytes(benchmark) if loop else LOGIT_COPIES * FLOAT32_BYTES,
            reduced_bytes=min(weight, compute_bytes(benchmark)),
        ),
        optimizer_replicas=1,
        gathers_layers=True,
        writes_attention_scores=benchmark.settings.knobs.get("attention") == "dot_product",
        usable_fraction=usable_fraction(benchmark),
        weights_over_context=True,
        whole_states=True,
        recompute=again,
        tensor_exchanges=exchanges,
        whole_adapters=True,
        tables_on_every_stage=True,
        uncounted=uncounted(benchmark),
        layer_loop=loop,
        dispatched_rows=rows,
    )


def layers_together(benchmark: Benchmark) -> int:
    """Return the layers in one iteration of MaxText's scan: with sliding windows, one group of different layers."""
    window = benchmark.model.attention.window
    return window.global_every if window and benchmark.settings.knobs.get("scan_layers", True) else 1


DOUBLE_BUFFERING = "xla_gpu_enable_while_loop_double_buffering"


def layer_loop(benchmark: Benchmark) -> LayerLoop | None:
    """Return the buffers of MaxText's scan over layers, as XLA compiles it for a GPU."""
    knobs, model, share = benchmark.settings.knobs, benchmark.model, benchmark.parallelism
    if benchmark.hardware.kind != "gpu" or not knobs.get("scan_layers", True):
        return None
    trains_all, sharded = benchmark.lora is None, share.fsdp * share.context > 1
    reordered = 0
    if sharded:
        # By default MaxText stacks layers along the second axis, but the loop needs them along the first. Weights
        # sharded along their last axis are always transposed, so that their gradient can be scattered.
        outputs = model.hidden_size * (model.ffn_hidden_size + model.attention_heads * model.head_dim)
        reordered = outputs if knobs.get("param_scan_axis", 1) == 0 else layer_parameters(model)
    elif benchmark.dtype == "fp8" and not _is_blackwell(benchmark):
        # Hopper multiplies fp8 along the last axis of both factors, so XLA transposes whole weights for the forward
        # pass, and keeps them transposed if it recomputes that pass. Gathered weights are transposed per layer.
        weights = forward_flops(model, sequence_length=0)
        reordered = int(sum(weights[name] for name in recompute(benchmark).matmuls) / FORWARD)
    return LayerLoop(
        reordered_parameters=reordered,
        # Only this flag, of the three for pipelining, carries unreduced gradients to the next layer's iteration.
        pipelined_layers=layers_together(benchmark)
        if trains_all and sharded and _flag(benchmark, "xla_gpu_enable_pipelined_all_reduce")
        else 0,
        gathers_ahead=sharded and _flag(benchmark, "xla_gpu_enable_pipelined_all_gather"),
        one_hot_tokens=trains_all and bool(knobs.get("use_iota_embed", False)),
        head_number_bytes=_head_number_bytes(benchmark),
        gradient_of_logits_waits=sharded or share.tensor > 1,
    )


def _flag(benchmark: Benchmark, name: str) -> bool:
    return benchmark.settings.xla_flags.get(name) == "true"


def _is_blackwell(benchmark: Benchmark) -> bool:
    """Return whether the GPU is a Blackwell. Other types do not support four-bit numbers."""
    return "nvfp4" in benchmark.hardware.peaks


def _head_number_bytes(benchmark: Benchmark) -> int:
    """Return the bytes per number of the logits, whose type XLA keeps for the loss and for their gradient."""
    return FLOAT32_BYTES if benchmark.settings.knobs.get("logits_dot_in_fp32", False) else compute_bytes(benchmark)


def _logit_number_bytes(benchmark: Benchmark) -> int:
    """Return the bytes per logit. On Blackwell, XLA also stores the exponential of each logit in float32."""
    exponential = FLOAT32_BYTES if _is_blackwell(benchmark) else 0
    return LOGIT_COPIES * _head_number_bytes(benchmark) + exponential


# --- types, and the optimizer -------------------------------------------------------------------

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
ADAMW, SGD, MUON = "adamw", "sgd", "muon"
OPTIMIZERS = (ADAMW, "adam_pax", SGD, MUON)

# Settings that change the memory by an unknown amount -> the value that changes nothing.
NOT_COUNTED: dict[str, Scalar] = {
    "optimizer_memory_host_offload": False,
    "parameter_memory_host_offload": False,
    "shard_optimizer_over_data": False,
    "cast_logits_to_fp32": True,
    "activations_in_float32": False,
    "num_vocab_tiling": 1,
    "decoder_layer_input": "device",
}


def uncounted(benchmark: Benchmark) -> tuple[str, ...]:
    """Return the run's settings that the memory estimate ignores.

    For Muon, the estimate counts the optimizer state of Adam, which is larger.
    With double buffering, XLA unrolls a loop of two micro-steps and overlaps them: the program of the 70B model then
    needed 42% more memory than the estimate.
    """
    knobs = benchmark.settings.knobs
    found = [name for name, usual in NOT_COUNTED.items() if knobs.get(name, usual) != usual]
    if knobs.get("opt_type") == MUON:
        found.append("opt_type")
    words = [f"{name}={str(knobs[name]).lower()}" for name in found]
    if benchmark.batch.gradient_accumulation > 1 and _flag(benchmark, DOUBLE_BUFFERING):
        words.append(f"{DOUBLE_BUFFERING} of micro-steps")
    return tuple(words)


def _optimizer_bytes(benchmark: Benchmark, weight: int) -> int:
    """Return the bytes of the moments per weight. They have the weights' type, except AdamW's first (mu_dtype)."""
    optimizer = benchmark.settings.knobs.get("opt_type", ADAMW)
    if optimizer == SGD:
        return 0
    own = bool(benchmark.settings.knobs.get("mu_dtype")) and optimizer == ADAMW
    return weight + (_bytes_of(benchmark, "mu_dtype") if own else weight)


def _bytes_of(benchmark: Benchmark, name: str) -> int:
    """Return the bytes per number of the type that a setting names (default: float32). `refusals` rejects others."""
    return DTYPE_BYTES.get(str(benchmark.settings.knobs.get(name, "float32")), 4)


def usable_fraction(benchmark: Benchmark) -> float:
    """Return the share of a GPU's memory that XLA allocates for the program."""
    text = benchmark.settings.environment.get(MEMORY_FRACTION, XLA_DEFAULT_FRACTION)
    try:
        fraction = float(text)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise RequestError(
            f"{MEMORY_FRACTION}={text} is not a number above 0 and up to 1",
            where=f"--set=env.{MEMORY_FRACTION}",
        )
    return fraction


# --- the activations that a rematerialisation policy keeps --------------------------------------

# MaxText 0.2.5's names for the activations of a layer. A Llama has no activation with the name `kv_proj`.
_QKV = frozenset({"query_proj", "key_proj", "value_proj", "qkv_proj"})
_PROJECTIONS = _QKV | {"out_proj"}
_MLP = frozenset({"mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo"})
# A policy may name this activation, but no backward pass reads it, because a layer's output is kept as the next
# layer's input. XLA neither stores nor recomputes the activation.
_NEVER_READ = frozenset({"mlpwo"})
CUSTOM = "custom"
REMAT_POLICIES = {
    "full": frozenset[str](),
    "none": frozenset[str](),  # MaxText still wraps a layer in jax.checkpoint, which keeps nothing
    "minimal": _PROJECTIONS | _MLP,
    "minimal_with_context": _PROJECTIONS | _MLP | {"context"},
    "minimal_flash": _PROJECTIONS | _MLP | {"context"},
    "minimal_with_quantization": _PROJECTIONS | _MLP,
    "minimal_with_context_and_quantization": _PROJECTIONS | _MLP | {"context"},
    "save_qkv_proj": _QKV,
    "save_dot_except_mlpwi": _PROJECTIONS | {"mlpwo"},
    "save_dot_except_mlp": _PROJECTIONS,
    "save_dot_with_context_except_mlp": _PROJECTIONS | {"context"},
    "save_out_proj": frozenset({"out_proj"}),
    "qkv_proj_offloaded": frozenset[str](),
    "minimal_offloaded": frozenset[str](),
}
# Activations in the host's memory need no memory on the device and are not recomputed.
OFFLOADED = {
    "qkv_proj_offloaded": _QKV - {"qkv_proj"},
    "minimal_offloaded": _PROJECTIONS | _MLP,
}


def kept(knobs: dict[str, Scalar]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the activations of a layer that are kept for the backward pass, on the device and on the host."""
    policy = str(knobs.get("remat_policy", "full"))
    if policy == CUSTOM:
        names = (*_PROJECTIONS, *_MLP, "context")
        on_the_device, offloaded = (
            frozenset(name for name in names if knobs.get(name) == where) for where in ("device", "offload")
        )
        return on_the_device, offloaded
    # For a name that is not in the table, MaxText refuses the run.
    return REMAT_POLICIES.get(policy, frozenset()), OFFLOADED.get(policy, frozenset())


# --- recomputation ------------------------------------------------------------------------------

_SPLIT_QKV = _QKV - {"qkv_proj"}
_GATE_AND_UP = frozenset({"mlpwi_0", "mlpwi_1"})


def recompute(benchmark: Benchmark) -> Recompute:
    """Return the matmuls that a layer's backward pass repeats, because their results were not kept.

    Counts in XLA's programs agree, with and without fused projections (docs/reference/flops.md).
    """
    on_the_device, offloaded = kept(benchmark.settings.knobs)
    names = on_the_device | offloaded
    # The kernels of Transformer Engine and of TPUs name the result of attention. Plain attention does not, and
    # `cudnn_flash_jax` names a copy after the kernel, so the kernel runs again.
    kernel, on_tpu = benchmark.settings.knobs.get("attention", "autoselected"), benchmark.hardware.kind == "tpu"
    if kernel != "cudnn_flash_te" and not (on_tpu and kernel in ("flash", "autoselected")):
        names -= {"context"}
    return Recompute(matmuls=_made_again(names, benchmark.settings.knobs) - _NEVER_READ)


def _made_again(kept: frozenset[str], knobs: dict[str, Scalar]) -> frozenset[str]:
    """Return the recomputed matmuls. A fused matmul is not recomputed if its own name is kept. That of query, key and
    value is not recomputed either if all three names are kept."""
    again = frozenset(LAYER_MATMULS) - kept
    if knobs.get("fused_mlp", False):
        again = again - _GATE_AND_UP if "mlpwi" in kept else again | _GATE_AND_UP
    if knobs.get("fused_qkv", False) and again & _SPLIT_QKV:
        again = again - _SPLIT_QKV if "qkv_proj" in kept else again | _SPLIT_QKV
    return again
