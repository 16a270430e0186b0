"""Estimates of published rows from which they, their series or their model were left out, beside two baselines.

The baselines know nothing of a step. Lookup: the speed of a GPU at the nearest scale of the same series. Constant:
one number times the bound, from the rows of the same framework, task and precision. A series is what one model did in
one precision on one device, whichever version of a recipe, layout or batch was published.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from math import log
from statistics import median
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.planning.calibration import Calibration, Estimate, Row, estimate
from benchmarks.planning.covered import Fit
from benchmarks.planning.leaving_out import fitted, leave_out
from launch.planning.planning_calibration import published_rows
from tests.auditing.table import Line, Lines, Random, Size, share

PART = "estimates"
SLACK = 1.0  # percentage points that a family may be worse by: a baseline is chosen before the row is seen
WITHIN = 0.9  # of the series lie in an interval
Key = Callable[[Row], Hashable]


class Tried(NamedTuple):
    """A row that was left out: the product's estimate, and what the baselines say."""

    row: Row
    product: Estimate
    lookup: float | None
    constant: float | None


def family(row: Row) -> str:
    one = row.reference
    return f"{one.engine} {one.task} {one.dtype}"


def series(row: Row) -> Hashable:
    one = row.reference
    return (one.engine, one.task, one.model, one.precision, one.hardware, one.sequence_length)


def same_work(row: Row) -> Hashable:
    """The same run published again is no other evidence."""
    return (series(row), row.reference.gpus, row.reference.global_batch_size)


def same_model(row: Row) -> Hashable:
    """By its size: Llama 3 and 3.1 are trained alike."""
    return row.reference.model.rpartition("_")[2]


def lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn
    rows, _ = published_rows(Configs())
    kept = fitted(
        rows, leave_out(rows)
    )  # where other scales of a series are left, the product looks up, and asks no fit
    alone = [one for one in _without(rows, same_work, rows, kept) if one.lookup is not None]
    yield from _table("each row left out, of series with other scales", alone)
    fewer = None if size.full else 1
    yield from _table("each whole series left out", list(_without(rows, series, _first(rows, series, fewer))))
    if size.full:
        yield from _table("each whole model left out", list(_without(rows, same_model, rows)))


def _first(rows: Sequence[Row], key: Key, groups: int | None) -> list[Row]:
    names = list(dict.fromkeys(map(key, rows)))[:groups]
    return [row for row in rows if key(row) in names]


def _without(rows: Sequence[Row], key: Key, wanted: Sequence[Row], kept: Fit | None = None) -> Iterator[Tried]:
    """Group by group: everything that the product keeps is made anew from the other rows."""
    for name in dict.fromkeys(map(key, wanted)):
        others = [row for row in rows if key(row) != name]
        fit = kept or fitted(others, leave_out(others))
        calibration = Calibration(fit=fit, published=[row.reference for row in others])
        for row in (row for row in wanted if key(row) == name):
            product = estimate(row.benchmark, row.bound, calibration)
            yield Tried(row, product, lookup(row, others), constant(row, others))


def _table(what: str, tried: Sequence[Tried]) -> Lines:
    for name in ("all", *sorted({family(one.row) for one in tried})):
        own = [one for one in tried if name in ("all", family(one.row))]
        guesses = {
            "estimate": [(one, one.product.seconds) for one in own],
            "lookup": [(one, one.lookup) for one in own],
            "constant": [(one, one.constant) for one in own],
        }
        errors = {by: found for by, of in guesses.items() if (found := _errors(of))}
        middle = {by: median(map(median, found)) for by, found in errors.items()}
        best = min(error for by, error in middle.items() if by != "estimate")
        said = ", ".join(f"{by} {middle[by]:.2f}% (worst {max(map(max, errors[by])):.1f}%)" for by in errors)
        slack = 0.0 if name == "all" else SLACK
        goal = "no worse than a baseline" + (f", by more than {slack:g} point" if slack else "")
        found = f"{len(own)} rows, {len(errors['estimate'])} series: {said}"
        yield Line(PART, f"{name}: {what}", goal, found, middle["estimate"] <= best + slack)
    yield _intervals(what, tried)


def _errors(guesses: Sequence[tuple[Tried, float | None]]) -> list[list[float]]:
    """Series by series, since some were published at many more scales than others."""
    found: dict[Hashable, list[float]] = {}
    for one, seconds in guesses:
        if seconds is not None:
            found.setdefault(series(one.row), []).append(100 * abs(seconds / one.row.seconds - 1))
    return list(found.values())


def _intervals(what: str, tried: Sequence[Tried]) -> Line:
    """How often a row lies in its estimate's interval, of those that have one; a series counts once."""
    held: dict[Hashable, bool] = {}
    for one in tried:
        if one.product.interval is not None:
            low, high = one.product.interval
            inside = low <= one.row.seconds <= high
            held[series(one.row)] = held.get(series(one.row), True) and inside
    claim = f"{what}: all rows of a series lie in the 90% interval"
    if not held:
        return Line(PART, claim, "", "none has an interval")
    found = share(list(held.values()))
    text = f"{found.text(0)} of {len(held)} series"
    return Line(PART, claim, f"at least {100 * WITHIN:g}%", text, found.at_least(WITHIN))


def lookup(row: Row, others: Sequence[Row]) -> float | None:
    """The same speed a GPU as at the nearest scale of the series; None where none is left of it."""
    same = [other.reference for other in others if series(other) == series(row)]
    if not same:
        return None
    one = row.reference
    near = min(abs(log(other.gpus / one.gpus)) for other in same)
    speeds = [
        other.tokens_per_step / other.seconds / other.gpus
        for other in same
        if abs(log(other.gpus / one.gpus)) <= near + 1e-9
    ]
    return one.tokens_per_step / one.gpus / median(speeds)


def constant(row: Row, others: Sequence[Row]) -> float | None:
    """The median ratio to the bound; of all rows where none is left of the family."""
    same = [other for other in others if family(other) == family(row)] or list(others)
    return (row.bound.seconds or 0.0) * median(other.seconds / (other.bound.seconds or 1.0) for other in same)
