"""Estimates: how they are fitted, how good they are by leaving out, and where there is none."""

import msgspec
import pytest

from benchmarks.backend import find_backend
from benchmarks.planning.calibration import (
    TERMS,
    Calibration,
    Estimate,
    Row,
    estimate,
    fit,
    left_out,
    same_run,
)
from benchmarks.planning.forecast import cost, forecast
from benchmarks.planning.forecast_report import cost_rows, estimate_rows
from benchmarks.references.references import read_references
from benchmarks.values import Benchmark
from launch.planning import planning_calibration
from tests.benchmarks.planned import CONFIGS, bound_of, changed, laid_out, recipe, storage_of, with_rates

KEPT = CONFIGS.calibration()
ROWS, OUTSIDE = planning_calibration.published_rows(CONFIGS)
MADE = planning_calibration.make(CONFIGS, KEPT)


def estimated(benchmark: Benchmark, kept: Calibration = KEPT) -> Estimate:
    return estimate(benchmark, bound_of(benchmark), kept)


def rows_of(family: str) -> list[Row]:
    held = next(one for one in KEPT.families if one.name == family)
    return [row for row in ROWS if held.holds(row.benchmark)]


# --- how good it is -----------------------------------------------------------------------------


def test_every_published_row_is_judged() -> None:
    assert len(MADE.judged) + len(OUTSIDE) == len(read_references(CONFIGS.root))
    assert MADE.outside == OUTSIDE
    assert all("gb300: its bound is not known" in row for row in OUTSIDE)


def test_the_errors_by_leaving_out_are_within_the_aim() -> None:
    found = {(fit.family, dtype): errors for fit in MADE.calibration.fits for dtype, errors in fit.errors.items()}
    assert sum(errors.rows for errors in found.values()) == len(MADE.judged)
    assert all(errors.median < 7 for errors in found.values()), found


def test_the_kept_fits_are_those_of_the_rows_there_are() -> None:
    """Where this fails, rows or formulas were changed: python launch/plan.py calibration --write."""
    assert MADE.calibration == KEPT
    assert KEPT.fits


# --- nothing leaks ------------------------------------------------------------------------------


def test_a_row_and_its_twins_have_no_say_in_their_own_estimate() -> None:
    """Whatever a row says, and whatever its twins say, its estimate stays."""
    rows = rows_of("NeMo")
    key = same_run(next(row for row in rows if row.reference.model == "llama31_70b"))
    twins = [row for row in rows if same_run(row) == key]
    assert len(twins) == 3  # three versions of the recipe, the same run
    lied = [_slower(row) if same_run(row) == key else row for row in rows]
    honest, of_liars = left_out(rows, same_run), left_out(lied, same_run)
    places = [place for place, row in enumerate(rows) if same_run(row) == key]
    assert [honest[place] for place in places] == [of_liars[place] for place in places]
    others = [place for place in range(len(rows)) if place not in places]
    assert any(honest[place] != of_liars[place] for place in others)


def _slower(row: Row) -> Row:
    return row._replace(reference=msgspec.structs.replace(row.reference, seconds_per_step="99.0"))


# --- the fit ------------------------------------------------------------------------------------


def test_shares_that_made_the_times_are_found_again() -> None:
    shares = {"memory_passes": 3.0, "context_attention": 2.0, "traffic": 0.5, "growth": 0.02}
    rows = []
    for row in rows_of("NeMo"):
        seconds = row.floor + sum(shares[name] * term for name, term in zip(TERMS, row.terms, strict=True))
        rows.append(row._replace(reference=msgspec.structs.replace(row.reference, seconds_per_step=repr(seconds))))
    assert fit(rows) == pytest.approx(shares, rel=1e-6)


# --- estimates ----------------------------------------------------------------------------------


def test_an_estimate_adds_up_and_is_never_below_the_bound() -> None:
    for backend, model, dtype in (("jax", "llama2_70b", "fp8"), ("nemo", "llama31_70b", "bf16")):
        benchmark = recipe(backend, model, dtype=dtype, hardware="h100")
        found = estimated(benchmark)
        assert found.seconds == pytest.approx(sum(found.parts.values()))
        assert found.seconds > (bound_of(benchmark).seconds or 0)
        assert found.errors is not None
        assert found.beyond == []


def test_where_traffic_takes_longest_the_estimate_is_the_bound() -> None:
    base = recipe(dtype="fp8")
    slow = changed(base, hardware=with_rates(base.hardware, memory=3350, node=360, network=1))
    assert estimated(slow).seconds == bound_of(slow).seconds


@pytest.mark.parametrize(
    ("benchmark", "why"),
    [
        (recipe(hardware="a100"), "the published runs of MaxText bf16 are on h100, not a100"),
        (recipe("nemo", "llama31_70b", hardware="h100", engine="bridge"), "nothing is published for nemo (bridge)"),
        (recipe("nemo", "llama3_70b", task="lora", hardware="b200", gpus=8), "are on gb200, h100, not b200"),
        (recipe(model="llama2_tiny", gpus=1), "not cpu"),
    ],
    ids=["hardware", "engine", "lora hardware", "cpu"],
)
def test_beyond_the_published_there_is_none(benchmark: Benchmark, why: str) -> None:
    found = estimated(benchmark)
    assert found.seconds is None
    assert why in found.why_none


def test_a_part_that_is_not_known_leaves_no_estimate() -> None:
    base = recipe()
    rates = {name: rate for name, rate in base.hardware.rates.items() if name != "network"}
    blind = changed(base, hardware=msgspec.structs.replace(base.hardware, rates=rates))
    assert "no rate 'network'" in estimated(blind).why_none


def test_what_goes_beyond_the_rows_is_said() -> None:
    base = recipe()
    tensor = estimated(laid_out(base, fsdp=4, tensor=16))
    assert tensor.seconds is not None
    assert tensor.beyond == [
        "no row is in TP16 PP1 CP1, but in TP1 PP1 CP1",
        "tensor 16: its rows have 1",
        "fsdp 4: its rows have 8 to 256",
    ]
    assert not tensor.tells_layouts_apart
    many = estimated(laid_out(base, fsdp=128, data=32))
    assert many.beyond == ["data 32: its rows have 1 to 16", "gpus 4096: its rows have 8 to 2048"]
    other = estimated(changed(base, model=CONFIGS.model("llama2_13b")))
    assert other.beyond == ["its rows are of llama2_70b, llama2_7b, llama3_70b"]


NEMO = recipe("nemo", "llama31_70b", hardware="h100")
LORA = recipe("nemo", "llama3_70b", task="lora", dtype="bf16", hardware="gb200", gpus=8)


@pytest.mark.parametrize(
    ("benchmark", "text"),
    [
        (changed(NEMO, sequence_length=131072), "sequence length 131072: its rows have 8192"),
        (changed(NEMO, micro_batch_size=8), "micro batch size 8: its rows have 1"),
        (laid_out(NEMO, tensor=8, pipeline=2, context=4, virtual_pipeline=5), "data 1: its rows have 2 to 64"),
        (laid_out(NEMO, tensor=8, pipeline=2, context=4, virtual_pipeline=5), "context 4: its rows have 1 to 2"),
        (laid_out(NEMO, tensor=4, pipeline=4, context=2, data=2), "virtual pipeline 1: its rows have 5 to 8"),
        (changed(NEMO, gradient_accumulation=1), "gradient accumulation 1: its rows have 32 to 64"),
        (changed(LORA, dtype="fp8"), "no row is fp8 on gb200"),
        (recipe(settings={"remat_policy": "full"}), "gate and up twice, its rows attention core, gate and up"),
    ],
)
def test_each_way_beyond_the_rows_is_said_and_has_no_error(benchmark: Benchmark, text: str) -> None:
    found = estimated(benchmark)
    assert found.seconds is not None
    assert any(text in one for one in found.beyond), found.beyond
    assert found.worst_percent is None
    told = dict(estimate_rows(found, bound_of(benchmark)))
    assert told["its error"].startswith("not known")
    whole = forecast(benchmark, storage_of(benchmark), KEPT)
    hours = dict(cost_rows(cost(benchmark, whole, 10**12, None), whole))["GPU hours"]
    assert "not known here" in hours
    assert "give or take" not in hours


def test_the_error_is_that_of_what_was_as_far_from_the_rows() -> None:
    errors = next(fit.errors["bf16"] for fit in KEPT.fits if fit.family == "NeMo")
    assert estimated(NEMO).worst_percent == errors.worst
    other = estimated(changed(NEMO, model=CONFIGS.model("llama2_70b")))
    assert len(other.beyond) == 1
    assert other.worst_percent == errors.model_left_out_worst
    between = laid_out(
        NEMO, tensor=4, pipeline=4, virtual_pipeline=5, data=4
    )  # sizes that rows have, but not together
    (beyond,) = estimated(between).beyond
    assert beyond.startswith("no row is in TP4 PP4 CP1 VP5, but in TP1 PP1 CP2 or ")
    assert estimated(between).worst_percent == errors.layout_left_out_worst
    both = changed(between, model=CONFIGS.model("llama2_70b"))
    assert estimated(both).worst_percent is None


def test_families_share_no_row() -> None:
    for row in ROWS:
        assert sum(family.holds(row.benchmark) for family in KEPT.families) == 1
    assert all(family.engine in find_backend(family.backend).engines for family in KEPT.families)
