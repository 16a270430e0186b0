"""Published figures, and whether each follows from its own row. Pure but for the reading of one file.

A row of a published table has a step time and what its authors made of it. Here the same is made of the step time
anew: a cell follows if it lies where the step time, as it was rounded for print, allows. Sources have slips; they are
named, not mended. What is a row and what is none: docs/figures.md.
"""

import csv
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec

from benchmarks.errors import RequestError
from benchmarks.measuring import flops
from benchmarks.values import Hardware, Model, Parallelism, Positive, Value

FOLDER = "references"
SECONDS_A_DAY = 86_400
TRILLION = 1e12
# A source computes with FLOPs rounded to three digits (1.82e15 for 1.8206e15), and its MFU has two decimals.
MFU_POINTS = 0.1
NUMBER = r"(?!0*\.?0*$)\d+(?:\.\d+)?(?:e[+-]?\d+)?"  # above 0
AXES = ("data", "fsdp", "tensor", "pipeline", "context", "virtual_pipeline")
STATED = "stated"  # the FLOPs are the source's own, which no formula here gives
Printed = Annotated[str, msgspec.Meta(pattern=f"^{NUMBER}$")]
PrintedOrNone = Annotated[str, msgspec.Meta(pattern=f"^(?:{NUMBER})?$")]  # empty: the source has none


class Reference(Value, frozen=True):
    """One row of configs/references."""

    model: str
    backend: str
    engine: str  # whose framework it is, where a backend has several
    task: str
    hardware: str
    gpus: Positive
    dtype: str
    sequence_length: Positive
    global_batch_size: Positive
    tensor: Positive
    pipeline: Positive
    context: Positive
    virtual_pipeline: Positive
    fsdp: Positive
    data: Positive
    micro_batch_size: Positive
    window: str
    seconds_per_step: Printed  # its last digit says how it was rounded
    tokens_per_second: PrintedOrNone
    mfu_percent: PrintedOrNone
    days_per_trillion_tokens: PrintedOrNone
    flops: str  # the convention of its MFU, or `stated`
    stated_flops_per_sequence: PrintedOrNone
    source: str
    date: str
    where: str = ""  # the file and its line

    @property
    def seconds(self) -> float:
        return float(self.seconds_per_step)

    @property
    def tokens_per_step(self) -> int:
        return self.sequence_length * self.global_batch_size

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism(**{axis: getattr(self, axis) for axis in AXES})

    @property
    def name(self) -> str:
        return f"{self.model} {self.task} {self.dtype} {self.gpus} x {self.hardware}"


class Cell(Value, frozen=True):
    """One published figure, and what its row's step time gives."""

    figure: str
    printed: float
    computed: float
    follows: bool  # it lies where the step time allows, as it was rounded for print


# --- reading ------------------------------------------------------------------------------------


def read_references(root: Path) -> list[Reference]:
    """Every row of configs/references/*.csv, in the order of the files."""
    found: list[Reference] = []
    for path in sorted((root / FOLDER).glob("*.csv")):
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                lines = csv.DictReader(stream)
                found += [_reference(row, f"{path}:{lines.line_num}") for row in lines]
        except (UnicodeDecodeError, csv.Error) as error:
            raise RequestError(f"the published rows cannot be read: {error}", where=str(path)) from None
    return found


def _reference(row: Mapping[str, Any], where: str) -> Reference:
    try:
        if None in row:
            raise ValueError("it has more cells than the first line has names")
        found = msgspec.convert({**row, "where": where}, Reference, strict=False)
        if found.flops not in (STATED, *flops.CONVENTIONS):
            raise ValueError(f"flops is '{found.flops}', which is none of {', '.join((STATED, *flops.CONVENTIONS))}")
        if found.flops == STATED and not found.stated_flops_per_sequence:
            raise ValueError(f"flops is {STATED}, and stated_flops_per_sequence is empty")
        if found.parallelism.devices != found.gpus:
            raise ValueError(f"the layout is for {found.parallelism.devices} devices, the row for {found.gpus}")
    except ValueError as error:  # msgspec's among them
        raise RequestError(f"the row cannot be read: {error}", where=where) from None
    return found


# --- does it follow? ----------------------------------------------------------------------------


def cells(row: Reference, model: Model, hardware: Hardware) -> Iterator[Cell]:
    """Each published figure of a row, with what its step time gives."""
    half = rounded_by(row.seconds_per_step) / 2
    quick, slow = row.seconds - half, row.seconds + half
    tokens = row.tokens_per_step
    if row.tokens_per_second:
        yield _cell("tokens_per_second", row.tokens_per_second, tokens / row.seconds, tokens / slow, tokens / quick)
    if row.mfu_percent:
        mfu, printed = mfu_percent(row, model, hardware), float(row.mfu_percent)
        yield Cell(figure="mfu_percent", printed=printed, computed=mfu, follows=abs(printed - mfu) <= MFU_POINTS)
    if row.days_per_trillion_tokens:
        days = [TRILLION / SECONDS_A_DAY / tokens * seconds for seconds in (row.seconds, quick, slow)]
        yield _cell("days_per_trillion_tokens", row.days_per_trillion_tokens, *days)


def mfu_percent(row: Reference, model: Model, hardware: Hardware) -> float:
    """By the row's own convention, against the dense peak of its precision."""
    peak = hardware.peaks.get(row.dtype)
    if peak is None:
        what = f"the row has an MFU, and {hardware.name} has no {row.dtype} peak that it could be of"
        raise RequestError(what, where=row.where)
    per_sequence = float(row.stated_flops_per_sequence or 0)
    if row.flops != STATED:
        per_sequence = flops.flops_per_token(model, row.sequence_length, row.flops) * row.sequence_length
    return 100 * per_sequence * row.global_batch_size / row.seconds / row.gpus / (peak.tflops * 1e12)


def _cell(figure: str, printed: str, computed: float, low: float, high: float) -> Cell:
    """The printed figure was rounded too."""
    half, value = rounded_by(printed) / 2, float(printed)
    return Cell(figure=figure, printed=value, computed=computed, follows=low - half <= value <= high + half)


def rounded_by(printed: str) -> float:
    """What the last printed digit is worth: 14.72 -> 0.01, 71235 -> 1."""
    return 10.0 ** min(int(Decimal(printed).as_tuple().exponent), 0)
