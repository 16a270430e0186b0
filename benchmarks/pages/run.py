"""A run's page: what was measured and how well that is known, where it lies, what ran, where it comes from. Pure."""

from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.measuring.result_text import result_rows
from benchmarks.measuring.summary import Result
from benchmarks.model.bounds import Bound
from benchmarks.pages.page import (
    Block,
    Box,
    Cell,
    Facts,
    Fold,
    Headline,
    Headlines,
    LogTail,
    Overview,
    Part,
    Plots,
    Section,
    Table,
    Tone,
    Words,
)
from benchmarks.pages.step_plot import drawable, step_plot
from benchmarks.references import nearest_reference
from benchmarks.references.nearest_reference import Nearest
from benchmarks.runs.finished_run import started_of
from benchmarks.text import count_text, folded, layout_text, plural, seconds_text, title
from benchmarks.values import Benchmark, Step, Value, to_builtins

TONES: dict[str, Tone] = {"valid": "good", "invalid": "warm", "failed": "bad"}
WHY = {"valid": "is valid", "invalid": "is invalid", "failed": "failed"}
SLOWED = "slowed on purpose:"
FIRST = (
    "not settled:",
    "still moving:",
    "too short to tell",
    SLOWED,
)  # notes that a reader must know before the figures
ELSEWHERE = ("status", "MFU", "HFU", "notes", "compare")  # rows of the table that are said otherwise
# In large type, where they are known: label, field of result.json, how it is shown.
FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("seconds per step, median", "seconds_per_step.median", seconds_text),
    ("tokens per second", "tokens_per_second", count_text),
    ("tokens per second and device", "tokens_per_second_per_gpu", count_text),
    ("effective tokens per second", "tokens_per_second_effective", count_text),
    ("MFU", "mfu.0.percent", "{:.1f}%".format),
    ("days per 10¹² tokens", "days_per_trillion_tokens", count_text),
    ("loss of the last step", "loss.last", "{:.4f}".format),
)


class RunMaterial(Value, frozen=True):
    """All that a run's page is made of. What may hold a secret was cleaned before it came here."""

    benchmark: Benchmark
    result: Result
    steps: list[Step]
    provenance: dict[str, Any]
    place: str  # the folder, as a person would type it
    bound: Bound | None = None
    nearest: Nearest = (None, "it was not looked for")
    logs: list[LogTail] = []  # of a run that failed or is invalid
    diagnosis: list[tuple[str, str]] = []  # of a run that failed: the first cause, what it means, what helps
    missing: list[str] = []  # files that could not be read, and why


def run_part(run: RunMaterial, key: str = "run") -> Part:
    result, steps = run.result, run.steps
    uncomparable = [f"not to be compared: {reason}" for reason in result.not_comparable]
    provenance = {name: value for name, value in run.provenance.items() if name not in ("notes", "run_id")}
    blocks: list[Block] = [
        Box(TONES[result.status], f"Why it {WHY[result.status]}", folded(result.reasons)),
        Section("What the logs say", [Facts(run.diagnosis)]),
        Box("warm", "Before you use these figures", [*uncomparable, *_notes(result, first=True)]),
        Box("warm", "Unreadable files", run.missing),
        Headlines(_headlines(result)),
        Section("How the logs end", run.logs),
        Plots(step_plot(result, steps, f"{key}-steps")),
        Words([] if drawable(steps) else ["No step has a time."]),
        Section("The run", [Facts([row for row in result_rows(result) if row[0] not in ELSEWHERE])]),
        Section("Compared with the peaks", [Words([_compared_with_peaks(result, run.bound)]), *_utilisation(result)]),
        Section("Nearest published reference", [Words(nearest_reference.text(run.nearest).split("\n"), "list")]),
        Section("Notes", [Words(_notes(result, first=False), "list")]),
        Section("Provenance", [
            Fold("Unknown figures and why", [Facts(list(result.null_because.items()))]),
            _data("Reported by the framework, for comparison only", result.reported_by_framework),
            *(_data(name.replace("_", " "), value) for name, value in provenance.items() if value),
        ]),
        Section("Verify", [
            Words(["Recompute every figure from the run's raw files:"]),
            Words([f"python launch/verify.py {run.place}"], "code"),
        ]),
    ]  # fmt: skip
    heading = title(run.benchmark).partition(" · ")[0]
    tone = TONES[result.status]
    under = described(run.benchmark)
    return Part(key, "Run", result.run_id, result.status, tone, heading, under, result.run_id, blocks, _overview(run))


def _overview(run: RunMaterial) -> Overview:
    result = run.result
    what, _, detail = title(run.benchmark).partition(" · ")
    slowed = [note for note in result.notes if note.startswith(SLOWED)]
    return Overview(
        what,
        detail,
        trouble=next(iter([*folded(result.reasons), *result.not_comparable, *slowed]), ""),
        seconds_per_step=result.seconds_per_step.median,
        tokens_per_second=result.tokens_per_second,
        mfu_percent=result.mfu[0].percent if result.mfu else None,
        when=started_of(result.run_id),
        name=result.run_id.rpartition("-")[2],
    )


def described(benchmark: Benchmark) -> str:
    nodes = f", {plural(benchmark.nodes, 'node')}" if benchmark.nodes > 1 else ""
    return (
        f"{benchmark.backend} ({benchmark.engine}) on {benchmark.gpus} x {benchmark.hardware.title}{nodes} · "
        f"{layout_text(benchmark.parallelism)} · "
        f"{benchmark.batch.global_batch_size} sequences of {benchmark.batch.sequence_length} tokens per step"
    )


def _notes(result: Result, *, first: bool) -> list[str]:
    """What a reader of the figures must know first, or the others; where there are no figures, all are others."""
    known = result.seconds_per_step.median is not None
    return [note for note in result.notes if (known and note.startswith(FIRST)) is first]


def _headlines(result: Result) -> list[Headline]:
    stored, spread = to_builtins(result), result.seconds_per_step
    found = []
    for label, field, text in FIGURES:
        value = _at(stored, field)
        if value is not None:
            found.append(Headline(label, text(value), value, field))
    if spread.ci95 is not None:
        low, high = map(seconds_text, spread.ci95)
        detail = f"95% interval {low} to {high} · {plural(result.window.counted, 'step')} counted"
        found[0] = found[0]._replace(detail=detail)
    return found


def _at(value: Any, field: str) -> float | None:
    for name in field.split("."):
        if value is None:
            return None
        value = value[int(name)] if isinstance(value, list) else value[name]
    return None if value is None else float(value)


def _utilisation(result: Result) -> list[Block]:
    """Every convention against every peak; the recipe's own is among the headlines."""
    rows = [
        [
            Cell(f"{name} of {one.peak_tflops:.5g} TFLOP/s {one.precision_peak} ({one.table})"),
            Cell(one.counted_by),
            Cell(f"{one.percent:.2f}%"),
            Cell(one.peak_source, "muted"),
        ]
        for name, entries in (("MFU", result.mfu or []), ("HFU", result.hfu or []))
        for one in entries
    ]
    titles = ["figure and peak", "FLOPs counted by", "#percent", "source of the peak"]
    every = f"MFU and HFU by {plural(len(rows), 'way')} to count FLOPs and peaks"
    return [Fold(every, [Table("Utilisation", titles, rows)])] if rows else []


def _compared_with_peaks(result: Result, bound: Bound | None) -> str:
    seconds = result.seconds_per_step.median
    if not seconds or result.model_flops_per_step is None:
        return f"No speed is claimed: {result.null_because.get('seconds_per_step', 'unknown')}"
    achieved = result.model_flops_per_step / seconds / result.benchmark.gpus / 1e12
    words = [f"The run reaches {achieved:,.4g} TFLOP/s per device, by the recipe's FLOP count."]
    if not result.mfu:
        words.append(f"No peak is known: {result.null_because.get('mfu', 'unknown')}.")
    if bound is not None and bound.seconds:
        times = f"the run took {seconds / bound.seconds:.2f} times as long"
        words.append(f"The lower bound of a step is {seconds_text(bound.seconds)}; {times}.")
    if bound is not None and bound.unknown:
        words.append(f"Not in the bound, because unknown: {'; '.join(bound.unknown)}.")
    return " ".join(words)


def _data(name: str, value: Any) -> Fold:
    """A part of a file as it is."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return Fold(name, [LogTail(name, text.split("\n"))])
