"""A compiled step beside the formulas: parameters, state and matmuls; traffic is in compiled_traffic.py. Pure."""

from collections.abc import Iterable
from math import prod

from benchmarks.compilation.compiled import Cause, Compiled, Line, Matmuls, causes_of, multiplies_embedding
from benchmarks.compilation.compiled_traffic import traffic
from benchmarks.measuring import flops, ledger
from benchmarks.planning.capacity import FLOAT32_BYTES, Storage, weight_shards
from benchmarks.values import Benchmark


def compare(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """Every figure of the program that a formula predicts."""
    return [
        *_devices(benchmark, compiled),
        _parameters(benchmark, compiled),
        _state(benchmark, storage, compiled),
        _model_matmuls(benchmark, compiled),
        _matmuls_backward(benchmark, compiled),
        _matmuls_again(benchmark, storage, compiled),
        *_matmuls_by_type(benchmark, storage, compiled),
        *_attention_kernels(benchmark, storage, compiled),
        *traffic(benchmark, storage, compiled),
    ]


# --- devices ------------------------------------------------------------------------------------

AXES = ("data", "fsdp", "context", "tensor", "pipeline")


def _devices(benchmark: Benchmark, compiled: Compiled) -> list[Line]:
    """The program is one for this many devices, along these axes and no others."""
    asked = {axis: int(getattr(benchmark.parallelism, axis)) for axis in AXES}
    axes = [
        axis
        for axis in dict.fromkeys([*AXES, *compiled.mesh])
        if (asked.get(axis, 1), compiled.mesh.get(axis, 1)) != (1, 1)
    ]
    return [
        _whole_number("devices", benchmark.gpus, compiled.devices),
        *(_whole_number(f"{axis} of the mesh", asked.get(axis, 1), compiled.mesh.get(axis, 1)) for axis in axes),
    ]


def _whole_number(what: str, expected: int, counted: int) -> Line:
    return Line(
        what=what, unit="devices", formula="as the layout says", expected=expected, counted=counted, tolerance=0.0
    )


# --- weights ------------------------------------------------------------------------------------

ROUNDED = 1e-6  # relative: of a state, whose parts are whole numbers of bytes
EXACT = 1e-4  # relative: of what is counted in whole programs
COUNTERS_BYTES = 1536.0  # the optimizer's counters and the states of random numbers, whatever the model


def _parameters(benchmark: Benchmark, compiled: Compiled) -> Line:
    return Line(
        what="parameters",
        unit="parameters",
        formula="2 V h + L (2 h d (a + g) + 3 h f + 2 h) + h; V h once where the head is tied",
        expected=float(flops.parameter_count(benchmark.model)),
        counted=float(compiled.parameters),
        tolerance=0.0,
    )


def _state(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> Line:
    each = storage.weight_bytes + storage.optimizer_bytes / storage.optimizer_replicas
    shards = weight_shards(benchmark, storage)
    share = flops.parameter_count(benchmark.model) / shards
    norms = (2 * benchmark.model.layers + 1) * benchmark.model.hidden_size
    norm_shards = prod(getattr(benchmark.parallelism, axis) for axis in storage.norm_axes)
    spread = 1 / norm_shards - 1 / shards if storage.norm_axes else 0.0
    return Line(
        what="state",
        unit="bytes",
        formula=f"{each:g} P / {shards}: weights and optimizer, over all that share them",
        expected=each * share,
        counted=compiled.state_bytes,
        tolerance=ROUNDED * each * share + COUNTERS_BYTES,
        causes=causes_of(
            Cause(
                text=f"norms are shared out over {' and '.join(storage.norm_axes)} alone",
                amount=each * norms * spread,
            ),
            Cause(
                text="fp8 keeps the largest values of its last steps, whole in each device",
                amount=_fp8_bytes(benchmark),
            ),
        ),
    )


# Of each matmul of a layer, for both factors and the gradient: flax keeps a scale and 1,024 largest values.
FP8_MATMULS, FP8_FACTORS, FP8_NUMBERS = 7, 3, 1025


def _fp8_bytes(benchmark: Benchmark) -> float:
    numbers = FP8_MATMULS * FP8_FACTORS * FP8_NUMBERS * benchmark.model.layers
    return float(FLOAT32_BYTES * numbers) if benchmark.dtype == "fp8" else 0.0


# --- matmuls ------------------------------------------------------------------------------------


def tokens_of_a_step(benchmark: Benchmark) -> float:
    """Tokens a step and device, as if each token belonged to one device."""
    return benchmark.tokens_per_step / benchmark.gpus


def _model_matmuls(benchmark: Benchmark, compiled: Compiled) -> Line:
    tokens = tokens_of_a_step(benchmark)
    expected = tokens * flops.flops_per_token(benchmark.model, benchmark.sequence_length, "recipe")
    groups = [group for group in compiled.matmuls if group.part != "recomputed"]
    lookup = 4.0 * flops.embedding_parameters(benchmark.model) * tokens if multiplies_embedding(benchmark) else 0.0
    return Line(
        what="matmuls of the model",
        unit="FLOPs",
        formula="(6 (L (2 h d (a + g) + 3 h f) + V h) + 12 L a d s) x tokens: the convention `recipe`",
        expected=expected,
        counted=_sum(groups),
        tolerance=EXACT * expected,
        causes=causes_of(
            Cause(text="the embedding is multiplied instead of looked up (use_iota_embed): 4 V h", amount=lookup),
            _in_kernels(benchmark, compiled, passes=3),
            # XLA:GPU makes multiplications of all of them but for the gradient of the scale itself.
            _vectors(benchmark, groups, (1 if compiled.target else 3) * _norms_forward(benchmark, last=1)),
        ),
    )


def _matmuls_again(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> Line:
    model, length, tokens = benchmark.model, benchmark.sequence_length, tokens_of_a_step(benchmark)
    recompute = storage.recompute
    parts = ledger.recomputed_by_part(model, length, recompute) if recompute else {}
    groups = [group for group in compiled.matmuls if group.part == "recomputed"]
    of_the_model = tokens * flops.flops_per_token(model, length, "recipe")
    return Line(
        what="matmuls computed again",
        unit="FLOPs",
        formula=f"({' + '.join(parts) or 'nothing'}) x tokens, once forward",
        expected=tokens * sum(parts.values()),
        counted=_sum(groups),
        tolerance=EXACT * of_the_model,
        causes=causes_of(
            _in_kernels(benchmark, compiled, passes=1 if ATTENTION_CORE in parts else 0),
            _vectors(
                benchmark, groups, _norms_forward(benchmark, last=0) if recompute and not compiled.target else 0.0
            ),
        ),
    )


def _in_kernels(benchmark: Benchmark, compiled: Compiled, passes: int) -> Cause:
    """Attention that a kernel computes is counted by its calls; `passes` forward passes of it, as FLOPs."""
    core = ledger.forward_flops(benchmark.model, benchmark.sequence_length)["context"] * benchmark.model.layers
    amount = -passes * core * tokens_of_a_step(benchmark) if compiled.attention_kernels else 0.0
    return Cause(text=f"attention is computed in kernels: {4 * passes} L a d s, in a line of its own", amount=amount)


def _attention_kernels(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """A call a layer and pass."""
    calls = benchmark.model.layers * benchmark.gradient_accumulation
    again = calls if storage.recompute is not None and "context" in storage.recompute.matmuls else 0
    stands_in = Cause(
        text="the substitute kernel keeps no result, so it runs again",
        amount=float(calls - again) if "attention" in compiled.replaced else 0.0,
    )
    return [
        Line(
            what=f"attention kernels {part}",
            unit="calls",
            formula=formula,
            expected=float(expected),
            counted=float(compiled.attention_kernels[part]),
            tolerance=0.0,
            causes=causes_of(stands_in) if part == "forward" else [],
        )
        for part, formula, expected in (
            ("forward", "L, and L where they are computed again", calls + again),
            ("backward", "L", calls),
        )
        if part in compiled.attention_kernels
    ]


def _matmuls_backward(benchmark: Benchmark, compiled: Compiled) -> Line:
    """Each matmul has two gradients, and the same FLOPs in each."""
    tokens = tokens_of_a_step(benchmark)
    lookup = 4.0 * flops.embedding_parameters(benchmark.model) * tokens if multiplies_embedding(benchmark) else 0.0
    expected = tokens * flops.flops_per_token(benchmark.model, benchmark.sequence_length, "recipe") * 2 / 3
    groups = [group for group in compiled.matmuls if group.part == "backward" and not group.by_a_vector]
    return Line(
        what="matmuls of the backward pass",
        unit="FLOPs",
        formula="two thirds of those of the model, without the scales of norms",
        expected=expected,
        counted=_sum(groups),
        tolerance=EXACT * expected,
        causes=causes_of(
            Cause(text="the embedding is multiplied instead of looked up: 2 V h backward", amount=lookup / 2),
            _in_kernels(benchmark, compiled, passes=2),
        ),
    )


# The type of both factors -> its name in XLA's text.
MULTIPLIED_IN = {"bf16": "bf16", "fp32": "f32", "fp8": "bf16"}
FP8, ATTENTION_CORE = "fp8", "attention core"


def _matmuls_by_type(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """In fp8: the matmuls of a layer with its weights. All others, and all without fp8, in the compute type."""
    if benchmark.dtype not in MULTIPLIED_IN:
        return []
    model, tokens = benchmark.model, tokens_of_a_step(benchmark)
    parts = (
        ledger.recomputed_by_part(model, benchmark.sequence_length, storage.recompute) if storage.recompute else {}
    )
    whole = tokens * (flops.flops_per_token(model, benchmark.sequence_length, "recipe") + sum(parts.values()))
    whole += 4.0 * flops.embedding_parameters(model) * tokens if multiplies_embedding(benchmark) else 0.0
    whole += _in_kernels(benchmark, compiled, passes=4 if ATTENTION_CORE in parts else 3).amount
    again = sum(amount for part, amount in parts.items() if part != ATTENTION_CORE)
    in_fp8 = tokens * (6.0 * model.layers * flops.layer_matmul_weights(model) + again)
    name = MULTIPLIED_IN[benchmark.dtype]
    shares = {FP8: in_fp8, name: whole - in_fp8} if benchmark.dtype == FP8 else {name: whole}
    return [
        Line(
            what=f"matmuls in {kind}",
            unit="FLOPs",
            formula="the layers' weights x 6, and those computed again" if kind == FP8 else "all others of them all",
            expected=expected,
            counted=_sum(g for g in compiled.matmuls if not g.by_a_vector and _type_of(g) == kind),
            tolerance=EXACT * whole,
        )
        for kind, expected in shares.items()
    ]


def _type_of(group: Matmuls) -> str:
    names = group.dtype.split(" x ")
    return FP8 if all(name.startswith("f8") for name in names) else group.dtype


def _norms_forward(benchmark: Benchmark, last: int) -> float:
    """A norm multiplies each of a token's numbers by a scale, written as a matmul."""
    norms = 2 * benchmark.model.layers + last
    return 2.0 * benchmark.model.hidden_size * norms * tokens_of_a_step(benchmark)


def _vectors(benchmark: Benchmark, groups: Iterable[Matmuls], computed: float) -> Cause:
    """Beside a tensor axis some norms are computed whole in each device: up to twice as much, as counted."""
    text = "the scales of norms are written as matmuls by a vector"
    if benchmark.parallelism.tensor == 1:
        return Cause(text=f"{text}: 2 h each", amount=computed)
    amount = sum(group.flops for group in groups if group.by_a_vector)
    return Cause(text=text, amount=min(amount, 2 * computed), as_counted=True)


def _sum(groups: Iterable[Matmuls]) -> float:
    return sum(group.flops for group in groups)
