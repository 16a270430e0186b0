"""A result beside the nearest published row: how many times as fast a GPU trains, and what differs besides. Pure."""

import math
from collections.abc import Sequence

from benchmarks.references import Reference
from benchmarks.summary import Result
from benchmarks.values import Value


class Beside(Value, frozen=True):
    """The nearest published row of the same model, task, precision and device."""

    reference: str  # model, task, precision, scale
    source: str
    reference_seconds: float
    reference_tokens_per_second_per_gpu: float
    ratio: float  # tokens/s a GPU of the run over the reference's: above 1 the run is faster
    differs: list[str]  # in what else: scale, layout, batch, sequence length, window


def nearest(result: Result, rows: Sequence[Reference]) -> tuple[Beside | None, str]:
    """The row to be held against, or why there is none."""
    run = result.benchmark
    if result.tokens_per_second_per_gpu is None:
        return None, "the run has no speed"
    same = [
        row
        for row in rows
        if (row.model, row.task, row.dtype, row.hardware) == (run.model, run.task, run.dtype, run.hardware)
    ]
    if not same:
        return None, f"nothing is published for {run.model} {run.task} {run.dtype} on {run.hardware}"
    row = min(same, key=lambda row: _distance(row, result))
    per_gpu = row.tokens_per_step / row.seconds / row.gpus
    return (
        Beside(
            reference=row.name,
            source=row.source,
            reference_seconds=row.seconds,
            reference_tokens_per_second_per_gpu=per_gpu,
            ratio=result.tokens_per_second_per_gpu / per_gpu,
            differs=list(differences(row, result)),
        ),
        "",
    )


def _distance(row: Reference, result: Result) -> tuple[bool, float, bool, bool, str]:
    """The same backend before the nearest scale, then the same work; of equals the youngest source."""
    run = result.benchmark
    return (
        row.backend != run.backend,
        abs(math.log(row.gpus / run.gpus)),
        row.sequence_length != run.sequence_length,
        row.parallelism.words() != list(run.parallelism.items()),
        _descending(row.source),
    )


def _descending(text: str) -> str:
    """Sorts the later of two versions first."""
    return "".join(chr(0x10FFFF - ord(letter)) for letter in text)


def differences(row: Reference, result: Result) -> list[str]:
    """What is not the same, in words: theirs, and ours."""
    run = result.benchmark
    theirs = dict(row.parallelism.words()) or {"data": 1}
    pairs = [
        ("backend", row.backend, run.backend),
        ("GPUs", row.gpus, run.gpus),
        ("layout", _words(theirs), _words(run.parallelism)),
        ("global batch", row.global_batch_size, run.global_batch_size),
        ("sequence length", row.sequence_length, run.sequence_length),
        ("window", row.window, result.window.rule),
    ]
    return [f"{what} {published}, here {ours}" for what, published, ours in pairs if published != ours]


def _words(parallelism: dict[str, int]) -> str:
    return " x ".join(f"{axis} {size}" for axis, size in sorted(parallelism.items()) if size > 1) or "one device"
