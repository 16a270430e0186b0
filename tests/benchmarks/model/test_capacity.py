"""Memory of one device, against what the Llama 2 70B recipe says: it fits 64 GPUs of 80 GB, not 32."""

import pytest

from benchmarks.model.capacity import memory_by_part, total_bytes
from benchmarks.values import Benchmark, NumberBytes, Parallelism, Storage, changed_benchmark
from tests.benchmarks.planned import changed, recipe

GB = 1e9
USABLE_GB = 80 * 0.94
FP8_SAVES = frozenset({"query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj"})
BF16_SAVES = FP8_SAVES | {"mlpwo"}


def stored(saves: frozenset[str], *, scores: bool = False) -> Storage:
    """Everything in float32 and sharded like its weights, as MaxText stores it."""
    return Storage(
        saved_activations=saves,
        one_byte_activations=frozenset(),
        numbers=NumberBytes(
            weight_bytes=4,
            gradient_bytes=4,
            optimizer_bytes=8,
        ),
        optimizer_replicas=1,
        gathers_layers=True,
        writes_attention_scores=scores,
        usable_fraction=0.94,
    )


def benchmark(share: Parallelism, dtype: str = "bf16") -> Benchmark:
    """Llama 2 70B at 4096, with two sequences on each device."""
    gpus = share.devices
    sizes = {"gpus": gpus, "nodes": max(1, gpus // 8), "global_batch_size": 2 * gpus}
    return changed(recipe(), dtype=dtype, parallelism=share, **sizes)


@pytest.mark.parametrize(
    ("dtype", "saves", "expected_gb"), [("fp8", FP8_SAVES, 59.4), ("bf16", BF16_SAVES, 70.0)], ids=["fp8", "bf16"]
)
def test_the_recipe_fits_64_gpus_and_not_32(dtype: str, saves: frozenset[str], expected_gb: float) -> None:
    on_64 = total_bytes(benchmark(Parallelism(fsdp=64), dtype=dtype), stored(saves)) / GB
    on_32 = total_bytes(benchmark(Parallelism(fsdp=32), dtype=dtype), stored(saves)) / GB
    assert on_64 == pytest.approx(expected_gb, abs=0.1)
    assert on_64 < USABLE_GB < on_32


def test_parts_by_hand() -> None:
    parts = memory_by_part(benchmark(Parallelism(fsdp=64)), stored(frozenset({"mlpwo"})))
    parameters, layer, head, tokens = 68_976_648_192, 855_654_400, 32000 * 8192, 2 * 4096
    assert parts == {
        "parameters": 4 * parameters / 64,
        "optimizer": 8 * parameters / 64,
        "gradients": 4 * parameters / 64,
        "gathered_layers": 2 * (2 * layer + head),
        "saved_activations": 2 * (8192 + 8192) * tokens * 80,
        "attention_scores": 0,
        "logits": 2 * 4 * tokens * 32000,
        # Recomputed: two norms, query and keys and values, attention and its projection, gate and up, their product.
        # Then the gradients of gate, up and product, without the memory that the logits left free.
        "workspace": 2 * tokens * (4 * 8192 + 10240 + 3 * 28672 + 3 * 28672) - 2 * 4 * tokens * 32000,
    }


def saved(run: Benchmark, storage: Storage) -> float:
    return memory_by_part(run, storage)["saved_activations"]


def accumulated(run: Benchmark, micro_batches: int) -> Benchmark:
    """As many more micro-batches of the same size."""
    sequences = run.batch.global_batch_size // run.batch.gradient_accumulation
    return changed_benchmark(run, gradient_accumulation=micro_batches, global_batch_size=sequences * micro_batches)


@pytest.mark.parametrize("pieces", [1, 5])
def test_a_pipeline_holds_no_more_micro_batches_than_a_step_has(pieces: int) -> None:
    run = benchmark(Parallelism(tensor=4, pipeline=4, data=4, virtual_pipeline=pieces))
    found = [saved(accumulated(run, number), stored(FP8_SAVES)) for number in (1, 2, 4, 5, 6, 16)]
    assert found[:3] == pytest.approx([found[0], 2 * found[0], 4 * found[0]])
    full = (4 + 3 / pieces if pieces > 1 else 4) * found[0]
    assert found[3:] == pytest.approx([min(5 * found[0], full), full, full])
