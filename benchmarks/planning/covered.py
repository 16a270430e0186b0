"""How far a benchmark is from the published rows, and which error holds there. Pure.

An error is one of leaving out. It holds for what is as far from the rows as the row that was left out: another scale
of a published series, another series, or a model, device, precision, layout or framework that no row has. What is new
in more ways has the error of rows that were predicted with as much left out as can be. Out of the reach of all rows
no error is known.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from benchmarks.measuring.flops import parameter_count
from benchmarks.planning.bounds import Bound
from benchmarks.values import Benchmark, Parallelism, Value

if TYPE_CHECKING:
    from benchmarks.references.references import Reference

# Kinds of prediction. The first three are made from rows of the same series, all others across series.
REPUBLISHED, BETWEEN, BEYOND, SERIES = "published", "between scales", "beyond scales", "series"
WITHIN_SERIES = (REPUBLISHED, BETWEEN, BEYOND)
FURTHER = "further"  # new in more ways than those that have a kind of their own
FRAMEWORK = "framework"
ASPECTS = (FRAMEWORK, "model", "device", "precision", "layout")
OF_FAMILY = (SERIES, "model", "layout", "model + layout")  # kinds in which a family chooses its method for itself
REACH = 2  # the factor by which a size may be beyond all rows: they are left out by no more
LAYER_REACH = 4  # and by which a layer's work may be smaller

Method = Literal["model", "lookup", "constant"]


class Traits(Value, frozen=True):
    """What rows are left out by; one field for each of ASPECTS."""

    framework: str
    model: str  # by its size: Llama 3 70B and Llama 3.1 70B are one
    device: str
    precision: str
    layout: str


class Error(Value, frozen=True):
    """In percent of the published time. Every series counts once, whatever its number of rows."""

    median: float  # of the series' medians
    worst: float  # of all rows
    within_percent: float | None = None  # so far off were 90% of the series at most; None: too few series
    covered_percent: float | None = None  # of the series, by the figure above when it is made without them


class Errors(Value, frozen=True):
    """What came of leaving out in one way, over all series."""

    kind: str
    rows: int
    series: int
    estimate: Error  # by what is used: the model, or a baseline where that is nearer
    model: Error
    lookup: Error
    constant: Error

    def of(self, method: Method) -> Error:
        return {"model": self.model, "lookup": self.lookup, "constant": self.constant}[method]


class Ratio(Value, frozen=True):
    """Seconds over the bound that a baseline uses, of one published row or of many."""

    traits: Traits
    gpus: int
    ratio: float


class Covered(Value, frozen=True):
    """What the rows are like."""

    traits: list[Traits]
    ranges: dict[str, dict[str, list[int]]]  # by framework, of all that sizes_of names: the least and the most
    computed_twice: list[list[str]]  # what rows compute again in the backward pass
    least_layer_seconds: float  # by layer_seconds
    most_memory_percent: dict[str, float]  # of what is usable, that rows of a framework need which fit


class Fit(Value, frozen=True):
    """What came out of the rows."""

    shares: dict[str, float]  # by TERMS
    rows: int
    series: int
    covered: Covered
    errors: list[Errors]
    chosen: dict[str, Method]  # by family; by kind where the family has no rows that are near enough
    ratios: list[Ratio]  # of the newest rows, to look up in
    constants: list[Ratio]  # one for each family
    most_doublings: int  # between two scales of a series
    layouts_apart: "LayoutsApart | None"

    def errors_of(self, kind: str) -> Errors | None:
        return next((errors for errors in self.errors if errors.kind == kind), None)

    def method(self, kind: str, family: str) -> Method:
        return self.chosen.get(family if kind in OF_FAMILY else kind, "model")


class LayoutsApart(Value, frozen=True):
    """How far the model was off in comparing two layouts of one model, device, precision and batch."""

    pairs: int
    median: float
    worst: float


def traits_of(benchmark: Benchmark) -> Traits:
    model = benchmark.model
    return Traits(
        framework=f"{benchmark.engine} {benchmark.task}",
        model=model.name if model.uncounted else f"{parameter_count(model) / 1e9:.1f}B",
        device=benchmark.hardware.name,
        precision=benchmark.dtype,
        layout=layout_kind(benchmark.parallelism),
    )


def family_of(traits: Traits) -> str:
    """What errors are shown by, and a baseline chosen for."""
    return f"{traits.framework} {traits.precision}"


def layout_kind(share: Parallelism) -> str:
    """How a replica is shared out. How many there are, and whether they share their weights, grows with the scale."""
    return msgspec.structs.replace(share, data=1, fsdp=1).short().removesuffix(" DP1")


def sizes_of(benchmark: Benchmark) -> dict[str, int]:
    """What rows must span. Pieces of a stage only count where there are stages."""
    share = benchmark.parallelism
    return {
        **{name: getattr(share, name) for name in ("tensor", "pipeline", "context")},
        **({"virtual_pipeline": share.virtual_pipeline} if share.pipeline > 1 else {}),
        "gpus": benchmark.gpus,
        "sequence_length": benchmark.sequence_length,
        "micro_batch_size": benchmark.micro_batch_size,
    }


def layer_seconds(benchmark: Benchmark, bound: Bound) -> float:
    """Of a layer's matmuls and attention for a micro-batch. With less, more of a step goes into starting kernels."""
    layers = benchmark.model.layers / benchmark.parallelism.pipeline
    return (bound.compute_seconds or math.nan) / layers / benchmark.gradient_accumulation


# --- a published series -------------------------------------------------------------------------


Series = tuple[object, ...]


def series_of(row: "Reference") -> Series:
    """The same program and work of a GPU at several scales, in any version."""
    program = (row.backend, row.engine, row.model, row.task, row.dtype, row.hardware)
    return (
        *program,
        *_work(row.sequence_length, row.micro_batch_size, row.global_batch_size / row.gpus, row.parallelism),
    )


def series_of_benchmark(asked: Benchmark) -> Series:
    program = (asked.backend, asked.engine, asked.model.name, asked.task, asked.dtype, asked.hardware.name)
    batch = asked.global_batch_size / asked.gpus
    return (*program, *_work(asked.sequence_length, asked.micro_batch_size, batch, asked.parallelism))


def _work(sequence_length: int, micro_batch_size: int, batch_per_gpu: float, share: Parallelism) -> Series:
    return sequence_length, micro_batch_size, round(batch_per_gpu, 6), layout_kind(share)


def version(row: "Reference") -> tuple[tuple[int, ...], bool]:
    """Later ones are larger. A tag may archive a page of earlier figures."""
    return tuple(map(int, re.findall(r"\d+", row.tag))), "archive" not in row.file


# --- beyond the rows ----------------------------------------------------------------------------


def new_aspects(traits: Traits, rows: Sequence[Traits]) -> list[str]:
    """In what no row is like it. A framework is new as a whole: what its rows are like is then not asked."""
    own = [row for row in rows if row.framework == traits.framework]
    found = [] if own else [FRAMEWORK]
    names = ASPECTS[1:]
    return found + [
        name for name in names if getattr(traits, name) not in {getattr(row, name) for row in own or rows}
    ]


def kind_of(aspects: Sequence[str]) -> str:
    return " + ".join(aspects) or SERIES


def made_so(kind: str) -> str:
    """In words: what was left out."""
    within = {
        REPUBLISHED: "from the same run in another version",
        BETWEEN: "from the nearest scale, with rows on both sides",
        BEYOND: "from one other scale of its series",
        SERIES: "without its series",
        FURTHER: "with as much left out as can be",
    }
    return within.get(kind) or f"without any row of its {kind.replace(' + ', ' or its ')}"


def beyond_rows(benchmark: Benchmark, bound: Bound, kept: Covered) -> Iterator[str]:
    """In what the rows of its framework are not like it."""
    framework = traits_of(benchmark).framework
    ranges = [kept.ranges[framework]] if framework in kept.ranges else list(kept.ranges.values())
    for name, size in sizes_of(benchmark).items():
        spans = [span[name] for span in ranges if name in span] or [[1, 1]]
        least, most = min(low for low, _ in spans), max(high for _, high in spans)
        if not least <= size <= most:
            rows = f"{least}" if least == most else f"{least} to {most}"
            yield f"{name.replace('_', ' ')} {size}: rows have {rows}"
    if bound.computed_twice not in kept.computed_twice:
        yield f"no row recomputes {', '.join(bound.computed_twice) or 'nothing'}"
    layer = layer_seconds(benchmark, bound)
    if layer < kept.least_layer_seconds:
        rows = f"rows {1e3 * kept.least_layer_seconds:.2g} ms or more"
        yield f"a layer has {1e3 * layer:.2g} ms of matmuls and attention for a micro-batch: {rows}"
    yield from out_of_reach(benchmark, bound, kept)


def out_of_reach(benchmark: Benchmark, bound: Bound, kept: Covered) -> Iterator[str]:
    """What makes an error unknown: no leaving out goes as far."""
    for name, size in sizes_of(benchmark).items():
        spans = [span[name] for span in kept.ranges.values() if name in span] or [[1, 1]]
        least, most = min(low for low, _ in spans), max(high for _, high in spans)
        if not least / REACH <= size <= most * REACH:
            yield f"{name.replace('_', ' ')} {size} is more than {REACH} times beyond all rows"
    if layer_seconds(benchmark, bound) < kept.least_layer_seconds / LAYER_REACH:
        yield f"that is less than 1/{LAYER_REACH} of what any row has"
    if benchmark.measured_peaks:
        yield "matmuls run at a peak that was measured here, those of rows at configs/hardware's"
