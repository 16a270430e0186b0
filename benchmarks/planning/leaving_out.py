"""How good estimates are: every published row predicted without itself and what is as near to it. Pure.

Beside the model stand two baselines: a lookup of the nearest row, its seconds times the ratio of the bounds, and one
constant times the bound, the mean of the framework's and precision's other series. Where one of them was nearer to
what was left out, by more than chance, it takes the model's place.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from statistics import fmean, median, stdev
from typing import NamedTuple

import msgspec

from benchmarks.planning.calibration import Row, doublings, fit_shares, modelled, nearest_ratio
from benchmarks.planning.covered import (
    ASPECTS,
    BETWEEN,
    BEYOND,
    FURTHER,
    LAYER_REACH,
    OF_FAMILY,
    REPUBLISHED,
    SERIES,
    WITHIN_SERIES,
    Covered,
    Error,
    Errors,
    Fit,
    LayoutsApart,
    Method,
    Ratio,
    Series,
    family_of,
    kind_of,
    layer_seconds,
    series_of,
    sizes_of,
    version,
)

BASELINES: tuple[Method, ...] = ("lookup", "constant")
FEWEST_SERIES = 3  # that are left to predict from, or an error is of
MOST_ASPECTS = 2  # that are left out together as a kind of their own
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
        return self.row.series

    def error(self, method: Method) -> float:
        return {"model": self.model, "lookup": self.lookup, "constant": self.constant}[method]


# --- leaving out --------------------------------------------------------------------------------


def leave_out(rows: Sequence[Row]) -> list[Left]:
    """Every row in every kind of prediction that the other rows allow."""
    found = [*within_series(rows), *across(rows)]
    for number in range(1, MOST_ASPECTS + 1):
        for aspects in combinations(ASPECTS, number):
            found += across(rows, aspects)
    return [*found, *furthest(rows)]


def across(rows: Sequence[Row], aspects: Sequence[str] = ()) -> Iterator[Left]:
    """Each series by the others that share none of these aspects with it."""
    kind, too_near = kind_of(aspects), _shares_one_of(aspects)
    for series in dict.fromkeys(row.series for row in rows):
        own = [row for row in rows if row.series == series]
        others = [row for row in rows if row.series != series and not too_near(own[0], row)]
        if len({row.series for row in others}) >= FEWEST_SERIES:
            yield from _predicted(own, others, kind)


def _predicted(own: Sequence[Row], others: Sequence[Row], kind: str) -> Iterator[Left]:
    shares, ratios = fit_shares(others), ratios_of(others)
    constant = nearest_ratio(own[0].traits, 1, constants(others))
    for row in own:
        looked_up = nearest_ratio(row.traits, row.reference.gpus, ratios)
        bound = row.bound.seconds or math.nan
        yield _left(row, kind, modelled(row, shares), looked_up * bound, constant * bound)


def _shares_one_of(aspects: Sequence[str]) -> Callable[[Row, Row], bool]:
    return lambda row, other: any(getattr(row.traits, name) == getattr(other.traits, name) for name in aspects)


def furthest(rows: Sequence[Row]) -> Iterator[Left]:
    """Each series without all that is like it in any of so many ways that one more would leave too few series."""
    for series in dict.fromkeys(row.series for row in rows):
        own = [row for row in rows if row.series == series]
        alike = [(row, _alike(own, row)) for row in rows if row.series != series]
        enough: list[int] = []
        for ways in sorted(range(1 << WAYS), key=int.bit_count, reverse=True):
            left = {row.series for row, shared in alike if not shared & ways}
            if len(left) >= FEWEST_SERIES and not any(ways & more == ways for more in enough):
                enough.append(ways)
        for ways in enough:
            yield from _predicted(own, [row for row, shared in alike if not shared & ways], FURTHER)


def _alike(own: Sequence[Row], other: Row) -> int:
    """In which ways, a bit for each: aspects, sizes, recomputation, no larger scale, hardly more work for a layer."""
    one = own[0]
    same = [getattr(one.traits, name) == getattr(other.traits, name) for name in ASPECTS]
    same += [getattr(one.reference, name) == getattr(other.reference, name) for name in SIZES]
    same.append(one.bound.computed_twice == other.bound.computed_twice)
    same.append(other.reference.gpus <= min(row.reference.gpus for row in own))
    work = layer_seconds(one.benchmark, one.bound)
    same.append(layer_seconds(other.benchmark, other.bound) <= LAYER_REACH * work)
    return sum(1 << place for place, is_same in enumerate(same) if is_same)


SIZES = ("sequence_length", "micro_batch_size")
WAYS = len(ASPECTS) + len(SIZES) + 3


def within_series(rows: Sequence[Row]) -> Iterator[Left]:
    """By another scale of the same version, and by the same scale of another version."""
    for series in dict.fromkeys(row.series for row in rows):
        own = [row for row in rows if row.series == series]
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
        families.setdefault(family_of(row.traits), {}).setdefault(row.series, []).append(row)
    found = []
    for of_series in families.values():
        first = next(iter(of_series.values()))[0].traits
        bare = msgspec.structs.replace(first, model="", device="", layout="")
        mean = fmean(fmean(row.ratio for row in series) for series in of_series.values())
        found.append(Ratio(traits=bare, gpus=1, ratio=mean))
    return found


def choose(left: Sequence[Left]) -> dict[str, Method]:
    """The method of each family, by its series; of other kinds, by all series."""
    groups: dict[str, list[Left]] = {}
    for one in left:
        if one.kind == SERIES:
            groups.setdefault(family_of(one.row.traits), []).append(one)
        elif one.kind not in (*OF_FAMILY, *WITHIN_SERIES):
            groups.setdefault(one.kind, []).append(one)
    return {name: _nearest_method(own) for name, own in groups.items()}


def _nearest_method(left: Sequence[Left]) -> Method:
    """A baseline takes the model's place where it leads by more than a standard error; few series are no evidence."""
    best = min(BASELINES, key=lambda method: mean_error(left, method))
    errors = zip(by_series(left, "model"), by_series(left, best), strict=True)
    leads = [median(model) - median(baseline) for model, baseline in errors]
    if len(leads) < FEWEST_SERIES:
        return "model"
    return best if fmean(leads) > stdev(leads) / math.sqrt(len(leads)) else "model"


def mean_error(left: Sequence[Left], method: Method) -> float:
    """Of the series' medians: what a method is chosen by."""
    return fmean(median(errors) for errors in by_series(left, method))


# --- errors -------------------------------------------------------------------------------------


def by_series(left: Sequence[Left], method: Method) -> list[list[float]]:
    found: dict[Series, list[float]] = {}
    for one in left:
        found.setdefault(one.series, []).append(abs(one.error(method)))
    return list(found.values())


def error_of(left: Sequence[Left], method: Method) -> Error:
    series, far = by_series(left, method), _farthest(left, method)
    limit = quantile(far)
    return Error(
        median=median(median(errors) for errors in series),
        worst=max(map(max, series)),
        within_percent=None if limit is None else 100 * math.expm1(limit),
        covered_percent=None if limit is None else 100 * _covered(far),
    )


def errors_of(left: Sequence[Left], kind: str, chosen: dict[str, Method]) -> Errors | None:
    """Of one kind; None where too few series were judged so."""
    own = [one for one in left if one.kind == kind]
    series = len({one.series for one in own})
    if series < FEWEST_SERIES:
        return None
    return Errors(
        kind=kind,
        rows=len({id(one.row) for one in own}),
        series=series,
        estimate=error_of([_as_used(one, chosen) for one in own], "model"),
        model=error_of(own, "model"),
        lookup=error_of(own, "lookup"),
        constant=error_of(own, "constant"),
    )


def _as_used(one: Left, chosen: dict[str, Method]) -> Left:
    """With what an estimate is made by in place of the model."""
    if one.kind in WITHIN_SERIES:
        return one._replace(model=one.lookup)
    name = family_of(one.row.traits) if one.kind in OF_FAMILY else one.kind
    return one._replace(model=one.error(chosen.get(name, "model")))


def _farthest(left: Sequence[Left], method: Method) -> list[float]:
    """The largest error of each series, as the logarithm of a factor."""
    found: dict[Series, float] = {}
    for one in left:
        found[one.series] = max(found.get(one.series, 0.0), abs(math.log1p(one.error(method) / 100)))
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
        series=len({row.series for row in rows}),
        covered=covered_by(rows),
        errors=[errors for kind in kinds if (errors := errors_of(left, kind, chosen))],
        chosen=chosen,
        ratios=ratios_of(_newest(rows)),
        constants=constants(rows),
        most_doublings=_most_doublings(rows),
        layouts_apart=layouts_apart(left),
    )


def covered_by(rows: Sequence[Row]) -> Covered:
    return Covered(
        traits=sorted({row.traits for row in rows}, key=msgspec.structs.astuple),
        ranges=_ranges(rows),
        computed_twice=sorted({tuple(row.bound.computed_twice): row.bound.computed_twice for row in rows}.values()),
        least_layer_seconds=0.999 * min(layer_seconds(row.benchmark, row.bound) for row in rows),  # it is rounded
        most_memory_percent=_most_memory(rows),
    )


def _newest(rows: Sequence[Row]) -> list[Row]:
    return list({(row.series, row.reference.gpus): row for row in sorted(rows, key=_age)}.values())


def _age(row: Row) -> tuple[tuple[int, ...], bool]:
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
