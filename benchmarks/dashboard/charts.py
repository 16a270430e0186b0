"""Make charts about many runs: a board for each series of runs, and a board for the nights of each suite. No I/O.

A series contains the runs of one benchmark on one machine. Each run is a point with its start time and its
number in that order, so both axes of TensorBoard are useful. The step of a night is its number in the suite.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.dashboard.events import plain
from benchmarks.dashboard.folders import Board, Point
from benchmarks.dashboard.runs import FIGURES, line_names, parsed_time, tflops, unix_seconds, why_not_drawn
from benchmarks.nightly.values import MetricJudgement, NightReport
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.identity import SHOWN_DIGITS

SERIES, NIGHTS = "series", "nights"
# Groups of tags. TensorBoard's tab Time Series sorts groups by these numbers, so the most important groups come
# first. Nights have the numbers 2 and 7 (see tag_of_night).
MFU = "4 MFU percent"
GROUPS = {
    "seconds_per_step": "1 seconds per step",
    "tokens_per_second_per_gpu": "3 tokens per second of one device",
    "memory_gb": "5 memory GB",
    "excess_percent": "6 excess percent",
}


def drawn(entries: Iterable[FinishedRun]) -> tuple[list[FinishedRun], dict[str, int]]:
    """Return the runs that charts show, ordered by time, and reason -> the number of runs that they do not show."""
    reasons = [(entry, why_not_drawn(entry)) for entry in entries]
    kept = [entry for entry, why in reasons if why is None]
    left_out = Counter(why for _, why in reasons if why is not None)
    return sorted(kept, key=lambda entry: (entry.started, entry.run_id)), dict(left_out)


def lines_of(entries: Sequence[FinishedRun]) -> list[str]:
    """Return the name of each run's line. If benchmarks or machines would share a name, add digests to the name."""
    names = line_names(SERIES, entries)
    digests = [
        " ".join(run.origin.identity.get(kind, "unknown")[:SHOWN_DIGITS] for kind in ("benchmark", "machine"))
        for run in entries
    ]
    many = Counter(name for name, _ in set(zip(names, digests, strict=True)))
    return [
        f"{name} {plain(digest)}" if many[name] > 1 else name for name, digest in zip(names, digests, strict=True)
    ]


def boards_of_runs(entries: Sequence[FinishedRun]) -> list[Board]:
    """Return a board for each series. `entries` are the runs that `drawn` returned."""
    points: dict[str, list[Point]] = {}
    for entry, name in zip(entries, lines_of(entries), strict=True):
        ours = points.setdefault(name, [])
        ours.append(Point(step=len(ours), unix_seconds=unix_seconds(entry), scalars=_scalars(entry)))
    return [Board(name=name, points=found) for name, found in sorted(points.items())]


def _scalars(entry: FinishedRun) -> dict[str, float]:
    work = f"{plain(entry.benchmark.model)} {plain(entry.benchmark.dtype)}"  # the runs in one chart share these words
    found = {f"{GROUPS[figure.name]}/{work}": figure.of(entry) for figure in FIGURES if figure.name in GROUPS}
    # The tag contains convention and peak, because percentages of different peaks are not comparable.
    peak = plain(f"{entry.mfu.convention} {entry.mfu.precision} {tflops(entry)}")
    found[f"{MFU}/{work} {peak}"] = entry.mfu.percent
    return {tag: value for tag, value in found.items() if value is not None}


# --- nights ---------------------------------------------------------------------------------------


def tag_of_night(suite: str, cell: str, one: MetricJudgement) -> str:
    """Return the tag of a metric of a night. Its leading number sorts gating metrics before watched ones."""
    place, watched = ("2", "") if one.gates else ("7", " (watched)")
    return f"{place} nights of {plain(suite)}: {plain(one.metric.name)}{watched}/{plain(cell)}"


def boards_of_nights(reports: Iterable[NightReport]) -> list[Board]:
    """Return a board for each suite with its nights. If a night has several reports, the newest one counts."""
    suites: dict[str, list[NightReport]] = {}
    for report in sorted(reports, key=lambda one: (one.suite, one.night)):
        suites.setdefault(report.suite, []).append(report)
    return [Board(name=f"{NIGHTS}/{plain(suite)}", points=_points(ours)) for suite, ours in suites.items()]


def _points(reports: Sequence[NightReport]) -> list[Point]:
    """Return the points of the nights. For a night without a report, later reports contain its value and its time."""
    times: dict[str, float] = {}
    values: dict[str, dict[str, float]] = {}  # night -> tag -> value
    for report in reports:
        times[report.night] = parsed_time(report.started) or 0.0
        for cell in report.cells:
            for one in cell.judgements:
                tag = tag_of_night(report.suite, cell.cell, one)
                for point in one.points:
                    times.setdefault(point.night, parsed_time(point.run_id.partition("-")[0]) or 0.0)
                    values.setdefault(point.night, {})[tag] = point.value
                if one.latest is not None:
                    values.setdefault(report.night, {})[tag] = one.latest
    return [
        Point(step=number, unix_seconds=times[night], scalars=values[night])
        for number, night in enumerate(sorted(times))
        if night in values
    ]
