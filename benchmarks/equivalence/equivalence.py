"""Check that two backends do the same work: both start from the same weights, and their results are compared. No I/O.

Every quantity has its own tolerance. The weights are perturbed, because the usual initial weights hide errors.
Logits, gradients and updates are compared too, because the loss hides errors such as a wrong norm epsilon.
docs/measurements/2026-11-23-equivalence.md lists the noise from which each tolerance follows.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.equivalence.work import CaseReport, CountedFlops, WorkCase, adapter_names, tensor_names
from benchmarks.inside import work_kit
from benchmarks.inside.work_kit import Array, Arrays
from benchmarks.model import flops
from benchmarks.request import lora_words
from benchmarks.text import aligned, columns, duration_text, first_few
from benchmarks.values import Lora, Model, Value

# Not a multiple of any size in the tiny models. Otherwise different matmuls could have equal FLOPs and be confused.
SEQUENCE = 72
BATCH = 4
UPDATES = 3
PERTURB_SEED = 99
TOKEN_SEED = 7

# All tolerances except `logits` are relative. On a CPU, correct backends reach at most half of each: in fp32, they
# differ only in the order of sums, and in bf16 only in where values are rounded.
# docs/measurements/2026-11-23-equivalence.md derives the values.
Tolerances = Mapping[str, float]
_COMPARED = ("loss", "logits", "gradient_norm", "gradient", "trained_loss", "step_gradient_norm", "trained")
TOLERANCES: Mapping[str, Tolerances] = {
    "fp32": dict(zip(_COMPARED, (1e-6, 3e-5, 1e-6, 1e-5, 1e-6, 1e-6, 1e-3), strict=True)),
    "bf16": dict(zip(_COMPARED, (1e-3, 0.6, 6e-3, 0.12, 1e-3, 2e-2, 0.2), strict=True)),
}

ADAPTERS = {lora_words.RANK: "4", lora_words.ALPHA: "8", lora_words.TARGETS: lora_words.SEPARATE}

SHOWN_TENSORS = 4
AS_THE_MODEL = "as in the model's file"
NOT_STATED = "(not said)"
FLOPS = "FLOPs"

Figure = float | int | bool | str


def case(lora: Lora | None = None, dtype: str = "fp32", *, experts: bool = False) -> WorkCase:
    """Return the training that both backends perform.

    FLOPs are not counted for a model with experts, because the tokens of an expert depend on the router.
    Adam's epsilon is 1e-4. With 1e-8, an update would be nearly the sign of the gradient, which is random if the
    gradient is only rounding noise. The clip norm is below all gradient norms, so that clipping is compared too.
    """
    return WorkCase(
        perturb_seed=PERTURB_SEED,
        learning_rate=1e-3,
        warmup_steps=0,
        adam_beta1=0.9,
        adam_beta2=0.95,
        adam_epsilon=1e-4,
        weight_decay=0.1,
        decays_norms=False,
        clip_norm=0.5,
        count_flops=not experts,
        dtype=dtype,
        adapter_alpha=lora.alpha if lora else None,
    )


def batches(model: Model) -> Arrays:
    """Return random tokens for all updates, and for the loss after the last update. Targets are shifted by one."""
    shape = (UPDATES + 1, BATCH, SEQUENCE + 1)
    tokens = np.random.default_rng(TOKEN_SEED).integers(0, model.vocabulary_size, shape, dtype=np.int32)
    return {work_kit.INPUTS: tokens[..., :-1], work_kit.TARGETS: tokens[..., 1:]}


def with_arrays_of(case: WorkCase, given: Arrays, source: "Side") -> tuple[WorkCase, Arrays]:
    """Return the case and arrays for the other backends. They use the weights and attention scale of `source`."""
    scale = source.report.settings.get("attention_scale")
    case = msgspec.structs.replace(
        case, perturb_seed=None, attention_scale=scale if isinstance(scale, float) else None
    )
    return case, given | work_kit.prefixed(work_kit.WEIGHT, work_kit.unprefixed(source.arrays, work_kit.WEIGHT))


# --- values -----------------------------------------------------------------------------------


class Side(NamedTuple):
    """One backend in a comparison: its name, its report and its arrays."""

    title: str
    report: CaseReport
    arrays: Arrays


class Line(Value, frozen=True, kw_only=True):
    """One quantity on both sides. If `tolerance` is None, both values must be equal."""

    quantity: str
    expected: Figure | None = None  # from a formula or from the model's file; None: unknown
    first: Figure
    second: Figure
    difference: float | None = None
    tolerance: float | None = None
    agrees: bool
    where: str = ""  # the tensors that differ most


class Comparison(Value, frozen=True):
    """The comparison of two backends on one model."""

    model: str
    first: str
    second: str
    lines: list[Line]
    counted: dict[str, CountedFlops]  # side -> the FLOPs that it counted
    lora: Lora | None = None  # the adapters that were trained; None: all weights were trained

    @property
    def differing(self) -> list[Line]:
        return [line for line in self.lines if not line.agrees]


@dataclass
class Proof:
    """The document of --json. It is filled while models are compared."""

    dtype: str
    hardware: str
    tolerances: dict[str, float]
    not_compared: dict[str, str]  # backend and model -> why it was not compared
    comparisons: list[Comparison] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    agree: bool = False
    seconds: float = 0.0
    files: str | None = None


# --- comparing --------------------------------------------------------------------------------


def compare(
    model: Model,
    first: Side,
    second: Side,
    lora: Lora | None = None,
    tolerances: Tolerances = TOLERANCES["fp32"],
) -> Comparison:
    held = flops.held_parameter_count(model, lora)
    lines = [
        _equal("parameters", held, first.report.parameters, second.report.parameters),
        *_settings(model, first.report.settings, second.report.settings),
        *([] if model.experts else [_flops(model, first.report, second.report, lora)]),
    ]
    strange = _strange_tensors(model, first.arrays, lora) + _strange_tensors(model, second.arrays, lora)
    lines.append(_equal("tensors", None, AS_THE_MODEL, ", ".join(strange) or AS_THE_MODEL))
    if not strange:
        lines += _arrays(first, second, tolerances)
        frozen = [_changes(side.arrays, frozen=True).values() for side in (first, second)]
        changed = [sum(bool(change.any()) for change in changes) for changes in frozen]
        lines += [_equal("frozen weights changed", 0, *changed)] if lora else []
    counted = {side.title: side.report.flops for side in (first, second) if side.report.flops}
    return Comparison(
        model=model.name, first=first.title, second=second.title, lines=lines, counted=counted, lora=lora
    )


def _equal(quantity: str, expected: Figure | None, first: Figure, second: Figure) -> Line:
    agrees = first == second and (expected is None or expected == first)
    return Line(quantity=quantity, expected=expected, first=first, second=second, agrees=agrees)


def _within(quantity: str, first: float, second: float, difference: float, tolerance: float, where: str = "") -> Line:
    return Line(
        quantity=quantity,
        first=first,
        second=second,
        difference=difference,
        tolerance=tolerance,
        agrees=difference <= tolerance,  # False for NaN
        where=where,
    )


def _settings(model: Model, first: Mapping[str, Figure], second: Mapping[str, Figure]) -> Iterator[Line]:
    stated: dict[str, Figure] = {
        **({"experts": model.experts.count, "active_experts": model.experts.active} if model.experts else {}),
        "norm_epsilon": model.norm_epsilon,
        "rope_theta": model.rope_theta,
        "tied_head": model.tied_embeddings,
    }
    for name in dict.fromkeys((*first, *second)):
        yield _equal(
            name.replace("_", " "), stated.get(name), first.get(name, NOT_STATED), second.get(name, NOT_STATED)
        )


def _flops(model: Model, first: CaseReport, second: CaseReport, lora: Lora | None) -> Line:
    """Compare the FLOPs of a batch. On a CPU, both programs also compute the masked half of attention."""
    per_token = flops.adapted_flops_per_token(model, lora, SEQUENCE) if lora else None
    expected = round(BATCH * SEQUENCE * (per_token or flops.flops_per_token(model, SEQUENCE, "recipe")))
    counted = [side.flops.comparable if side.flops else NOT_STATED for side in (first, second)]
    return _equal(FLOPS, expected, *counted)


def _strange_tensors(model: Model, arrays: Arrays, lora: Lora | None) -> list[str]:
    """Return the names of tensors that are missing or unexpected. With LoRA, only adapters have gradients."""
    weights, adapters = tensor_names(model), adapter_names(model, lora)
    wanted = {prefix + name for prefix in (work_kit.WEIGHT, work_kit.TRAINED) for name in (*weights, *adapters)}
    wanted |= {work_kit.GRADIENT + name for name in adapters or weights} | {work_kit.LOGITS}
    return sorted(wanted ^ arrays.keys())


def _arrays(first: Side, second: Side, tolerances: Tolerances) -> Iterator[Line]:
    one, other = first.report, second.report
    yield _close("loss", one.loss, other.loss, tolerances["loss"])
    logits, same_logits = (side.arrays[work_kit.LOGITS].astype(np.float64) for side in (first, second))
    furthest = _largest(logits - same_logits) if logits.shape == same_logits.shape else math.inf
    yield _within("largest logit", _largest(logits), _largest(same_logits), furthest, tolerances["logits"])
    yield _close("gradient norm", one.gradient_norm, other.gradient_norm, tolerances["gradient_norm"])
    gradients = [work_kit.unprefixed(side.arrays, work_kit.GRADIENT) for side in (first, second)]
    yield _tensors("gradient by tensor", gradients[0], gradients[1], tolerances["gradient"])
    steps = list(zip(one.steps, other.steps, strict=True))
    for update, (step, same) in list(enumerate(steps))[1:]:
        name = f"loss after {update} update{'s' if update > 1 else ''}"
        yield _close(name, step.loss, same.loss, tolerances["trained_loss"])
    for number, (step, same) in enumerate(steps, start=1):
        name = f"gradient norm of step {number}"
        yield _close(name, step.gradient_norm, same.gradient_norm, tolerances["step_gradient_norm"])
    yield _step_and_pass(one, other, tolerances["step_gradient_norm"])
    changes = [_changes(side.arrays) for side in (first, second)]
    yield _tensors(f"change by tensor, {UPDATES} updates", changes[0], changes[1], tolerances["trained"])


def _close(quantity: str, first: float, second: float, tolerance: float) -> Line:
    return _within(quantity, first, second, _relative(first, second), tolerance)


def _step_and_pass(first: CaseReport, second: CaseReport, tolerance: float) -> Line:
    """Compare, on each side, the gradient norm of the first step with that of a separate pass over the same batch."""
    ratios = [
        side.steps[0].gradient_norm / side.gradient_norm if side.gradient_norm else 1.0 for side in (first, second)
    ]
    apart = max(_relative(side.gradient_norm, side.steps[0].gradient_norm) for side in (first, second))
    return _within("gradient norm, step 1 / separate pass", ratios[0], ratios[1], apart, tolerance)


def _largest(array: Array) -> float:
    return float(np.abs(array).max())


def _relative(first: float, second: float) -> float:
    """Return the difference relative to the first value; 0 if both values are 0."""
    apart = abs(first - second)
    return apart / abs(first) if first else (math.inf if apart else 0.0)


def _changes(arrays: Arrays, *, frozen: bool = False) -> Arrays:
    """Return the change of each trained tensor over all updates; with `frozen`, of each frozen tensor instead."""
    start, trained = work_kit.unprefixed(arrays, work_kit.WEIGHT), work_kit.unprefixed(arrays, work_kit.TRAINED)
    changed = work_kit.unprefixed(arrays, work_kit.GRADIENT).keys()
    return {name: trained[name].astype(np.float64) - start[name] for name in start if (name in changed) != frozen}


def _tensors(quantity: str, first: Arrays, second: Arrays, tolerance: float) -> Line:
    """Compare tensors by their relative difference in the 2-norm. The largest difference counts; NaN is infinite."""
    apart = {name: _distance(first[name], second[name]) for name in first}
    ranked = sorted(apart, key=lambda name: -apart[name])
    worst = ranked[0]
    beyond = [name for name in ranked if apart[name] > tolerance] or [worst]
    return _within(
        quantity, _norm(first[worst]), _norm(second[worst]), apart[worst], tolerance, first_few(beyond, SHOWN_TENSORS)
    )


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def _distance(first: Array, second: Array) -> float:
    if first.shape != second.shape:
        return math.inf
    apart, size = _norm(first.astype(np.float64) - second), _norm(first)
    found = apart / size if size else (math.inf if apart else 0.0)
    return math.inf if math.isnan(found) else found


# --- text -------------------------------------------------------------------------------------


def text(comparison: Comparison) -> str:
    """Return the table of one comparison as text."""
    head = ("", "expected", comparison.first, comparison.second, "difference", "tolerance", "")
    adapters = f", adapters of {lora_words.text(comparison.lora)}" if comparison.lora else ""
    lines = [f"{comparison.model}: {comparison.first} and {comparison.second}{adapters}"]
    lines += columns([head, *(_row(line) for line in comparison.lines)])
    return "\n".join(lines) + "\n"


def _row(line: Line) -> tuple[str, ...]:
    largest = line.where if not line.agrees else f"largest in {line.where}"
    where = f" ({largest})" if line.where else ""
    return (
        line.quantity,
        "" if line.expected is None else _figure(line.expected),
        _figure(line.first),
        _figure(line.second),
        "" if line.difference is None else f"{line.difference:.1e}",
        "equal" if line.tolerance is None else f"{line.tolerance:.0e}",
        ("same" if line.agrees else "DIFFERS") + where,
    )


def _figure(value: Figure) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.8g}" if isinstance(value, float) else value


def proof_text(proof: Proof) -> str:
    """Return as text the tables of all models, the backends that were not compared, and the result."""
    lines = [text(found) for found in proof.comparisons]
    lines += [f"not compared: {name}: {why}\n" for name, why in proof.not_compared.items()]
    rows = [(name, ", ".join(f"{of} {number}" for of, number in v.items())) for name, v in proof.versions.items()]
    rows += [("note", f"{name}: {note}") for name, notes in proof.notes.items() for note in notes]
    rows += [("files", proof.files)] if proof.files else []
    differing = [
        f"{found.model}: {', '.join(line.quantity for line in found.differing)}"
        for found in proof.comparisons
        if found.differing
    ]
    models = ", ".join(found.model for found in proof.comparisons)
    same = f"the same work: {models} ({duration_text(proof.seconds)})"
    rows.append(("result", f"NOT the same work: {'; '.join(differing)}" if differing else same))
    return "\n".join([*lines, *aligned(rows)]) + "\n"
