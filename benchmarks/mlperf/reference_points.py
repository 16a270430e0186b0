"""What a run is compared with: the reference convergence points (how many samples the reference needed at which batch
size, and what is expected in between). They come as the JSON of the package's rcp_checker.

The statistics are rcp_checker's: the mean leaves out the best and the worst run, a point that converges slower than
the line between its neighbours is pruned, and so is every batch smaller than that of the fastest point.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from benchmarks.errors import RequestError
from benchmarks.values import Value

# rcp_checker calls samples epochs in the files of some benchmarks, and counts samples all the same.
UNITS = ("samples to converge", "Epochs to converge")


class ReferencePoint(Value, frozen=True):
    """How many samples the reference needed at one batch size."""

    batch: int
    samples: float  # mean without the best and the worst run
    stdev: float  # of all runs, the population's, as rcp_checker has it


class Expected(Value, frozen=True):
    """What the reference would need at some batch size; nothing is known outside its points."""

    batch: int
    samples: float | None
    stdev: float | None
    how: Literal["found", "interpolated", "below", "above"]
    between: list[int]  # the batch sizes it rests on


def read_points(records: Mapping[str, Any], where: str) -> list[ReferencePoint]:
    """The points of one file of rcp_checker, the smallest batch first."""
    try:
        points = [_point(record) for record in records.values()]
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"not the reference points of a benchmark: {error!r}", where=where) from None
    return sorted(points, key=lambda point: point.batch)


def _point(record: Mapping[str, Any]) -> ReferencePoint:
    samples = sorted(float(value) for unit in UNITS if unit in record for value in record[unit])
    inner = samples[1:-1]
    if not inner:
        raise ValueError(f"batch size {record['BS']}: {len(samples)} runs, at least 3 are needed")
    return ReferencePoint(int(record["BS"]), statistics.fmean(inner), statistics.pstdev(samples))


def prune(points: Sequence[ReferencePoint]) -> list[ReferencePoint]:
    """The points that rcp_checker judges by."""
    if not points:
        return []
    fastest = min(points, key=lambda point: point.samples)
    kept = [point for point in points if point.batch >= fastest.batch]
    place = 1
    while place < len(kept) - 1:
        on_the_line, _ = _between(kept[place].batch, kept[place - 1], kept[place + 1])
        if kept[place].samples > on_the_line:
            del kept[place]
        else:
            place += 1
    return kept


def expected(points: Sequence[ReferencePoint], batch: int) -> Expected:
    """What the pruned points say of a batch size; nothing where it lies outside them."""
    kept = prune(points)
    below = [point for point in kept if point.batch <= batch]
    above = [point for point in kept if point.batch >= batch]
    if below and above:
        low, high = below[-1], above[0]
        samples, stdev = _between(batch, low, high) if low is not high else (low.samples, low.stdev)
        between = [batch] if low is high else [low.batch, high.batch]
        return Expected(batch, samples, stdev, "found" if low is high else "interpolated", between)
    nearest = [point.batch for point in (above[:1] or below[-1:])]
    return Expected(batch, None, None, "below" if above else "above", nearest)


def _between(batch: int, low: ReferencePoint, high: ReferencePoint) -> tuple[float, float]:
    share = (batch - low.batch) / (high.batch - low.batch)
    return (
        low.samples + share * (high.samples - low.samples),
        low.stdev + share * (high.stdev - low.stdev),
    )
