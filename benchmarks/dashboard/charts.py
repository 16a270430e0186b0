"""Charts over many runs: a board for each series of runs, and the nights of each suite. Pure.

A series holds the runs that trained the same in the same way on the same machine. A point is a run; the points are
numbered in the order of time, and each has its own time of day, so both axes of a chart mean something.

The step of a night is its number within its suite. The nights, the level, and the first night of a change are
separate TensorBoard runs with the same tags, so they share a chart with one colour each.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.dashboard.events import plain
from benchmarks.dashboard.points import Board, Point
from benchmarks.dashboard.runs import FIGURES, line_names, parsed_time, tflops, unix_seconds, why_not_drawn
from benchmarks.nightly.values import MetricJudgement, NightReport
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.identity import SHOWN_DIGITS
from benchmarks.statistics import median

SERIES, NIGHTS = "series", "nights"
# Groups of tags. The tab Time Series has them in this order, so what people look for first comes first (the nights'
# are 2 and 7: tag_of_night).
MFU = "4 MFU percent"
GROUPS = {
    "seconds_per_step": "1 seconds per step",
    "tokens_per_second_per_gpu": "3 tokens per second of one device",
    "memory_gb": "5 memory GB",
    "excess_percent": "6 excess percent",
}


def drawn(entries: Iterable[FinishedRun]) -> tuple[list[FinishedRun], dict[str, int]]:
    """The runs that are points, in the order of time; and how many are not, by the reason."""
    reasons = [(entry, why_not_drawn(entry)) for entry in entries]
    kept = [entry for entry, why in reasons if why is None]
    left_out = Counter(why for _, why in reasons if why is not None)
    return sorted(kept, key=lambda entry: (entry.started, entry.run_id)), dict(left_out)


def lines_of(entries: Sequence[FinishedRun]) -> list[str]:
    """The line of each run; where one would mix benchmarks or machines, its digests tell them apart."""
    names = line_names(SERIES, entries)
    digests: dict[tuple[str, str], set[str]] = {}
    for name, run in zip(names, entries, strict=True):
        for kind in ("benchmark", "machine"):
            digests.setdefault((name, kind), set()).add(run.origin.identity.get(kind, "unknown"))
    return [
        " ".join([name, *(
            plain(f"{kind}-{run.origin.identity.get(kind, 'unknown')[:SHOWN_DIGITS]}")
            for kind in ("benchmark", "machine")
            if len(digests[name, kind]) > 1
        )])
        for name, run in zip(names, entries, strict=True)
    ]  # fmt: skip


def boards_of_runs(entries: Sequence[FinishedRun]) -> list[Board]:
    """Return a board for each series of the runs, which are as `drawn` gives them."""
    points: dict[str, list[Point]] = {}
    for entry, name in zip(entries, lines_of(entries), strict=True):
        ours = points.setdefault(name, [])
        ours.append(Point(step=len(ours), unix_seconds=unix_seconds(entry), scalars=_scalars(entry)))
    return [Board(name=name, points=found) for name, found in sorted(points.items())]


def _scalars(entry: FinishedRun) -> dict[str, float]:
    work = f"{plain(entry.benchmark.model)} {plain(entry.benchmark.dtype)}"  # the runs of one chart
    found = {f"{GROUPS[figure.name]}/{work}": figure.of(entry) for figure in FIGURES if figure.name in GROUPS}
    # Convention and peak: a line has one of each, since percentages of another peak are other percentages.
    peak = plain(f"{entry.mfu.convention} {entry.mfu.precision} {tflops(entry)}")
    found[f"{MFU}/{work} {peak}"] = entry.mfu.percent
    return {tag: value for tag, value in found.items() if value is not None}


# --- nights ---------------------------------------------------------------------------------------


def _judgements(reports: Iterable[NightReport]) -> Iterator[tuple[str, str, MetricJudgement]]:
    """Each with its night and its cell."""
    for report in reports:
        for cell in report.cells:
            for one in cell.judgements:
                yield report.night, cell.cell, one


def tag_of_night(suite: str, cell: str, one: MetricJudgement) -> str:
    """What decides comes early, what is watched late: the tab Time Series has its groups in this order."""
    place, watched = ("2", "") if one.gates else ("7", " (watched)")
    return f"{place} nights of {plain(suite)}: {plain(one.metric.name)}{watched}/{plain(cell)}"


def boards_of_nights(reports: Iterable[NightReport]) -> list[Board]:
    """Return the nights of each suite, their level, and each change. The newest report of a night counts."""
    suites: dict[str, list[NightReport]] = {}
    for report in sorted(reports, key=lambda one: (one.suite, one.night)):
        suites.setdefault(report.suite, []).append(report)
    return [board for suite, ours in suites.items() for board in _boards(suite, ours)]


def _boards(suite: str, reports: Sequence[NightReport]) -> list[Board]:
    times = _times(reports)
    values: dict[str, dict[str, float]] = {}  # tag -> night -> value
    for night, cell, one in _judgements(reports):
        of_tag = values.setdefault(tag_of_night(suite, cell, one), {})
        of_tag |= {point.night: point.value for point in one.points}
        if one.latest is not None:
            of_tag[night] = one.latest
    lines: dict[str, dict[str, dict[str, float]]] = {"": values}  # what is drawn -> tag -> night -> value
    # By tag, of the newest report that tells of it: a night that goes on has judged nothing yet.
    newest_of = {tag_of_night(suite, cell, one): one for _, cell, one in _judgements(reports)}
    for tag, newest in newest_of.items():
        changes = [newest.since] if newest.since in values[tag] else []
        lines.setdefault(" level", {})[tag] = _levels(values[tag], changes)
        for night in changes:
            lines.setdefault(f" change {plain(night)}", {})[tag] = {night: values[tag][night]}
    return [
        Board(name=f"{NIGHTS}/{plain(suite)}{name}", points=_points(times, drawn)) for name, drawn in lines.items()
    ]


def _times(reports: Sequence[NightReport]) -> dict[str, float]:
    """When each night began; of one without a report, when its run did."""
    found: dict[str, float] = {}
    for _, _, one in _judgements(reports):
        for point in one.points:
            began = point.run_id.partition("-")[0]
            found.setdefault(point.night, parsed_time(began) or parsed_time(point.night[:10]) or 0.0)
    return found | {one.night: parsed_time(one.started) or parsed_time(one.night) or 0.0 for one in reports}


def _points(times: dict[str, float], drawn: dict[str, dict[str, float]]) -> list[Point]:
    found = []
    for number, night in enumerate(sorted(times)):
        scalars = {tag: values[night] for tag, values in drawn.items() if night in values}
        if scalars:
            found.append(Point(step=number, unix_seconds=times[night], scalars=scalars))
    return found


def _levels(values: dict[str, float], changes: Sequence[str]) -> dict[str, float]:
    """Of each night, the median of the nights between two changes."""
    found: dict[str, float] = {}
    for first, beyond in zip(["", *changes], [*changes, None], strict=True):
        inside = [night for night in values if night >= first and (beyond is None or night < beyond)]
        level = median([values[night] for night in inside])
        found |= {night: level for night in inside if level is not None}
    return found
