"""Make the page of a comparison: the differences, the verdict, the likely causes, and what was refused. No I/O."""

from benchmarks.compare.text import (
    HEADINGS,
    left_out,
    metric_notes,
    reasons,
    row,
    verdict_text,
    warnings,
)
from benchmarks.compare.values import Comparison, Difference
from benchmarks.pages.drawing import Interval, forest_plot
from benchmarks.pages.page import VERDICT_TONES, Block, Box, Cell, Facts, Part, Plots, Section, Table, Tone, Words


def comparison_part(comparison: Comparison, key: str = "comparison") -> Part:
    a, b, differences = comparison.a, comparison.b, comparison.differences
    margin = comparison.margin_percent
    equal = f" An interval within ±{margin:g}% counts as the same." if margin else ""
    says = f"The dot is the difference, and the bar is its 95% interval.{equal}"
    intervals = [
        Interval(f"{one.name}: {verdict_text(one)}".removesuffix(": "), one.percent, one.low, one.high, _tone(one))
        for one in differences
        if one.percent is not None
    ]
    relative = f"{b.name or 'B'} relative to {a.name or 'A'}"
    titles = ["metric", *(f"#{title}" for title in HEADINGS[1:-1]), "verdict"]
    rows = [[*map(Cell, row(one)[:-1]), Cell(verdict_text(one), _tone(one))] for one in differences]
    sides = [
        (f"{letter}: {side.name or side.label}", "\n".join([*side.run_ids, *(
            f"excluded: {runs}: {why}" for why, runs in left_out(side).items()
        )]))
        for letter, side in (("A", a), ("B", b))
    ]  # fmt: skip
    blocks: list[Block] = [
        Box("warm", "Not comparable", comparison.refused),
        Words([f"{comparison.summary}."] if comparison.summary else [], "lead"),
        Plots(forest_plot(intervals, f"{key}-differences", relative, says, "percent of A")),
        Section("The metrics", [Table("All metrics of both sides", titles, rows)] if rows else []),
        Section("The verdict explained", [Words(reasons(differences), "list")]),
        Section("Warnings", [Words(warnings(comparison), "list")]),
        Section("Requested differences", [Words(comparison.asked, "list")]),
        Section("Possible causes", _causes(comparison)),
        Section("Notes", [Words(metric_notes(comparison), "list")]),
        Section("The two sides", [Facts(sides)]),
    ]
    return Part(
        key=key,
        kind="Comparison",
        verdict="not comparable" if comparison.refused else str(comparison.verdict),
        tone="warm" if comparison.refused else VERDICT_TONES[comparison.verdict],
        heading=f"{b.name or b.label} against {a.name or a.label}",
        under="",
        name="",
        blocks=blocks,
    )


def _tone(one: Difference) -> Tone:
    return "warm" if one.moved else VERDICT_TONES[one.verdict]


def _causes(comparison: Comparison) -> list[Block]:
    """Return the table of causes, most likely first, each with the reason for its rank; empty without --explain."""
    if comparison.causes is None:
        return []
    rows = [
        [Cell(one.name), Cell(one.kind), *(Cell("not set" if side is None else side) for side in (one.a, one.b)),
         Cell(one.why)]
        for one in comparison.causes
    ]  # fmt: skip
    same = f"Checked and identical on both sides: {', '.join(comparison.same)}." if comparison.same else ""
    return [
        Table("Differences, the most likely cause first", ["what", "kind", "A", "B", "why it ranks here"], rows),
        Words([] if rows else ["All checked facts are identical."]),
        Words([f"Unknown: {line}" for line in comparison.not_known], "list"),
        Words([same] if same else [], "muted"),
    ]
