"""What the rows of a fit cover, and how far beyond them a benchmark is. Pure.

An error by leaving out holds for what is as far from the rows as the row that was left out: one like them, one of
another model, or one in another kind of layout. Farther out nobody measured it, and it is not known.
"""

from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.planning.bounds import Bound
from benchmarks.values import Benchmark, Parallelism, Value


class Errors(Value, frozen=True):
    """By leaving out, in percent of the published time."""

    rows: int
    median: float
    worst: float
    model_left_out_median: float | None  # with all rows of a model left out; None: there is no other model
    model_left_out_worst: float | None
    layout_left_out_median: float | None  # with all rows of a kind of layout left out; None: there is no other kind
    layout_left_out_worst: float | None


class Fit(Value, frozen=True):
    """What came out of a family's rows, and what those rows cover."""

    family: str
    shares: dict[str, float]  # by TERMS
    errors: dict[str, Errors]  # by precision
    hardware: dict[str, list[str]]  # with the precisions that rows have on it
    models: list[str]
    layouts: list[str]  # the kinds, see layout_kind
    ranges: dict[str, list[int]]  # of all that sizes_of names: the least and the most
    computed_twice: list[list[str]]  # what rows compute again in the backward pass

    @property
    def tells_layouts_apart(self) -> bool:
        """Shares that were fitted to one kind of layout say nothing of how kinds differ."""
        return len(self.layouts) > 1


def layout_kind(share: Parallelism) -> str:
    """How a replica is shared out. How many there are, and whether they share their weights, grows with the scale."""
    return msgspec.structs.replace(share, data=1, fsdp=1).short().removesuffix(" DP1")


def sizes_of(benchmark: Benchmark) -> dict[str, int]:
    """What a row must be like in size. Pieces of a stage only count where there are stages."""
    share = benchmark.parallelism
    found = {name: getattr(share, name) for name in ("tensor", "pipeline", "context", "fsdp", "data")}
    if share.pipeline > 1:
        found["virtual_pipeline"] = share.virtual_pipeline
    return {
        **found,
        "gpus": benchmark.gpus,
        "sequence_length": benchmark.sequence_length,
        "micro_batch_size": benchmark.micro_batch_size,
        "gradient_accumulation": benchmark.gradient_accumulation,
    }


MODEL, LAYOUT, OTHER = "model", "layout", "other"


def worst_percent(errors: Errors | None, beyond: set[str]) -> float | None:
    """Of the leaving out that was as far from the rows as this is."""
    if errors is None:
        return None
    if not beyond:
        return errors.worst
    judged = {MODEL: errors.model_left_out_worst, LAYOUT: errors.layout_left_out_worst}
    return judged.get(beyond.pop()) if len(beyond) == 1 else None


def beyond_rows(benchmark: Benchmark, bound: Bound, kept: Fit) -> Iterator[tuple[str, str]]:
    """In what no row of the family is like it: there the errors by leaving each row out say little."""
    if benchmark.model.name not in kept.models:
        yield MODEL, f"its rows are of {', '.join(kept.models)}"
    kind = layout_kind(benchmark.parallelism)
    if kind not in kept.layouts:
        yield LAYOUT, f"no row is in {kind}, but in {' or '.join(kept.layouts)}"
    for name, size in sizes_of(benchmark).items():
        least, most = kept.ranges.get(name, [size, size])
        if not least <= size <= most:
            rows = f"{least}" if least == most else f"{least} to {most}"
            yield OTHER, f"{name.replace('_', ' ')} {size}: its rows have {rows}"
    if benchmark.dtype not in kept.hardware[benchmark.hardware.name]:
        yield OTHER, f"no row is {benchmark.dtype} on {benchmark.hardware.name}"
    if bound.computed_twice not in kept.computed_twice:
        yield OTHER, f"it computes {_twice(bound.computed_twice)} twice, its rows {_rows_twice(kept)}"
    if benchmark.measured_peaks:
        yield OTHER, "matmuls run at a peak that was measured here, its rows at those of configs/hardware"


def _twice(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _rows_twice(kept: Fit) -> str:
    return " or ".join(map(_twice, kept.computed_twice))
