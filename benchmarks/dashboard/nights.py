"""The nights of a suite, from the records of launch/nightly.py: values, and levels before and since a change. Pure.

The step is the number of the night within its suite. The nights, the level, and the first night of a change are
separate TensorBoard runs with the same tags, so they share a chart with one colour each.
"""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.dashboard.events import plain
from benchmarks.dashboard.points import Board, Point
from benchmarks.dashboard.runs import parsed_time
from benchmarks.nightly.values import MetricJudgement, NightReport
from benchmarks.statistics import median

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


def tag_of(suite: str, cell: str, one: MetricJudgement) -> str:
    """What decides comes early, what is watched late: the tab Time Series has its groups in this order."""
    place, watched = ("2", "") if one.gates else ("7", " (watched)")
    return f"{place} nights of {plain(suite)}: {plain(one.metric.name)}{watched}/{plain(cell)}"


def boards(reports: Iterable[NightReport]) -> list[Board]:
    """Return the nights of each suite, their level, and each change. The newest report of a night counts."""
    return [board for suite, ours in _suites(reports).items() for board in _boards(suite, ours)]


def _boards(suite: str, reports: Sequence[NightReport]) -> list[Board]:
    times = _times(reports)
    values: dict[str, dict[str, float]] = {}  # tag -> night -> value
    for night, cell, one in _judgements(reports):
        of_tag = values.setdefault(tag_of(suite, cell, one), {})
        of_tag |= {point.night: point.value for point in one.points}
        if one.latest is not None:
            of_tag[night] = one.latest
    lines: dict[str, dict[str, dict[str, float]]] = {"": values}  # what is drawn -> tag -> night -> value
    # By tag, of the newest report that tells of it: a night that goes on has judged nothing yet.
    newest_of = {tag_of(suite, cell, one): one for _, cell, one in _judgements(reports)}
    for tag, newest in newest_of.items():
        changes = [newest.since] if newest.since in values[tag] else []
        lines.setdefault(" level", {})[tag] = _levels(values[tag], changes)
        for night in changes:
            lines.setdefault(f" change {plain(night)}", {})[tag] = {night: values[tag][night]}
    return [Board(name=f"{KIND}/{plain(suite)}{name}", points=_points(times, drawn)) for name, drawn in lines.items()]


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
