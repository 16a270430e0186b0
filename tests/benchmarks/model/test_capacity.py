"""Memory of one device, against what the Llama 2 70B recipe says: it fits 64 GPUs of 80 GB, not 32."""

import msgspec
import pytest

from benchmarks.model.capacity import memory_by_part, total_bytes
from benchmarks.values import Benchmark, LayerLoop, Lora, NumberBytes, Parallelism, Storage, changed_benchmark
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
        # Made anew: two norms, query and keys and values, attention and its projection, gate and up, their product.
        # Then the gradients of gate, up and product. Less what the logits left free.
        "workspace": 2 * tokens * (4 * 8192 + 10240 + 3 * 28672 + 3 * 28672) - 2 * 4 * tokens * 32000,
    }


LAYER, TOKENS, HEAD = 855_654_400, 2 * 4096, 32000 * 8192
LOOP = LayerLoop(
    reordered_parameters=LAYER,
    pipelined_layers=1,
    gathers_ahead=True,
    one_hot_tokens=True,
    head_number_bytes=2,
    gradient_of_logits_waits=True,
)


def looping(run: Benchmark, loop: LayerLoop = LOOP, **differences: object) -> dict[str, float]:
    return memory_by_part(run, msgspec.structs.replace(stored(FP8_SAVES), layer_loop=loop, **differences))


def test_the_backward_pass_of_a_layer_by_hand() -> None:
    parts = looping(benchmark(Parallelism(fsdp=64)))
    assert parts["reordered_weights"] == parts["gradients"] == 4 * 80 * LAYER / 64
    assert parts["gathered_layers"] == 2 * (LAYER - 8192 * 28672)
    assert parts["gathered_head"] == 0
    assert parts["pipelined_layers"] == 2 * LAYER
    assert parts["logits"] == 2 * 2 * TOKENS * 32000  # their gradient, and the one-hot tokens
    # Beside the norms, attention's result and the MLP's: gate, up and product, made anew, and their gradients. And
    # what went into the head.
    assert parts["workspace"] == 2 * TOKENS * (5 * 8192 + 6 * 28672)


def test_the_loss_by_hand() -> None:
    """With a vocabulary so large that the loss is the peak."""
    run = benchmark(Parallelism(fsdp=64))
    run = changed(run, model=msgspec.structs.replace(run.model, vocabulary_size=256_000))
    parts = looping(run)
    assert parts["logits"] == 2 * TOKENS * 256_000 * (4 + 1)
    assert parts["gathered_head"] == 2 * 256_000 * 8192
    assert parts["gradients"] == 0
    # What goes into the head, and of the last layer its input, its sum before the MLP and all that it keeps.
    assert parts["workspace"] == 2 * TOKENS * (3 * 8192 + 8192 + 10240 + 8192)


def test_the_gradient_of_the_head_takes_the_place_of_the_logits_where_it_is_made_at_once() -> None:
    run = benchmark(Parallelism(fsdp=64))
    parts = looping(run, msgspec.structs.replace(LOOP, gradient_of_logits_waits=False))
    assert (parts["gathered_head"], parts["logits"]) == (2 * HEAD, 2 * TOKENS * 32000)
    of_adapters = looping(with_lora(run), msgspec.structs.replace(LOOP, one_hot_tokens=False))
    assert (of_adapters["gathered_head"], of_adapters["logits"]) == (0, 0)  # nothing trains it


def with_lora(run: Benchmark) -> Benchmark:
    return changed(run, lora=Lora(rank=16, alpha=32, dropout=0.0, targets=["query_key_value"]))


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


def test_layers_that_are_computed_again_keep_their_input_and_absent_ones_nothing() -> None:
    run = benchmark(Parallelism(fsdp=64))
    whole, nothing = stored(BF16_SAVES), stored(frozenset())
    assert saved(run, whole) > saved(run, nothing) > 0
    mixed = msgspec.structs.replace(whole, input_only_layers=30, absent_layers=10)
    expected = 40 / 80 * saved(run, whole) + 30 / 80 * saved(run, nothing)
    assert saved(run, mixed) == pytest.approx(expected)
