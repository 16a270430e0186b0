"""Memory with its margin, scaling, cost, and how they are shown."""

import pytest

from benchmarks.backend import find_backend
from benchmarks.errors import RequestError
from benchmarks.model.estimate import PublishedData, read_published
from benchmarks.model.forecast import Forecast, ScalePoint, cost, forecast, memory_of, scaling, token_count
from benchmarks.model.forecast_report import bound_lines, cost_rows, memory_rows, scaling_lines
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark
from tests.benchmarks.planned import CONFIGS, changed, laid_out, recipe, storage_of

KEPT = read_published(CONFIGS)
NONE = PublishedData(CONFIGS, [], [])
JAX = find_backend("jax")


def forecast_of(benchmark: Benchmark, kept: PublishedData = KEPT) -> Forecast:
    return forecast(benchmark, storage_of(benchmark), kept)


def points(*scales: int, kept: PublishedData = KEPT, **asked: object) -> list[ScalePoint]:
    request = Request(backend="jax", model="llama2_70b", **asked)  # type: ignore[arg-type]
    return scaling(request, scales, lambda one: resolve(one, CONFIGS, JAX), JAX, kept)


def test_the_recipe_fits_64_gpus_with_its_margin_and_not_32() -> None:
    base = recipe(dtype="bf16")
    on_64 = memory_of(base, storage_of(base))
    assert on_64.fits
    assert on_64.margin_bytes == pytest.approx(84_942_979_072 * 0.94 - on_64.total_bytes)
    assert on_64.margin_percent == pytest.approx(20.0, abs=0.1)
    small = changed(laid_out(base, fsdp=32), global_batch_size=64)
    on_32 = memory_of(small, storage_of(small))
    assert not on_32.fits
    assert on_32.margin_bytes is not None
    assert on_32.margin_bytes < -5e9
    assert "DOES NOT FIT" in dict(memory_rows(on_32))["total"]
    assert "fits (+16.0 GB, +20.0%)" in dict(memory_rows(on_64))["total"]


def test_a_cpu_shares_what_the_host_has() -> None:
    tiny = recipe(model="llama2_tiny", gpus=1)
    found = memory_of(tiny, storage_of(tiny))
    assert (found.usable_bytes, found.fits, found.margin_bytes) == (None, None, None)
    assert "of host memory" in dict(memory_rows(found))["total"]


def test_scaling_is_against_the_smallest_scale() -> None:
    found = points(128, 64, 2048)
    assert [point.gpus for point in found] == [64, 128, 2048]
    assert found[0].efficiency == 1
    for point in found:
        seconds = point.estimate_seconds
        assert seconds is not None
        assert point.tokens_per_second == pytest.approx((point.global_batch_size or 0) * 4096 / seconds)
        assert point.basis == "estimate"
        small = (found[0].tokens_per_second or 0) / 64
        assert point.efficiency == pytest.approx((point.tokens_per_second or 0) / point.gpus / small)
    assert found[2].efficiency < 1  # type: ignore[operator]


def test_a_scale_that_cannot_work_says_why() -> None:
    found = points(64, 96)
    assert found[1].refused == "recipe jax_llama2_70b_pretrain has no layout for 96 devices of h100"
    assert found[1].tokens_per_second is None
    assert found[0].efficiency == 1
    assert any("96" in line and "no layout" in line for line in scaling_lines(found))


def test_without_estimates_scales_are_by_their_bounds() -> None:
    found = points(64, 128, kept=NONE)
    assert {point.basis for point in found} == {"bound"}
    assert scaling_lines(found)[-1] == "  tokens/s and efficiency come from the bound"


def test_cost_is_by_hand() -> None:
    benchmark = recipe()
    found = forecast_of(benchmark)
    one = cost(benchmark, found, 10**12, 2.0)
    assert one is not None
    assert one.steps == 1_907_349  # 1e12 / 524,288 tokens, rounded up
    assert one.days == pytest.approx(one.steps * (found.seconds or 0) / 86400)
    assert one.gpu_hours == pytest.approx(one.days * 24 * 64)
    assert one.usd == pytest.approx(2 * one.gpu_hours)
    assert cost(benchmark, found, 10**12, None).usd is None  # type: ignore[union-attr]


def test_without_a_time_there_is_no_cost() -> None:
    tiny = recipe(model="llama2_tiny", gpus=1)
    found = forecast_of(tiny)
    assert cost(tiny, found, 10**12, 2.0) is None
    assert cost_rows(None, found) == [("unknown", "the step time is unknown")]


@pytest.mark.parametrize(
    ("text", "tokens"), [("1T", 10**12), ("15T", 15 * 10**12), ("300B", 3 * 10**11), ("1.5t", 15 * 10**11), ("7", 7)]
)
def test_tokens_are_read(text: str, tokens: int) -> None:
    assert token_count(text) == tokens


@pytest.mark.parametrize("text", ["", "T", "many", "-1T", "0", "nan", "inf", "1e30", "1 trillion"])
def test_what_is_no_number_of_tokens_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="a number of tokens") as refusal:
        token_count(text)
    assert refusal.value.next_command


def test_what_is_not_known_is_shown_as_unknown() -> None:
    blind = forecast_of(recipe(model="llama2_tiny", gpus=1))
    text = "\n".join(bound_lines(blind.bound))
    assert "unknown" in text
    assert "time of the matmuls" in text
