"""Reports of a nightly suite -> its figures over the nights: each cell's value, level, changes and effect.

The step is the number of the night within its suite. The level between two change points is a flat line; each change
is a point of its own, named by its night.
"""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.dashboards.live import plain
from benchmarks.dashboards.points import Board, Category, Chart, Point
from benchmarks.dashboards.series import parsed_time
from benchmarks.gate.values import ChangePoint, MetricJudgement, NightReport
from benchmarks.measuring.statistics import median
from benchmarks.values import Value

KIND = "nights"


class _History(Value, frozen=True):
    """One metric of one cell, over all nights that any report tells of."""

    values: dict[str, float]  # night -> value
    effects: dict[str, tuple[float, float, float]]  # night -> percent, low, high, as that night's report had it
    changes: list[ChangePoint]  # of the newest report
    unit: str
    title: str
    gates: bool


def boards(reports: Iterable[NightReport]) -> list[Board]:
    """One board a suite. A night told of by several reports is as the newest one has it."""
    suites: dict[str, list[NightReport]] = {}
    for report in reports:
        suites.setdefault(report.suite, []).append(report)
    return [_board(suite, sorted(ours, key=lambda one: one.night)) for suite, ours in sorted(suites.items())]


def _board(suite: str, reports: Sequence[NightReport]) -> Board:
    histories: dict[str, _History] = {}
    times: dict[str, float] = {}
    for report in reports:
        times[report.night] = parsed_time(report.started) or parsed_time(report.night) or 0.0
        for cell, judgement in _judgements(report):
            _take(histories, times, tag_of(suite, cell, judgement.metric.name), report.night, judgement)
    numbers = {night: number for number, night in enumerate(sorted(times))}
    by_night: dict[str, dict[str, float]] = {night: {} for night in numbers}
    for tag, history in histories.items():
        for night, scalars in _scalars(tag, history):
            by_night[night] |= scalars
    return Board(
        name=f"{KIND}/{plain(suite)}",
        points=[Point(step=numbers[n], unix_seconds=times[n], scalars=by_night[n]) for n in numbers if by_night[n]],
        descriptions={
            name: text for tag, history in histories.items() for name, text in _descriptions(tag, history).items()
        },
    )


def tag_of(suite: str, cell: str, metric: str) -> str:
    return f"perf/night_{plain(metric)}/{plain(suite)}/{plain(cell)}"


def _judgements(report: NightReport) -> Iterator[tuple[str, MetricJudgement]]:
    for cell in report.cells:
        for judgement in cell.judgements:
            yield cell.cell, judgement


def _take(
    histories: dict[str, _History], times: dict[str, float], tag: str, night: str, judgement: MetricJudgement
) -> None:
    before = histories.get(tag)
    values = {**(before.values if before else {})}
    for point in judgement.points:
        values[point.night] = point.value
        times.setdefault(point.night, _time_of(point.run_id, point.night))
    if judgement.tonight is not None:
        values[night] = judgement.tonight
    effects = {**(before.effects if before else {})}
    effect, low, high = judgement.effect_percent, judgement.low_percent, judgement.high_percent
    if effect is not None and low is not None and high is not None:
        effects[night] = (effect, low, high)
    histories[tag] = _History(
        values=values,
        effects=effects,
        changes=judgement.change_points,
        unit=judgement.metric.unit,
        title=judgement.metric.title,
        gates=judgement.gates,
    )


def _time_of(run_id: str, night: str) -> float:
    """Of a night without a report: when its run began, which the run's name begins with."""
    return parsed_time(run_id.partition("-")[0]) or parsed_time(night[:10]) or 0.0


def _scalars(tag: str, history: _History) -> Iterator[tuple[str, dict[str, float]]]:
    nights = sorted(history.values)
    starts = sorted({change.night for change in history.changes if change.night in history.values})
    level = _levels(history, nights, starts)
    for night in nights:
        found = {tag: history.values[night], f"{tag}/level": level[night]}
        if night in starts:
            found[change_tag(tag, night)] = history.values[night]
        yield night, found
    for night, (effect, low, high) in history.effects.items():
        yield night, {f"{tag}/effect_percent": effect, f"{tag}/effect_low": low, f"{tag}/effect_high": high}


def change_tag(tag: str, night: str) -> str:
    return f"{tag}/change_{plain(night)}"


def _levels(history: _History, nights: Sequence[str], starts: Sequence[str]) -> dict[str, float]:
    """The median of the nights between two changes."""
    found: dict[str, float] = {}
    for first, beyond in zip([None, *starts], [*starts, None], strict=True):
        inside = [n for n in nights if (first is None or n >= first) and (beyond is None or n < beyond)]
        level = median([history.values[night] for night in inside])
        found |= {night: level for night in inside if level is not None}
    return found


def _descriptions(tag: str, history: _History) -> dict[str, str]:
    changes = {
        change_tag(tag, one.night): f"the level changed by {one.percent:+.2f}% in this night (p = {one.p:.2g})"
        for one in history.changes
    }
    return {
        tag: f"{history.title}, {history.unit}: one value a night",
        f"{tag}/level": "the median of the nights between two changes of the level",
        f"{tag}/effect_percent": "the night against its baseline, % (90% interval: effect_low, effect_high)",
        f"{tag}/effect_low": "the lower end of the effect's 90% interval, %",
        f"{tag}/effect_high": "the upper end of the effect's 90% interval, %",
        **changes,
    }


def categories(reports: Iterable[NightReport]) -> list[Category]:
    """A category a suite: of each cell the metrics that gate, with their changes and effects.

    As the newest report has them that tells of them: a night that goes on has judged nothing yet.
    """
    newest: dict[str, dict[str, tuple[str, MetricJudgement]]] = {}
    for report in sorted(reports, key=lambda one: one.night):
        for cell, judgement in _judgements(report):
            newest.setdefault(report.suite, {})[f"{cell} {judgement.metric.name}"] = (cell, judgement)
    found = []
    for suite, judgements in sorted(newest.items()):
        charts = [chart for cell, one in judgements.values() if one.gates for chart in _charts(suite, cell, one)]
        if charts:
            found.append(Category(title=f"Nights of {suite}", charts=charts))
    return found


def _charts(suite: str, cell: str, judgement: MetricJudgement) -> list[Chart]:
    tag = tag_of(suite, cell, judgement.metric.name)
    changes = [change_tag(tag, one.night) for one in judgement.change_points]
    title = f"{cell}: {judgement.metric.title}"
    unit = f", {judgement.metric.unit}" if judgement.metric.unit else ""
    return [
        Chart(title=f"{title}{unit}, by night, with its level and changes", tags=[tag, f"{tag}/level", *changes]),
        Chart(
            title=f"{title}: effect against the baseline, %, 90% interval",
            band=[(f"{tag}/effect_percent", f"{tag}/effect_low", f"{tag}/effect_high")],
        ),
    ]
