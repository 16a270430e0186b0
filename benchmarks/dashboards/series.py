"""Many runs -> a board for each series: the runs that trained the same in the same way on the same machine.

A point is a run. The points of a series are numbered in the order of time, and each has its own time of day, so both
axes of a chart say something.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.dashboards.live import plain
from benchmarks.dashboards.points import Board, Category, Chart, Point
from benchmarks.dashboards.runs import FIGURES, line_names, tflops, unix_seconds, why_not_drawn, work_of
from benchmarks.measuring.figures import usable_seconds
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.identity import SHOWN_DIGITS
from benchmarks.values import Step, Value

KIND = "series"
# Groups of tags. The tab Time Series has them in this order, so what people look for first comes first (the nights'
# are 2 and 7: nights.tag_of).
STEP_TIME, THROUGHPUT, MFU = "1 seconds per step", "3 tokens per second of one device", "4 MFU percent"
MEMORY, EXCESS, SPREAD = "5 memory GB", "6 excess percent", "8 spread of step times"
CHARTS = {
    "tokens_per_second_per_gpu": (THROUGHPUT, "Throughput", "tokens/s of one device"),
    "excess_percent": (EXCESS, "Steadiness and memory", "excess, mean over median less 1, %"),
    "memory_gb": (MEMORY, "Steadiness and memory", "memory, GB"),
}


class Band(Value, frozen=True):
    """What the counted steps of a run spread over: 9 of 10 lie between these two."""

    p05: float
    p95: float


def band_of(steps: Sequence[Step]) -> Band | None:
    """Of the counted steps of rank 0; None where there is none."""
    import numpy as np

    seconds = usable_seconds([step for step in steps if step.excluded_because is None and step.rank == 0])
    if not seconds:
        return None
    p05, p95 = np.percentile(seconds, (5, 95))
    return Band(p05=float(p05), p95=float(p95))


def drawn(entries: Iterable[FinishedRun]) -> tuple[list[FinishedRun], dict[str, int]]:
    """The runs that are points, in the order of time; and how many are not, by the reason."""
    reasons = [(entry, why_not_drawn(entry)) for entry in entries]
    kept = [entry for entry, why in reasons if why is None]
    left_out = Counter(why for _, why in reasons if why is not None)
    return sorted(kept, key=lambda entry: (entry.started, entry.run_id)), dict(left_out)


def lines_of(entries: Sequence[FinishedRun]) -> list[str]:
    """The line of each run; where one would mix benchmarks or machines, its digests tell them apart."""
    names = line_names(KIND, entries)
    digests: dict[tuple[str, str], set[str]] = {}
    for name, run in zip(names, entries, strict=True):
        for kind in ("benchmark", "machine"):
            digests.setdefault((name, kind), set()).add(run.identity.get(kind, "unknown"))
    return [
        " ".join([name, *(
            plain(f"{kind}-{run.identity.get(kind, 'unknown')[:SHOWN_DIGITS]}")
            for kind in ("benchmark", "machine")
            if len(digests[name, kind]) > 1
        )])
        for name, run in zip(names, entries, strict=True)
    ]  # fmt: skip


def boards(entries: Sequence[FinishedRun], bands: Mapping[str, Band]) -> list[Board]:
    """`entries` as `drawn` gives them; `bands` by the run's path. One without a band is in no chart of step times."""
    points: dict[str, list[Point]] = {}
    for entry, name in zip(entries, lines_of(entries), strict=True):
        ours = points.setdefault(name, [])
        scalars = _scalars(entry, bands.get(entry.path))
        ours.append(Point(step=len(ours), unix_seconds=unix_seconds(entry), scalars=scalars))
    return [Board(name=name, points=found) for name, found in sorted(points.items())]


def _scalars(entry: FinishedRun, band: Band | None) -> dict[str, float]:
    work = work_of(entry)
    found = {f"{CHARTS[figure.name][0]}/{work}": figure.of(entry) for figure in FIGURES if figure.name in CHARTS}
    found[mfu_tag(entry)] = entry.mfu_percent
    if band:
        median, low, high = band_tags(work)
        found |= {median: entry.seconds_per_step, low: band.p05, high: band.p95}
    return {tag: value for tag, value in found.items() if value is not None}


def band_tags(work: str) -> tuple[str, str, str]:
    """Of the median, and of the ends of its band."""
    return f"{STEP_TIME}/{work}", f"{SPREAD}/{work} p05", f"{SPREAD}/{work} p95"


def mfu_tag(entry: FinishedRun) -> str:
    """Convention and peak: a line has one of each, since percentages of another peak are other percentages."""
    peak = plain(f"{entry.mfu_convention} {entry.mfu_precision} {tflops(entry)}")
    return f"{MFU}/{work_of(entry)} {peak}"


# --- the charts -----------------------------------------------------------------------------------


def categories(entries: Sequence[FinishedRun]) -> list[Category]:
    """Of the runs that are points: a chart for each model and precision, a line for each series."""
    charts: dict[str, list[Chart]] = {"Step time": [], "Throughput": [], "MFU": []}
    works: dict[str, list[FinishedRun]] = {}
    for run in entries:
        works.setdefault(work_of(run), []).append(run)
    for work, ours in sorted(works.items()):
        title = f"{ours[0].model} {ours[0].dtype}"
        text = f"{title}: seconds/step, median and 5-95% of the counted steps"
        charts["Step time"].append(Chart(title=text, band=[band_tags(work)]))
        for figure in FIGURES:
            if figure.name in CHARTS and any(figure.of(run) is not None for run in ours):
                group, category, says = CHARTS[figure.name]
                chart = Chart(title=f"{title}: {says}", tags=[f"{group}/{work}"])
                charts.setdefault(category, []).append(chart)
        if peaks := sorted({mfu_tag(run) for run in ours if run.mfu_percent is not None}):
            charts["MFU"].append(Chart(title=f"{title}: MFU %; each tag names its convention and peak", tags=peaks))
    return [Category(title=title, charts=found) for title, found in charts.items() if found]
