"""The nights of a suite, from the records of launch/nightly.py: values, and levels between changes. Pure.

The step is the number of the night within its suite. The level between two change points is a flat line; each change
is a point of its own, named by its night.
"""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.dashboards.live import plain
from benchmarks.dashboards.points import Board, Category, Chart, Point
from benchmarks.dashboards.runs import parsed_time
from benchmarks.gate.values import MetricJudgement, NightReport
from benchmarks.measuring.statistics import median

KIND = "nights"


def _suites(reports: Iterable[NightReport]) -> dict[str, list[NightReport]]:
    """The reports of each suite, the oldest first."""
    suites: dict[str, list[NightReport]] = {}
    for report in sorted(reports, key=lambda one: (one.suite, one.night)):
        suites.setdefault(report.suite, []).append(report)
    return suites


def _judgements(reports: Iterable[NightReport]) -> Iterator[tuple[str, str, MetricJudgement]]:
    """Each with its night and its cell."""
    for report in reports:
        for cell in report.cells:
            for one in cell.judgements:
                yield report.night, cell.cell, one


def _newest(suite: str, reports: Sequence[NightReport]) -> dict[str, tuple[str, MetricJudgement]]:
    """By tag, of the newest report that tells of it: a night that goes on has judged nothing yet."""
    return {tag_of(suite, cell, one.metric.name): (cell, one) for _, cell, one in _judgements(reports)}


def tag_of(suite: str, cell: str, metric: str) -> str:
    return f"perf/night_{plain(metric)}/{plain(suite)}/{plain(cell)}"


def change_tag(tag: str, night: str) -> str:
    return f"{tag}/change_{plain(night)}"


def boards(reports: Iterable[NightReport]) -> list[Board]:
    """One board a suite. A night told of by several reports is as the newest one has it."""
    return [_board(suite, ours) for suite, ours in _suites(reports).items()]


def _board(suite: str, reports: Sequence[NightReport]) -> Board:
    times: dict[str, float] = {}
    values: dict[str, dict[str, float]] = {}  # tag -> night -> value
    nights: dict[str, dict[str, float]] = {}  # night -> tag -> value
    for night, cell, one in _judgements(reports):
        tag = tag_of(suite, cell, one.metric.name)
        of_tag = values.setdefault(tag, {})
        for point in one.points:
            of_tag[point.night] = point.value
            began = point.run_id.partition("-")[0]  # of a night without a report: when its run began
            times.setdefault(point.night, parsed_time(began) or parsed_time(point.night[:10]) or 0.0)
        if one.tonight is not None:
            of_tag[night] = one.tonight
    times |= {one.night: parsed_time(one.started) or parsed_time(one.night) or 0.0 for one in reports}
    for tag, (_, newest) in _newest(suite, reports).items():
        changes = sorted({one.night for one in newest.change_points} & values[tag].keys())
        for night, level in _levels(values[tag], changes).items():
            value = values[tag][night]
            change = {change_tag(tag, night): value} if night in changes else {}
            nights.setdefault(night, {}).update({tag: value, f"{tag}/level": level, **change})
    points = [
        Point(step=number, unix_seconds=times[night], scalars=nights[night])
        for number, night in enumerate(sorted(times))
        if night in nights
    ]
    return Board(name=f"{KIND}/{plain(suite)}", points=points)


def _levels(values: dict[str, float], changes: Sequence[str]) -> dict[str, float]:
    """Of each night, the median of the nights between two changes."""
    found: dict[str, float] = {}
    for first, beyond in zip(["", *changes], [*changes, None], strict=True):
        inside = [night for night in values if night >= first and (beyond is None or night < beyond)]
        level = median([values[night] for night in inside])
        found |= {night: level for night in inside if level is not None}
    return found


def categories(reports: Iterable[NightReport]) -> list[Category]:
    """A category a suite: of each cell the metrics that gate, with their changes and effects."""
    found = []
    for suite, ours in _suites(reports).items():
        charts = []
        for tag, (cell, one) in _newest(suite, ours).items():
            if not one.gates:
                continue
            title = f"{cell}: {one.metric.title}"
            unit = f", {one.metric.unit}" if one.metric.unit else ""
            lines = [tag, f"{tag}/level", *(change_tag(tag, change.night) for change in one.change_points)]
            charts.append(Chart(title=f"{title}{unit}, by night, with its level and changes", tags=lines))
        if charts:
            found.append(Category(title=f"Nights of {suite}", charts=charts))
    return found
