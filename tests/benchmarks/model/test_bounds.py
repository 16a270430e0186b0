"""The shortest time that a step can take, part by part, by hand; what is not known stays so."""

import msgspec
import pytest

from benchmarks.model.bounds import Bound, BoundPart
from benchmarks.values import Benchmark, Peak
from tests.benchmarks.planned import CONFIGS, bound_of, changed, laid_out, recipe, with_rates

MAXTEXT = recipe(dtype="fp8")
BF16 = recipe(dtype="bf16")
MEGATRON = recipe("nemo", "llama31_70b", hardware="h100")
LAYER = 855_638_016  # matmul weights of a layer of Llama 2 70B
TOKENS = 2 * 4096  # of a device


def part_of(found: Bound, name: str) -> BoundPart | None:
    return next((part for part in found.parts if part.name == name), None)


def seconds(benchmark: Benchmark, name: str) -> float:
    part = part_of(bound_of(benchmark), name)
    assert part is not None
    assert part.seconds is not None
    return part.seconds


def test_the_matmuls_of_the_recipe_by_hand() -> None:
    attention = 6 * 80 * 8192 * 4096 * TOKENS
    assert seconds(MAXTEXT, "linear") == pytest.approx(6 * 80 * LAYER * TOKENS / 1402.6e12)
    assert seconds(MAXTEXT, "attention") == pytest.approx(attention / 794.5e12)
    assert seconds(MAXTEXT, "head") == pytest.approx(6 * 32000 * 8192 * TOKENS / 794.5e12)
    assert seconds(MAXTEXT, "recompute") == pytest.approx(4 * 80 * 28672 * 8192 * TOKENS / 1402.6e12)
    assert seconds(MAXTEXT, "recompute attention") == pytest.approx(attention / 3 / 794.5e12)


def test_traffic_hides_behind_compute_until_it_takes_longer() -> None:
    found = bound_of(MAXTEXT)
    assert found.seconds_of("fsdp over network") == pytest.approx(0.673, abs=1e-3)
    assert [part.exposed_seconds for part in found.parts if " over " in part.name] == [0, 0]
    slow = changed(MAXTEXT, hardware=with_rates(MAXTEXT.hardware, memory=3350, node=360, network=9))
    late = bound_of(slow)
    part = part_of(late, "fsdp over network")
    assert part is not None
    assert part.exposed_seconds == pytest.approx((part.seconds or 0) - (late.compute_seconds or 0))
    assert (late.seconds or 0) == pytest.approx((part.seconds or 0) + late.seconds_of("optimizer"))


def test_the_bound_counts_the_least_traffic_and_reports_the_actual() -> None:
    """TP4 FSDP16 moves less than FSDP64 by the usual formula, and more in the program."""
    own, other = bound_of(BF16), bound_of(laid_out(BF16, tensor=4, fsdp=16))
    least = [sum(part.seconds or 0 for part in found.traffic() if "node" in part.name) for found in (own, other)]
    really = [
        sum(part.really_seconds or 0 for part in found.traffic() if "node" in part.name) for found in (own, other)
    ]
    assert least[1] < least[0] == really[0] < really[1]
    assert other.traffic_seconds() == pytest.approx(sum(part.really_seconds or 0 for part in other.traffic()))
    slow = laid_out(
        changed(BF16, hardware=with_rates(BF16.hardware, memory=3350, node=50, network=50)), tensor=4, fsdp=16
    )
    found = bound_of(slow)
    tensor = part_of(found, "tensor over node")
    fsdp = part_of(found, "fsdp over node")
    assert tensor is not None
    assert fsdp is not None
    both = (tensor.really_seconds or 0) + (fsdp.really_seconds or 0)
    assert found.really_seconds == pytest.approx(both + found.seconds_of("optimizer"))
    assert found.seconds is not None
    assert found.seconds < (found.really_seconds or 0)


def test_the_bubble_is_a_share_of_the_layers_and_not_of_the_head() -> None:
    found = bound_of(MEGATRON)
    layers = (found.compute_seconds or 0) - found.seconds_of("head")
    assert found.seconds_of("bubble") == pytest.approx(layers * 3 / (5 * 64))
    plain = bound_of(changed(MEGATRON, gradient_accumulation=8))
    assert plain.seconds_of("bubble") == pytest.approx(layers * 3 / (5 * 8))


def test_adapters_spare_the_gradients_of_frozen_weights() -> None:
    lora = recipe("nemo", "llama3_70b", task="lora", hardware="h100", gpus=8)
    tokens = 32 * 4096 / 8  # tensor 2 x pipeline 4 share them
    adapters = 80 * 16 * (8192 + (64 + 2 * 8) * 128)
    assert seconds(lora, "linear") == pytest.approx((4 * 80 * LAYER + 6 * adapters) * tokens / 794.5e12)
    assert seconds(lora, "attention") == pytest.approx(6 * 80 * 8192 * 4096 * tokens / 794.5e12)
    assert seconds(lora, "optimizer") < 1e-3


def test_without_a_measured_peak_there_is_no_bound() -> None:
    found = bound_of(changed(BF16, hardware=CONFIGS.hardware("gb300")))
    assert found.seconds is None
    assert found.compute_seconds is None
    assert any(text.startswith("linear: no bf16 matmul rate for gb300") for text in found.unknown)


def test_a_peak_that_was_measured_on_this_device_counts() -> None:
    peak = {"bf16": Peak(tflops=500.0, source="measured")}
    measured = bound_of(changed(BF16, measured_peaks=peak))
    assert measured.seconds_of("linear") == pytest.approx(bound_of(BF16).seconds_of("linear") * 794.5 / 500)


@pytest.mark.parametrize(
    ("missing", "part"), [("network", "fsdp over network"), ("node", "fsdp over node"), ("memory", "optimizer")]
)
def test_a_connection_without_a_rate_is_unknown_and_named(missing: str, part: str) -> None:
    rates = {name: rate for name, rate in BF16.hardware.rates.items() if name != missing}
    found = bound_of(changed(BF16, hardware=msgspec.structs.replace(BF16.hardware, rates=rates)))
    assert [text.partition(":")[0] for text in found.unknown] == [part]
    assert f"no rate '{missing}'" in found.unknown[0]
    named = part_of(found, part)
    assert named is not None
    assert named.seconds is None
    assert found.seconds is not None


def test_plain_attention_computes_the_whole_square() -> None:
    half = bound_of(BF16).seconds_of("attention")
    assert bound_of(BF16, writes_attention_scores=True).seconds_of("attention") == pytest.approx(2 * half)


def test_what_a_backend_does_not_say_is_named() -> None:
    found = bound_of(BF16, recompute=None)
    assert found.unknown == ["recompute: the backend does not report its recomputation"]
