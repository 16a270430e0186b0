"""Two sides on a page: how they differ, whether that is shown, what may have caused it, what was refused. Pure."""

from benchmarks.compare.text import (
    headings,
    left_out,
    metric_notes,
    reasons,
    shown,
    value_text,
    verdict_text,
    warnings,
)
from benchmarks.compare.values import Comparison, Difference, Figure, Side
from benchmarks.pages.drawing import Interval, forest_plot
from benchmarks.pages.page import (
    UNKNOWN,
    VERDICT_TONES,
    Block,
    Box,
    Cell,
    Overview,
    Part,
    Plots,
    Section,
    Table,
    Tone,
    Words,
    change_text,
    interval_text,
)

BETTER = {"lower": "less is better", "higher": "more is better", "same": "any change is worth a look"}


def comparison_part(comparison: Comparison, key: str = "comparison") -> Part:
    a, b, differences = comparison.a, comparison.b, shown(comparison.differences)
    margin = comparison.margin_percent
    equal = f" Within {margin:g}% either way counts as the same." if margin else ""
    blocks: list[Block] = [
        Box("warm", "Not comparable", comparison.refused),
        Words([f"{comparison.summary}."] if comparison.summary else [], "lead"),
        Plots(
            forest_plot(
                [
                    Interval(
                        f"{one.name}: {verdict_text(one)}".removesuffix(": "),
                        one.percent,
                        one.low,
                        one.high,
                        _tone(one),
                    )
                    for one in differences
                    if one.percent is not None
                ],
                f"{key}-differences",
                f"{b.name or 'B'} relative to {a.name or 'A'}",
                f"A dot is the difference, the bar the 95% interval.{equal}",
                "percent of A",
            )
        ),
        Section("The metrics", [_table(comparison, differences)]),
        Section("The verdict explained", [Words(reasons(differences), "list")]),
        Section("Warnings", [Words(warnings(comparison), "list")]),
        Section("Requested differences", [Words(comparison.asked, "list")]),
        Section("Possible causes", _causes(comparison)),
        Section("Notes", [Words(metric_notes(comparison), "list")]),
        Section("The two sides", [_sides(a, b)]),
    ]
    status = "not comparable" if comparison.refused else str(comparison.verdict)
    tone = "warm" if comparison.refused else VERDICT_TONES[comparison.verdict]
    title = f"{b.name or b.label} against {a.name or a.label}"
    return Part(key, "Comparison", title, status, tone, title, "", "", blocks, Overview(title))


def _tone(one: Difference) -> Tone:
    return "warm" if one.moved else VERDICT_TONES[one.verdict]


def _table(comparison: Comparison, differences: list[Difference]) -> Table:
    rows = [
        [
            Cell(one.name, detail=BETTER[one.direction]),
            _figure(one.a, one.unit),
            _figure(one.b, one.unit),
            Cell(UNKNOWN, "muted")
            if one.percent is None
            else Cell(change_text(one.percent), detail=interval_text(one.low, one.high)),
            Cell(verdict_text(one), _tone(one)),
        ]
        for one in differences
    ]
    _, of_a, of_b, change, _, verdict = headings(comparison)
    titles = ["metric", f"#{of_a}", f"#{of_b}", f"#{change}", verdict]
    return Table("Each metric of either side, with its 95% interval", titles, rows)


def _figure(one: Figure | None, unit: str) -> Cell:
    if one is None:
        return Cell("unknown", "muted")
    spread = "no interval"
    if one.low is not None and one.high is not None:
        spread = f"{value_text(one.low, unit)} to {value_text(one.high, unit)}"
    return Cell(value_text(one.value, unit), detail=f"{spread}, n = {one.n} {one.of}")


def _causes(comparison: Comparison) -> list[Block]:
    """The most likely first, each with the reason of its place; nothing where it was not asked for."""
    if comparison.causes is None:
        return []
    rows = [
        [
            Cell(f"{one.rank}. {one.name}"),
            Cell(one.kind),
            *(Cell("absent", "muted") if side is None else Cell(side) for side in (one.a, one.b)),
            Cell(one.why),
        ]
        for one in sorted(comparison.causes, key=lambda cause: cause.rank)
    ]
    same = f"Checked and identical on both sides: {', '.join(comparison.same)}." if comparison.same else ""
    return [
        Table("Differences, the most likely cause first", ["what", "kind", "A", "B", "why it ranks here"], rows),
        Words([] if rows else ["Nothing that was checked differs."]),
        Words([f"Not known: {line}" for line in comparison.not_known], "list"),
        Words([same] if same else [], "muted"),
    ]


def _sides(*sides: Side) -> Table:
    texts = {
        "name": [side.name for side in sides],
        "chosen by": [side.label for side in sides],
        "runs": ["\n".join(side.run_ids) for side in sides],
        "left out": ["\n".join(f"{runs}: {why}" for why, runs in left_out(side).items()) for side in sides],
    }
    rows = [[Cell(name), *(Cell(text or UNKNOWN) for text in found)] for name, found in texts.items() if any(found)]
    return Table("The runs of each side", ["side", "A", "B"], rows)
