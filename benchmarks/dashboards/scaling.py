"""How throughput grows with the devices, over all runs of a folder, beside the ideal line.

The step is the device count. A line is of weak scaling (the same batch for each device) or of strong scaling (the
same global batch); of one suite, site or host, and window; and of one layout, but for the axes data and fsdp, which
grow with the devices. Of a scale counts the median of its newest runs, all with the newest one's layout, benchmark
and machine. The ideal is the smallest scale's throughput of one device, times the devices. What a sweep says of its
own runs, with ranges, is in benchmarks/sweeps/scaling.py.
"""

import math
from collections.abc import Iterator, Sequence

from benchmarks.dashboards.points import Board, Category, Chart, Point
from benchmarks.dashboards.runs import line_name, split_axes, unix_seconds, work_of
from benchmarks.measuring.statistics import median
from benchmarks.runs.finished_run import FinishedRun

KIND = "scaling"
NEWEST = 5  # runs of a scale
DESCRIPTIONS = {
    "tokens_per_second": f"of all devices: median of the newest {NEWEST} runs of a scale at most",
    "ideal": "the smallest scale's tokens/s of one device, times the devices",
    "efficiency_percent": "measured over ideal; 100 at the smallest scale",
}


def boards(entries: Sequence[FinishedRun]) -> list[Board]:
    """`entries` in the order of time, those that are points. One scale alone is no scaling."""
    lines: dict[str, dict[str, list[FinishedRun]]] = {}
    for entry in entries:
        for name in _lines(entry):
            lines.setdefault(name, {}).setdefault(work_of(entry), []).append(entry)
    found = []
    for name, works in sorted(lines.items()):
        grown = {work: runs for work, runs in works.items() if len({run.gpus for run in runs}) > 1}
        by_scale: dict[int, dict[str, float]] = {}
        for work, runs in grown.items():
            for gpus, scalars in _scales(work, runs):
                by_scale.setdefault(gpus, {}).update(scalars)
        if by_scale:
            when = max(unix_seconds(runs[-1]) for runs in grown.values())
            points = [Point(step=gpus, unix_seconds=when, scalars=one) for gpus, one in sorted(by_scale.items())]
            told = {f"{KIND}/{work}/{tag}": text for work in grown for tag, text in DESCRIPTIONS.items()}
            found.append(Board(name=name, points=points, descriptions=told))
    return found


def _lines(run: FinishedRun) -> list[str]:
    """The lines that a run may be a point of."""
    each, rest = divmod(run.global_batch_size, run.gpus)
    kinds = [] if rest else [f"weak batch{each}_a_device"]
    name = line_name(KIND, run, run.hardware, *split_axes(run))
    return [f"{name} {kind}" for kind in (*kinds, f"strong batch{run.global_batch_size}")]


def _scales(work: str, runs: Sequence[FinishedRun]) -> Iterator[tuple[int, dict[str, float]]]:
    sizes = sorted({run.gpus for run in runs})
    measured = {gpus: _newest_figure([run for run in runs if run.gpus == gpus]) for gpus in sizes}
    each = measured[sizes[0]] / sizes[0]
    for gpus, value in measured.items():
        figures = (value, each * gpus, 100 * value / (each * gpus))
        yield gpus, {f"{KIND}/{work}/{tag}": one for tag, one in zip(DESCRIPTIONS, figures, strict=True)}


def _newest_figure(runs: Sequence[FinishedRun]) -> float:
    """All of them are points, so each has a speed."""
    wanted = _what_it_is(runs[-1])
    alike = [run.tokens_per_second for run in runs if run.tokens_per_second and _what_it_is(run) == wanted]
    return median(alike[-NEWEST:]) or math.nan


def _what_it_is(run: FinishedRun) -> tuple[str | None, ...]:
    return (run.parallelism, run.identity.get("benchmark"), run.identity.get("machine"))


def categories(found: Sequence[Board]) -> list[Category]:
    ideals = sorted({tag for board in found for tag in board.descriptions if tag.endswith("/ideal")})
    charts = []
    for ideal in ideals:
        work = ideal.removesuffix("/ideal")
        title = work.removeprefix(f"{KIND}/").replace("/", " ")
        speed = f"{title}: tokens/s over devices (step), with the ideal line"
        charts += [
            Chart(title=speed, tags=[f"{work}/tokens_per_second", ideal]),
            Chart(title=f"{title}: efficiency over devices (step), %", tags=[f"{work}/efficiency_percent"]),
        ]
    return [Category(title="Scaling", charts=charts)] if charts else []
