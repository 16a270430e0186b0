"""Compute how well a benchmark scales, from runs at several scales, as values and as a table. No I/O.

Each metric of a scale is the median over its valid runs, with the lowest and the highest value. The efficiency of a
scale is its median tokens/s per device, divided by the same number at the smallest scale of the series.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from benchmarks import statistics
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.text import aligned, columns, count_text, plural, seconds_text
from benchmarks.values import Benchmark, BenchmarkName, Value, name_words

ScalingKind = Literal["weak", "strong", "mixed", "one scale"]
KINDS: dict[ScalingKind, str] = {
    "weak": "weak scaling (the global batch grows with the devices)",
    "strong": "strong scaling (the global batch stays the same)",
    "mixed": "mixed scaling (the global batch changes, but not with the devices)",
    "one scale": "one scale",
}
HEADINGS = (
    "gpus", "nodes", "batch", "runs", "seconds/step", "tokens/s", "tokens/s/GPU", "MFU %", "efficiency",
)  # fmt: skip
NO_PGLE = "off"
OF_A_SERIES = ("backend", "engine", "model", "task", "dtype", "hardware", "sequence_length", "pgle")
FIGURES = {"seconds_per_step": "seconds/step", "mfu_percent": "MFU", "efficiency": "efficiency"}


class Scale(BenchmarkName, frozen=True):
    """What identifies a row of the table: the series it belongs to, and its scale."""

    layout: str
    virtual_devices: bool  # whether the devices are simulated by a CPU and share its cores
    pgle: str = NO_PGLE


def scale_of(benchmark: Benchmark) -> Scale:
    return Scale(
        **name_words(benchmark),
        layout=benchmark.parallelism.short(),
        virtual_devices=benchmark.hardware.kind == "cpu",
        pgle=benchmark.instruments.pgle,
    )


def scale_text(scale: Scale) -> str:
    devices = f"{scale.gpus} x {scale.hardware} on {plural(scale.nodes, 'node')}"
    return f"{devices}, {scale.layout}, global batch {scale.global_batch_size}"


class CellRuns(NamedTuple):
    """The runs of one cell of a sweep: the counted run of each repeat, and the reason for each excluded run."""

    name: str
    scale: Scale
    wanted: int
    counted: Mapping[int, FinishedRun]
    others: Sequence[tuple[int, str]] = ()

    @property
    def left_out(self) -> list[str]:
        found = [f"{self.name}, repeat {repeat}: {text}" for repeat, text in self.others]
        missing = self.wanted - len({*self.counted, *(repeat for repeat, _ in self.others)})
        return [*found, f"{self.name}: {missing} of {self.wanted} runs not started"] if missing else found


class Spread(Value, frozen=True):
    """The median and the range of a metric over `n` runs."""

    n: int
    median: float
    lowest: float
    highest: float


class Point(Value, frozen=True):
    """One scale of a series. A metric that cannot be known is null, and `null_because` contains the reason."""

    gpus: int
    nodes: int
    global_batch_size: int
    layout: str
    runs: int
    valid: int
    seconds_per_step: Spread | None
    tokens_per_second: Spread | None
    tokens_per_second_per_gpu: Spread | None
    mfu_percent: Spread | None
    mfu_convention: str | None
    efficiency: float | None
    null_because: dict[str, str]
    left_out: list[str]


class Series(Value, frozen=True):
    """The scales of one benchmark. They share backend, model, task, precision, device, sequence length and PGLE."""

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


def scaling(cells: Sequence[CellRuns]) -> list[Series]:
    """Return a series for each benchmark, in the order of the cells. The points of a series are sorted by size."""
    groups: dict[tuple[Any, ...], list[CellRuns]] = {}
    for cell in cells:
        groups.setdefault(tuple(getattr(cell.scale, name) for name in OF_A_SERIES), []).append(cell)
    found = []
    for words, group in groups.items():
        ours = sorted(group, key=lambda cell: (cell.scale.gpus, cell.scale.nodes))
        kind = scaling_kind([cell.scale for cell in ours])
        points = [_point(cell, ours[0]) for cell in ours]
        named = dict(zip(OF_A_SERIES, words, strict=True))
        found.append(Series(**named, scaling=kind, points=points, notes=_notes(ours)))
    return found


def scaling_kind(scales: Sequence[Scale]) -> ScalingKind:
    if len({scale.gpus for scale in scales}) == 1:
        return "one scale"
    if len({scale.global_batch_size for scale in scales}) == 1:
        return "strong"
    base = scales[0]
    grows = all(s.global_batch_size * base.gpus == base.global_batch_size * s.gpus for s in scales)
    return "weak" if grows else "mixed"


def _point(cell: CellRuns, base: CellRuns) -> Point:
    scale, runs = cell.scale, list(cell.counted.values())
    conventions = [f"{run.mfu.convention} of {run.mfu.precision} peak" for run in runs if run.mfu.percent is not None]
    here, there = _speed(cell), _speed(base)
    figures: dict[str, Any] = {
        "seconds_per_step": _spread([run.metrics.seconds_per_step for run in runs]),
        "mfu_percent": _spread([run.mfu.percent for run in runs]),
        "efficiency": here.median / there.median if here and there else None,
    }
    reasons = {
        "seconds_per_step": _why_null(runs, "seconds_per_step"),
        "mfu_percent": _why_null(runs, "mfu"),
        "efficiency": f"the smallest scale ({base.scale.gpus} x {base.scale.hardware}) or this scale has no speed",
    }
    return Point(
        gpus=scale.gpus,
        nodes=scale.nodes,
        global_batch_size=scale.global_batch_size,
        layout=scale.layout,
        runs=cell.wanted,
        valid=len(runs),
        **figures,
        tokens_per_second=_spread([run.metrics.tokens_per_second for run in runs]),
        tokens_per_second_per_gpu=_speed(cell),
        mfu_convention=conventions[0] if conventions else None,
        null_because={name: reasons[name] for name, spread in figures.items() if spread is None},
        left_out=cell.left_out,
    )


def _why_null(runs: Sequence[FinishedRun], figure: str) -> str:
    if not runs:
        return "the scale has no valid, comparable run"
    return next((run.null_because[figure] for run in runs if figure in run.null_because), "unknown")


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    middle = statistics.median(known)
    if middle is None:
        return None
    return Spread(n=len(known), median=middle, lowest=min(known), highest=max(known))


def _speed(cell: CellRuns) -> Spread | None:
    return _spread([run.metrics.tokens_per_second_per_gpu for run in cell.counted.values()])


def _notes(cells: Sequence[CellRuns]) -> list[str]:
    runs = [run for cell in cells for run in cell.counted.values()]
    found = []
    if cells[0].scale.virtual_devices:
        found.append(
            "virtual devices share the cores of this machine, even with several nodes, so the efficiency does not "
            "apply to a cluster"
        )
    if unsettled := sum(not run.window.settled for run in runs):
        found.append(f"{unsettled} of {len(runs)} valid runs had not settled, so their medians may still drift")
    if any(len(cell.counted) == 1 for cell in cells):
        found.append(
            "a scale with one valid run has no spread, so a difference may be chance (use --repeats=3 or more)"
        )
    return found


# --- the table ----------------------------------------------------------------------------------


def table_text(series: Sequence[Series]) -> str:
    """Return a table for each series with its metrics and excluded runs, then an explanation of the columns."""
    several = len({one.pgle for one in series}) > 1
    texts = [_series_text(one, say_pgle=several or one.pgle != NO_PGLE) for one in series]
    return "\n\n".join([*texts, "\n".join(_HOW_TO_READ)])


_HOW_TO_READ = (
    "Values: the median over the valid runs of a scale (lowest to highest run).",
    "Efficiency: median tokens/s per GPU, divided by that of the first row.",
)


def _series_text(series: Series, *, say_pgle: bool) -> str:
    pgle = f"PGLE {series.pgle} · " if say_pgle else ""
    title = (
        f"{series.model} {series.task} {series.dtype} · {series.backend} ({series.engine}) · {series.hardware} · "
        f"{pgle}{series.sequence_length} tokens per sequence · {KINDS[series.scaling]}"
    )
    lines = [title, *columns([HEADINGS, *map(row, series.points)], numbers=range(len(HEADINGS)))]
    conventions = dict.fromkeys(p.mfu_convention for p in series.points if p.mfu_convention)
    notes = [("note", note) for note in series.notes]
    notes += [("MFU", ", ".join(conventions))] if conventions else []
    notes += [("unknown", text) for text in unknown(series.points)]
    notes += [("left out", text) for point in series.points for text in point.left_out]
    return "\n".join([*lines, *aligned(notes)])


def unknown(points: Sequence[Point]) -> list[str]:
    """Return the missing metrics with their reasons. Scales with the same metric and reason share a text."""
    sizes: dict[tuple[str, str], list[str]] = {}
    for point in points:
        for figure, why in point.null_because.items():
            sizes.setdefault((FIGURES[figure], why), []).append(str(point.gpus))
    return [f"{figure} on {', '.join(found)} devices: {why}" for (figure, why), found in sizes.items()]


def row(point: Point) -> tuple[str, ...]:
    return (
        str(point.gpus),
        str(point.nodes),
        str(point.global_batch_size),
        f"{point.valid} of {point.runs}",
        _figure(point.seconds_per_step, seconds_text),
        _figure(point.tokens_per_second, count_text),
        _figure(point.tokens_per_second_per_gpu, count_text),
        _figure(point.mfu_percent, "{:.2f}".format),
        "-" if point.efficiency is None else f"{point.efficiency:.1%}",
    )


def _figure(spread: Spread | None, text: Callable[[float], str]) -> str:
    if spread is None:
        return "-"
    if spread.n == 1:
        return text(spread.median)
    return f"{text(spread.median)} ({text(spread.lowest)} to {text(spread.highest)})"
