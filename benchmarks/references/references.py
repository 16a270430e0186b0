"""Published figures, and whether each follows from its own row. Pure but for the reading of one file.

A row of a published table has a step time, or the tokens/s that give it, and what its authors made of it. Here that
is computed anew: a cell follows if it lies where the step time, as it was rounded for print, allows. Sources have
slips; they are named, not mended. What is a row and what is none: docs/figures.md.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec

from benchmarks.errors import RequestError
from benchmarks.model import flops
from benchmarks.values import Hardware, Model, Parallelism, Positive, Value

FOLDER = "references"
SECONDS_A_DAY = 86_400
TRILLION = 1e12
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
    precision: str  # as its source calls it: FP8-CS and MXFP8 are both fp8
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
    seconds_per_step: PrintedOrNone  # its last digit says how it was rounded
    tokens_per_second_per_gpu: PrintedOrNone  # gives the step time where that is not printed
    resolution: PrintedOrNone  # what the tokens/s a GPU are rounded to, where that is more than their last digit
    tokens_per_second: PrintedOrNone
    tflops_per_gpu: PrintedOrNone
    mfu_percent: PrintedOrNone
    days_per_trillion_tokens: PrintedOrNone
    flops: str  # the convention of its FLOPs, or `stated`
    stated_flops_per_sequence: PrintedOrNone  # what its source computes with
    source: str  # the repository
    tag: str  # the first that publishes it so; a commit where the repository has no tags
    file: str
    line: Positive
    date: str  # when it was read
    where: str = ""  # the file here and its line

    @property
    def seconds(self) -> float:
        return float(self.seconds_per_step) if self.seconds_per_step else self._seconds_at(self._speed)

    @property
    def seconds_range(self) -> tuple[float, float]:
        """The least and the most that are printed so."""
        if self.seconds_per_step:
            half = rounded_by(self.seconds_per_step) / 2
            return self.seconds - half, self.seconds + half
        half = float(self.resolution or rounded_by(self.tokens_per_second_per_gpu)) / 2
        return self._seconds_at(self._speed + half), self._seconds_at(self._speed - half)

    @property
    def _speed(self) -> float:
        return float(self.tokens_per_second_per_gpu)

    def _seconds_at(self, tokens_per_second_per_gpu: float) -> float:
        return self.tokens_per_step / self.gpus / tokens_per_second_per_gpu

    @property
    def page(self) -> str:
        return f"{self.source} {self.tag} {self.file}"

    @property
    def citation(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def tokens_per_step(self) -> int:
        return self.sequence_length * self.global_batch_size

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism(**{axis: getattr(self, axis) for axis in AXES})

    @property
    def name(self) -> str:
        """The precision where its source says more than the dtype: FP8-CS, MXFP8."""
        dtype = self.dtype if self.precision.lower() == self.dtype else self.precision
        return f"{self.model} {self.task} {dtype} {self.gpus} x {self.hardware}"


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
        if not found.seconds_per_step and not found.tokens_per_second_per_gpu:
            raise ValueError("it has neither seconds_per_step nor tokens_per_second_per_gpu")
        if found.flops == STATED and not found.stated_flops_per_sequence:
            raise ValueError(f"flops is {STATED}, and stated_flops_per_sequence is empty")
        if ("fp8" in found.precision.lower()) != (found.dtype == "fp8"):
            raise ValueError(f"dtype is {found.dtype}, and precision is {found.precision}")
        if found.parallelism.devices != found.gpus:
            raise ValueError(f"the layout is for {found.parallelism.devices} devices, the row for {found.gpus}")
    except ValueError as error:  # msgspec's among them
        raise RequestError(f"the row cannot be read: {in_words(error)}", where=where) from None
    return found


def in_words(error: ValueError) -> str:
    return re.sub(r"Expected `str` matching regex '.*'", "a number above 0 was expected", str(error))


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


def rounded_by(printed: str) -> float:
    """What the last printed digit is worth: 14.72 -> 0.01, 71235 -> 1, 3.94e15 -> 1e13."""
    return 10.0 ** int(Decimal(printed).as_tuple().exponent)
