"""Two sides on a page: how they differ, whether that is shown, what may have caused it, what was refused. Pure."""

from benchmarks.comparing.values import Comparison, Difference, Figure, Side
from benchmarks.pages.elements import UNKNOWN, Cell, Facts, Table, Tone, plural, table
from benchmarks.pages.forest import Row, forest_plot, interval_text, percent_text
from benchmarks.pages.page import Part, page, render
from benchmarks.pages.units import value_text

TONES: dict[str, Tone] = {
    "better": "good",
    "worse": "bad",
    "changed": "warm",
    "no difference shown": "muted",
    "equal within the margin": "good",
    "no verdict": "muted",
}
BETTER = {"lower": "less is better", "higher": "more is better", "same": "any change is worth a look"}


def comparison_page(comparison: Comparison) -> str:
    return page([comparison_part(comparison)])


def comparison_part(comparison: Comparison, key: str = "comparison") -> Part:
    a, b = comparison.a, comparison.b
    rows = [row for one in comparison.differences if (row := _row(one)) is not None]
    html = render(
        "comparison.html.j2",
        key=key,
        comparison=comparison,
        verdict=_verdict(comparison),
        tone=_tone(comparison),
        plot=forest_plot(
            rows,
            f"{key}-differences",
            "How much B differs from A",
            f"A dot is the difference, the bar the 95% interval. {_margin(comparison)}{_unseen(comparison)}",
            "percent of A",
        ),
        table=_table(comparison.differences),
        lead=_lead(comparison),
        sentences=[f"{one.name}, {one.verdict}: {one.why}" for one in comparison.differences],
        causes=_causes(comparison),
        sides=[_side("A", a), _side("B", b)],
    )
    return Part(key, f"{b.label} against {a.label}", "comparison", html)


def _verdict(comparison: Comparison) -> str:
    """Of the first figure, which is the one that matters most."""
    if comparison.refused:
        return "not comparable"
    return comparison.differences[0].verdict if comparison.differences else "nothing to compare"


def _lead(comparison: Comparison) -> str:
    """The same figure with its interval, in one sentence."""
    first = comparison.differences[0] if comparison.differences else None
    if first is None or first.percent is None:
        return ""
    return f"{first.name}: {percent_text(first.percent)} ({interval_text(first.low, first.high)}), {first.verdict}."


def _tone(comparison: Comparison) -> Tone:
    return "warm" if comparison.refused else TONES.get(_verdict(comparison), "muted")


def _row(one: Difference) -> Row | None:
    if one.percent is None:
        return None
    return Row(f"{one.name}: {one.verdict}", one.percent, one.low, one.high, TONES[one.verdict])


def _margin(comparison: Comparison) -> str:
    margin = comparison.margin_percent
    return f"What lies within {margin:g}% either way counts as equal. " if margin else ""


def _unseen(comparison: Comparison) -> str:
    missing = [one.name for one in comparison.differences if one.percent is None]
    return f"Not drawn, because one side does not have it: {', '.join(missing)}." if missing else ""


def _table(differences: list[Difference]) -> Table | None:
    if not differences:
        return None
    rows = [
        [
            Cell(one.name, detail=BETTER[one.direction]),
            _figure(one.a, one.unit),
            _figure(one.b, one.unit),
            _difference(one),
            Cell(one.verdict, TONES[one.verdict]),
        ]
        for one in differences
    ]
    titles = ["figure", "#A", "#B", "#B against A", "verdict"]
    return table("Each figure of either side, with its 95% interval", titles, rows)


def _difference(one: Difference) -> Cell:
    if one.percent is None:
        return Cell(UNKNOWN, "muted")
    return Cell(percent_text(one.percent), "", one.percent, one.name, detail=interval_text(one.low, one.high))


def _figure(one: Figure | None, unit: str) -> Cell:
    if one is None:
        return Cell("unknown", "muted")
    spread = f"{_value(one.low, unit)} to {_value(one.high, unit)}, " if one.low is not None else "no interval, "
    return Cell(_value(one.value, unit), value=one.value, detail=f"{spread}n = {one.n} {one.of}")


def _value(value: float | None, unit: str) -> str:
    return "unknown" if value is None else value_text(value, unit)


def _causes(comparison: Comparison) -> Table | None:
    """The most likely first, each with why it stands where it stands."""
    if not comparison.causes:
        return None
    rows = [
        [
            Cell(f"{one.rank}. {one.name}"),
            Cell(one.kind),
            Cell(one.a if one.a is not None else "not there", "" if one.a is not None else "muted"),
            Cell(one.b if one.b is not None else "not there", "" if one.b is not None else "muted"),
            Cell(one.why),
        ]
        for one in sorted(comparison.causes, key=lambda cause: cause.rank)
    ]
    return table("What differs, the most likely cause first", ["what", "kind", "A", "B", "why it stands here"], rows)


def _side(letter: str, side: Side) -> Facts:
    left_out = "\n".join(f"{run}: {why}" for run, why in side.left_out.items())
    rows = [("called", side.label), (plural(len(side.run_ids), "run"), "\n".join(side.run_ids))]
    return Facts(letter, [*rows, *([("left out", left_out)] if left_out else [])])
