"""From a bound to an estimate: by the nearest scale of a published series, else by a model fitted to all rows. Pure.

The model adds to what no run gets around (matmuls, bubble, optimizer) terms with a physical reason, each times a
share that is fitted and never below 0. One fit serves all frameworks and precisions, for that predicts unseen series
best. configs/calibration.yml keeps what came out, with the errors by leaving out (leaving_out.py).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.backend import find_backend
from benchmarks.planning.bounds import Bound, bound
from benchmarks.planning.capacity import Storage, total_bytes, usable_bytes
from benchmarks.planning.covered import (
    ASPECTS,
    BETWEEN,
    BEYOND,
    FURTHER,
    REPUBLISHED,
    Error,
    Errors,
    Fit,
    Ratio,
    Series,
    Traits,
    beyond_rows,
    family_of,
    kind_of,
    new_aspects,
    out_of_reach,
    series_of,
    series_of_benchmark,
    traits_of,
    version,
)
from benchmarks.planning.published import SETTINGS
from benchmarks.values import Benchmark, Value

if TYPE_CHECKING:
    from benchmarks.references.references import Reference

FILE = "calibration.yml"
MAKE_ANEW = "python launch/plan.py calibration --write"
TERMS = ("slower_matmuls", "fp8_matmuls", "kernels", "context_attention", "layer_traffic")
MEANING: Mapping[str, str] = {
    "slower_matmuls": "of the layers' matmuls, which are slower than the fastest known",
    "fp8_matmuls": "more of them in fp8, whose operands are cast and scaled",
    "kernels": "ms for each layer and micro-batch: what starts, and what is too small for the device",
    "context_attention": "of attention's time, for the part of a sequence that other ranks hold",
    "layer_traffic": "of the traffic of tensor, context and pipeline axes, which layers wait for",
}
STIFFNESS = 0.1  # draws all shares but the first to 0: with few series the model becomes a constant times the matmuls
LAYER_AXES = ("tensor", "context", "pipeline")
BATCH = ("micro_batch_size", "gradient_accumulation", "global_batch_size")


class Calibration(Value, frozen=True):
    """The kept fit, and the rows to look up in."""

    fit: Fit | None
    published: list["Reference"]


class Row(NamedTuple):
    """A published row with what is computed of it."""

    reference: "Reference"
    benchmark: Benchmark
    bound: Bound
    floor: float  # seconds that no share is taken of
    terms: tuple[float, ...]
    traits: Traits
    memory_percent: float  # of what is usable
    series: Series

    @property
    def seconds(self) -> float:
        return self.reference.seconds

    @property
    def ratio(self) -> float:
        return self.seconds / (self.bound.seconds or math.nan)


class Estimate(Value, frozen=True):
    """What a step should take, as published runs did; or why that is not known."""

    seconds: float | None
    why_none: str = ""
    by: str = ""  # the published row, the model or a baseline
    kind: str = ""  # of prediction: which leaving out its errors are of
    parts: dict[str, float] = {}  # of the model, seconds: the floor, and each term
    shares: dict[str, float] = {}  # of the terms
    errors: Errors | None = None  # None: not known
    error: Error | None = None  # of them, that of the method
    beyond: list[str] = []  # in what the benchmark goes beyond the rows
    least_seconds: float = 0.0  # the bound

    @property
    def worst_percent(self) -> float | None:
        return None if self.error is None else self.error.worst

    @property
    def interval(self) -> tuple[float, float] | None:
        """In which 90% of the series lay that were predicted so, and none below its bound; None: not known."""
        if self.seconds is None or self.error is None or self.error.within_percent is None:
            return None
        factor = 1 + self.error.within_percent / 100
        return max(self.seconds / factor, self.least_seconds), self.seconds * factor


# --- the terms ----------------------------------------------------------------------------------


def floor_seconds(found: Bound) -> float | None:
    """What no run gets around: the bound, less the traffic that shows."""
    if found.compute_seconds is None:
        return None
    return found.compute_seconds + found.seconds_of("bubble") + found.seconds_of("optimizer")


def terms(benchmark: Benchmark, found: Bound) -> tuple[float, ...]:
    """Seconds of each of TERMS at a share of 1."""
    share = benchmark.parallelism
    matmuls = found.seconds_of("linear") + found.seconds_of("recompute")
    attention = found.seconds_of("attention") + found.seconds_of("recompute attention")
    return (
        matmuls,
        matmuls if benchmark.dtype == "fp8" else 0.0,
        1e-3 * benchmark.model.layers / share.pipeline * benchmark.gradient_accumulation,
        attention * (1 - 1 / share.context),
        sum(found.traffic_seconds(axis) for axis in LAYER_AXES),
    )


def row_of(reference: "Reference", benchmark: Benchmark, storage: Storage) -> Row | None:
    """None where the bound is not known, or no rate of the device."""
    found = bound(benchmark, storage)
    floor = floor_seconds(found)
    if floor is None or found.unknown:
        return None
    usable = usable_bytes(benchmark, storage)
    memory = 100 * total_bytes(benchmark, storage) / usable if usable else 0.0
    known = terms(benchmark, found), traits_of(benchmark), memory, series_of(reference)
    return Row(reference, benchmark, found, floor, *known)


# --- fitting ------------------------------------------------------------------------------------


def fit_shares(rows: Sequence[Row]) -> dict[str, float]:
    """The shares that come nearest to the published times, relatively; none is below 0. Every series counts once."""
    import numpy
    from scipy.optimize import nnls

    if not rows:
        return {}
    count = Counter(row.series for row in rows)
    weight = numpy.array([count[row.series] ** -0.5 for row in rows])
    seconds = numpy.array([row.seconds for row in rows])
    matrix = numpy.array([row.terms for row in rows]) * (weight / seconds)[:, None]
    wanted = (1 - numpy.array([row.floor for row in rows]) / seconds) * weight
    # Ridge regression, each share in units of what its term usually takes of a step.
    stiff = numpy.sqrt(STIFFNESS * (matrix**2).sum(axis=0))
    stiff[0] = 0.0
    shares, _ = nnls(numpy.vstack([matrix, numpy.diag(stiff)]), numpy.concatenate([wanted, numpy.zeros(len(TERMS))]))
    return {name: float(share) for name, share in zip(TERMS, shares, strict=True)}


def modelled(row: Row, shares: Mapping[str, float]) -> float:
    seconds = row.floor + sum(shares[name] * term for name, term in zip(TERMS, row.terms, strict=True))
    return max(seconds, row.bound.seconds or 0.0)


# --- looking up ---------------------------------------------------------------------------------


def doublings(gpus: int, other: int) -> float:
    return abs(math.log2(gpus / other))


def nearest_scale(asked: Benchmark, published: Sequence["Reference"]) -> "Reference | None":
    """The nearest scale in the newest version of the series; None: no row is of its series."""
    needed = SETTINGS.get((asked.engine, asked.task), {})
    if set(asked.overrides) - {*BATCH, *needed, *find_backend(asked.backend).layout_settings}:
        return None  # it is another program than its recipe's
    key = series_of_benchmark(asked)
    rows = [row for row in published if series_of(row) == key]
    newest_first = sorted(rows, key=version, reverse=True)
    return min(newest_first, key=lambda row: doublings(asked.gpus, row.gpus), default=None)


def nearest_ratio(traits: Traits, gpus: int, ratios: Sequence[Ratio]) -> float:
    """Seconds over the bound: of the same precision, then the same framework, then what has the most else in common,
    then the nearest scale; the mean of equals. The order is the one in which such a lookup is best."""

    def distance(one: Ratio) -> tuple[bool, bool, int, float]:
        unlike = {name: getattr(traits, name) != getattr(one.traits, name) for name in ASPECTS}
        return unlike["precision"], unlike["framework"], sum(unlike.values()), doublings(gpus, one.gpus)

    distances = [distance(one) for one in ratios]
    least = min(distances)
    near = [one.ratio for one, far in zip(ratios, distances, strict=True) if far == least]
    return sum(near) / len(near)


# --- estimating ---------------------------------------------------------------------------------


def estimate(asked: Benchmark, found: Bound, calibration: Calibration) -> Estimate:
    """By the nearest scale of its series where one is published, else across series."""
    row = nearest_scale(asked, calibration.published)
    if row is None or calibration.fit is None:
        return estimate_across(asked, found, calibration)
    key = series_of(row)
    scales = [one.gpus for one in calibration.published if series_of(one) == key]
    if row.gpus == asked.gpus:
        kind, how = REPUBLISHED, "this scale"
    else:
        kind, how = (BETWEEN if min(scales) < asked.gpus < max(scales) else BEYOND), "the nearest scale"
    far = doublings(asked.gpus, row.gpus) > calibration.fit.most_doublings
    errors = None if far else calibration.fit.errors_of(kind)
    limit = f"{asked.gpus} GPUs are more than {calibration.fit.most_doublings} doublings from a published scale"
    return Estimate(
        seconds=row.seconds,
        by=f"the published row {row.name}, {how} ({row.citation})",
        kind=kind,
        errors=errors,
        error=None if errors is None else errors.estimate,
        beyond=[limit] if far else [],
    )


def estimate_across(asked: Benchmark, found: Bound, calibration: Calibration, *, by_model: bool = False) -> Estimate:
    """Without rows of its own series: by the model, or a baseline where that was nearer.

    by_model: for layouts that are held against each other. Far from the rows their error is not known."""
    kept = calibration.fit
    if kept is None:
        return Estimate(seconds=None, why_none=f"nothing is fitted ({MAKE_ANEW})")
    if asked.hardware.platform != PLATFORM:
        why = f"all published runs are on GPUs of {PLATFORM}, not {asked.hardware.platform}"
        return Estimate(seconds=None, why_none=why)
    floor = floor_seconds(found)
    if floor is None or found.unknown or found.seconds is None:
        return Estimate(seconds=None, why_none=f"a part of its bound is not known ({found.unknown[0]})")
    traits = traits_of(asked)
    aspects = new_aspects(traits, kept.covered.traits)
    beyond = list(beyond_rows(asked, found, kept.covered))
    parts = {name: kept.shares[name] * term for name, term in zip(TERMS, terms(asked, found), strict=True)}
    parts = {"floor": floor, **{name: seconds for name, seconds in parts.items() if seconds}}
    seconds, by = max(sum(parts.values()), found.seconds), "the model, from published rows of other series"
    unreached = any(out_of_reach(asked, found, kept.covered))
    kind = FURTHER if kept.errors_of(kind_of(aspects)) is None else kind_of(aspects)
    method = "model" if by_model or unreached else kept.method(kind, family_of(traits))
    if method != "model":
        ratio = nearest_ratio(traits, asked.gpus, kept.ratios if method == "lookup" else kept.constants)
        seconds, by, parts = ratio * found.seconds, f"{ratio:.3f} x the bound, {AS[method]}", {}
    kind = FURTHER if beyond else kind
    errors = None if kind == FURTHER and (by_model or unreached) else kept.errors_of(kind)
    error = None
    if errors:  # far from the rows, and of layouts, all series were judged by one method; else each family by its own
        error = errors.of(method) if by_model or kind == FURTHER else errors.estimate
    return Estimate(
        seconds=seconds,
        by=by,
        kind=kind,
        parts=parts,
        shares=kept.shares if parts else {},
        errors=errors,
        error=error,
        beyond=[f"no row {WITHOUT[name]} {getattr(traits, name)}" for name in aspects] + beyond,
        least_seconds=found.seconds,
    )


PLATFORM = "cuda"
AS = {"lookup": "as the nearest published rows", "constant": "the mean of published series"}
WITHOUT = {
    "framework": "is of",
    "model": "is of a model of",
    "device": "is on",
    "precision": "is in",
    "layout": "is in the layout",
}
