"""Published rows, each next to what its step time gives, and the cells that do not follow.

A row has a step time, or the tokens/s that give it, and figures that its authors made of it. Stepmark computes these
again. A cell follows if it is where the step time, as it was rounded for print, allows. Sources have slips; the table
names them and does not correct them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from benchmarks.errors import RequestError
from benchmarks.model import flops
from benchmarks.model.published_rows import STATED, Reference, rounded_by
from benchmarks.text import aligned, columns
from benchmarks.values import Hardware, Model, Value

SECONDS_A_DAY = 86_400
TRILLION = 1e12
FLOPS = "stated_flops_per_sequence"
TITLES = {
    "tokens_per_second_per_gpu": "tokens/s/GPU",
    "tokens_per_second": "tokens/s",
    FLOPS: "FLOPs/sequence",
    "tflops_per_gpu": "TFLOP/s/GPU",
    "mfu_percent": "MFU %",
    "days_per_trillion_tokens": "days/1T",
}


class Cell(Value, frozen=True):
    """One published figure, and what its row's step time gives."""

    figure: str
    printed: float
    computed: float
    follows: bool  # it lies where the step time allows, as it was rounded for print


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


# --- does it follow? ----------------------------------------------------------------------------


def cells(row: Reference, model: Model, hardware: Hardware) -> Iterator[Cell]:
    """Each published figure of a row, with what its step time gives."""
    quick, slow = row.seconds_range
    tokens = row.tokens_per_step
    if row.seconds_per_step and row.tokens_per_second_per_gpu:
        yield _inverse("tokens_per_second_per_gpu", row, tokens / row.gpus)
    if row.tokens_per_second:
        yield _inverse("tokens_per_second", row, tokens)
    if row.stated_flops_per_sequence and row.flops != STATED:
        computed = flops_per_sequence(row, model)
        yield _cell("stated_flops_per_sequence", row.stated_flops_per_sequence, computed, computed, computed)
    if row.tflops_per_gpu:
        yield _inverse(
            "tflops_per_gpu", row, flops_per_sequence(row, model) * row.global_batch_size / row.gpus / 1e12
        )
    if row.mfu_percent:
        mfu, rounding = mfu_percent(row, model, hardware), _rounding(row.stated_flops_per_sequence)
        low, high = mfu * row.seconds / slow * (1 - rounding), mfu * row.seconds / quick * (1 + rounding)
        yield _cell("mfu_percent", row.mfu_percent, mfu, low, high)
    if row.days_per_trillion_tokens:
        days = [TRILLION / SECONDS_A_DAY / tokens * seconds for seconds in (row.seconds, quick, slow)]
        yield _cell("days_per_trillion_tokens", row.days_per_trillion_tokens, *days)


def flops_per_sequence(row: Reference, model: Model) -> float:
    """By the row's own convention; what its source states where no formula here gives it."""
    if row.flops == STATED:
        return float(row.stated_flops_per_sequence)
    return flops.flops_per_token(model, row.sequence_length, row.flops) * row.sequence_length


def mfu_percent(row: Reference, model: Model, hardware: Hardware) -> float:
    """With the FLOPs that the source computes with, against the dense peak of its precision."""
    peak = hardware.peaks.get(row.dtype)
    if peak is None:
        what = f"the row has an MFU, and {hardware.name} has no {row.dtype} peak that it could be of"
        raise RequestError(what, where=row.where)
    per_sequence = float(row.stated_flops_per_sequence or flops_per_sequence(row, model))
    return 100 * per_sequence * row.global_batch_size / row.seconds / row.gpus / (peak.tflops * 1e12)


def _rounding(printed: str) -> float:
    """How far what was printed may lie from what was computed with, as a share of it."""
    return rounded_by(printed) / 2 / float(printed) if printed else 0.0


def _inverse(figure: str, row: Reference, at_one_second: float) -> Cell:
    """A figure that is twice as high where the step takes half as long."""
    quick, slow = row.seconds_range
    printed = getattr(row, figure)
    return _cell(figure, printed, at_one_second / row.seconds, at_one_second / slow, at_one_second / quick)


def _cell(figure: str, printed: str, computed: float, low: float, high: float) -> Cell:
    """The printed figure was rounded too."""
    half, value = rounded_by(printed) / 2, float(printed)
    return Cell(figure=figure, printed=value, computed=computed, follows=low - half <= value <= high + half)


# --- for people ---------------------------------------------------------------------------------


def table_text(rows: Sequence[CheckedRow]) -> str:
    """What each source printed; where its own step time gives another figure, that stands behind it with a mark."""
    lines = []
    for page in dict.fromkeys(row.page for row in rows):
        lines += [page, *columns(_of_page([row for row in rows if row.page == page])), ""]
    cells = [cell for row in rows for cell in row.cells]
    wrong = sum(not cell.follows for cell in cells)
    lines.append(f"{len(rows)} rows, {len(cells)} cells recomputed from the step times; {wrong} do not follow (!)")
    counts = Counter(row.repository for row in rows)
    return "\n".join(
        [*lines, "", "rows by source:", *aligned([(name, str(count)) for name, count in counts.items()])]
    )


def _of_page(rows: Sequence[CheckedRow]) -> list[tuple[str, ...]]:
    """Only the figures that the page has."""
    figures = [name for name in TITLES if any(cell.figure == name for row in rows for cell in row.cells)]
    return [("", "s/step", *(TITLES[name] for name in figures)), *(_line(row, figures) for row in rows)]


def _line(row: CheckedRow, figures: Sequence[str]) -> tuple[str, ...]:
    by_figure = {cell.figure: cell for cell in row.cells}
    return (row.name, f"{row.seconds_per_step:.5g}", *(_cell_text(by_figure.get(figure)) for figure in figures))


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    printed = _number(cell, cell.printed)
    return printed if cell.follows else f"{printed} (! {_number(cell, cell.computed)})"


def _number(cell: Cell, value: float) -> str:
    if cell.figure == FLOPS:
        return f"{value:.4e}"
    return f"{value:,.0f}" if cell.figure.startswith("tokens_per_second") else f"{value:.2f}"
