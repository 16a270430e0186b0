"""Estimates: by which row or model they are made, how good they are by leaving out, and where there is none."""

import random
from collections.abc import Iterable
from statistics import median

import msgspec
import pytest

from benchmarks.planning.calibration import (
    AS,
    TERMS,
    Calibration,
    Estimate,
    Row,
    estimate,
    estimate_across,
    fit_shares,
    modelled,
)
from benchmarks.planning.calibration_report import family_rows
from benchmarks.planning.covered import BETWEEN, BEYOND, FURTHER, OF_FAMILY, REPUBLISHED, SERIES, family_of, series_of
from benchmarks.planning.forecast import cost, forecast
from benchmarks.planning.forecast_report import cost_rows, estimate_rows
from benchmarks.planning.leaving_out import FEWEST_SERIES, Left, across, by_series, choose, mean_error, quantile
from benchmarks.references.references import read_references
from benchmarks.values import Benchmark
from launch.planning import planning_calibration
from tests.benchmarks.planned import CONFIGS, bound_of, changed, laid_out, recipe, storage_of, with_rates

KEPT = CONFIGS.calibration()
ROWS, OUTSIDE = planning_calibration.published_rows(CONFIGS)
MADE = planning_calibration.make(CONFIGS)
FIT = MADE.fit
LEFT = [one for one in MADE.left if one.kind == SERIES]


def estimated(benchmark: Benchmark, kept: Calibration = KEPT) -> Estimate:
    return estimate(benchmark, bound_of(benchmark), kept)


# --- how good it is -----------------------------------------------------------------------------


def test_every_published_row_is_judged_or_said_why_not() -> None:
    assert len(ROWS) + len(OUTSIDE) == len(read_references(CONFIGS.root))
    assert len(LEFT) == FIT.rows == len(ROWS)


def test_across_series_estimates_are_nearer_than_either_baseline() -> None:
    errors = FIT.errors_of(SERIES)
    assert errors is not None
    assert errors.series == FIT.series >= 20
    assert errors.estimate.median < min(errors.lookup.median, errors.constant.median)
    assert mean_error(LEFT, "model") < mean_error(LEFT, "constant")


def test_within_a_series_the_nearest_scale_is_nearer_than_the_model() -> None:
    for kind in (BETWEEN, BEYOND):
        errors = FIT.errors_of(kind)
        assert errors is not None
        assert errors.estimate == errors.lookup
        assert errors.lookup.median < errors.model.median / 2


def test_a_baseline_is_used_only_where_it_was_nearer() -> None:
    for name, method in FIT.chosen.items():
        own = [one for one in MADE.left if name == (family_of(one.row.traits) if one.kind == SERIES else one.kind)]
        assert method == "model" or mean_error(own, method) < mean_error(own, "model")
    assert set(FIT.chosen.values()) == {"model", "lookup", "constant"}
    shown = {row[0]: row[-1] for row in family_rows(MADE.left, FIT)}
    assert all((shown[family] == "model") == (FIT.method(SERIES, family) == "model") for family in shown)


def test_a_worse_model_gives_way_to_a_baseline() -> None:
    families = {family_of(one.row.traits): one.row for one in LEFT}
    count = {name: len({one.series for one in LEFT if family_of(one.row.traits) == name}) for name in families}
    worse = choose([one._replace(model=one.model + 50) for one in LEFT])
    assert all((worse[name] == "model") == (count[name] < FEWEST_SERIES) for name in families)
    perfect = [one._replace(model=0.0) for one in LEFT]
    assert set(choose(perfect).values()) == {"model"}


def test_a_lead_within_its_standard_error_is_no_reason_to_change() -> None:
    def chosen(leads: list[float]) -> str:
        rows = {one.series: one for one in LEFT if one.row.traits.framework == "bridge pretrain"}.values()
        left = [
            one._replace(model=10 + lead, lookup=10.0, constant=99.0) for one, lead in zip(rows, leads, strict=False)
        ]
        return choose(left)["bridge pretrain fp8"]

    assert chosen([1.0, 1.1, 0.9]) == "lookup"
    assert chosen([9.0, -3.0, -3.0]) == "model"  # 1 +- 4


def test_intervals_cover_nine_in_ten_of_exchangeable_series() -> None:
    chance = random.Random(20)
    hits = []
    for _ in range(2000):
        *seen, new = (abs(chance.gauss(0, 1)) for _ in range(20))
        limit = quantile(seen)
        assert limit is not None
        hits.append(new <= limit)
    assert 0.88 < sum(hits) / len(hits) < 0.97
    assert quantile([1.0] * 8) is None  # too few to say
    for errors in FIT.errors:
        assert (errors.estimate.within_percent is None) == (errors.series < 9)
        assert errors.estimate.covered_percent is None or errors.estimate.covered_percent >= 85


def test_the_kept_fit_is_that_of_the_rows_there_are() -> None:
    """Where this fails, rows or formulas were changed: python launch/plan.py calibration --write."""
    assert KEPT.fit == FIT
    assert all(share >= 0 for share in FIT.shares.values())


# --- nothing leaks ------------------------------------------------------------------------------


def test_a_series_has_no_say_in_its_own_estimate() -> None:
    """Whatever its rows say, in every version: what is predicted without it stays."""
    key = series_of(ROWS[0].reference)
    lied = [_slower(row) if series_of(row.reference) == key else row for row in ROWS]
    honest, of_liars = (predicted(across(rows)) for rows in (ROWS, lied))
    assert honest[id(ROWS[0].benchmark)] == pytest.approx(of_liars[id(ROWS[0].benchmark)])
    others = [id(row.benchmark) for row in ROWS if series_of(row.reference) != key]
    assert any(honest[other] != pytest.approx(of_liars[other]) for other in others)


def predicted(left: Iterable[Left]) -> dict[int, float]:
    return {id(one.row.benchmark): one.row.seconds * (1 + one.model / 100) for one in left}


def _slower(row: Row) -> Row:
    seconds = msgspec.structs.replace(row.reference, seconds_per_step="99.0", tokens_per_second_per_gpu="")
    return row._replace(reference=seconds)


def test_without_a_model_no_row_of_it_has_a_say() -> None:
    of_model = [row for row in ROWS if row.traits.model == ROWS[0].traits.model]
    liar = next(row for row in of_model if series_of(row.reference) != series_of(ROWS[0].reference))
    lied = [_slower(row) if row is liar else row for row in ROWS]
    key = id(ROWS[0].benchmark)
    honest, of_liars = (predicted(across(rows, ["model"])) for rows in (ROWS, lied))
    assert honest[key] == pytest.approx(of_liars[key])
    honest, of_liars = (predicted(across(rows)) for rows in (ROWS, lied))
    assert honest[key] != pytest.approx(of_liars[key], rel=1e-6)


# --- the fit ------------------------------------------------------------------------------------


def test_times_that_the_model_made_are_found_again() -> None:
    shares = dict(zip(TERMS, (0.3, 0.2, 0.8, 1.5, 0.2), strict=True))
    rows = []
    for row in ROWS:
        seconds = msgspec.structs.replace(row.reference, seconds_per_step=repr(modelled(row, shares)))
        rows.append(row._replace(reference=seconds))
    found = fit_shares(rows)
    errors = [abs(modelled(row, found) / row.seconds - 1) for row in rows]
    assert median(errors) < 0.02  # the ridge draws towards fewer terms
    assert max(errors) < 0.08


def test_few_rows_are_no_evidence() -> None:
    few = [row for row in ROWS if row.traits.framework == "maxtext pretrain"]
    series = {series_of(row.reference) for row in few}
    assert len(series) > FEWEST_SERIES
    own = [row for row in few if series_of(row.reference) in list(series)[:FEWEST_SERIES]]
    assert list(across(own)) == []


# --- estimates ----------------------------------------------------------------------------------

NEMO = recipe("nemo", "llama31_70b", hardware="h100")
UNLIKE = laid_out(NEMO, tensor=8, pipeline=4, data=2, virtual_pipeline=5)
DEEPER = msgspec.structs.replace(NEMO.model, name="llama_deeper", layers=100)


def test_a_published_scale_is_looked_up_and_named() -> None:
    found = estimated(NEMO)
    assert (found.seconds, found.kind) == (14.66, REPUBLISHED)  # the newest version's, v25.04
    assert "llama31_70b pretrain bf16 64 x h100, this scale (NVIDIA/dgxc-benchmarking v25.04" in found.by
    assert found.parts == {}
    assert found.beyond == []


@pytest.mark.parametrize(
    ("data", "kind", "nearest"),
    [(12, BETWEEN, "512 x h100"), (3, BETWEEN, "128 x h100"), (128, BEYOND, "2048 x h100")],
)
def test_another_scale_is_the_nearest_published_one(data: int, kind: str, nearest: str) -> None:
    asked = laid_out(NEMO, tensor=4, pipeline=4, context=2, virtual_pipeline=5, data=data)
    found = estimated(changed(asked, global_batch_size=64 * data))
    assert found.kind == kind
    assert f"{nearest}, the nearest scale" in found.by
    assert found.errors == FIT.errors_of(kind)


def test_more_doublings_than_were_judged_have_no_error() -> None:
    small = laid_out(NEMO, tensor=4, pipeline=4, context=2, virtual_pipeline=5, data=4096)
    found = estimated(changed(small, global_batch_size=64 * 4096))
    assert found.seconds == 14.66
    assert found.errors is None
    assert "doublings" in found.beyond[0]


def test_another_program_or_batch_is_not_looked_up() -> None:
    other = recipe("jax", "llama2_70b", settings={"remat_policy": "full"})
    assert "published row " not in estimated(other).by
    assert "published row " not in estimated(changed(NEMO, gradient_accumulation=32, global_batch_size=64)).by


def test_the_models_parts_add_up_and_are_never_below_the_bound() -> None:
    found = estimated(UNLIKE)
    assert found.seconds == pytest.approx(sum(found.parts.values()))
    assert found.seconds > (bound_of(UNLIKE).seconds or 0)
    assert found.by.startswith("the model")
    base = laid_out(recipe(dtype="fp8"), fsdp=32, tensor=2)
    slow = changed(base, hardware=with_rates(base.hardware, memory=3350, node=360, network=1))
    assert estimated(slow).seconds == bound_of(slow).seconds


@pytest.mark.parametrize("method", ["lookup", "constant"])
def test_a_baseline_is_a_ratio_times_the_bound(method: str) -> None:
    family = next(name for name, used in FIT.chosen.items() if used == method)
    of_family = [row for row in ROWS if family_of(row.traits) == family]
    row = of_family[-1]
    found = estimate(row.benchmark, row.bound, msgspec.structs.replace(KEPT, published=[]))
    assert f"x the bound, {AS[method]}" in found.by
    ratios = [one.ratio for one in of_family]
    assert min(ratios) * 0.99 <= (found.seconds or 0) / (row.bound.seconds or 1) <= max(ratios) * 1.01


@pytest.mark.parametrize(
    ("benchmark", "kind"),
    [
        (UNLIKE, "layout"),
        (changed(NEMO, model=DEEPER), "model"),
        (changed(UNLIKE, model=DEEPER), "model + layout"),
        (changed(NEMO, gradient_accumulation=32, global_batch_size=64), SERIES),
        (changed(recipe(), task="other"), "framework"),
        (recipe(hardware="a100"), "device"),
    ],
    ids=["layout", "model", "model and layout", "series", "framework", "device"],
)
def test_the_error_is_of_what_was_as_far_from_the_rows(benchmark: Benchmark, kind: str) -> None:
    found = estimated(benchmark)
    assert (found.kind, found.errors) == (kind, FIT.errors_of(kind))
    assert found.interval is not None
    assert found.interval[0] < (found.seconds or 0) < found.interval[1]
    told = dict(estimate_rows(found, bound_of(benchmark)))["its error"]
    assert "the nearest row would have" in told
    assert "90% of the series lie within" in told


@pytest.mark.parametrize(
    ("benchmark", "text"),
    [
        (laid_out(NEMO, tensor=8, pipeline=2, context=4, virtual_pipeline=5), "context 4: rows have 1 to 2"),
        (recipe(settings={"remat_policy": "full"}), "no row recomputes query, key and value, attention core"),
        (changed(NEMO, task="other", model=DEEPER, hardware=CONFIGS.hardware("a100")), "no row is on a100"),
        (changed(NEMO, model=CONFIGS.model("llama2_13b")), "of matmuls and attention for a micro-batch: rows 3.4 ms"),
    ],
    ids=["size", "recomputation", "three ways", "small layers"],
)
def test_further_from_the_rows_the_interval_is_that_of_leaving_out_as_much_as_can_be(
    benchmark: Benchmark, text: str
) -> None:
    found, errors = estimated(benchmark), FIT.errors_of(FURTHER)
    assert any(text in one for one in found.beyond), found.beyond
    assert (found.kind, found.errors) == (FURTHER, errors)
    assert errors is not None
    assert found.interval is not None
    assert (bound_of(benchmark).seconds or 0) <= found.interval[0]
    nearer = [FIT.errors_of(kind) for kind in OF_FAMILY]
    assert all((one.estimate.within_percent or 0) < (errors.estimate.within_percent or 0) for one in nearer if one)
    by_model = estimate_across(benchmark, bound_of(benchmark), KEPT, by_model=True)
    assert by_model.errors is None  # of layouts far from the rows nobody knows which is faster


@pytest.mark.parametrize(
    ("benchmark", "text"),
    [
        (changed(NEMO, sequence_length=131072), "sequence length 131072: rows have 8192"),
        (changed(NEMO, micro_batch_size=8), "micro batch size 8 is more than 2 times beyond all rows"),
        (
            changed(NEMO, hardware=CONFIGS.hardware("b200"), model=CONFIGS.model("llama32_1b")),
            "that is less than 1/4 of what any row has",
        ),
        (laid_out(NEMO, tensor=4, pipeline=4, context=2, data=2), "virtual pipeline 1: rows have 5 to 8"),
    ],
)
def test_out_of_the_reach_of_all_rows_no_error_is_known(benchmark: Benchmark, text: str) -> None:
    found = estimated(benchmark)
    assert found.seconds is not None
    assert any(text in one for one in found.beyond), found.beyond
    assert found.worst_percent is None
    assert found.interval is None
    told = dict(estimate_rows(found, bound_of(benchmark)))
    assert told["its error"].startswith("not known")
    whole = forecast(benchmark, storage_of(benchmark), KEPT)
    hours = dict(cost_rows(cost(benchmark, whole, 10**12, None), whole))["GPU hours"]
    assert "not known here" in hours
    assert "give or take" not in hours


@pytest.mark.parametrize(
    ("benchmark", "why"),
    [
        (recipe(model="llama2_tiny", gpus=1), "on GPUs of cuda, not cpu"),
        (changed(NEMO, hardware=CONFIGS.hardware("mi300x")), "on GPUs of cuda, not rocm"),
    ],
    ids=["cpu", "rocm"],
)
def test_on_other_platforms_there_is_none(benchmark: Benchmark, why: str) -> None:
    found = estimated(benchmark)
    assert found.seconds is None
    assert why in found.why_none


def test_a_part_that_is_not_known_leaves_no_estimate() -> None:
    base = laid_out(recipe(), fsdp=32, tensor=2)
    rates = {name: rate for name, rate in base.hardware.rates.items() if name != "network"}
    blind = changed(base, hardware=msgspec.structs.replace(base.hardware, rates=rates))
    assert "no rate 'network'" in estimated(blind).why_none


def test_every_series_counts_once_in_an_error() -> None:
    assert len(by_series(LEFT, "model")) == len({series_of(one.row.reference) for one in LEFT})
