"""How good estimates are: every published row predicted without itself and what is as near to it. Pure.

Beside the model stand two baselines: a lookup of the nearest row, its seconds times the ratio of the bounds, and one
constant times the bound, the mean of the framework's and precision's other series. Where one of them is nearer to the
series of a framework and precision that were left out, it is what estimates further series of them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from statistics import fmean, median
from typing import Literal, NamedTuple

import msgspec

from benchmarks.planning.calibration import Row, doublings, fit_shares, modelled, nearest_ratio
from benchmarks.planning.covered import (
    ASPECTS,
    BETWEEN,
    BEYOND,
    REPUBLISHED,
    SERIES,
    Covered,
    Error,
    Errors,
    Fit,
    LayoutsApart,
    Ratio,
    Series,
    family_of,
    kind_of,
    series_of,
    sizes_of,
    version,
)

Method = Literal["model", "lookup", "constant"]
BASELINES: tuple[Method, ...] = ("lookup", "constant")
FEWEST_SERIES = 3  # that are left to predict from, or an error is of
MOST_ASPECTS = 2  # that are left out together: what is new in more ways has no error
WITHIN = 0.9  # of the series lie in an interval


class Left(NamedTuple):
    """A row beside what is predicted without it; errors in percent."""

    row: Row
    kind: str
    model: float
    lookup: float
    constant: float

    @property
    def series(self) -> Series:
        return series_of(self.row.reference)

    def error(self, method: Method) -> float:
        return {"model": self.model, "lookup": self.lookup, "constant": self.constant}[method]


# --- leaving out --------------------------------------------------------------------------------


def leave_out(rows: Sequence[Row]) -> list[Left]:
    """Every row in every kind of prediction that the other rows allow."""
    found = [*within_series(rows), *across(rows)]
    for number in range(1, MOST_ASPECTS + 1):
        for aspects in combinations(ASPECTS, number):
            found += across(rows, aspects)
    return found


def across(rows: Sequence[Row], aspects: Sequence[str] = ()) -> Iterator[Left]:
    """Each series by the others that share none of these aspects with it."""
    kind, too_near = kind_of(aspects), _shares_one_of(aspects)
    for series in dict.fromkeys(series_of(row.reference) for row in rows):
        own = [row for row in rows if series_of(row.reference) == series]
        others = [row for row in rows if series_of(row.reference) != series and not too_near(own[0], row)]
        if len({series_of(row.reference) for row in others}) < FEWEST_SERIES:
            continue
        shares, ratios = fit_shares(others), ratios_of(others)
        constant = nearest_ratio(own[0].traits, 1, constants(others))
        for row in own:
            looked_up = nearest_ratio(row.traits, row.reference.gpus, ratios)
            bound = row.bound.seconds or math.nan
            yield _left(row, kind, modelled(row, shares), looked_up * bound, constant * bound)


def _shares_one_of(aspects: Sequence[str]) -> Callable[[Row, Row], bool]:
    return lambda row, other: any(getattr(row.traits, name) == getattr(other.traits, name) for name in aspects)


def within_series(rows: Sequence[Row]) -> Iterator[Left]:
    """By another scale of the same version, and by the same scale of another version."""
    for series in dict.fromkeys(series_of(row.reference) for row in rows):
        own = [row for row in rows if series_of(row.reference) == series]
        for row in own:
            again = [other for other in own if other.reference.gpus == row.reference.gpus and other is not row]
            rest = [other for other in own if other.reference.gpus != row.reference.gpus]
            scales = [other for other in rest if _version(other) == _version(row)]
            model = modelled(row, fit_shares([other for other in rows if other not in again and other is not row]))
            for other in again:
                yield _left(row, REPUBLISHED, model, other.seconds, other.seconds)
            if not scales:
                continue
            constant = fmean(other.ratio for other in scales) * (row.bound.seconds or math.nan)
            gpus = [other.reference.gpus for other in scales]
            if min(gpus) < row.reference.gpus < max(gpus):
                near = min(scales, key=lambda other: doublings(row.reference.gpus, other.reference.gpus))
                yield _left(row, BETWEEN, model, near.seconds, constant)
            for other in scales:  # as if nothing between the two, or beyond, were published
                yield _left(row, BEYOND, model, other.seconds, constant)


def _version(row: Row) -> tuple[str, str]:
    return row.reference.source, row.reference.tag


def _left(row: Row, kind: str, *seconds: float) -> Left:
    return Left(row, kind, *(100 * (one / row.seconds - 1) for one in seconds))


# --- baselines ----------------------------------------------------------------------------------


def ratios_of(rows: Sequence[Row]) -> list[Ratio]:
    return [Ratio(traits=row.traits, gpus=row.reference.gpus, ratio=row.ratio) for row in rows]


def constants(rows: Sequence[Row]) -> list[Ratio]:
    """One for each framework and precision: the mean of its series' means."""
    families: dict[str, dict[Series, list[Row]]] = {}
    for row in rows:
        families.setdefault(family_of(row.traits), {}).setdefault(series_of(row.reference), []).append(row)
    found = []
    for of_series in families.values():
        first = next(iter(of_series.values()))[0].traits
        bare = msgspec.structs.replace(first, model="", device="", layout="")
        mean = fmean(fmean(row.ratio for row in series) for series in of_series.values())
        found.append(Ratio(traits=bare, gpus=1, ratio=mean))
    return found


def choose(left: Sequence[Left]) -> dict[str, Method]:
    """The method of each framework and precision: the model where it is nearer than both baselines."""
    families = dict.fromkeys(family_of(one.row.traits) for one in left)
    chosen: dict[str, Method] = {}
    for family in families:
        own = [one for one in left if one.kind == SERIES and family_of(one.row.traits) == family]
        methods: tuple[Method, ...] = ("model", *BASELINES)
        chosen[family] = min(methods, key=lambda method: mean_error(own, method)) if own else "model"
    return chosen


def mean_error(left: Sequence[Left], method: Method) -> float:
    """Of the series' medians: what a method is chosen by."""
    return fmean(median(errors) for errors in by_series(left, method))


# --- errors -------------------------------------------------------------------------------------


def by_series(left: Sequence[Left], method: Method) -> list[list[float]]:
    found: dict[Series, list[float]] = {}
    for one in left:
        found.setdefault(one.series, []).append(abs(one.error(method)))
    return list(found.values())


def error_of(series: Sequence[Sequence[float]]) -> Error:
    return Error(median=median(median(errors) for errors in series), worst=max(map(max, series)))


def errors_of(left: Sequence[Left], kind: str, chosen: dict[str, Method]) -> Errors | None:
    """Of one kind; None where too few series were judged so."""
    own = [one for one in left if one.kind == kind]
    used = [_as_used(one, chosen) for one in own]
    estimates = by_series(used, "model")
    if len(estimates) < FEWEST_SERIES:
        return None
    furthest = _furthest(used)
    limit = quantile(furthest)
    return Errors(
        kind=kind,
        rows=len({id(one.row) for one in own}),
        series=len(estimates),
        estimate=error_of(estimates),
        model=error_of(by_series(own, "model")),
        lookup=error_of(by_series(own, "lookup")),
        constant=error_of(by_series(own, "constant")),
        within_percent=None if limit is None else 100 * math.expm1(limit),
        covered_percent=None if limit is None else 100 * _covered(furthest),
    )


def _as_used(one: Left, chosen: dict[str, Method]) -> Left:
    """With what an estimate is made by in place of the model: a baseline only where nothing but the series is new."""
    if one.kind in (REPUBLISHED, BETWEEN, BEYOND):
        return one._replace(model=one.lookup)
    return one._replace(model=one.error(chosen[family_of(one.row.traits)])) if one.kind == SERIES else one


def _furthest(left: Sequence[Left]) -> list[float]:
    """The largest error of each series, as the logarithm of a factor."""
    found: dict[Series, float] = {}
    for one in left:
        found[one.series] = max(found.get(one.series, 0.0), abs(math.log1p(one.model / 100)))
    return list(found.values())


def quantile(errors: Sequence[float]) -> float | None:
    """What WITHIN of further series stay below, if they are like these; None: these are too few to say."""
    place = math.ceil(WITHIN * (len(errors) + 1))
    return sorted(errors)[place - 1] if place <= len(errors) else None


def _covered(errors: Sequence[float]) -> float:
    """How many lie below the limit that the others alone give."""
    limits = [quantile([*errors[:place], *errors[place + 1 :]]) for place in range(len(errors))]
    return fmean(limit is None or error <= limit for error, limit in zip(errors, limits, strict=True))


def layouts_apart(left: Sequence[Left]) -> LayoutsApart | None:
    """How far the model is off in the ratio of two layouts of the same work, both left out: what they have in common
    cancels."""
    logs: dict[Series, list[float]] = {}
    rows: dict[Series, Row] = {}
    for one in left:
        if one.kind == SERIES:
            logs.setdefault(one.series, []).append(math.log1p(one.model / 100))
            rows[one.series] = one.row
    pairs = [
        100 * math.expm1(abs(median(logs[one]) - median(logs[other])))
        for one, other in combinations(logs, 2)
        if _differ_in_layout_alone(rows[one], rows[other])
    ]
    return LayoutsApart(pairs=len(pairs), median=median(pairs), worst=max(pairs)) if pairs else None


def _differ_in_layout_alone(one: Row, other: Row) -> bool:
    same = [name for name in ASPECTS if getattr(one.traits, name) == getattr(other.traits, name)]
    return same == [name for name in ASPECTS if name != "layout"] and _work(one) == _work(other)


def _work(row: Row) -> tuple[int, float]:
    return row.reference.sequence_length, row.reference.global_batch_size / row.reference.gpus


# --- what is kept -------------------------------------------------------------------------------


def fitted(rows: Sequence[Row], left: Sequence[Left]) -> Fit:
    """The fit of all rows, with its errors and what it covers."""
    chosen = choose(left)
    kinds = dict.fromkeys(one.kind for one in left)
    return Fit(
        shares=fit_shares(rows),
        rows=len(rows),
        series=len({series_of(row.reference) for row in rows}),
        covered=covered_by(rows),
        errors=[errors for kind in kinds if (errors := errors_of(left, kind, chosen))],
        baselines={family: _baseline(rows, family, method) for family, method in chosen.items() if method != "model"},
        most_doublings=_most_doublings(rows),
        layouts_apart=layouts_apart(left),
    )


def covered_by(rows: Sequence[Row]) -> Covered:
    return Covered(
        traits=sorted({row.traits for row in rows}, key=msgspec.structs.astuple),
        ranges=_ranges(rows),
        computed_twice=sorted({tuple(row.bound.computed_twice): row.bound.computed_twice for row in rows}.values()),
        most_memory_percent=_most_memory(rows),
    )


def _baseline(rows: Sequence[Row], family: str, method: Method) -> list[Ratio]:
    own = [row for row in rows if family_of(row.traits) == family]
    if method == "constant":
        return constants(own)
    newest = {(series_of(row.reference), row.reference.gpus): row for row in sorted(own, key=_age)}
    return ratios_of(list(newest.values()))


def _age(row: Row) -> tuple[int, ...]:
    return version(row.reference)


def _ranges(rows: Sequence[Row]) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for row in rows:
        ranges = found.setdefault(row.traits.framework, {})
        for name, size in sizes_of(row.benchmark).items():
            least, most = ranges.get(name, [size, size])
            ranges[name] = [min(least, size), max(most, size)]
    return found


def _most_memory(rows: Sequence[Row]) -> dict[str, float]:
    fitting = [row for row in rows if row.memory_percent <= 100]
    names = sorted({row.traits.framework for row in fitting})
    return {
        name: math.ceil(max(row.memory_percent for row in fitting if row.traits.framework == name)) for name in names
    }


def _most_doublings(rows: Sequence[Row]) -> int:
    """Between two scales of a series: as far as a lookup was judged."""
    pairs = permutations([row.reference for row in rows], 2)
    return max((round(doublings(a.gpus, b.gpus)) for a, b in pairs if series_of(a) == series_of(b)), default=0)
