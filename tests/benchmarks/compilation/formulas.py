"""What the formulas say of a compiled step: the FLOPs of its matmuls and attention, and the bytes that it sends."""

from benchmarks.model import flops, ledger
from benchmarks.values import Benchmark, Storage

CORE = "attention core"  # in kernels: no matmul of the program


def _core(benchmark: Benchmark) -> float:
    """FLOPs of attention's two matmuls forward, of a device and step, nothing masked."""
    model, tokens = benchmark.model, benchmark.tokens_per_step / benchmark.gpus
    return ledger.forward_flops(model, benchmark.batch.sequence_length)["context"] * model.layers * tokens


def matmul_flops(benchmark: Benchmark, storage: Storage) -> float:
    """Return the FLOPs of a device and step: the model's, recomputed ones, and the embedding if it is multiplied."""
    model, length = benchmark.model, benchmark.batch.sequence_length
    again = ledger.recomputed_by_part(model, length, storage.recompute) if storage.recompute else {}
    lookup = 4.0 * flops.embedding_parameters(model) if benchmark.settings.knobs.get("use_iota_embed") else 0.0
    of_a_token = flops.flops_per_token(model, length, "recipe") + lookup
    of_a_token += sum(amount for part, amount in again.items() if part != CORE)
    return of_a_token * benchmark.tokens_per_step / benchmark.gpus - 3 * _core(benchmark)


def attention_backward_flops(benchmark: Benchmark) -> float:
    """Five matmuls where forward has two; half is masked."""
    return _core(benchmark) * 5 / 2 / 2


def sent_bytes(benchmark: Benchmark) -> float:
    """Return the bytes of a device and step along fsdp: two gathers of all weights, and a bf16 gradient scatter."""
    gathered = 1 if benchmark.dtype == "fp8" else 2
    share = benchmark.parallelism.fsdp
    return flops.parameter_count(benchmark.model) * (2 * gathered + 2) * (share - 1) / share
