"""The estimator on rows that a fit has not seen, beside two baselines that know no model of a step.

Lookup: the speed of a GPU at the nearest scale of the same series. Constant: one number times the bound.
A series is what one model did in one precision on one device, whichever version of a recipe published it.
"""

from collections.abc import Callable, Hashable, Sequence
from statistics import median

from benchmarks.configs import Configs
from benchmarks.planning.calibration import Row, estimated, fit
from launch.planning.planning_calibration import published_rows
from tests.auditing.table import Line, Lines, Random, Size

PART = "estimates"
Key = Callable[[Row], Hashable]


def series(row: Row) -> Hashable:
    one = row.reference
    return (one.model, one.task, one.dtype, one.hardware, one.engine, one.sequence_length)


def same_work(row: Row) -> Hashable:
    """The same run published again is no other evidence."""
    return (*series(row), row.reference.gpus, row.reference.global_batch_size)  # type: ignore[misc]


def same_model(row: Row) -> Hashable:
    return row.reference.model


LEFT_OUT: dict[str, Key] = {"row": same_work, "whole series": series, "whole model": same_model}


def lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn
    configs = Configs()
    rows, _ = published_rows(configs)
    families = {
        family.name: [row for row in rows if family.holds(row.benchmark)] for family in configs.calibration().families
    }
    for name, own in families.items():
        for what, key in LEFT_OUT.items():
            yield from _line(name, own, what, key)


def _line(name: str, rows: Sequence[Row], what: str, key: Key) -> Lines:
    errors = {"model": [], "lookup": [], "constant": []}  # type: dict[str, list[float]]
    for row in rows:
        others = [other for other in rows if key(other) != key(row)]
        if not others:
            continue
        for by, guess in (("model", _model), ("lookup", lookup), ("constant", constant)):
            seconds = guess(row, others)
            if seconds is not None:
                errors[by].append(100 * abs(seconds / row.reference.seconds - 1))
    groups = len({key(row) for row in rows})
    said = f"{name}: each {what} left out"
    if groups < 2:
        yield Line(PART, said, "", "there is no other")
        return
    best = min(median(errors[by]) for by in ("lookup", "constant") if errors[by])
    found = f"{len(rows)} rows, {groups} groups: " + ", ".join(
        f"{by} {median(of):.2f}% (worst {max(of):.1f}%)" for by, of in errors.items() if of
    )
    yield Line(PART, said, "no worse than a baseline", found, median(errors["model"]) <= best)


def _model(row: Row, others: Sequence[Row]) -> float | None:
    return estimated(row, fit(others))


def lookup(row: Row, others: Sequence[Row]) -> float | None:
    """The same speed a GPU as at the nearest scale of the series; None where none is left of it."""
    from math import log

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
    return (row.bound.seconds or 0.0) * median(
        other.reference.seconds / (other.bound.seconds or 1.0) for other in others
    )
