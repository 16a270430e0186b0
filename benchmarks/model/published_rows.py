"""Reads the published rows in configs/references, and the list of rows that are omitted there.

docs/reference/expected_results.md defines what counts as a row.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from benchmarks.configs import Configs, read_yaml
from benchmarks.errors import RequestError
from benchmarks.model import flops
from benchmarks.values import Model, Parallelism, Positive, Value

FOLDER = "references"
NUMBER = r"(?!0*\.?0*$)\d+(?:\.\d+)?(?:e[+-]?\d+)?"  # above 0
OMITTED = "omitted.yml"
AXES = ("data", "fsdp", "tensor", "pipeline", "context", "virtual_pipeline", "expert")
STATED = "stated"  # the source states its FLOPs, and no formula in flops.py gives them
Printed = Annotated[str, msgspec.Meta(pattern=f"^{NUMBER}$")]
PrintedOrNone = Annotated[str, msgspec.Meta(pattern=f"^(?:{NUMBER})?$")]  # empty: the source does not print it


class Reference(Value, frozen=True):
    """One row of the tables in configs/references."""

    model: str
    backend: str
    engine: str  # the framework of the backend
    task: str
    hardware: str
    gpus: Positive
    dtype: str
    precision: str  # the source's own name: FP8 and FP8-CS are both fp8
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
    seconds_per_step: PrintedOrNone  # as printed, because the last digit shows the rounding
    tokens_per_second_per_gpu: PrintedOrNone  # gives the step time if the source does not print one
    resolution: PrintedOrNone  # rounding of the tokens/s per GPU, if it is coarser than the last printed digit
    tokens_per_second: PrintedOrNone
    tflops_per_gpu: PrintedOrNone
    mfu_percent: PrintedOrNone
    days_per_trillion_tokens: PrintedOrNone
    flops: str  # the convention that the source's FLOPs follow, or `stated`
    stated_flops_per_sequence: PrintedOrNone  # the FLOPs that the source computes with
    source: str  # the repository that publishes the row
    tag: str  # the first tag with these figures; a commit if the repository has no tags
    file: str
    line: Positive
    date: str  # when the source was read
    expert: Positive = 1
    mtp_modules: Annotated[str, msgspec.Meta(pattern=r"^\d?$")] = ""  # if it differs from the model's own number
    routing: Literal["", "balanced", "dropping"] = ""  # for models with experts; `dropping`: learned, drops tokens
    pgle: str = ""  # how the source used profile-guided latency estimation; empty: not used, or not stated
    where: str = ""  # the CSV file and line of this row

    @property
    def seconds(self) -> float:
        if self.seconds_per_step:
            return float(self.seconds_per_step)
        return self.tokens_per_step / self.gpus / float(self.tokens_per_second_per_gpu)

    @property
    def citation(self) -> str:
        return f"{self.source} {self.tag} {self.file}:{self.line}"

    @property
    def tokens_per_step(self) -> int:
        return self.sequence_length * self.global_batch_size

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism(**{axis: getattr(self, axis) for axis in AXES})

    def trained_model(self, configs: Configs) -> Model:
        """Return the model of the row, with the row's number of MTP modules."""
        model = configs.model(self.model)
        return msgspec.structs.replace(model, mtp_modules=int(self.mtp_modules)) if self.mtp_modules else model

    @property
    def name(self) -> str:
        """The source's precision replaces the dtype if it is more specific, such as FP8-CS or MXFP8."""
        dtype = self.dtype if self.precision.lower() == self.dtype else self.precision
        return f"{self.model} {self.task} {dtype} {self.gpus} x {self.hardware}"


class OmittedRows(Value, frozen=True):
    """Rows of a page that configs/references does not contain, and the reason."""

    source: str
    tag: str
    file: str
    model: str  # the source's name
    lines: list[Positive]
    reason: str


class OmittedTable(Value, frozen=True):
    """The contents of `configs/references/omitted.yml`."""

    date: str
    omitted: list[OmittedRows]


# --- reading ------------------------------------------------------------------------------------


def read_references(root: Path) -> list[Reference]:
    """Return every row of configs/references/*.csv, in the order of the files."""
    found: list[Reference] = []
    for path in sorted((root / FOLDER).glob("*.csv")):
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                lines = csv.DictReader(stream)
                found += [_reference(row, f"{path}:{lines.line_num}") for row in lines]
        except (UnicodeDecodeError, csv.Error) as error:
            raise RequestError(f"the published rows cannot be read: {error}", where=str(path)) from None
    return found


def read_omitted(root: Path) -> list[OmittedRows]:
    path = root / FOLDER / OMITTED
    return read_yaml(path, OmittedTable).omitted if path.exists() else []


def _reference(row: Mapping[str, Any], where: str) -> Reference:
    try:
        found = msgspec.convert({**row, "where": where}, Reference, strict=False)
        if found.flops not in (STATED, *flops.CONVENTIONS):
            raise ValueError(
                f"flops is '{found.flops}', but must be one of {', '.join((STATED, *flops.CONVENTIONS))}"
            )
    except ValueError as error:  # includes the errors of msgspec
        raise RequestError(f"the row cannot be read: {error}", where=where) from None
    return found
