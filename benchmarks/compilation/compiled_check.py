"""A compiled step beside the formulas: parameters, state and matmuls; traffic is in compiled_traffic.py. Pure."""

from collections.abc import Iterable
from math import prod

from benchmarks.compilation.compiled import Cause, Compiled, Line, Matmuls, causes_of, multiplies_embedding
from benchmarks.compilation.compiled_traffic import traffic
from benchmarks.model import flops, ledger
from benchmarks.model.capacity import FLOAT32_BYTES, weight_shards
from benchmarks.values import Benchmark, Storage


def compare(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """Every figure of the program that a formula predicts; where adapters are trained, its devices alone."""
    devices = _devices(benchmark, compiled)
    if benchmark.lora:
        return devices
    return [
        *devices,
        _parameters(benchmark, compiled),
        _state(benchmark, storage, compiled),
        *_matmuls(benchmark, storage, compiled),
        *traffic(benchmark, storage, compiled),
    ]


# --- devices ------------------------------------------------------------------------------------

AXES = ("data", "fsdp", "context", "tensor", "pipeline")


def _devices(benchmark: Benchmark, compiled: Compiled) -> list[Line]:
    """The program is one for this many devices, along these axes and no others."""
    asked = {axis: int(getattr(benchmark.parallelism, axis)) for axis in AXES}
    sizes = {
        f"{axis} of the mesh": (asked.get(axis, 1), compiled.mesh.get(axis, 1)) for axis in {**asked, **compiled.mesh}
    }
    sizes = {"devices": (benchmark.gpus, compiled.devices)} | {
        what: both for what, both in sizes.items() if both != (1, 1)
    }
    return [
        Line(
            what=what,
            unit="devices",
            formula="as the layout says",
            expected=expected,
            counted=counted,
            tolerance=0.0,
        )
        for what, (expected, counted) in sizes.items()
    ]


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

# The type of both factors -> its name in XLA's text.
MULTIPLIED_IN = {"bf16": "bf16", "fp32": "f32", "fp8": "bf16"}
FP8, ATTENTION_CORE = "fp8", "attention core"


def _matmuls(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """Of the model, of its backward pass, computed again, by type, and attention's kernels."""
    model, length, recompute = benchmark.model, benchmark.sequence_length, storage.recompute
    tokens = benchmark.tokens_per_step / benchmark.gpus  # as if each token belonged to one device
    of_the_model = tokens * flops.flops_per_token(model, length, "recipe")
    lookup = 4.0 * flops.embedding_parameters(model) * tokens if multiplies_embedding(benchmark) else 0.0
    parts = ledger.recomputed_by_part(model, length, recompute) if recompute else {}
    core = ledger.forward_flops(model, length)["context"] * model.layers * tokens if compiled.attention_kernels else 0
    norm = 2.0 * model.hidden_size * tokens  # a scale for each of a token's numbers, written as a matmul
    norms = norm * 2 * model.layers
    as_lowered = compiled.devices == 1  # nothing is partitioned, and what comes before that is not done

    def in_kernels(passes: int) -> Cause:
        """Attention that a kernel computes is counted by its calls; `passes` forward passes of it, as FLOPs."""
        text = f"attention is computed in kernels: {4 * passes} L a d s, in a line of its own"
        return Cause(text=text, amount=-passes * core)

    def line(what: str, formula: str, expected: float, groups: list[Matmuls], of: float, *causes: Cause) -> Line:
        return Line(
            what=what,
            unit="FLOPs",
            formula=formula,
            expected=expected,
            counted=sum(group.flops for group in groups),
            tolerance=EXACT * of,
            causes=causes_of(*causes),
        )

    once = [group for group in compiled.matmuls if group.part != "recomputed"]
    again = [group for group in compiled.matmuls if group.part == "recomputed"]
    exact = [group for group in compiled.matmuls if not group.by_a_vector]
    passes_again = 1 if ATTENTION_CORE in parts else 0
    lines = [
        line(
            "matmuls of the model",
            "(6 (L (2 h d (a + g) + 3 h f) + V h) + 12 L a d s) x tokens: the convention `recipe`",
            of_the_model,
            once,
            of_the_model,
            Cause(text="the embedding is multiplied instead of looked up (use_iota_embed): 4 V h", amount=lookup),
            in_kernels(3),
            # XLA:GPU makes multiplications of all of them but for the gradient of the scale itself.
            _vectors(benchmark, once, (3 if as_lowered else 1) * (norms + norm)),
        ),
        line(
            "matmuls of the backward pass",
            "two thirds of those of the model, without the scales of norms: each matmul has two gradients",
            of_the_model * 2 / 3,
            [group for group in exact if group.part == "backward"],
            of_the_model * 2 / 3,
            Cause(text="the embedding is multiplied instead of looked up: 2 V h backward", amount=lookup / 2),
            in_kernels(2),
        ),
        line(
            "matmuls computed again",
            f"({' + '.join(parts) or 'nothing'}) x tokens, once forward",
            tokens * sum(parts.values()),
            again,
            of_the_model,
            in_kernels(passes_again),
            _vectors(benchmark, again, norms if recompute and as_lowered else 0.0),
        ),
    ]
    if benchmark.dtype in MULTIPLIED_IN:
        whole = of_the_model + tokens * sum(parts.values()) + lookup - (3 + passes_again) * core
        layers_again = sum(amount for part, amount in parts.items() if part != ATTENTION_CORE)
        in_fp8 = tokens * (6.0 * model.layers * flops.layer_matmul_weights(model) + layers_again)
        fp8 = in_fp8 if benchmark.dtype == FP8 else 0.0
        shares = {FP8: fp8} if fp8 else {}
        for kind, expected in {**shares, MULTIPLIED_IN[benchmark.dtype]: whole - fp8}.items():
            formula = "the layers' weights x 6, and those computed again" if kind == FP8 else "all others of them all"
            of_kind = [group for group in exact if _type_of(group) == kind]
            lines.append(line(f"matmuls in {kind}", formula, expected, of_kind, whole))
    return lines + _attention_kernels(benchmark, storage, compiled)


def _type_of(group: Matmuls) -> str:
    return FP8 if all(name.startswith("f8") for name in group.dtype.split(" x ")) else group.dtype


def _vectors(benchmark: Benchmark, groups: Iterable[Matmuls], computed: float) -> Cause:
    """Beside a tensor axis some norms are computed whole in each device: up to twice as much, as counted."""
    text = "the scales of norms are written as matmuls by a vector"
    if benchmark.parallelism.tensor == 1:
        return Cause(text=f"{text}: 2 h each", amount=computed)
    amount = sum(group.flops for group in groups if group.by_a_vector)
    return Cause(text=f"{text}, as counted", amount=min(amount, 2 * computed))


def _attention_kernels(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """A call a layer and pass."""
    calls = benchmark.model.layers * benchmark.gradient_accumulation
    again = calls if storage.recompute is not None and "context" in storage.recompute.matmuls else 0
    stands_in = Cause(
        text="the substitute kernel keeps no result, so it runs again",
        amount=float(calls - again) if "attention" in compiled.replaced else 0.0,
    )
    formulas = {"forward": ("L, and L where they are computed again", calls + again), "backward": ("L", calls)}
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
        for part, (formula, expected) in formulas.items()
        if part in compiled.attention_kernels
    ]
