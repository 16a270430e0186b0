"""Show published rows as a table, and find the published row that is nearest to a result, with all differences."""

import math
from collections.abc import Mapping, Sequence

from msgspec import UNSET

from benchmarks.measuring.summary import BenchmarkFigures, Result
from benchmarks.model.published_rows import OmittedRows, Reference
from benchmarks.text import columns, plural, seconds_text
from benchmarks.values import Value

NOT_KNOWN = "not known"
TITLES = ("", "s/step", "tokens/s/GPU", "TFLOP/s/GPU", "MFU %", "FLOPs")


class NearestRow(Value, frozen=True):
    """The nearest published row with the same model, task, precision and device as the run."""

    reference: str  # the row's model, task, precision and scale
    source: str
    reference_seconds: float
    reference_tokens_per_second_per_gpu: float
    ratio: float  # the run's tokens/s per GPU divided by the row's; above 1, the run is faster
    differs: list[str]  # differences in framework, scale, layout, batch, sequence length and window


class References(Value, frozen=True):
    """All published rows, and the rows of the same pages that are omitted."""

    rows: list[Reference]
    omitted: list[OmittedRows]


def table_text(references: References) -> str:
    """Return a table for each published page, with its numbers as printed. Its column FLOPs names the convention."""
    pages: dict[str, list[tuple[str, ...]]] = {}
    for row in references.rows:
        figures = (
            row.seconds_per_step,
            row.tokens_per_second_per_gpu,
            row.tflops_per_gpu,
            row.mfu_percent,
            row.flops,
        )
        page = pages.setdefault(f"{row.source} {row.tag} {row.file}", [TITLES])
        page.append((row.name, *(figure or "-" for figure in figures)))
    lines = [line for page, table in pages.items() for line in (page, *columns(table), "")]
    reasons = [(str(len(one.lines)), one.model, one.reason, one.file) for one in references.omitted]
    if reasons:
        lines += [*columns([("omitted", "model", "reason", "page"), *reasons]), ""]
    omitted = sum(len(one.lines) for one in references.omitted)
    return "\n".join([*lines, f"{len(references.rows)} rows, {omitted} omitted"])


Nearest = tuple[NearestRow | None, str]  # the row, or why there is no row


def nearest_of_result(result: Result, rows: Sequence[Reference]) -> Nearest:
    return nearest(result.benchmark, result.window.rule, result.tokens_per_second_per_gpu, rows)


def nearest(ours: BenchmarkFigures, window: str, speed: float | None, rows: Sequence[Reference]) -> Nearest:
    """Return the published row to compare with, or why no row fits. `speed` is in tokens/s per GPU.

    An empty engine or parallelism in `ours` means that it is unknown, as for a log that Stepmark did not write.
    """
    if speed is None:
        return None, "the run has no speed"
    same = [
        row
        for row in rows
        if (row.model, row.task, row.dtype, row.hardware) == (ours.model, ours.task, ours.dtype, ours.hardware)
        and not row.mtp_modules  # such a row trained a different model
        and ours.routing in (UNSET, row.routing)
    ]
    if not same:
        routed = f" with {ours.routing} routing" if ours.routing is not UNSET else ""
        return None, f"no published result for {ours.model} {ours.task} {ours.dtype} on {ours.hardware}{routed}"
    row = min(reversed(same), key=lambda row: _distance(row, ours))  # the newest of equally near rows
    per_gpu = row.tokens_per_step / row.seconds / row.gpus
    found = NearestRow(
        reference=row.name,
        source=row.citation,
        reference_seconds=row.seconds,
        reference_tokens_per_second_per_gpu=per_gpu,
        ratio=speed / per_gpu,
        differs=_differences(row, ours, window),
    )
    return found, ""


def text(found: Nearest) -> str:
    """Return the speed relative to the published row, and a line for each difference."""
    row, why = found
    if row is None:
        return f"none: {why}"
    seconds = seconds_text(row.reference_seconds)
    lines = [f"{row.ratio:.3f} x the tokens/s per GPU of {row.reference}, {seconds}/step", f"({row.source})"]
    return "\n".join([*lines, *(f"differs: {what}" for what in row.differs)])


def line(row: NearestRow) -> str:
    """Return the speed relative to the published row, and the row's source, in one line."""
    speed = f"{row.ratio:.3f}x the {row.reference_tokens_per_second_per_gpu:,.0f} tokens/s per GPU"
    differs = f"; differs in {plural(len(row.differs), 'setting')}" if row.differs else ""
    return f"{speed} published for {row.reference} ({row.source}){differs}"


def _distance(row: Reference, ours: BenchmarkFigures) -> tuple[bool, bool, float, bool, bool, bool, bool]:
    """Return a sort key: the same framework first, then the nearest scale, the same work, and exact numbers."""
    return (
        row.backend != ours.backend,
        row.engine != ours.engine,
        abs(math.log(row.gpus / ours.gpus)),
        row.sequence_length != ours.sequence_length,
        _layout(row) != _words(ours.parallelism),
        row.global_batch_size != ours.global_batch_size,
        row.resolution != "",
    )


def _differences(row: Reference, ours: BenchmarkFigures, window: str) -> list[str]:
    """Return a text for each difference: the row's value and the run's value."""
    layout = _words(ours.parallelism) if ours.parallelism else ""
    pairs: list[tuple[str, object, object]] = [
        ("backend", row.backend, ours.backend),
        ("engine", row.engine, ours.engine),
        ("GPUs", row.gpus, ours.gpus),
        ("layout", _layout(row), layout),
        ("global batch", row.global_batch_size, ours.global_batch_size),
        ("sequence length", row.sequence_length, ours.sequence_length),
        ("window", row.window, window),
        ("routing", row.routing, "" if ours.routing is UNSET else ours.routing),
    ]
    return [f"{what} {a} in the published row, {b or NOT_KNOWN} in this run" for what, a, b in pairs if a != b]


def _layout(row: Reference) -> str:
    return _words(dict(row.parallelism.words()))


def _words(parallelism: Mapping[str, int]) -> str:
    return " x ".join(f"{axis} {size}" for axis, size in sorted(parallelism.items()) if size > 1) or "one device"
