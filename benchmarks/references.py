"""Published figures, and whether each follows from its own row. Pure but for the reading of one file.

A row of a published table has a step time and what its authors made of it. Here the same is made of the step time
anew: a cell follows if it lies where the step time, as it was rounded for print, allows. Sources have slips; they are
named, not mended.
"""

import csv
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks import flops
from benchmarks.errors import RequestError
from benchmarks.values import Hardware, Model, Parallelism, Value

FOLDER = "references"
SECONDS_A_DAY = 86_400
TRILLION = 1e12
# A source computes with FLOPs rounded to three digits (1.82e15 for 1.8206e15), and its MFU has two decimals.
MFU_POINTS = 0.1
STATED = "stated"  # the FLOPs are the source's own, which no formula here gives


class Reference(Value, frozen=True):
    """One row of configs/references."""

    model: str
    backend: str
    task: str
    hardware: str
    gpus: int
    dtype: str
    sequence_length: int
    global_batch_size: int
    tensor: int
    pipeline: int
    context: int
    virtual_pipeline: int
    fsdp: int
    data: int
    micro_batch_size: int
    window: str
    seconds_per_step: str  # as printed: its last digit says how it was rounded
    tokens_per_second: str
    mfu_percent: str
    days_per_trillion_tokens: str  # empty: the source has none
    flops: str  # the convention of its MFU, or `stated`
    stated_flops_per_sequence: str
    source: str
    date: str

    @property
    def seconds(self) -> float:
        return float(self.seconds_per_step)

    @property
    def tokens_per_step(self) -> int:
        return self.sequence_length * self.global_batch_size

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism(
            data=self.data,
            fsdp=self.fsdp,
            tensor=self.tensor,
            pipeline=self.pipeline,
            context=self.context,
            virtual_pipeline=self.virtual_pipeline,
        )

    @property
    def name(self) -> str:
        return f"{self.model} {self.task} {self.dtype} {self.gpus} x {self.hardware}"


class Cell(NamedTuple):
    """One published figure beside what its row's step time gives."""

    figure: str
    printed: float
    computed: float
    low: float  # what the step time, as it was rounded, allows
    high: float

    @property
    def follows(self) -> bool:
        return self.low <= self.printed <= self.high


# --- reading ------------------------------------------------------------------------------------


def read_references(root: Path) -> list[Reference]:
    """Every row of configs/references/*.csv, in the order of the files."""
    found: list[Reference] = []
    for path in sorted((root / FOLDER).glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as stream:
            for number, row in enumerate(csv.DictReader(stream), start=2):
                found.append(_reference(row, f"{path}:{number}"))
    return found


def _reference(row: Mapping[str, Any], where: str) -> Reference:
    try:
        found = msgspec.convert(row, Reference, strict=False)
        float(found.seconds_per_step)
    except (msgspec.ValidationError, ValueError) as error:
        raise RequestError(f"the row cannot be read: {error}", where=where) from None
    if found.parallelism.devices != found.gpus:
        raise RequestError(
            f"the layout is for {found.parallelism.devices} devices, the row for {found.gpus}", where=where
        )
    return found


# --- does it follow? ----------------------------------------------------------------------------


def cells(row: Reference, model: Model, hardware: Hardware) -> Iterator[Cell]:
    """Each published figure of a row, with what its step time gives."""
    half = rounded_by(row.seconds_per_step) / 2
    quick, slow = row.seconds - half, row.seconds + half
    tokens = row.tokens_per_step
    yield _cell("tokens_per_second", row.tokens_per_second, tokens / row.seconds, tokens / slow, tokens / quick)
    mfu = mfu_percent(row, model, hardware)
    yield Cell("mfu_percent", float(row.mfu_percent), mfu, mfu - MFU_POINTS, mfu + MFU_POINTS)
    if row.days_per_trillion_tokens:
        per_second = TRILLION / SECONDS_A_DAY / tokens
        yield _cell(
            "days_per_trillion_tokens",
            row.days_per_trillion_tokens,
            per_second * row.seconds,
            per_second * quick,
            per_second * slow,
        )


def mfu_percent(row: Reference, model: Model, hardware: Hardware) -> float:
    """By the row's own convention, against the dense peak of its precision."""
    peak = hardware.peaks[row.dtype].tflops * 1e12
    return 100 * flops_per_sequence(row, model) * row.global_batch_size / row.seconds / row.gpus / peak


def flops_per_sequence(row: Reference, model: Model) -> float:
    if row.flops == STATED:
        return float(row.stated_flops_per_sequence)
    return flops.flops_per_token(model, row.sequence_length, row.flops) * row.sequence_length


def _cell(figure: str, printed: str, computed: float, low: float, high: float) -> Cell:
    """The printed figure was rounded too."""
    half = rounded_by(printed) / 2
    return Cell(figure, float(printed), computed, low - half, high + half)


def rounded_by(printed: str) -> float:
    """What the last printed digit is worth: 14.72 -> 0.01, 71235 -> 1."""
    try:
        exponent = Decimal(printed).as_tuple().exponent
    except InvalidOperation:
        raise RequestError(f"'{printed}' is no number") from None
    return 10.0 ** min(int(exponent), 0)
