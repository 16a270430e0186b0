"""Published rows, each beside what its step time gives, and the cells that do not follow: for people and as data."""

from collections.abc import Callable, Sequence

from benchmarks.references.references import Cell, Reference, cells
from benchmarks.rendering.columns import aligned, columns
from benchmarks.values import Hardware, Model, Value

HEADINGS = ("", "s/step", "tokens/s", "MFU %", "days/1T")
TITLES = {"tokens_per_second": "tokens/s", "mfu_percent": "MFU %", "days_per_trillion_tokens": "days/1T"}


class CheckedRow(Value, frozen=True):
    """One published row, recomputed."""

    name: str
    source: str
    seconds_per_step: float
    flops: str
    cells: list[Cell]


def check(
    rows: Sequence[Reference], model: Callable[[str], Model], hardware: Callable[[str], Hardware]
) -> list[CheckedRow]:
    """Every row with its cells; the names are looked up where the configs are."""
    return [
        CheckedRow(
            name=row.name,
            source=row.source,
            seconds_per_step=row.seconds,
            flops=row.flops,
            cells=list(cells(row, model(row.model), hardware(row.hardware))),
        )
        for row in rows
    ]


def table_text(rows: Sequence[CheckedRow]) -> str:
    """What each source printed; where its own step time gives another figure, that stands behind it with a mark."""
    lines = []
    for source in dict.fromkeys(row.source for row in rows):
        lines += [source, *columns([HEADINGS, *(_line(row) for row in rows if row.source == source)]), ""]
    wrong = [(row, cell) for row in rows for cell in row.cells if not cell.follows]
    total = sum(len(row.cells) for row in rows)
    lines.append(f"{len(rows)} rows, {total} cells recomputed from the step times; {len(wrong)} do not follow:")
    lines += aligned(
        [
            (
                row.name,
                f"{TITLES[cell.figure]}: {_number(cell, cell.printed)} is printed, its {row.seconds_per_step:g} s "
                f"give {_number(cell, cell.computed)} ({row.source})",
            )
            for row, cell in wrong
        ]
    )
    return "\n".join(lines)


def _line(row: CheckedRow) -> tuple[str, ...]:
    by_figure = {cell.figure: cell for cell in row.cells}
    return (row.name, f"{row.seconds_per_step:g}", *(_cell(by_figure.get(figure)) for figure in TITLES))


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    printed = _number(cell, cell.printed)
    return printed if cell.follows else f"{printed} (! {_number(cell, cell.computed)})"


def _number(cell: Cell, value: float) -> str:
    return f"{value:,.0f}" if cell.figure == "tokens_per_second" else f"{value:.2f}"
