"""How MaxText stores what a training step needs: everything in float32, sharded like its weights."""

from benchmarks.capacity import Storage
from benchmarks.errors import RequestError
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

_PROJECTIONS = frozenset({"query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj"})
_MLP = frozenset({"mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo"})
REMAT_POLICIES = {
    "full": frozenset[str](),
    "minimal": _PROJECTIONS | _MLP,
    "minimal_with_context": _PROJECTIONS | _MLP | {"context"},
    "save_qkv_proj": frozenset({"query_proj", "key_proj", "value_proj", "qkv_proj"}),
    "save_dot_except_mlpwi": _PROJECTIONS | {"mlpwo"},
    "save_dot_except_mlp": _PROJECTIONS,
    "save_out_proj": frozenset({"out_proj"}),
}


def remat_saves(knobs: dict[str, Scalar]) -> frozenset[str]:
    """The activations of a layer that MaxText keeps on the device for the backward pass."""
    policy = str(knobs.get("remat_policy", "full"))
    if policy == "custom":
        return frozenset(name for name in (*_PROJECTIONS, *_MLP, "context") if knobs.get(name) == "device")
    # `none` and names not in the table keep at least what `minimal_with_context` keeps.
    return REMAT_POLICIES.get(policy, REMAT_POLICIES["minimal_with_context"])
