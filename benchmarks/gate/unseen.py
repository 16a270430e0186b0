"""What a night's report could not have seen, and how often its rule cries wolf: in sentences. Pure."""

from collections.abc import Sequence

from benchmarks.gate.values import CellReport, MetricJudgement

# Of one cell, one gating figure, one night, simulated (docs/gate.md): the mean over noises of 0.1% to 2%, where 3% of
# the runs are outliers and re-runs have other nodes.
FALSE_ALARM_SHARE = 0.001  # at most
SLOW_NODES_SHARE = 0.005  # at most, where up to 40% of the runs meet nodes that are 2% slow
SAME_NODES_SHARE = 0.003  # at most, where re-runs run on the very nodes of the first run
SLOW_NIGHTS_SHARE = 0.04  # at most, where 1 night in 20 is 2% slow as a whole


def false_alarms(gated: int) -> str:
    """`gated`: cells times gating figures."""
    if not gated:
        return "nothing was judged, so nothing could be a false alarm"
    share = 1 - (1 - FALSE_ALARM_SHARE) ** gated
    return (
        f"false alarms: if this machine is as simulated (3% of runs outliers, re-runs on other nodes), at most "
        f"{FALSE_ALARM_SHARE:.1%} a cell and night; with {_count(gated, 'gated figure')} one false regression in "
        f"{1 / share:,.0f} nights or more. A cell and night, where it is not: {SAME_NODES_SHARE:.1%} with re-runs on "
        f"the same nodes, {SLOW_NODES_SHARE:.1%} with some nodes 2% slow, {SLOW_NIGHTS_SHARE:.0%} with 1 whole night "
        "in 20 slow"
    )


def could_not_see(cells: Sequence[CellReport]) -> list[str]:
    judged = [(cell, one) for cell in cells for one in cell.judgements if one.gates]
    found = [_unjudged(cell) for cell in cells if not cell.judgements]
    found += [_short(cell, one) for cell, one in judged if one.baseline is None]
    seeing = [(cell, one) for cell, one in judged if one.smallest_detectable_percent is not None]
    found += [_blur(cell, one) for cell, one in seeing]
    if seeing:
        found += WEAK_POINTS
    return found


WEAK_POINTS = [
    "a night on which everything is slow, the re-runs too, looks like a regression, a whole slow week like a level",
    "re-runs on the nodes of the first run share what is wrong with these nodes: no proof against the software",
    "a shift below 0.5% is left to the weekly search for change points, which needs nights on both sides of it",
]


def _unjudged(cell: CellReport) -> str:
    return f"{cell.cell}: anything, tonight's run is {cell.status}"


def _short(cell: CellReport, one: MetricJudgement) -> str:
    if one.nights_needed is None:
        return f"{cell.cell}: any change of {one.metric.title}: {one.why}"
    needed = _count(one.nights_needed, "more night")
    return f"{cell.cell}: any change of {one.metric.title}: {needed} needed before one is judged"


def _blur(cell: CellReport, one: MetricJudgement) -> str:
    forever = ", and at this noise no number of nights shows that nothing changed by 1%" if one.unreachable else ""
    return (
        f"{cell.cell}: in the first night, a change of {one.metric.title} below "
        f"{one.smallest_detectable_percent:.2g}% (noise {one.noise_percent:.2g}% from night to night){forever}"
    )


def night_notes(cells: Sequence[CellReport]) -> list[str]:
    """What only shows when all cells are looked at together."""
    judged = [cell for cell in cells if cell.judgements]
    slower = [cell for cell in judged if cell.verdict == "regression"]
    notes = []
    if len(slower) > 1 and len(slower) == len(judged):
        notes.append("every cell is a regression: look first at what all share (machine, network, container)")
    for cell in cells:
        for one in cell.judgements:
            notes += [
                f"change point: {cell.cell}, {one.metric.title} {shift.percent:+.2f}% from night {shift.night} on "
                f"(p = {shift.p:.2g}{', told before' if shift.told_before else ''})"
                for shift in one.change_points
            ]
    return notes


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
