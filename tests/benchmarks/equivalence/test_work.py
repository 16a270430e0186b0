"""The proof that backends do the same work, on made-up arrays: every line can differ, and nothing else hides it."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.configs import Configs
from benchmarks.equivalence import equivalence
from benchmarks.equivalence.equivalence import Comparison, Side, compare
from benchmarks.equivalence.work import CaseReport, CountedFlops, WorkStep, tensor_names
from benchmarks.inside import work_kit
from benchmarks.inside.work_kit import Arrays
from benchmarks.model import flops
from benchmarks.values import Lora

MODEL = Configs().model("llama2_tiny")
H, F, V, A, G, D = 64, 128, 256, 4, 2, 16
SHAPES = {
    "embedding": (V, H), "attention_norm": (H,), "query": (A, D, H), "key": (G, D, H), "value": (G, D, H),
    "attention_output": (H, A, D), "mlp_norm": (H,), "gate": (F, H), "up": (F, H), "down": (H, F), "final_norm": (H,),
    "head": (V, H),
}  # fmt: skip
FLOPS = round(equivalence.BATCH * equivalence.SEQUENCE * flops.flops_per_token(MODEL, equivalence.SEQUENCE, "recipe"))


def random_tensors(seed: int) -> Arrays:
    numbers = np.random.default_rng(seed)
    return {
        name: numbers.standard_normal(SHAPES[name.rpartition(".")[2]]).astype(np.float32)
        for name in tensor_names(MODEL)
    }


def a_side(title: str = "one") -> Side:
    report = CaseReport(
        parameters=flops.parameter_count(MODEL),
        settings={"norm_epsilon": 1e-5, "rope_theta": 10000.0, "rope_interleaved": False, "tied_head": False},
        loss=6.0,
        gradient_norm=2.0,
        steps=[WorkStep(loss=6.0 - step / 10, gradient_norm=2.0) for step in range(equivalence.UPDATES + 1)],
        flops=CountedFlops(total=FLOPS + 1000, recomputed={"attention scores": 1000}),
    )
    weights = random_tensors(1)
    arrays = {
        **work_kit.prefixed(work_kit.WEIGHT, weights),
        **work_kit.prefixed(work_kit.GRADIENT, random_tensors(2)),
        **work_kit.prefixed(work_kit.TRAINED, {name: array * np.float32(1.01) for name, array in weights.items()}),
        work_kit.LOGITS: np.random.default_rng(3).standard_normal((4, 72, V)).astype(np.float32),
    }
    return Side(title, report, arrays)


def with_report(**changes: Any) -> Side:
    side = a_side("other")
    return side._replace(report=msgspec.structs.replace(side.report, **changes))


def with_settings(**changes: Any) -> Side:
    return with_report(settings={**a_side().report.settings, **changes})


def without_setting(left_out: str) -> Side:
    return with_report(settings={name: value for name, value in a_side().report.settings.items() if name != left_out})


def with_flops(total: int) -> Side:
    return with_report(flops=CountedFlops(total=total, recomputed={}))


def with_norms(*norms: float) -> Side:
    """The gradient norm of each training step."""
    steps = zip(a_side().report.steps, norms, strict=True)
    return with_report(steps=[msgspec.structs.replace(step, gradient_norm=norm) for step, norm in steps])


def with_array(name: str, change: Callable[[Any], Any]) -> Side:
    side = a_side("other")
    return side._replace(arrays={**side.arrays, name: change(side.arrays[name])})


def with_step(step: int, relative: float) -> Side:
    steps = list(a_side().report.steps)
    steps[step] = msgspec.structs.replace(steps[step], loss=steps[step].loss * (1 + relative))
    return with_report(steps=steps)


def side_without(name: str) -> Side:
    side = a_side("other")
    return side._replace(arrays={key: array for key, array in side.arrays.items() if key != name})


def one_number(value: float) -> Callable[[Any], Any]:
    """The same array with one number another."""

    def change(array: Any) -> Any:
        changed = array.copy()
        changed.flat[0] += value
        return changed

    return change


def differing(other: Side) -> list[str]:
    return [line.quantity for line in compare(MODEL, a_side(), other).differing]


# --- comparing ----------------------------------------------------------------------------------


GRADIENT_TENSORS = "gradient by tensor"
CHANGES = f"change by tensor, {equivalence.UPDATES} updates"

BY_PASS = "gradient norm, step 1 / separate pass"
CASES: dict[str, tuple[Side, list[str]]] = {
    "nothing": (a_side("other"), []),
    "a parameter more": (with_report(parameters=106_817), ["parameters"]),
    "another epsilon, by a tenth": (with_settings(norm_epsilon=1.1e-5), ["norm epsilon"]),
    "another theta": (with_settings(rope_theta=10_001.0), ["rope theta"]),
    "another order of RoPE": (with_settings(rope_interleaved=True), ["rope interleaved"]),
    "a setting that is not said": (without_setting("tied_head"), ["tied head"]),
    "a FLOP more": (with_flops(FLOPS + 1), ["FLOPs"]),
    "FLOPs that are recomputed and not said to be": (with_flops(FLOPS + 1000), ["FLOPs"]),
    "FLOPs that nobody counted": (with_report(flops=None), ["FLOPs"]),
    "another loss": (with_report(loss=6.0 * (1 + 2e-6)), ["loss"]),
    "a loss that is no number": (with_report(loss=math.nan), ["loss"]),
    "another gradient norm of a step": (with_norms(2.0, 2.0 * (1 + 2e-6), 2.0, 2.0), ["gradient norm of step 2"]),
    "another gradient norm of the last step": (with_norms(2.0, 2.0, 2.0, 2.1), ["gradient norm of step 4"]),
    "a step's gradient norm that is no number": (with_norms(2.0, 2.0, math.nan, 2.0), ["gradient norm of step 3"]),
    "another loss after one update": (with_step(1, 2e-6), ["loss after 1 update"]),
    "another loss after three updates": (with_step(3, -2e-6), ["loss after 3 updates"]),
    "one other logit": (with_array("logits", one_number(4e-5)), ["largest logit"]),
    "one logit that is no number": (with_array("logits", one_number(math.nan)), ["largest logit"]),
    "logits of another shape": (with_array("logits", lambda array: array[:, 1:]), ["largest logit"]),
    "one other gradient": (with_array("gradient/layers.1.key", one_number(1e-3)), [GRADIENT_TENSORS]),
    "a gradient that is no number": (with_array("gradient/head", one_number(math.nan)), [GRADIENT_TENSORS]),
    "a gradient of another shape": (with_array("gradient/head", lambda array: array.T), [GRADIENT_TENSORS]),
    "a tensor that did not train": (with_array("trained/final_norm", lambda array: array / 1.01), [CHANGES]),
    "another gradient norm than that of step 1": (
        with_report(gradient_norm=2.0 * (1 + 2e-6)), ["gradient norm", BY_PASS],
    ),
    "another gradient norm of step 1": (
        with_norms(2.0 * (1 + 2e-6), 2.0, 2.0, 2.0), ["gradient norm of step 1", BY_PASS],
    ),
    "rounding of gradient norms of steps": (with_norms(2.0, 2.0 * (1 + 2e-7), 2.0, 2.0), []),
    "rounding of loss": (with_report(loss=6.0 * (1 + 2e-7)), []),
    "rounding of gradient norm": (with_report(gradient_norm=2.0 * (1 + 2e-7)), []),
    "rounding of logits": (with_array("logits", one_number(1e-5)), []),
    "rounding of gradient": (with_array("gradient/layers.1.key", one_number(1e-5)), []),
    "rounding of loss after updates": (with_step(2, 2e-7), []),
}  # fmt: skip


@pytest.mark.parametrize(("other", "lines"), CASES.values(), ids=CASES.keys())
def test_a_difference_is_seen_in_its_own_line_and_rounding_in_none(other: Side, lines: list[str]) -> None:
    assert differing(other) == lines


def test_what_bf16_rounds_is_no_difference_in_bf16_and_one_in_fp32() -> None:
    """A head that is 2% off in its gradient: as far as roundings of 2^-8 come, and far beyond those of fp32."""
    other = with_array("gradient/head", lambda array: array * np.float32(1.02))
    assert differing(other) == ["gradient by tensor"]
    assert not compare(MODEL, a_side(), other, tolerances=equivalence.TOLERANCES["bf16"]).differing
    swapped = with_array("gradient/head", lambda array: array[::-1])
    assert compare(MODEL, a_side(), swapped, tolerances=equivalence.TOLERANCES["bf16"]).differing


@pytest.mark.parametrize("name", ["weight/head", "gradient/layers.0.up", "trained/embedding", "logits"])
def test_a_tensor_that_is_missing_is_named_and_no_array_is_compared(name: str) -> None:
    comparison = compare(MODEL, a_side(), side_without(name))
    (line,) = comparison.differing
    assert line.quantity == "tensors"
    assert line.second == name
    assert "loss" not in [found.quantity for found in comparison.lines]


def test_the_tensors_beyond_the_tolerance_are_named_worst_first() -> None:
    side = a_side("other")
    arrays = {**side.arrays}
    for step, name in enumerate(("layers.0.key", "layers.1.up", "head", "embedding", "final_norm")):
        arrays[f"gradient/{name}"] = arrays[f"gradient/{name}"] * np.float32(1 + 1e-3 * (5 - step))
    (line,) = compare(MODEL, a_side(), side._replace(arrays=arrays)).differing
    assert line.where == "layers.0.key, layers.1.up, head, embedding and 1 more"
    assert line.difference == pytest.approx(5e-3, rel=1e-3)


def test_a_zero_gradient_equals_a_zero_gradient_and_nothing_else() -> None:
    def both(other: float) -> Comparison:
        sides = [
            side._replace(arrays={**side.arrays, "gradient/head": np.full((V, H), value, np.float32)})
            for side, value in ((a_side(), 0.0), (a_side("other"), other))
        ]
        return compare(MODEL, *sides)

    assert both(0.0).differing == []
    assert [line.quantity for line in both(1e-9).differing] == [GRADIENT_TENSORS]


def test_the_table_shows_what_differs() -> None:
    text = equivalence.text(compare(MODEL, a_side(), with_report(loss=7.0)))
    assert "106,816" in text
    (line,) = [line for line in text.splitlines() if "DIFFERS" in line]
    assert line.split() == ["loss", "6", "7", "1.7e-01", "1e-06", "DIFFERS"]


# --- inside the frameworks ----------------------------------------------------------------------


def test_perturbed_weights_hide_nothing() -> None:
    weights = {**random_tensors(1), "final_norm": np.ones(H, np.float32)}
    found = work_kit.perturb_weights(weights, seed=99)
    assert np.std(found["final_norm"]) == pytest.approx(0.3, rel=0.2)
    assert np.array_equal(found["layers.1.query"], weights["layers.1.query"] * 4)
    assert np.array_equal(found["layers.1.key"], weights["layers.1.key"])
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
    again = work_kit.perturb_weights(weights, seed=99)
    assert all(np.array_equal(found[name], again[name]) for name in found)


def test_in_bf16_both_sides_begin_with_numbers_that_bf16_has() -> None:
    """Else the side that keeps float32 weights would begin elsewhere than the one that keeps them in bf16."""
    case = {"perturb_seed": 99, "dtype": "bf16"}
    found = work_kit.starting_weights(case, {}, lambda: random_tensors(1))
    assert all(same({"": array}, {"": work_kit.rounded_to_bf16(array)}) for array in found.values())
    exact = work_kit.starting_weights({**case, "dtype": "fp32"}, {}, lambda: random_tensors(1))
    assert not same(found, exact)


def same(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


# --- adapters -------------------------------------------------------------------------


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
)


def adapted(title: str = "one", **changes: Any) -> Side:
    """A side that trained adapters: all that was trained is 1% larger."""
    side = a_side(title)
    base, adapters = random_tensors(1), random_adapters(2)
    report = {"parameters": flops.held_parameter_count(MODEL, LORA), "flops": COUNTED, **changes}
    arrays = {
        **work_kit.prefixed(work_kit.WEIGHT, base | adapters),
        **work_kit.prefixed(work_kit.GRADIENT, random_adapters(3)),
        **work_kit.prefixed(work_kit.TRAINED, base | {n: array * np.float32(1.01) for n, array in adapters.items()}),
        work_kit.LOGITS: side.arrays[work_kit.LOGITS],
    }
    return side._replace(report=msgspec.structs.replace(side.report, **report), arrays=arrays)


def compared(other: Side) -> Comparison:
    return compare(MODEL, adapted(), other, LORA)


def adapted_with(name: str, factor: float) -> Side:
    side = adapted("other")
    return side._replace(arrays={**side.arrays, name: side.arrays[name] * np.float32(factor)})


# --- compared -----------------------------------------------------------------------------------


def test_two_sides_that_trained_the_same_adapters_agree() -> None:
    found = compared(adapted("other"))
    assert found.differing == []
    assert "adapters of rank 4, alpha 8, on q,k,v,o,gate,up,down" in equivalence.text(
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
    assert [line.quantity for line in compared(adapted_with(name, 1.1)).differing] == [differing]


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
