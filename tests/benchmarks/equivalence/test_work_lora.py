"""The proof of training adapters, on made-up arrays: what is compared, and each side's names."""

from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.equivalence import equivalence
from benchmarks.equivalence.equivalence import Comparison, Computed, compare
from benchmarks.equivalence.work import CountedFlops
from benchmarks.inside import work_kit
from benchmarks.inside.work_kit import Arrays
from benchmarks.model import flops
from benchmarks.values import Lora
from tests.benchmarks.equivalence.test_work import (
    MODEL,
    A,
    D,
    F,
    G,
    H,
    a_side,
    random_tensors,
)

LORA = Lora(
    rank=4,
    alpha=8.0,
    dropout=0.0,
    targets=["query", "key", "value", "attention_output", "gate", "up", "mlp_output"],
)
R = LORA.rank
INS_AND_OUTS = {
    "query": (H, A * D), "key": (H, G * D), "value": (H, G * D), "attention_output": (A * D, H), "gate": (H, F),
    "up": (H, F), "down": (F, H),
}  # fmt: skip


def random_adapters(seed: int) -> Arrays:
    numbers, found = np.random.default_rng(seed), {}
    for layer in range(MODEL.layers):
        for part, (ins, outs) in INS_AND_OUTS.items():
            found[f"layers.{layer}.{part}_a"] = numbers.standard_normal((R, ins)).astype(np.float32)
            found[f"layers.{layer}.{part}_b"] = numbers.standard_normal((outs, R)).astype(np.float32)
    return found


COUNTED = CountedFlops(
    total=equivalence.BATCH
    * equivalence.SEQUENCE
    * round(flops.adapted_flops_per_token(MODEL, LORA, equivalence.SEQUENCE) or 0),
    counted_by="hand",
)


def adapted(title: str = "one", **changes: Any) -> Computed:
    """A side that trained adapters: all that was trained is 1% larger."""
    side = a_side(title)
    base, adapters = random_tensors(1), random_adapters(2)
    report = {"parameters": flops.held_parameter_count(MODEL, LORA), "flops": COUNTED, **changes}
    arrays = {
        **work_kit.under(work_kit.WEIGHT, base | adapters),
        **work_kit.under(work_kit.GRADIENT, random_adapters(3)),
        **work_kit.under(work_kit.TRAINED, base | {n: array * np.float32(1.01) for n, array in adapters.items()}),
        work_kit.LOGITS: side.arrays[work_kit.LOGITS],
    }
    return side._replace(report=msgspec.structs.replace(side.report, **report), arrays=arrays)


def compared(other: Computed) -> Comparison:
    return compare(MODEL, adapted(), other, LORA)


def with_array(name: str, factor: float) -> Computed:
    side = adapted("other")
    return side._replace(arrays={**side.arrays, name: side.arrays[name] * np.float32(factor)})


# --- compared -----------------------------------------------------------------------------------


def test_two_sides_that_trained_the_same_adapters_agree() -> None:
    found = compared(adapted("other"))
    assert found.differing == []
    assert "adapters of rank 4, alpha 8, beside q,k,v,o,gate,up,down" in equivalence.text(
        compare(MODEL, adapted(), adapted("other"), LORA)
    )


@pytest.mark.parametrize(
    ("name", "differing"),
    [
        ("gradient/layers.1.key_b", "gradient by tensor"),
        ("trained/layers.0.down_a", "change by tensor, 3 updates"),
        ("trained/head", "frozen weights changed"),
        ("trained/layers.1.attention_norm", "frozen weights changed"),
    ],
)
def test_one_array_that_differs_is_seen_in_its_line_alone(name: str, differing: str) -> None:
    assert [line.quantity for line in compared(with_array(name, 1.1)).differing] == [differing]


@pytest.mark.parametrize("left_out", ["gradient/layers.0.up_a", "weight/layers.1.value_b", "trained/head"])
def test_an_adapter_that_is_missing_is_named(left_out: str) -> None:
    side = adapted("other")
    without = side._replace(arrays={name: array for name, array in side.arrays.items() if name != left_out})
    (line,) = [line for line in compared(without).differing if line.quantity == "tensors"]
    assert line.second == left_out


def test_the_formula_of_adapters_counts_all_that_is_multiplied() -> None:
    """By hand: forward and towards the input of each frozen matrix, attention three times, adapters three times."""
    tokens = equivalence.BATCH * equivalence.SEQUENCE
    matrices = 2 * (2 * H * A * D + 2 * H * G * D + 3 * H * F) + MODEL.vocabulary_size * H
    attention = 2 * 12 * A * D * equivalence.SEQUENCE
    adapters = 2 * R * sum(sum(sizes) for sizes in INS_AND_OUTS.values())
    expected = tokens * (4 * matrices + attention + 6 * adapters)
    assert tokens * flops.adapted_flops_per_token(MODEL, LORA, equivalence.SEQUENCE) == expected == 149_815_296
