"""How Megatron stores what a training step needs, and what it computes again instead of keeping it."""

from benchmarks.measuring.ledger import LAYER_MATMULS, Recompute
from benchmarks.planning.capacity import FLOAT32_BYTES, LOGIT_COPIES, Storage, compute_bytes
from benchmarks.request.framework import text_of
from benchmarks.values import Benchmark
from nemo_backend.bridge_planning import is_benchmark_recipe
from nemo_backend.layout import FSDP
from nemo_backend.planning import attends_by_megatron

# CUDA's context, NCCL's buffers and fragments take the rest: an estimate.
USABLE = 0.94

# engine -> where it keeps the settings of the model and of the optimizer, and two switches.
PREFIXES = {"nemo": ("model.config", "optim.config"), "bridge": ("model", "optimizer")}
DISTRIBUTED = {"nemo": "optim.config.use_distributed_optimizer", "bridge": "ddp.use_distributed_optimizer"}
REDUCED_IN_FP32 = {
    "nemo": "trainer.plugins.grad_reduce_in_fp32",
    "bridge": "mixed_precision.grad_reduce_in_fp32",
}

# Every activation of a layer that its backward pass reads, where nothing is recomputed. The output of the MLP
# is not among them: it is the next layer's input.
ALL_ACTIVATIONS = frozenset({"attention_norm", "qkv_proj", "context", "out_proj", "mlp_norm", "mlpwi", "mlp_product"})

# Transformer Engine keeps the input of an fp8 matmul as the fp8 numbers that it multiplied.
MATMUL_INPUTS = frozenset({"attention_norm", "context", "mlp_norm", "mlp_product"})


def storage(benchmark: Benchmark) -> Storage:
    engine, share, knobs = benchmark.engine, benchmark.parallelism, benchmark.knobs
    prefix, optimizer = PREFIXES[engine]
    on_bridge, whole = engine == "bridge", benchmark.dtype == "fp32"
    # A pretraining recipe of Megatron-Bridge has it without saying so.
    distributed = knobs.get(DISTRIBUTED[engine], on_bridge and benchmark.task == "pretrain")
    loss = "te" if on_bridge and is_benchmark_recipe(benchmark) else "native"
    return Storage(
        saved_activations=saved_activations(benchmark, prefix),
        one_byte_activations=MATMUL_INPUTS if benchmark.dtype == "fp8" else frozenset(),
        weight_bytes=4 if whole else 2,
        gradient_bytes=4 if whole or knobs.get(REDUCED_IN_FP32[engine], True) else 2,
        optimizer_bytes=optimizer_bytes(benchmark, optimizer),
        optimizer_replicas=share.data * share.context if distributed else 1,
        gathers_layers=bool(knobs.get(FSDP, False)),
        writes_attention_scores=not on_bridge and attends_by_megatron(benchmark),
        usable_fraction=USABLE,
        recompute=recompute(benchmark, prefix),
        logit_number_bytes=logit_number_bytes(benchmark, prefix, loss),
        input_only_layers=input_only_layers(benchmark, prefix),
        recomputed_together=recomputed_together(benchmark, prefix),
        absent_layers=absent_layers(benchmark, prefix),
        returned_bytes=2 if distributed and not whole else None,
        uncounted=uncounted(benchmark, prefix, optimizer),
    )


def logit_number_bytes(benchmark: Benchmark, prefix: str, implementation: str) -> int:
    """Transformer Engine's loss writes the gradient over the logits, in the type they have; others in float32."""
    knobs = benchmark.knobs
    fused = knobs.get(f"{prefix}.cross_entropy_loss_fusion", True)
    chosen = knobs.get(f"{prefix}.cross_entropy_fusion_impl", implementation)
    return compute_bytes(benchmark) if fused and chosen == "te" else LOGIT_COPIES * FLOAT32_BYTES


# --- the optimizer ------------------------------------------------------------------------------

NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}
MOMENTS = ("exp_avg_dtype", "exp_avg_sq_dtype")


def optimizer_bytes(benchmark: Benchmark, prefix: str) -> int:
    """Two moments (one for SGD), and in mixed precision a master weight."""
    if benchmark.knobs.get(f"{prefix}.use_precision_aware_optimizer", False) and benchmark.dtype != "fp32":
        return sum(_bytes_of(benchmark, f"{prefix}.{name}") for name in MOMENTS) + _master_bytes(benchmark, prefix)
    moments = 4 if benchmark.knobs.get(f"{prefix}.optimizer") == "sgd" else 8
    return moments if benchmark.dtype == "fp32" else moments + 4


def _master_bytes(benchmark: Benchmark, prefix: str) -> int:
    """Of a float32 master weight, the precision-aware optimizer keeps the half that a bfloat16 weight does not hold.

    Where weights are fp8, or Megatron FSDP shares them out, Megatron keeps whole ones itself.
    """
    whole = _bytes_of(benchmark, f"{prefix}.main_params_dtype")
    halves = benchmark.knobs.get(f"{prefix}.store_param_remainders", True)
    kept_by_megatron = benchmark.dtype == "fp8" or benchmark.knobs.get(FSDP, False)
    return 2 if halves and whole == FLOAT32_BYTES and not kept_by_megatron else whole


def _bytes_of(benchmark: Benchmark, name: str) -> int:
    """Float32 where nothing is said, or nothing that is known here: see `uncounted`."""
    return NUMBER_BYTES.get(_type_name(benchmark, name), FLOAT32_BYTES)


def _type_name(benchmark: Benchmark, name: str) -> str:
    return str(benchmark.knobs.get(name, "float32")).removeprefix("torch.")


# --- what a layer keeps -------------------------------------------------------------------------


def saved_activations(benchmark: Benchmark, prefix: str) -> frozenset[str]:
    """Of a layer that is not computed again as a whole."""
    modules = _modules(benchmark, prefix)
    return ALL_ACTIVATIONS.difference(*(NOT_KEPT.get(name, frozenset()) for name in modules))


def input_only_layers(benchmark: Benchmark, prefix: str) -> int:
    """Layers that are computed again as a whole."""
    if benchmark.knobs.get(f"{prefix}.recompute_granularity") != "full":
        return 0
    some = _recomputed_layers(benchmark, prefix)
    return benchmark.model.layers if some is None else some


def recomputed_together(benchmark: Benchmark, prefix: str) -> int:
    """`uniform` computes so many layers in a row again at once, from the first one's input."""
    knobs, share = benchmark.knobs, benchmark.parallelism
    uniform = knobs.get(f"{prefix}.recompute_method") == "uniform"
    if knobs.get(f"{prefix}.recompute_granularity") != "full" or not uniform:
        return 1
    of_a_part = max(1, benchmark.model.layers // (share.pipeline * share.virtual_pipeline))
    return min(max(1, int(knobs.get(f"{prefix}.recompute_num_layers", 1))), of_a_part)


def absent_layers(benchmark: Benchmark, prefix: str) -> int:
    """Layers whose activations wait in the host's memory. By the end of the forward pass they are all there."""
    knobs = benchmark.knobs
    asked, activations_too = f"{prefix}.cpu_offloading", f"{prefix}.cpu_offloading_activations"
    if not knobs.get(asked, False) or not knobs.get(activations_too, True):
        return 0
    number = int(knobs.get(f"{prefix}.cpu_offloading_num_layers", 0))
    return min(number, benchmark.model.layers - input_only_layers(benchmark, prefix))


# Settings that change what a device holds, by how much is not known here.
NOT_COUNTED = ("cpu_offloading_weights", "distribute_saved_activations", "fine_grained_activation_offloading")


def uncounted(benchmark: Benchmark, prefix: str, optimizer: str) -> tuple[str, ...]:
    """What is asked for and is not counted, as it was typed."""
    knobs = benchmark.knobs
    switches = [*(f"{prefix}.{name}" for name in NOT_COUNTED), f"{optimizer}.optimizer_cpu_offload"]
    found = [name for name in switches if knobs.get(name, False)]
    types = [f"{optimizer}.{name}" for name in (*MOMENTS, "main_params_dtype")]
    found += [name for name in types if _type_name(benchmark, name) not in NUMBER_BYTES]
    if not _modules(benchmark, prefix) <= MODULES.keys():
        found.append(f"{prefix}.recompute_modules")
    return tuple(f"{name}={text_of(knobs[name])}" for name in found)


# --- what is computed again ---------------------------------------------------------------------

# What the modules of selective recomputation hold that multiplies. Megatron runs a module's whole forward again, its
# last matmul too, though nobody reads what that one makes.
MODULES: dict[str, frozenset[str]] = {
    "core_attn": frozenset({"context"}),
    "mlp": frozenset({"mlpwi_0", "mlpwi_1", "mlpwo"}),
    "layernorm": frozenset(),
}
SELECTED = "core_attn"  # where no modules are named
# What such a module then does not keep. The core of attention is a fused kernel, which keeps no scores anyway. The
# MLP keeps what goes into its norm, which is fused with the matmul behind it; so there is no norm to compute apart.
NOT_KEPT: dict[str, frozenset[str]] = {"mlp": frozenset({"mlp_norm", "mlpwi", "mlp_product"})}


def recompute(benchmark: Benchmark, prefix: str) -> Recompute | None:
    """What Megatron's recompute_* settings mean; None for modules that a dense Llama does not have."""
    knobs = benchmark.knobs
    granularity = knobs.get(f"{prefix}.recompute_granularity")
    if granularity == "full":
        return Recompute(matmuls=frozenset(LAYER_MATMULS), layers=_recomputed_layers(benchmark, prefix))
    if granularity != "selective":
        return Recompute()
    modules = _modules(benchmark, prefix)
    if not modules <= MODULES.keys():
        return None
    return Recompute(matmuls=frozenset().union(*(MODULES[name] for name in modules)))


def _modules(benchmark: Benchmark, prefix: str) -> set[str]:
    """Those that selective recomputation computes again."""
    if benchmark.knobs.get(f"{prefix}.recompute_granularity") != "selective":
        return set()
    text = str(benchmark.knobs.get(f"{prefix}.recompute_modules", SELECTED))  # [core_attn, mlp] or core_attn,mlp
    return {name.strip(" '\"") for name in text.strip("[]").split(",")} - {""}


def _recomputed_layers(benchmark: Benchmark, prefix: str) -> int | None:
    """`block` computes the first so many layers of each stage twice (with interleaving: of each of its parts); any
    other method all of them."""
    number = benchmark.knobs.get(f"{prefix}.recompute_num_layers")
    if benchmark.knobs.get(f"{prefix}.recompute_method") != "block" or number is None:
        return None
    share = benchmark.parallelism
    stages = share.pipeline * share.virtual_pipeline
    return min(int(number) * stages, benchmark.model.layers)
