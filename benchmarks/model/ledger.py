"""Recomputed FLOPs, peaks of mixed precision, and the convention of a printed TFLOP/s. Pure.

The conventions are in flops.py. This module has the FLOPs that a framework recomputes in the backward pass (HFU), the
peak of a step whose matmuls run in two precisions, and the convention behind a TFLOP/s that another program printed.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from benchmarks.model import flops
from benchmarks.model.flops import FLOPS_PER_WEIGHT
from benchmarks.values import Model, Peak, Recompute

# --- what is computed twice ---------------------------------------------------------------------

FORWARD = 2  # a multiply and an add


# A fused attention kernel computes the scores once more inside its own backward pass. That is the kernel's business:
# in no convention and not here. `context`, the scores and the values they weigh, is the whole kernel, run again.
LAYER_MATMULS = (
    "query_proj", "key_proj", "value_proj", "context", "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo",
)  # fmt: skip
# For people: what these are called, those of one kind together.
PARTS: Mapping[str, tuple[str, ...]] = {
    "query, key and value": ("query_proj", "key_proj", "value_proj"),
    "attention core": ("context",),
    "attention output": ("out_proj",),
    "gate and up": ("mlpwi_0", "mlpwi_1"),
    "down": ("mlpwo",),
}


def forward_flops(model: Model, sequence_length: int, attention_share: float = 1.0) -> dict[str, float]:
    """Return the forward FLOPs per token and layer of each matmul, by the name of its output (see capacity.py)."""
    hidden, ffn = model.hidden_size, model.ffn_hidden_size
    queries, keys = model.attention_heads * model.head_dim, model.query_groups * model.head_dim
    core = 2 * queries * sequence_length * attention_share  # the scores, and the values they weigh
    multiplied = (hidden * queries, hidden * keys, hidden * keys, core, queries * hidden, *[hidden * ffn] * 3)
    return {name: float(FORWARD * numbers) for name, numbers in zip(LAYER_MATMULS, multiplied, strict=True)}


def recomputed_by_part(
    model: Model, sequence_length: int, recompute: Recompute, convention: str = "recipe"
) -> dict[str, float]:
    """FLOPs a token that are done again, by the names of PARTS; attention's core as the convention counts it."""
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
    """FLOPs a token of the forward pass that are done again."""
    return sum(recomputed_by_part(model, sequence_length, recompute, convention).values())


def hardware_conventions(task: str) -> list[str]:
    """Return the conventions that count only matmuls, so that recomputed FLOPs can be added."""
    return [name for name in flops.conventions_for(task) if flops.CONVENTIONS[name].only_matmuls]


def hardware_flops_per_token(model: Model, sequence_length: int, recompute: Recompute, convention: str) -> float:
    """Return the FLOPs per token for HFU: the model's and the recomputed ones."""
    again = recomputed_flops_per_token(model, sequence_length, recompute, convention)
    return flops.flops_per_token(model, sequence_length, convention) + again


# --- a mix of precisions ------------------------------------------------------------------------


def mix_of_peaks(model: Model, sequence_length: int, peaks: Mapping[str, Peak], convention: str) -> float | None:
    """The peak of a step whose layers multiply in fp8, and whose attention core and head in bf16; None without both.

    Weighted by time: what a device takes at least, at the peak of each part.
    """
    fast, slow = peaks.get("fp8"), peaks.get("bf16")
    if fast is None or slow is None:
        return None
    # LoRA's count is two thirds of the causal one, of its layers and of the rest alike.
    counted = "causal" if convention == "lora" else convention
    layers = FLOPS_PER_WEIGHT * float(model.layers * flops.layer_matmul_weights(model))
    share = layers / flops.flops_per_token(model, sequence_length, counted)
    return 1 / (share / fast.tflops + (1 - share) / slow.tflops)


# --- whose convention was it? -------------------------------------------------------------------


SAME = 1e-4  # two conventions that differ by less are one figure


class Attribution(NamedTuple):
    """The FLOP convention that follows from a printed TFLOP/s and a printed throughput."""

    flops_per_token: float
    convention: str | None  # None: none of them, or several that differ
    text: str
    ratio: float = 1.0  # to the nearest convention


def attribute(
    model: Model, sequence_length: int, flops_per_token: float, uncertainty: float, names: Iterable[str]
) -> Attribution:
    """Return the convention that gives these FLOPs per token, within the relative uncertainty of its digits."""
    counted = {name: flops.flops_per_token(model, sequence_length, name) for name in names}
    near = [name for name, value in counted.items() if abs(flops_per_token / value - 1) <= uncertainty]
    shown = f"{flops_per_token / 1e9:.4g} GFLOP per token"
    if near and max(counted[n] for n in near) / min(counted[n] for n in near) - 1 < SAME:
        others = f" ({' and '.join(near[1:])} counts the same here)" if near[1:] else ""
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
    text = f"{shown}: no convention gives that; the nearest is {closest}, {off:+.1%} off"
    return Attribution(flops_per_token, None, text, 1 + off)
