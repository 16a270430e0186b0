"""What recipes should take that nobody has published, written down before anybody does. Pure but for one file.

A prediction is dated, with the version and commit that made it, and is never changed: where a later version predicts
otherwise, it adds a line. A row that is published later is held against every line of its cell. The interval is that
of the kind of prediction (covered.py), by leaving series out.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.errors import RequestError
from benchmarks.planning.calibration import Estimate
from benchmarks.planning.covered import FURTHER, Series, layout_kind, made_so, series_of
from benchmarks.references.references import Printed, PrintedOrNone, Reference, in_words
from benchmarks.values import Benchmark, Value

FILE = "predictions.csv"


class Prediction(Value, frozen=True):
    """One line of the file. Numbers of seconds are as they are written; an empty one is not known."""

    date: str
    version: str
    commit: str
    recipe: str
    backend: str
    engine: str
    model: str
    task: str
    dtype: str
    hardware: str
    gpus: int
    sequence_length: int
    micro_batch_size: int
    global_batch_size: int
    layout: str
    seconds: Printed
    low_seconds: PrintedOrNone
    high_seconds: PrintedOrNone
    interval: str  # what it is, or why there is none
    by: str

    @property
    def cell(self) -> tuple[object, ...]:
        return self.recipe, self.model, self.dtype, self.hardware, self.gpus

    @property
    def predicts(self) -> tuple[str, ...]:
        return self.seconds, self.low_seconds, self.high_seconds, self.interval


def predicted(
    benchmark: Benchmark, estimate: Estimate, seconds: float, date: str, version: str, commit: str
) -> Prediction:
    limits = estimate.interval
    return Prediction(
        date=date,
        version=version,
        commit=commit,
        recipe=benchmark.recipe.name,
        backend=benchmark.backend,
        engine=benchmark.engine,
        model=benchmark.model.name,
        task=benchmark.task,
        dtype=benchmark.dtype,
        hardware=benchmark.hardware.name,
        gpus=benchmark.gpus,
        sequence_length=benchmark.sequence_length,
        micro_batch_size=benchmark.micro_batch_size,
        global_batch_size=benchmark.global_batch_size,
        layout=layout_kind(benchmark.parallelism),
        seconds=f"{seconds:.4g}",
        low_seconds="" if limits is None else f"{limits[0]:.4g}",
        high_seconds="" if limits is None else f"{limits[1]:.4g}",
        interval=_interval(estimate),
        by=estimate.by,
    )


def _interval(estimate: Estimate) -> str:
    errors, error = estimate.errors, estimate.error
    if errors is None or error is None:
        return f"no interval: {'; '.join(estimate.beyond) or 'too few series were predicted so'}"
    if error.covered_percent is None:
        return f"no interval: only {errors.series} series were predicted {made_so(errors.kind)}"
    covered = f"{error.covered_percent:.0f}% of {errors.series} series"
    beyond = f": {'; '.join(estimate.beyond)}" if errors.kind == FURTHER else ""
    return f"90% of series predicted {made_so(errors.kind)}; it held {covered} that were left out of it{beyond}"


# --- the file -----------------------------------------------------------------------------------


def read_predictions(root: Path) -> list[Prediction]:
    path = root / FILE
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        lines = csv.DictReader(stream)
        return [_prediction(row, f"{path}:{lines.line_num}") for row in lines]


def _prediction(row: Mapping[str, Any], where: str) -> Prediction:
    try:
        found = msgspec.convert(row, Prediction, strict=False)
        if found.low_seconds and not float(found.low_seconds) <= float(found.seconds) <= float(found.high_seconds):
            raise ValueError(f"{found.seconds} s is not between {found.low_seconds} and {found.high_seconds}")
    except ValueError as error:  # msgspec's among them
        raise RequestError(f"the prediction cannot be read: {in_words(error)}", where=where) from None
    return found


def as_csv(predictions: Sequence[Prediction]) -> str:
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(Prediction.__struct_fields__)
    lines.writerows(msgspec.structs.astuple(one) for one in predictions)
    return text.getvalue()


# --- held against rows --------------------------------------------------------------------------


def outcomes(predictions: Sequence[Prediction], published: Sequence[Reference]) -> Iterator[str]:
    """Each prediction of which a row has been published since, with what came of it."""
    for one in predictions:
        for row in published:
            if row.gpus == one.gpus and series_of(row) == _series(one):
                error = 100 * (float(one.seconds) / row.seconds - 1)
                held = "no interval" if not one.low_seconds else _held(one, row.seconds)
                yield f"{row.name}: predicted {one.seconds} s on {one.date}, {error:+.1f}%: {held} ({row.citation})"


def _held(one: Prediction, seconds: float) -> str:
    inside = float(one.low_seconds) <= seconds <= float(one.high_seconds)
    return f"{'inside' if inside else 'OUTSIDE'} {one.low_seconds} to {one.high_seconds} s"


def _series(one: Prediction) -> Series:
    program = (one.backend, one.engine, one.model, one.task, one.dtype, one.hardware)
    batch = round(one.global_batch_size / one.gpus, 6)
    return (*program, one.sequence_length, one.micro_batch_size, batch, one.layout)
