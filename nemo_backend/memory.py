"""How Megatron stores what a training step needs, and what it computes again instead of keeping it."""

from benchmarks.capacity import Storage
from benchmarks.ledger import LAYER_MATMULS, Recompute
from benchmarks.values import Benchmark

# CUDA's context, NCCL's buffers and fragments take the rest: an estimate.
USABLE = 0.94

# Every activation of a layer that its backward pass reads, where nothing is recomputed. The output of the MLP
# is not among them: it is the next layer's input.
ALL_ACTIVATIONS = frozenset({"attention_norm", "qkv_proj", "context", "out_proj", "mlp_norm", "mlpwi", "mlp_product"})

# Transformer Engine keeps the input of an fp8 matmul as the fp8 numbers that it multiplied.
MATMUL_INPUTS = frozenset({"attention_norm", "context", "mlp_norm", "mlp_product"})


def storage(benchmark: Benchmark) -> Storage:
    whole = benchmark.dtype == "fp32"
    share = benchmark.parallelism
    distributed = benchmark.knobs.get("optim.config.use_distributed_optimizer", False)
    return Storage(
        saved_activations=saved_activations(benchmark),
        one_byte_activations=MATMUL_INPUTS if benchmark.dtype == "fp8" else frozenset(),
        weight_bytes=4 if whole else 2,
        gradient_bytes=gradient_bytes(benchmark),
        optimizer_bytes=8 if whole else 12,  # two moments, and in mixed precision a master weight
        optimizer_replicas=share.data * share.context if distributed else 1,
        gathers_layers=False,
        writes_attention_scores=benchmark.hardware.kind == "cpu",
        usable_fraction=USABLE,
        recompute=recompute(benchmark, "model.config"),
    )


def gradient_bytes(benchmark: Benchmark) -> int:
    """Gradients are summed in float32 unless a recipe says that they are reduced as they are."""
    in_float32 = benchmark.knobs.get("trainer.plugins.grad_reduce_in_fp32", True)
    return 4 if in_float32 or benchmark.dtype == "fp32" else 2


def saved_activations(benchmark: Benchmark) -> frozenset[str]:
    """`selective` recomputes the core of attention, which a fused kernel does anyway."""
    recomputed = benchmark.knobs.get("model.config.recompute_granularity") == "full"
    return frozenset() if recomputed else ALL_ACTIVATIONS


# --- what is computed again ---------------------------------------------------------------------

# What the modules of selective recomputation hold that multiplies. Megatron runs a module's whole forward again, its
# last matmul too, though nobody reads what that one makes.
MODULES: dict[str, frozenset[str]] = {
    "core_attn": frozenset({"context"}),
    "mlp": frozenset({"mlpwi_0", "mlpwi_1", "mlpwo"}),
    "layernorm": frozenset(),
}
SELECTED = "core_attn"  # where no modules are named


def recompute(benchmark: Benchmark, prefix: str) -> Recompute | None:
    """What Megatron's recompute_* settings mean; None for modules that a dense Llama does not have."""
    knobs = benchmark.knobs
    granularity = knobs.get(f"{prefix}.recompute_granularity")
    if granularity == "full":
        return Recompute(matmuls=frozenset(LAYER_MATMULS), layers=_recomputed_layers(benchmark, prefix))
    if granularity != "selective":
        return Recompute()
    modules = _names(str(knobs.get(f"{prefix}.recompute_modules", SELECTED)))
    if not modules <= MODULES.keys():
        return None
    return Recompute(matmuls=frozenset().union(*(MODULES[name] for name in modules)))


def _names(text: str) -> set[str]:
    """[core_attn, mlp] or core_attn,mlp"""
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
