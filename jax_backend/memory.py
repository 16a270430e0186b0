"""How MaxText stores what a training step needs, everything in float32 and sharded like its weights; and what it
computes again instead of keeping it."""

from benchmarks.capacity import Storage
from benchmarks.errors import RequestError
from benchmarks.ledger import LAYER_MATMULS, Recompute
from benchmarks.values import Benchmark, Scalar

MEMORY_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
XLA_DEFAULT_FRACTION = "0.75"


def storage(benchmark: Benchmark) -> Storage:
    return Storage(
        saved_activations=remat_saves(benchmark.knobs),
        weight_bytes=4,
        gradient_bytes=4,
        optimizer_bytes=8,
        optimizer_replicas=1,
        gathers_layers=True,
        writes_attention_scores=benchmark.knobs.get("attention") == "dot_product",
        usable_fraction=usable_fraction(benchmark),
        weights_over_context=True,
        whole_states=True,
        recompute=recompute(benchmark),
    )


def usable_fraction(benchmark: Benchmark) -> float:
    """XLA reserves this share of a GPU's memory for itself."""
    text = benchmark.environment.get(MEMORY_FRACTION, XLA_DEFAULT_FRACTION)
    try:
        fraction = float(text)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise RequestError(
            f"{MEMORY_FRACTION}={text}: a number above 0 and up to 1 is expected",
            where=f"--set=env.{MEMORY_FRACTION}",
        )
    return fraction


# --- what a rematerialisation policy keeps ------------------------------------------------------

# The names that MaxText 0.2.5 gives to what a layer makes. `kv_proj` names nothing in a Llama.
_QKV = frozenset({"query_proj", "key_proj", "value_proj", "qkv_proj"})
_PROJECTIONS = _QKV | {"out_proj"}
_MLP = frozenset({"mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo"})
CUSTOM, NONE = "custom", "none"
REMAT_POLICIES = {
    "full": frozenset[str](),
    NONE: frozenset[
        str
    ](),  # as it is written: a layer is wrapped in jax.checkpoint all the same, which keeps nothing
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
# What waits in the host's memory takes no room on the device, and is not computed again either.
OFFLOADED = {
    "qkv_proj_offloaded": _QKV - {"qkv_proj"},
    "minimal_offloaded": _PROJECTIONS | _MLP,
}


def remat_saves(knobs: dict[str, Scalar]) -> frozenset[str]:
    """The activations of a layer that MaxText keeps on the device for the backward pass."""
    policy = _policy(knobs)
    if policy == CUSTOM:
        return _chosen(knobs, "device")
    # MaxText refuses a name that is not in the table.
    return REMAT_POLICIES.get(policy, REMAT_POLICIES["minimal_with_context"])


def _kept(knobs: dict[str, Scalar]) -> frozenset[str]:
    """Those, and what waits in the host's memory."""
    policy = _policy(knobs)
    elsewhere = _chosen(knobs, "offload") if policy == CUSTOM else OFFLOADED.get(policy, frozenset())
    return remat_saves(knobs) | elsewhere


def _policy(knobs: dict[str, Scalar]) -> str:
    return str(knobs.get("remat_policy", "full"))


def _chosen(knobs: dict[str, Scalar], where: str) -> frozenset[str]:
    return frozenset(name for name in (*_PROJECTIONS, *_MLP, "context") if knobs.get(name) == where)


# --- what is computed again ---------------------------------------------------------------------

_SPLIT_QKV = _QKV - {"qkv_proj"}
_GATE_AND_UP = frozenset({"mlpwi_0", "mlpwi_1"})
# XLA drops what nobody reads: the output of a layer is the next one's input, and that is kept.
_NEVER_AGAIN = frozenset({"mlpwo"})


def recompute(benchmark: Benchmark) -> Recompute | None:
    """The matmuls that a layer's backward pass does again: all whose results were not kept.

    As counted in XLA's program for these policies, with fused projections and without (docs/conventions.md).
    """
    if _policy(benchmark.knobs) not in {CUSTOM, *REMAT_POLICIES}:
        return None
    kept = _kept(benchmark.knobs)
    if not _names_its_context(benchmark):
        kept -= {"context"}
    return Recompute(matmuls=_made_again(kept, benchmark.knobs) - _NEVER_AGAIN)


def _made_again(kept: frozenset[str], knobs: dict[str, Scalar]) -> frozenset[str]:
    """One matmul that makes several has a name of its own: gate and up go by no other; of query, key and value all
    three will do, and where one is missing all are made again."""
    again = frozenset(LAYER_MATMULS) - kept
    if knobs.get("fused_mlp", False):
        again = again - _GATE_AND_UP if "mlpwi" in kept else again | _GATE_AND_UP
    if knobs.get("fused_qkv", False) and again & _SPLIT_QKV:
        again = again - _SPLIT_QKV if "qkv_proj" in kept else again | _SPLIT_QKV
    return again


def _names_its_context(benchmark: Benchmark) -> bool:
    """Whether attention's own result can be kept by its name.

    The kernels of Transformer Engine and of TPUs give it one where it counts. Plain attention gives it none, and
    `cudnn_flash_jax` names a copy behind the kernel, which itself is then run again.
    """
    kernel = benchmark.knobs.get("attention", "autoselected")
    return kernel == "cudnn_flash_te" or (benchmark.hardware.kind == "tpu" and kernel in ("flash", "autoselected"))
