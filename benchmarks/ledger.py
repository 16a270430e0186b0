"""The ledger of FLOPs: the peak of a step in two precisions, and whose convention a printed figure was counted by.

Pure. The conventions themselves are in flops.py; here is what stands around them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks import flops
from benchmarks.flops import FLOPS_PER_WEIGHT
from benchmarks.values import Hardware, Model

# --- a mix of precisions ------------------------------------------------------------------------


def mixed_peak_tflops(model: Model, sequence_length: int, hardware: Hardware, convention: str) -> float | None:
    """The peak of a step whose layers multiply in fp8, and whose attention core and head in bf16; None without both.

    Weighted by time: what a device takes at least, at the peak of each part.
    """
    fast, slow = hardware.peaks.get("fp8"), hardware.peaks.get("bf16")
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
    """What a printed TFLOP/s beside a printed throughput says about how FLOPs were counted."""

    flops_per_token: float
    convention: str | None  # None: none of them, or several that differ
    text: str


def attribute(
    model: Model, sequence_length: int, flops_per_token: float, uncertainty: float, names: Iterable[str]
) -> Attribution:
    """The convention that gives so many FLOPs a token, within what rounding leaves open (relative)."""
    counted = {name: flops.flops_per_token(model, sequence_length, name) for name in names}
    near = [name for name, value in counted.items() if abs(flops_per_token / value - 1) <= uncertainty]
    shown = f"{flops_per_token / 1e9:.4g} GFLOP a token"
    if near and max(counted[n] for n in near) / min(counted[n] for n in near) - 1 < SAME:
        others = f" ({' and '.join(near[1:])} counts the same here)" if near[1:] else ""
        return Attribution(flops_per_token, near[0], f"{shown}: the convention is {near[0]}{others}")
    if near:
        alike = " and ".join(near)
        return Attribution(
            flops_per_token,
            None,
            f"{shown}: {alike} are alike within what the printed digits tell ({uncertainty:.2%})",
        )
    closest = min(counted, key=lambda name: abs(flops_per_token / counted[name] - 1))
    off = flops_per_token / counted[closest] - 1
    return Attribution(
        flops_per_token, None, f"{shown}: no convention gives that; the nearest is {closest}, {off:+.1%} off"
    )
