"""Many runs -> a board for each series: the runs that trained the same in the same way on the same machine.

A point is a run. The points of a series are numbered in the order of time, and each has its own time of day, so both
axes of a chart say something.
"""

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.dashboards.live import plain
from benchmarks.dashboards.names import engine_word, how_words, place_words, telling_apart
from benchmarks.dashboards.points import Board, Category, Chart, Point
from benchmarks.measuring.figures import usable_seconds
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Step, Value

KIND = "series"


class Band(Value, frozen=True):
    """What the counted steps of a run spread over: 9 of 10 lie between these two."""

    p05: float
    p95: float


def band_of(steps: Sequence[Step]) -> Band | None:
    """Of the counted steps of rank 0; None where there is none."""
    seconds = usable_seconds([step for step in steps if step.excluded_because is None and step.rank == 0])
    return Band(p05=percentile(seconds, 5), p95=percentile(seconds, 95)) if seconds else None


def percentile(values: Sequence[float], percent: float) -> float:
    """Between two values by proportion, so that 0 is the smallest and 100 the largest."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def why_not_drawn(entry: FinishedRun) -> str | None:
    """Why a run is no point of a chart over many runs; None: it is one."""
    if entry.status != "valid":
        return entry.status
    if entry.slowed_by:
        return "slowed on purpose"
    if entry.not_comparable:
        return "profiled"
    if entry.gpus < 1:
        return "without devices"
    speeds = (entry.seconds_per_step, entry.tokens_per_second, entry.tokens_per_second_per_gpu)
    if not all(speed is not None and 0 < speed < math.inf for speed in speeds):
        return "without a speed"
    return None


def unix_seconds(entry: FinishedRun) -> float:
    """Of a run without a time in its name, 0: it comes first."""
    return parsed_time(entry.started) or 0.0


def parsed_time(text: str) -> float | None:
    """A time in UTC, whole or a date alone, as Unix time."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()


def work_of(entry: FinishedRun) -> str:
    """What is trained, at which precision: the runs of one chart."""
    return f"{plain(entry.model)}/{plain(entry.dtype)}"


def series_of(entry: FinishedRun) -> str:
    """The line that a run belongs to, by what people call it: who trains it how, on what, and where."""
    words = [
        entry.suite or "",
        engine_word(entry),
        f"{entry.gpus}x{entry.hardware}",
        *place_words(entry),
        entry.task,
        f"seq{entry.sequence_length}",
        f"batch{entry.global_batch_size}",
        entry.parallelism,
        *how_words(entry),
    ]
    return f"{KIND}/{' '.join(plain(word) for word in words if word)}"


def lines_of(entries: Iterable[FinishedRun]) -> list[str]:
    """The line of each: `series_of`, and where one would mix benchmarks or machines, what tells them apart."""
    named = [(entry, series_of(entry)) for entry in entries]
    groups: dict[str, list[FinishedRun]] = {}
    for entry, name in named:
        groups.setdefault(f"{name}/{work_of(entry)}", []).append(entry)
    apart = telling_apart(groups)
    return [" ".join([name, *map(plain, apart.get(entry.path, []))]) for entry, name in named]


def mfu_name(entry: FinishedRun) -> str:
    """Convention and peak: a line has one of each, since percentages of another peak are other percentages."""
    return plain(f"{entry.mfu_convention} {entry.mfu_precision} {_tflops(entry)}")


def _tflops(entry: FinishedRun) -> str:
    """A measured one differs from one measurement to the next, so by more digits than people read."""
    return f"{entry.mfu_peak_tflops:.6g} TFLOP/s" if entry.mfu_peak_tflops is not None else "unknown"


def drawn(entries: Iterable[FinishedRun]) -> tuple[list[FinishedRun], dict[str, int]]:
    """The runs that are points, in the order of time; and how many are not, by the reason."""
    kept: list[FinishedRun] = []
    left_out: dict[str, int] = {}
    for entry in entries:
        why = why_not_drawn(entry)
        if why is None:
            kept.append(entry)
        else:
            left_out[why] = left_out.get(why, 0) + 1
    return sorted(kept, key=lambda entry: (entry.started, entry.run_id)), left_out


def boards(entries: Sequence[FinishedRun], bands: Mapping[str, Band]) -> list[Board]:
    """`entries` as `drawn` gives them; `bands` by the run's path. One without a band is in no chart of step times."""
    points: dict[str, list[Point]] = {}
    counts: dict[tuple[str, str], int] = {}
    told: dict[str, dict[str, str]] = {}
    for entry, name in zip(entries, lines_of(entries), strict=True):
        work = work_of(entry)
        number = counts.get((name, work), 0)
        counts[name, work] = number + 1
        scalars = _scalars(entry, bands.get(entry.path))
        points.setdefault(name, []).append(Point(step=number, unix_seconds=unix_seconds(entry), scalars=scalars))
        of_series = told.setdefault(name, {})
        if not scalars.keys() <= of_series.keys():
            of_series |= _descriptions(entry)
    return [Board(name=name, points=found, descriptions=told[name]) for name, found in sorted(points.items())]


def _scalars(entry: FinishedRun, band: Band | None) -> dict[str, float]:
    work = work_of(entry)
    found = {f"step_seconds/{work}": entry.seconds_per_step} if band else {}
    if band:
        found |= {f"step_seconds/{work}/p05": band.p05, f"step_seconds/{work}/p95": band.p95}
    found |= {
        f"tokens_per_second_per_gpu/{work}": entry.tokens_per_second_per_gpu,
        f"excess_percent/{work}": None if entry.excess is None else 100 * entry.excess,
        f"memory_gb/{work}": None if entry.memory_bytes is None else entry.memory_bytes / 1e9,
    }
    if entry.mfu_percent is not None:
        found[f"mfu_percent/{work}/{mfu_name(entry)}"] = entry.mfu_percent
    return {tag: value for tag, value in found.items() if value is not None}


def _descriptions(entry: FinishedRun) -> dict[str, str]:
    work = work_of(entry)
    found = {
        f"step_seconds/{work}": "seconds/step: the median of a run's counted steps; a point is a run",
        f"step_seconds/{work}/p05": "the 5th percentile of the run's counted steps",
        f"step_seconds/{work}/p95": "the 95th percentile of the run's counted steps",
        f"tokens_per_second_per_gpu/{work}": "tokens/s of one device, from the median step",
        f"excess_percent/{work}": "mean over median, less 1: how much longer the mean step is than the median one",
        f"memory_gb/{work}": "decimal GB: the most that a device held; of a CPU, the host",
    }
    if entry.mfu_percent is not None:
        found[f"mfu_percent/{work}/{mfu_name(entry)}"] = (
            f"% of {_tflops(entry)} {entry.mfu_precision}, convention '{entry.mfu_convention}'"
        )
    return found


# --- the charts -----------------------------------------------------------------------------------


def categories(entries: Sequence[FinishedRun]) -> list[Category]:
    """Of the runs that are points: a chart for each model and precision, a line for each series."""
    works = sorted({(work_of(entry), f"{entry.model} {entry.dtype}") for entry in entries})
    with_memory = {work_of(entry) for entry in entries if entry.memory_bytes is not None}
    found = [
        Category(title="Step time", charts=[_band_chart(work, title) for work, title in works]),
        Category(
            title="Throughput",
            charts=[
                Chart(title=f"{title}: tokens/s of one device", tags=[f"tokens_per_second_per_gpu/{work}"])
                for work, title in works
            ],
        ),
        Category(title="MFU", charts=_mfu_charts(entries)),
        Category(
            title="Steadiness and memory",
            charts=[
                chart
                for work, title in works
                for chart in (
                    Chart(title=f"{title}: excess, mean over median less 1, %", tags=[f"excess_percent/{work}"]),
                    *(
                        [Chart(title=f"{title}: memory, GB", tags=[f"memory_gb/{work}"])]
                        if work in with_memory
                        else []
                    ),
                )
            ],
        ),
    ]
    return [category for category in found if category.charts]


def _band_chart(work: str, title: str) -> Chart:
    value = f"step_seconds/{work}"
    return Chart(
        title=f"{title}: seconds/step, median and 5-95% of the counted steps",
        band=[(value, f"{value}/p05", f"{value}/p95")],
    )


def _mfu_charts(entries: Sequence[FinishedRun]) -> list[Chart]:
    """One for each convention and kind of peak; in it each peak, such as another device's, is a line of its own."""
    peaks: dict[tuple[str, str, str], dict[str, str]] = {}
    for entry in entries:
        if entry.mfu_percent is not None:
            of_chart = (f"{entry.model} {entry.dtype}", entry.mfu_convention or "", entry.mfu_precision or "")
            peaks.setdefault(of_chart, {})[f"mfu_percent/{work_of(entry)}/{mfu_name(entry)}"] = _tflops(entry)
    charts = []
    for (title, convention, precision), tags in sorted(peaks.items()):
        which = next(iter(tags.values())) if len(tags) == 1 else f"{len(tags)} peaks, named in the tags"
        charts.append(
            Chart(title=f"{title}: MFU %, {convention}, of the {precision} peak ({which})", tags=sorted(tags))
        )
    return charts
