"""From a bound to an estimate: what published runs took longer than their bounds, fitted by family. Pure.

A step's estimate is what no run gets around (matmuls, bubble, optimizer) and four terms, each a share that is fitted
and never below 0: passes over a layer's activations, which no fp8 makes shorter; attention that context ranks share;
traffic; and what grows with the nodes. configs/calibration_families.yml says which rows are fitted together, and
configs/calibration.yml keeps what came out, so that an estimate needs no fit. How good it is, leaving out tells: each
row is estimated by a fit that has seen neither it nor its twins, rows of the same run published again in another
version.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from benchmarks.planning.bounds import Bound, bound
from benchmarks.planning.capacity import DISTINCT, Storage, activation_widths, compute_bytes
from benchmarks.planning.covered import Errors, Fit, beyond_rows, layout_kind, sizes_of, worst_percent
from benchmarks.planning.traffic import tokens_per_step
from benchmarks.values import Benchmark, Value

if TYPE_CHECKING:
    from benchmarks.references.references import Reference

FAMILIES_FILE = "calibration_families.yml"
FILE = "calibration.yml"
MAKE_ANEW = "python launch/plan.py calibration --write"
TERMS = ("memory_passes", "context_attention", "traffic", "growth")
MEANING: Mapping[str, str] = {
    "memory_passes": "times that all activations of a layer go through memory",
    "context_attention": "of attention's time, for the part of a sequence that other ranks hold",
    "traffic": "of the traffic's time, over all connections",
    "growth": "of the matmuls' time, for each doubling of the nodes",
}


class Family(Value, frozen=True):
    """Rows that are fitted together."""

    name: str
    backend: str
    engine: str
    task: str
    dtypes: list[str]
    reason: str

    def holds(self, benchmark: Benchmark) -> bool:
        key = (benchmark.backend, benchmark.engine, benchmark.task)
        return key == (self.backend, self.engine, self.task) and benchmark.dtype in self.dtypes


class Families(Value, frozen=True):
    """configs/calibration_families.yml, which a person writes."""

    families: list[Family]
    source: str
    date: str


class Fits(Value, frozen=True):
    """configs/calibration.yml, which is made."""

    fits: list[Fit]


class Calibration(Value, frozen=True):
    """Families with what came out of their rows."""

    families: list[Family]
    fits: list[Fit]

    def family_of(self, benchmark: Benchmark) -> Family | None:
        return next((family for family in self.families if family.holds(benchmark)), None)

    def fit_of(self, family: Family) -> Fit | None:
        return next((fit for fit in self.fits if fit.family == family.name), None)


class Row(NamedTuple):
    """A published row with what is computed of it."""

    reference: "Reference"
    benchmark: Benchmark
    bound: Bound
    floor: float  # seconds that no share is taken of
    terms: tuple[float, ...]


class Judged(Value, frozen=True):
    """A published row beside the estimate of a fit that has not seen it."""

    name: str
    layout: str
    source: str
    family: str
    dtype: str
    seconds: float
    bound_seconds: float
    estimate_seconds: float | None  # None: without it and its twins, nothing of the family remains
    error_percent: float | None
    model_left_out_percent: float | None
    layout_left_out_percent: float | None
    twins: int  # rows that were left out with it


class Estimate(Value, frozen=True):
    """What a step should take, as published runs did; or why that is not known."""

    seconds: float | None
    why_none: str = ""
    family: str = ""
    parts: dict[str, float] = {}  # seconds: the floor, and each term
    shares: dict[str, float] = {}  # of the terms, by the family's fit
    errors: Errors | None = None
    beyond: list[str] = []  # in what the benchmark goes beyond the family's rows
    worst_percent: float | None = None  # how far off it may be; None: nobody measured that so far beyond the rows
    tells_layouts_apart: bool = True  # False: no run of the family was in another kind of layout


# --- the terms ----------------------------------------------------------------------------------


def floor_seconds(found: Bound) -> float | None:
    """What no run gets around: the bound, less the traffic that shows."""
    if found.compute_seconds is None:
        return None
    return found.compute_seconds + found.seconds_of("bubble") + found.seconds_of("optimizer")


def terms(benchmark: Benchmark, found: Bound) -> tuple[float, ...]:
    """Seconds of each of TERMS at a share of 1."""
    context = benchmark.parallelism.context
    attention = found.seconds_of("attention") + found.seconds_of("recompute attention")
    return (
        memory_pass_seconds(benchmark),
        attention * (1 - 1 / context),
        found.traffic_seconds(),
        (found.compute_seconds or 0.0) * math.log2(max(1, benchmark.nodes)),
    )


def memory_pass_seconds(benchmark: Benchmark) -> float:
    """All activations of a device's layers, once through its memory."""
    share, widths = benchmark.parallelism, activation_widths(benchmark.model)
    numbers = sum(widths[name] for name in DISTINCT) * benchmark.model.layers / (share.tensor * share.pipeline)
    rate = benchmark.hardware.rates["memory"]
    return numbers * tokens_per_step(benchmark) * compute_bytes(benchmark) / (rate.gb_s * 1e9)


def row_of(reference: "Reference", benchmark: Benchmark, storage: Storage) -> Row | None:
    """None where the bound is not known, or no rate of the device."""
    found = bound(benchmark, storage)
    floor = floor_seconds(found)
    if floor is None or found.unknown:
        return None
    return Row(reference, benchmark, found, floor, terms(benchmark, found))


# --- fitting ------------------------------------------------------------------------------------


def fit(rows: Sequence[Row]) -> dict[str, float]:
    """The shares that come nearest to the published times, relatively; none is below 0."""
    import numpy
    from scipy.optimize import nnls

    if not rows:
        return {}
    matrix = numpy.array([[term / row.reference.seconds for term in row.terms] for row in rows])
    wanted = numpy.array([1 - row.floor / row.reference.seconds for row in rows])
    shares, _ = nnls(matrix, wanted)
    return {name: float(share) for name, share in zip(TERMS, shares, strict=True)}


def estimated(row: Row, shares: Mapping[str, float]) -> float:
    seconds = row.floor + sum(shares[name] * term for name, term in zip(TERMS, row.terms, strict=True))
    return max(seconds, row.bound.seconds or 0.0)


def same_run(row: Row) -> Hashable:
    """What makes rows twins: the same work in the same layout, published by several versions of a recipe."""
    one = row.reference
    work = (one.model, one.task, one.dtype, one.hardware, one.gpus, one.sequence_length, one.global_batch_size)
    return (*work, one.micro_batch_size, one.parallelism)


def same_model(row: Row) -> Hashable:
    return row.reference.model


def same_layout(row: Row) -> Hashable:
    return layout_kind(row.reference.parallelism)


def left_out(rows: Sequence[Row], together: Callable[[Row], Hashable]) -> list[float | None]:
    """Each row's estimate by a fit without it, and without those that are left out together with it."""
    fits = {
        key: fit([other for other in rows if together(other) != key]) for key in dict.fromkeys(map(together, rows))
    }
    return [estimated(row, shares) if (shares := fits[together(row)]) else None for row in rows]


# --- judging ------------------------------------------------------------------------------------


def judge(family: Family, rows: Sequence[Row]) -> list[Judged]:
    """Every row of a family beside its estimate by leaving out."""
    alone, without_model = left_out(rows, same_run), left_out(rows, same_model)
    without_layout = left_out(rows, same_layout)
    judged = []
    for row, estimate, other, elsewhere in zip(rows, alone, without_model, without_layout, strict=True):
        judged.append(
            Judged(
                name=row.reference.name,
                layout=row.reference.parallelism.short(),
                source=row.reference.citation,
                family=family.name,
                dtype=row.reference.dtype,
                seconds=row.reference.seconds,
                bound_seconds=row.bound.seconds or 0.0,
                estimate_seconds=estimate,
                error_percent=_percent(estimate, row),
                model_left_out_percent=_percent(other, row),
                layout_left_out_percent=_percent(elsewhere, row),
                twins=sum(same_run(other_row) == same_run(row) for other_row in rows) - 1,
            )
        )
    return judged


def _percent(estimate: float | None, row: Row) -> float | None:
    return None if estimate is None else 100 * (estimate / row.reference.seconds - 1)


def errors_of(judged: Sequence[Judged]) -> Errors | None:
    """None where no row could be judged."""
    from statistics import median

    found = [abs(one.error_percent) for one in judged if one.error_percent is not None]
    models = [abs(one.model_left_out_percent) for one in judged if one.model_left_out_percent is not None]
    layouts = [abs(one.layout_left_out_percent) for one in judged if one.layout_left_out_percent is not None]
    if not found:
        return None
    return Errors(
        rows=len(found),
        median=median(found),
        worst=max(found),
        model_left_out_median=median(models) if models else None,
        model_left_out_worst=max(models) if models else None,
        layout_left_out_median=median(layouts) if layouts else None,
        layout_left_out_worst=max(layouts) if layouts else None,
    )


def fitted(family: Family, rows: Sequence[Row], judged: Sequence[Judged]) -> Fit:
    """The fit of all rows, with its errors and what it covers."""
    by_dtype = {dtype: errors_of([one for one in judged if one.dtype == dtype]) for dtype in family.dtypes}
    on = {row.reference.hardware for row in rows}
    sizes = [sizes_of(row.benchmark) for row in rows]
    named = {name: [one[name] for one in sizes if name in one] for name in sorted({n for one in sizes for n in one})}
    return Fit(
        family=family.name,
        shares=fit(rows),
        errors={dtype: errors for dtype, errors in by_dtype.items() if errors},
        hardware={
            name: sorted({r.reference.dtype for r in rows if r.reference.hardware == name}) for name in sorted(on)
        },
        models=sorted({row.reference.model for row in rows}),
        layouts=sorted({layout_kind(row.reference.parallelism) for row in rows}),
        ranges={name: [min(found), max(found)] for name, found in named.items()},
        computed_twice=sorted({tuple(row.bound.computed_twice): row.bound.computed_twice for row in rows}.values()),
    )


DIGITS = 5  # that are kept of a fit: more would differ from machine to machine


def rounded(found: Fit) -> Fit:
    """As it is kept."""
    errors = {
        dtype: msgspec.structs.replace(
            one, **{name: _digits(number) for name, number in msgspec.structs.asdict(one).items()}
        )
        for dtype, one in found.errors.items()
    }
    shares = {name: _digits(share) or 0.0 for name, share in found.shares.items()}
    return msgspec.structs.replace(found, shares=shares, errors=errors)


def _digits(number: float | None) -> float | None:
    return number if number is None or isinstance(number, int) else float(f"{number:.{DIGITS}g}")


# --- estimating ---------------------------------------------------------------------------------


def estimate(benchmark: Benchmark, found: Bound, calibration: Calibration) -> Estimate:
    """What a step should take, by the kept fit of its family."""
    family = calibration.family_of(benchmark)
    if family is None:
        words = f"{benchmark.backend} ({benchmark.engine}) {benchmark.task} {benchmark.dtype}"
        return Estimate(seconds=None, why_none=f"nothing is published for {words}")
    kept = calibration.fit_of(family)
    if kept is None:
        why = f"the rows of {family.name} are not fitted ({MAKE_ANEW})"
        return Estimate(seconds=None, why_none=why)
    if benchmark.hardware.name not in kept.hardware:
        why = f"the published runs of {family.name} are on {', '.join(kept.hardware)}, not {benchmark.hardware.name}"
        return Estimate(seconds=None, why_none=why)
    floor = floor_seconds(found)
    if floor is None or found.unknown:
        return Estimate(seconds=None, why_none=f"a part of its bound is not known ({found.unknown[0]})")
    parts = {name: kept.shares[name] * term for name, term in zip(TERMS, terms(benchmark, found), strict=True)}
    parts = {"floor": floor, **{name: seconds for name, seconds in parts.items() if seconds}}
    errors = kept.errors.get(benchmark.dtype)
    beyond = list(beyond_rows(benchmark, found, kept))
    return Estimate(
        seconds=max(sum(parts.values()), found.seconds or 0.0),
        family=family.name,
        parts=parts,
        shares=kept.shares,
        errors=errors,
        beyond=[text for _, text in beyond],
        worst_percent=worst_percent(errors, {what for what, _ in beyond}),
        tells_layouts_apart=kept.tells_layouts_apart,
    )
