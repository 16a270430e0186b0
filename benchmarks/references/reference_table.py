"""Published rows, each beside what its step time gives, and the cells that do not follow: for people and as data."""

from collections import Counter
from collections.abc import Callable, Sequence

from benchmarks.references.references import Cell, Reference, cells
from benchmarks.rendering.columns import aligned, columns
from benchmarks.values import Hardware, Model, Value

FLOPS = "stated_flops_per_sequence"
TITLES = {
    "tokens_per_second_per_gpu": "tokens/s/GPU",
    "tokens_per_second": "tokens/s",
    FLOPS: "FLOPs/sequence",
    "tflops_per_gpu": "TFLOP/s/GPU",
    "mfu_percent": "MFU %",
    "days_per_trillion_tokens": "days/1T",
}


class CheckedRow(Value, frozen=True):
    """One published row, recomputed."""

    name: str
    repository: str
    page: str  # the repository, its tag and the file
    line: int
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
            repository=row.source,
            page=row.page,
            line=row.line,
            seconds_per_step=row.seconds,
            flops=row.flops,
            cells=list(cells(row, model(row.model), hardware(row.hardware))),
        )
        for row in rows
    ]


def table_text(rows: Sequence[CheckedRow]) -> str:
    """What each source printed; where its own step time gives another figure, that stands behind it with a mark."""
    lines = []
    for page in dict.fromkeys(row.page for row in rows):
        lines += [page, *columns(_of_page([row for row in rows if row.page == page])), ""]
    wrong = [(row, cell) for row in rows for cell in row.cells if not cell.follows]
    total = sum(len(row.cells) for row in rows)
    lines.append(f"{len(rows)} rows, {total} cells recomputed from the step times; {len(wrong)} do not follow:")
    lines += _slips(wrong)
    counts = Counter(row.repository for row in rows)
    return "\n".join(
        [*lines, "", "rows by source:", *aligned([(name, str(count)) for name, count in counts.items()])]
    )


def _slips(wrong: Sequence[tuple[CheckedRow, Cell]]) -> list[str]:
    """Each once: FLOPs that a source states are in all rows of its model."""
    found: dict[tuple[str, ...], list[CheckedRow]] = {}
    for row, cell in wrong:
        printed, computed = _number(cell, cell.printed), _number(cell, cell.computed)
        by = "its model has" if cell.figure == FLOPS else f"its {row.seconds_per_step:.5g} s give"
        found.setdefault((f"{TITLES[cell.figure]}: {printed} is printed,", f"{by} {computed}"), []).append(row)
    return aligned([(rows[0].name, " ".join([*slip, _at(rows)])) for slip, rows in found.items()])


def _at(rows: Sequence[CheckedRow]) -> str:
    more = f" and {len(rows) - 1} more rows" if len(rows) > 1 else ""
    return f"({rows[0].page}:{rows[0].line}{more})"


def _of_page(rows: Sequence[CheckedRow]) -> list[tuple[str, ...]]:
    """Only the figures that the page has."""
    figures = [name for name in TITLES if any(cell.figure == name for row in rows for cell in row.cells)]
    return [("", "s/step", *(TITLES[name] for name in figures)), *(_line(row, figures) for row in rows)]


def _line(row: CheckedRow, figures: Sequence[str]) -> tuple[str, ...]:
    by_figure = {cell.figure: cell for cell in row.cells}
    return (row.name, f"{row.seconds_per_step:.5g}", *(_cell(by_figure.get(figure)) for figure in figures))


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    printed = _number(cell, cell.printed)
    return printed if cell.follows else f"{printed} (! {_number(cell, cell.computed)})"


def _number(cell: Cell, value: float) -> str:
    if cell.figure == FLOPS:
        return f"{value:.4e}"
    return f"{value:,.0f}" if cell.figure.startswith("tokens_per_second") else f"{value:.2f}"
