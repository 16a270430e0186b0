"""A compiled step beside the formulas: parameters, state and matmuls; traffic is in compiled_traffic.py. Pure."""

from collections.abc import Iterable

from benchmarks import flops, ledger
from benchmarks.capacity import FLOAT32_BYTES, Storage, weight_shards
from benchmarks.compilation.compiled import Cause, Compiled, Line, Matmuls, causes_of, multiplies_embedding
from benchmarks.compilation.compiled_traffic import traffic
from benchmarks.values import Benchmark


def compare(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """Every figure of the program that a formula predicts."""
    return [
        _parameters(benchmark, compiled),
        _state(benchmark, storage, compiled),
        _model_matmuls(benchmark, compiled),
        _matmuls_again(benchmark, storage, compiled),
        *traffic(benchmark, compiled),
    ]


# --- weights ------------------------------------------------------------------------------------

EXACT = 1e-4  # relative: of what is counted in whole programs
COUNTERS_BYTES = 4096.0  # the optimizer's counters and the states of random numbers, whatever the model


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
    norms = (2 * benchmark.model.layers + 1) * benchmark.model.hidden_size / shards
    whole_norms = norms * (shards / benchmark.parallelism.fsdp - 1)
    return Line(
        what="state",
        unit="bytes",
        formula=f"{each:g} P / {shards}: weights and optimizer, over all that share them",
        expected=each * share,
        counted=compiled.state_bytes,
        tolerance=EXACT * each * share + COUNTERS_BYTES,
        causes=causes_of(
            Cause(text="norms are shared out over fsdp alone", amount=each * whole_norms),
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
            _vectors(groups),
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
        causes=causes_of(_scores_again(benchmark, storage, compiled), _vectors(groups)),
    )


def _scores_again(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> Cause:
    """A kernel can keep its result; plain attention, which stands in for it, cannot."""
    kept = storage.recompute is not None and "context" not in storage.recompute.matmuls
    core = ledger.forward_flops(benchmark.model, benchmark.sequence_length)["context"] * benchmark.model.layers
    amount = core * tokens_of_a_step(benchmark) if kept and "attention" in compiled.replaced else 0.0
    return Cause(text="the attention that stands in keeps no scores", amount=amount)


def _vectors(groups: Iterable[Matmuls]) -> Cause:
    amount = sum(group.flops for group in groups if group.by_a_vector)
    return Cause(text="the scales of norms are written as matmuls by a vector", amount=amount)


def _sum(groups: Iterable[Matmuls]) -> float:
    return sum(group.flops for group in groups)
