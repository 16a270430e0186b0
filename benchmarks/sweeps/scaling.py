"""Results of runs at several scales -> how well a benchmark scales, as values and as a table. Pure.

A figure is the median over the valid runs of one scale, each run giving one value, with the lowest and the highest
of them. An efficiency is tokens/s per device over that of the smallest scale of its series; its range is that of all
combinations of a run here and a run there, which is wide rather than flattering.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Literal

from benchmarks.measuring import statistics
from benchmarks.rendering.columns import aligned, columns, plural
from benchmarks.rendering.report import count_text, seconds_text
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Benchmark, BenchmarkName, Value, name_words

ScalingKind = Literal["weak", "strong", "mixed", "one scale"]
KINDS: dict[ScalingKind, str] = {
    "weak": "weak scaling (the global batch grows with the devices)",
    "strong": "strong scaling (the global batch stays)",
    "mixed": "mixed scaling (the global batch neither stays nor grows with the devices)",
    "one scale": "one scale",
}
HEADINGS = (
    "gpus", "nodes", "batch", "runs", "seconds/step", "tokens/s", "tokens/s/GPU", "MFU %", "efficiency",
)  # fmt: skip
UNKNOWN = "-"
NO_PGLE = "off"
FIGURES = {"seconds_per_step": "seconds/step", "mfu_percent": "MFU", "efficiency": "efficiency"}


class Scale(BenchmarkName, frozen=True):
    """What tells one cell of a table from another: the series it belongs to, and its place in it."""

    layout: str
    virtual_devices: bool  # of a CPU: they share its cores
    pgle: str = NO_PGLE

    @property
    def series(self) -> tuple[str, ...]:
        words = (self.backend, self.engine, self.model, self.task, self.dtype, self.hardware, self.pgle)
        return (*words, str(self.sequence_length))

    @property
    def size(self) -> tuple[int, int]:
        return (self.gpus, self.nodes)


def scale_of(benchmark: Benchmark) -> Scale:
    return Scale(
        **name_words(benchmark),
        layout=benchmark.parallelism.short(),
        virtual_devices=benchmark.hardware.kind == "cpu",
        pgle=benchmark.pgle,
    )


class Measured(Value, frozen=True):
    """The runs of one scale: the results that count, and of each run that does not, why."""

    scale: Scale
    wanted: int
    results: list[FinishedRun]
    left_out: list[str]
    not_comparable: int = 0  # valid runs that do not count, because they were profiled


class Spread(Value, frozen=True):
    """A figure over `n` runs (of an efficiency: combinations of runs)."""

    n: int
    median: float
    lowest: float
    highest: float


class Point(Value, frozen=True):
    """One scale of a series. A figure that can't be known is null, and `null_because` says why."""

    gpus: int
    nodes: int
    global_batch_size: int
    layout: str
    runs: int
    valid: int
    settled: int  # of the valid runs
    seconds_per_step: Spread | None
    tokens_per_second: Spread | None
    tokens_per_second_per_gpu: Spread | None
    mfu_percent: Spread | None
    mfu_convention: str | None
    efficiency: Spread | None
    null_because: dict[str, str]
    left_out: list[str]


class Series(Value, frozen=True):
    """The scales of one backend, model, task, precision, device and way of PGLE."""

    backend: str
    engine: str
    model: str
    task: str
    dtype: str
    hardware: str
    sequence_length: int
    scaling: ScalingKind
    points: list[Point]
    notes: list[str]
    pgle: str = NO_PGLE


# --- figures ------------------------------------------------------------------------------------


def scaling(measured: Sequence[Measured]) -> list[Series]:
    """A series for each benchmark that differs in more than its scale, in the order they came; each by size."""
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for cell in measured:
        groups.setdefault(cell.scale.series, []).append(cell)
    return [_series(sorted(group, key=lambda cell: cell.scale.size)) for group in groups.values()]


def _series(cells: list[Measured]) -> Series:
    first = cells[0].scale
    return Series(
        backend=first.backend,
        engine=first.engine,
        model=first.model,
        task=first.task,
        dtype=first.dtype,
        hardware=first.hardware,
        sequence_length=first.sequence_length,
        scaling=scaling_kind([cell.scale for cell in cells]),
        points=[_point(cell, cells[0]) for cell in cells],
        notes=_notes(cells),
        pgle=first.pgle,
    )


def scaling_kind(scales: Sequence[Scale]) -> ScalingKind:
    if len({scale.gpus for scale in scales}) == 1:
        return "one scale"
    if len({scale.global_batch_size for scale in scales}) == 1:
        return "strong"
    base = scales[0]
    grows = all(s.global_batch_size * base.gpus == base.global_batch_size * s.gpus for s in scales)
    return "weak" if grows else "mixed"


def _point(cell: Measured, base: Measured) -> Point:
    scale, results = cell.scale, cell.results
    nulls: dict[str, str] = {}
    seconds = _spread([run.seconds_per_step for run in results])
    if seconds is None:
        nulls["seconds_per_step"] = _why_no_speed(cell)
    mfu, convention = _mfu(results)
    if mfu is None:
        nulls["mfu_percent"] = _first_reason(results, "mfu") or nulls.get("seconds_per_step", "unknown")
    efficiency = _efficiency(cell, base)
    if efficiency is None:
        nulls["efficiency"] = nulls.get("seconds_per_step") or _why_no_base(base)
    return Point(
        gpus=scale.gpus,
        nodes=scale.nodes,
        global_batch_size=scale.global_batch_size,
        layout=scale.layout,
        runs=cell.wanted,
        valid=len(results),
        settled=sum(run.settled for run in results),
        seconds_per_step=seconds,
        tokens_per_second=_spread([r.tokens_per_second for r in results]),
        tokens_per_second_per_gpu=_spread(_per_gpu(results)),
        mfu_percent=mfu,
        mfu_convention=convention,
        efficiency=efficiency,
        null_because=nulls,
        left_out=cell.left_out,
    )


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    middle = statistics.median(known)
    if middle is None:
        return None
    return Spread(n=len(known), median=middle, lowest=min(known), highest=max(known))


def _per_gpu(results: Sequence[FinishedRun]) -> list[float | None]:
    return [result.tokens_per_second_per_gpu for result in results]


def _mfu(results: Sequence[FinishedRun]) -> tuple[Spread | None, str | None]:
    """By the recipe's convention at the run's own precision, which a result names first."""
    first = next((run for run in results if run.mfu_percent is not None), None)
    if first is None:
        return None, None
    return _spread([run.mfu_percent for run in results]), f"{first.mfu_convention} of {first.mfu_precision} peak"


def _efficiency(cell: Measured, base: Measured) -> Spread | None:
    here, there = _spread(_per_gpu(cell.results)), _spread(_per_gpu(base.results))
    if here is None or there is None:
        return None
    if cell is base:
        return Spread(n=1, median=1.0, lowest=1.0, highest=1.0)
    ratios = [
        one / other
        for one, other in product(_per_gpu(cell.results), _per_gpu(base.results))
        if one is not None and other is not None
    ]
    return Spread(n=len(ratios), median=here.median / there.median, lowest=min(ratios), highest=max(ratios))


def _why_no_speed(cell: Measured) -> str:
    if cell.results:
        return _first_reason(cell.results, "seconds_per_step") or "unknown"
    return "none of its valid runs may be compared" if cell.not_comparable else "it has no valid run"


def _why_no_base(base: Measured) -> str:
    return f"the smallest scale ({_size_text(base.scale)}) has no speed to compare with: {_why_no_speed(base)}"


def _first_reason(results: Sequence[FinishedRun], figure: str) -> str | None:
    return next((r.null_because[figure] for r in results if figure in r.null_because), None)


def _size_text(scale: Scale) -> str:
    return f"{scale.gpus} x {scale.hardware}, {plural(scale.nodes, 'node')}"


def _notes(cells: Sequence[Measured]) -> list[str]:
    results = [result for cell in cells for result in cell.results]
    found = []
    if cells[0].scale.virtual_devices:
        found.append(
            "the devices are virtual and share the cores of this machine (several nodes on one machine too): "
            "the efficiency says nothing of a cluster"
        )
    drifting = sum(not run.settled for run in results)
    if drifting:
        found.append(f"not settled: {drifting} of {len(results)} valid runs; their step times may still drift")
    if any(0 < len(cell.results) < 2 for cell in cells):
        found.append("a scale with one valid run has no spread: a difference may be chance (--repeats=3 or more)")
    return found


# --- the table ----------------------------------------------------------------------------------


def table_text(series: Sequence[Series]) -> str:
    """Every series with its figures, what was left out, and how to read them."""
    several = len({one.pgle for one in series}) > 1
    texts = [_series_text(one, say_pgle=several or one.pgle != NO_PGLE) for one in series]
    return "\n\n".join([*texts, "\n".join(_HOW_TO_READ)])


_HOW_TO_READ = (
    "Figures: the median over the valid runs of a scale (lowest to highest run).",
    "Efficiency: tokens/s per GPU over that of the first row, of the medians",
    "(lowest to highest of all combinations of a run here and a run there).",
)


def _series_text(series: Series, *, say_pgle: bool) -> str:
    pgle = f"PGLE {series.pgle} · " if say_pgle else ""
    title = (
        f"{series.model} {series.task} {series.dtype} · {series.backend} ({series.engine}) · {series.hardware} · "
        f"{pgle}{series.sequence_length} tokens a sequence · {KINDS[series.scaling]}"
    )
    lines = [title, *columns([HEADINGS, *map(_row, series.points)], numbers=range(len(HEADINGS)))]
    conventions = dict.fromkeys(p.mfu_convention for p in series.points if p.mfu_convention)
    notes = [("note", note) for note in series.notes]
    notes += [("MFU", ", ".join(conventions))] if conventions else []
    for names, why in _unknown(series.points).items():
        where = "" if len(names) > len(series.points) else f" of {', '.join(names[1:])}"
        notes.append(("unknown", f"{FIGURES[names[0]]}{where}: {why}"))
    notes += [("left out", text) for point in series.points for text in point.left_out]
    return "\n".join([*lines, *aligned(notes)])


def _unknown(points: Sequence[Point]) -> dict[tuple[str, ...], str]:
    """The figures that are missing for the same reason are named together."""
    sizes: dict[tuple[str, str], list[str]] = {}
    for point in points:
        for figure, why in point.null_because.items():
            if figure == "seconds_per_step" or why != point.null_because.get("seconds_per_step"):
                sizes.setdefault((figure, why), []).append(f"{point.gpus} on {plural(point.nodes, 'node')}")
    return {(figure, *where): why for (figure, why), where in sizes.items()}


def _row(point: Point) -> tuple[str, ...]:
    return (
        str(point.gpus),
        str(point.nodes),
        str(point.global_batch_size),
        f"{point.valid} of {point.runs}",
        _figure(point.seconds_per_step, seconds_text),
        _figure(point.tokens_per_second, count_text),
        _figure(point.tokens_per_second_per_gpu, count_text),
        _figure(point.mfu_percent, "{:.2f}".format),
        _figure(point.efficiency, "{:.1%}".format),
    )


def _figure(spread: Spread | None, text: Callable[[float], str]) -> str:
    if spread is None:
        return UNKNOWN
    if spread.n == 1:
        return text(spread.median)
    return f"{text(spread.median)} ({text(spread.lowest)} to {text(spread.highest)})"
