"""Counts recomputed FLOPs, mixes peaks of two precisions, and finds the convention of a printed TFLOP/s. No I/O.

flops.py has the conventions. This module counts the FLOPs that a framework recomputes in the backward pass (for HFU),
the peak of a step whose matmuls run in two precisions, and the convention behind a TFLOP/s that a framework printed.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from benchmarks.model import flops
from benchmarks.model.flops import FLOPS_PER_WEIGHT
from benchmarks.values import Model, Peak, Recompute, Value

# --- recomputed FLOPs ---------------------------------------------------------------------------

FORWARD = 2  # FLOPs per weight and token of the forward pass: a multiply and an add


# A fused attention kernel recomputes the scores inside its own backward pass. Neither the conventions nor this module
# count these FLOPs. `context` is the whole kernel (scores and weighted values), if it runs a second time.
LAYER_MATMULS = (
    "query_proj", "key_proj", "value_proj", "context", "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo",
)  # fmt: skip
# Matmuls grouped by kind, under the names that reports show.
PARTS: Mapping[str, tuple[str, ...]] = {
    "query, key and value": ("query_proj", "key_proj", "value_proj"),
    "attention core": ("context",),
    "attention output": ("out_proj",),
    "gate and up": ("mlpwi_0", "mlpwi_1"),
    "down": ("mlpwo",),
}


def forward_flops(model: Model, sequence_length: int, attention_share: float = 1.0) -> dict[str, float]:
    """Return the forward FLOPs per token and layer of each matmul, by the name of its output (see capacity.py).

    With experts, a matmul of the MLP is that of all active experts, in each layer. This excludes the router.
    """
    hidden, heads, latent = model.hidden_size, model.attention_heads, model.attention.latent
    queries, keys = hidden * heads * model.head_dim, hidden * model.query_groups * model.head_dim
    values, output = keys, queries
    if latent is not None:
        rank, widths = latent.key_value_rank, heads * (latent.unrotated_head_dim + latent.rotated_head_dim)
        queries = latent.query_rank * (hidden + widths)
        keys = hidden * (rank + latent.rotated_head_dim) + rank * heads * latent.unrotated_head_dim
        values, output = rank * heads * latent.value_head_dim, heads * latent.value_head_dim * hidden
    experts = model.experts
    ffn = (experts.active + experts.shared) * experts.ffn_hidden_size if experts else model.ffn_hidden_size
    halved = attention_share < 1
    core = (flops.causal_core_flops_per_token if halved else flops.attention_core_flops_per_token)(
        model, sequence_length
    )
    core /= FLOPS_PER_WEIGHT * (model.layers + model.mtp_modules)
    multiplied = (queries, keys, values, core, output, *[hidden * ffn] * 3)
    return {name: float(FORWARD * numbers) for name, numbers in zip(LAYER_MATMULS, multiplied, strict=True)}


def recomputed_by_part(
    model: Model, sequence_length: int, recompute: Recompute, convention: str = "recipe"
) -> dict[str, float]:
    """Return the recomputed FLOPs per token by PARTS. The convention decides how the attention core counts."""
    share = flops.CONVENTIONS[convention].attention_share
    costs = forward_flops(model, sequence_length, share)
    layers = model.layers if recompute.layers is None else recompute.layers
    sums = {
        part: layers * sum(costs[name] for name in names if name in recompute.matmuls)
        for part, names in PARTS.items()
    }
    return {part: cost for part, cost in sums.items() if cost}


def recomputed_flops_per_token(
    model: Model, sequence_length: int, recompute: Recompute, convention: str = "recipe"
) -> float:
    """Return the FLOPs per token of the forward pass that are computed again."""
    return sum(recomputed_by_part(model, sequence_length, recompute, convention).values())


def hardware_conventions(task: str, model: Model) -> list[str]:
    """Return the conventions that count only matmuls, so that recomputed FLOPs can be added."""
    return [name for name in flops.conventions_for(task, model) if flops.CONVENTIONS[name].only_matmuls]


def hardware_flops_per_token(model: Model, sequence_length: int, recompute: Recompute, convention: str) -> float:
    """Return the FLOPs per token for HFU: the model's FLOPs and the recomputed ones."""
    again = recomputed_flops_per_token(model, sequence_length, recompute, convention)
    return flops.flops_per_token(model, sequence_length, convention) + again


# --- a mix of precisions ------------------------------------------------------------------------


def mix_of_peaks(
    model: Model, sequence_length: int, peaks: Mapping[str, Peak], convention: str, dtype: str = "fp8"
) -> float | None:
    """Return the peak of a step with layers in `dtype`, attention core and head in bf16; None without both peaks.

    The peaks are weighted by time: the shortest time that a device can need for each part at that part's peak.
    """
    fast, slow = peaks.get(dtype), peaks.get("bf16")
    if fast is None or slow is None:
        return None
    # The LoRA convention is two thirds of the causal one for every part, so the shares are the same.
    counted = "causal" if convention == "lora" else convention
    heads = FLOPS_PER_WEIGHT * float((1 + model.mtp_modules) * flops.embedding_parameters(model))
    share = (flops.linear_flops_per_token(model) - heads) / flops.flops_per_token(model, sequence_length, counted)
    return 1 / (share / fast.tflops + (1 - share) / slow.tflops)


# --- what the frameworks count differently --------------------------------------------------------


class Difference(Value, frozen=True):
    """FLOPs per token that one framework's convention includes and another's does not."""

    part: str
    flops_per_token: float
    share: float  # of the FLOPs by `causal`, which is Stepmark's own convention
    counted_by: list[str]  # conventions

    def text(self) -> str:
        counted = f"{self.flops_per_token:.4g} per token, {self.share:.2%} of causal"
        return f"{self.part} ({counted}) counted by {' and '.join(self.counted_by)}"


def framework_differences(model: Model, sequence_length: int) -> list[Difference]:
    """Return the parts of a model whose FLOPs only some of the frameworks count; none for a dense Llama."""
    sparse = model.layers - model.dense_layers + model.mtp_modules
    latent = (model.layers + model.mtp_modules) * flops.latent_norm_parameters(model)
    projections = model.mtp_modules * (flops.embedding_parameters(model) + 2 * model.hidden_size**2)
    core, causal = flops.attention_core_flops_per_token, flops.causal_core_flops_per_token
    beyond = core(model, sequence_length) / 2 - causal(model, sequence_length)
    rows = (
        ("routers", FLOPS_PER_WEIGHT * sparse * flops.router_weights(model), ("causal", "maxtext")),
        ("head and projection of MTP modules", FLOPS_PER_WEIGHT * projections, ("causal", "bridge", "megatron_core")),
        (
            "norms of latent attention and of MTP modules",
            FLOPS_PER_WEIGHT * (latent + 3 * model.mtp_modules * model.hidden_size),
            ("bridge", "megatron_core"),
        ),
        ("attention outside the window", beyond, ("megatron_core",)),
    )
    whole = flops.flops_per_token(model, sequence_length, "causal")
    return [
        Difference(part=part, flops_per_token=float(counted), share=counted / whole, counted_by=list(by))
        for part, counted, by in rows
        if counted
    ]


# --- the convention of a printed value ----------------------------------------------------------


SAME = 1e-4  # two conventions whose FLOPs differ by less are treated as equal


class Attribution(NamedTuple):
    """The FLOP convention that follows from a printed TFLOP/s and a printed throughput."""

    flops_per_token: float
    convention: str | None  # None: no convention fits, or several fit that differ
    text: str
    ratio: float = 1.0  # the printed FLOPs divided by those of the nearest convention


def attribute(
    model: Model, sequence_length: int, flops_per_token: float, uncertainty: float, names: Iterable[str]
) -> Attribution:
    """Return the convention that gives these FLOPs per token, within the relative uncertainty of the digits."""
    counted = {name: flops.flops_per_token(model, sequence_length, name) for name in names}
    near = [name for name, value in counted.items() if abs(flops_per_token / value - 1) <= uncertainty]
    shown = f"{flops_per_token / 1e9:.4g} GFLOP per token"
    if near and max(counted[n] for n in near) / min(counted[n] for n in near) - 1 < SAME:
        others = f" (the same count as {' and '.join(near[1:])})" if near[1:] else ""
        return Attribution(flops_per_token, near[0], f"{shown}: the convention is {near[0]}{others}")
    if near:
        alike = " and ".join(near)
        return Attribution(
            flops_per_token,
            None,
            f"{shown}: {alike} differ by less than the rounding of the printed digits ({uncertainty:.2%})",
        )
    closest = min(counted, key=lambda name: abs(flops_per_token / counted[name] - 1))
    off = flops_per_token / counted[closest] - 1
    text = f"{shown}: no convention gives this number; the nearest is {closest}, {off:+.1%} off"
    return Attribution(flops_per_token, None, text, 1 + off)
