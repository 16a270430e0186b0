"""Estimates: the row they are made from, how far off they are, and published rows as benchmarks."""

import runpy
from pathlib import Path

import pytest

from benchmarks.backend import find_backend
from benchmarks.configs import read_yaml
from benchmarks.errors import RequestError
from benchmarks.model.bounds import bound
from benchmarks.model.capacity import total_bytes, usable_bytes
from benchmarks.model.estimate import (
    FILE,
    FRAMEWORK,
    GPU,
    MODEL,
    PRECISION,
    SCALE,
    SERIES,
    ErrorTable,
    Estimate,
    PublishedData,
    as_benchmark,
    estimate,
    read_published,
)
from benchmarks.model.forecast import cost, forecast
from benchmarks.model.forecast_report import cost_rows, estimate_rows
from benchmarks.model.published_rows import Reference, read_references
from benchmarks.values import Benchmark
from tests.benchmarks.planned import CONFIGS, bound_of, changed, laid_out, recipe, storage_of

errors_of = runpy.run_path(str(Path(__file__).parents[3] / "docs/make_estimate_errors.py"))["errors_of"]
PUBLISHED = read_published(CONFIGS)
NEMO = recipe("nemo", "llama31_70b", hardware="h100")
ROWS = read_references(CONFIGS.root)
MAXTEXT = next(row for row in ROWS if row.engine == "maxtext")
# They kept less than their recipes do, or kept it in the host's memory, and did not publish what. MaxText's Llama 3
# has two sequences of 8192 a GPU.
TOO_LARGE = {
    ("maxtext", "llama3_70b", "TP1 PP1 CP1 FSDP128 MBS2"),
    ("maxtext", "llama3_70b", "TP1 PP1 CP1 FSDP256 MBS2"),
    ("bridge", "llama3_70b", "TP1 PP1 CP1 MBS2"),  # the page says no FSDP, with which no GPU can hold the model
    ("bridge", "llama3_70b", "TP1 PP4 CP1 MBS2"),
    ("bridge", "llama3_70b", "TP2 PP4 CP1 VP5 MBS2"),
    ("bridge", "llama31_405b", "TP2 PP1 CP1 FSDP64 MBS1"),
}


def benchmark_of(row: Reference) -> Benchmark:
    return as_benchmark(row, CONFIGS, find_backend(row.backend))


# --- estimates ----------------------------------------------------------------------------------


def estimated(benchmark: Benchmark, published: PublishedData = PUBLISHED) -> Estimate:
    return estimate(benchmark, bound_of(benchmark), published)


def test_a_published_scale_is_its_own_estimate_in_the_newest_version() -> None:
    found = estimated(NEMO)
    assert (found.seconds, found.ratio, found.differs) == (14.66, 1.0, [])
    assert found.row == "llama31_70b pretrain bf16 64 x h100"
    assert found.source.startswith("NVIDIA/dgxc-benchmarking v25.04 ")
    assert found.error is not None
    assert found.error.kind == SCALE


@pytest.mark.parametrize(("data", "gpus"), [(12, 512), (3, 128), (128, 2048)])
def test_another_scale_is_scaled_from_the_nearest_one(data: int, gpus: int) -> None:
    asked = laid_out(NEMO, tensor=4, pipeline=4, context=2, virtual_pipeline=5, data=data)
    found = estimated(changed(asked, global_batch_size=64 * data))
    assert found.row.endswith(f" {gpus} x h100")
    assert found.differs == [f"{gpus} GPUs in the published row, {asked.gpus} in this request"]
    assert found.ratio == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("benchmark", "kind"),
    [
        (laid_out(NEMO, tensor=8, pipeline=4, data=2, virtual_pipeline=5), SERIES),
        (changed(NEMO, gradient_accumulation=32, global_batch_size=64), SERIES),
        (changed(NEMO, model=changed(NEMO.model, name="llama_deeper", layers=100)), MODEL),
        (recipe(hardware="a100"), GPU),
        (changed(recipe(), task="other"), FRAMEWORK),
    ],
    ids=["layout", "batch", "model", "GPU", "framework"],
)
def test_the_error_is_of_the_difference_that_costs_the_most(benchmark: Benchmark, kind: str) -> None:
    found = estimated(benchmark)
    assert found.error is not None
    assert found.error.kind == kind
    shown = dict(estimate_rows(found, bound_of(benchmark)))["error"]
    assert f"{found.error.median_percent:g}% in the median" in shown


def test_other_settings_than_the_recipes_have_no_known_error() -> None:
    asked = recipe("jax", "llama2_70b", settings={"remat_policy": "full"})
    found = estimated(asked)
    assert found.differs == ["PGLE in the published row, --pgle=off in this request", "--set=remat_policy"]
    assert (found.seconds or 0) > (estimated(recipe("jax", "llama2_70b")).seconds or 0)
    assert found.error is None
    whole = forecast(asked, storage_of(asked), PUBLISHED)
    hours = dict(cost_rows(cost(asked, whole, 10**12, None), whole))["GPU hours"]
    assert "unknown error" in hours


def test_a_gpu_without_a_matmul_rate_has_an_estimate_within_a_published_series_only() -> None:
    row = next(row for row in ROWS if row.hardware == "gb300")
    found = estimated(benchmark_of(row))
    assert (found.row_seconds, found.ratio) == (found.seconds, 1.0)
    other = estimated(changed(benchmark_of(row), gradient_accumulation=1, global_batch_size=row.gpus))
    assert other.seconds is None
    assert "matmul rate for" in other.why_none


def test_a_model_with_experts_is_estimated_from_its_own_rows_with_the_same_routing() -> None:
    ours = ("qwen3_30b_a3b", "h100", "balanced")
    row = next(row for row in ROWS if (row.model, row.hardware, row.routing) == ours)
    asked = benchmark_of(row)
    found = estimated(changed(asked, gradient_accumulation=1, global_batch_size=row.micro_batch_size * row.data))
    assert found.row.startswith("qwen3_30b_a3b ")
    assert found.error is not None
    assert found.error.experts
    for other in (changed(asked, routing="learned"), changed(asked, model=CONFIGS.model("mixtral_8x7b"))):
        assert f"no run of {other.model.name} with {other.routing} routing" in estimated(other).why_none


def test_an_unknown_part_leaves_no_estimate() -> None:
    base = laid_out(recipe(), fsdp=32, tensor=2)
    rates = {name: rate for name, rate in base.hardware.rates.items() if name != "network"}
    assert "no rate 'network'" in estimated(changed(base, hardware=changed(base.hardware, rates=rates))).why_none


# --- how good they are --------------------------------------------------------------------------


def test_the_kept_errors_are_those_of_the_rows() -> None:
    """If this fails, rows, recipes or formulas were changed: .venv/bin/python docs/make_estimate_errors.py."""
    found = errors_of(PUBLISHED)
    assert read_yaml(CONFIGS.root / FILE, ErrorTable).errors == found
    by_kind = {one.kind: one for one in found}
    assert by_kind.keys() == {SCALE, SERIES, MODEL, GPU, FRAMEWORK, PRECISION}
    assert all(one.median_percent <= one.worst_percent for one in found)
    assert by_kind[SCALE].median_percent < min(one.median_percent for one in found if one.kind != SCALE)


# --- rows as benchmarks -------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name} {row.tag}")
def test_a_row_keeps_its_figures_is_slower_than_its_bound_and_fits(row: Reference) -> None:
    found = benchmark_of(row)
    assert (found.model.name, found.hardware.name, found.dtype) == (row.model, row.hardware, row.dtype)
    assert (found.gpus, found.parallelism) == (row.gpus, row.parallelism)
    assert (found.batch.sequence_length, found.batch.global_batch_size) == (
        row.sequence_length,
        row.global_batch_size,
    )
    assert found.engine == row.engine
    replicas = row.data * row.fsdp
    assert found.batch.micro_batch_size * found.batch.gradient_accumulation * replicas == row.global_batch_size
    assert found.nodes == max(1, row.gpus // found.hardware.devices_per_node)
    storage = find_backend(row.backend).storage(found)
    least = bound(found, storage)
    if row.hardware == "gb300" or row.dtype == "nvfp4":
        assert "matmul rate for" in least.unknown[0]
    elif row.routing:  # small matmuls and all-to-alls are slower than the bound knows
        assert 0.04 < (least.seconds or 0) / row.seconds < 0.85
    else:
        assert (least.unknown, least.seconds is None) == ([], False)
        assert 0.44 < (least.seconds or 0) / row.seconds < 0.8
    if row.routing:
        return  # no recipe states what these runs kept
    usable = usable_bytes(found, storage)
    assert usable is not None
    layout = f"{row.parallelism.short().split(' DP')[0]} MBS{row.micro_batch_size}"
    assert (total_bytes(found, storage) > usable) == ((row.engine, row.model, layout) in TOO_LARGE)


def test_a_row_that_no_recipe_comes_near_is_refused() -> None:
    with pytest.raises(RequestError, match="maxtext has no recipe for"):
        benchmark_of(changed(MAXTEXT, task="lora", dtype="fp8", hardware="gb200"))
