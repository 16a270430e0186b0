"""Make the page of a run: its metrics with their uncertainty, its steps, its notes and its provenance. No I/O."""

import shlex
from typing import Any

import msgspec

from benchmarks.measuring.result_text import result_rows
from benchmarks.measuring.summary import SLOWED, Result
from benchmarks.model.bounds import Bound
from benchmarks.pages.page import (
    UNKNOWN,
    Block,
    Box,
    Facts,
    Headline,
    Headlines,
    LogTail,
    Part,
    Plots,
    Section,
    Tone,
    Words,
)
from benchmarks.pages.step_plot import step_plot
from benchmarks.references import nearest_reference
from benchmarks.references.nearest_reference import Nearest
from benchmarks.runs.finished_run import started_of
from benchmarks.text import Rows, count_text, folded, layout_text, plural, seconds_text, title
from benchmarks.values import Benchmark, Step, Value

TONES: dict[str, Tone] = {"valid": "good", "invalid": "warm", "failed": "bad"}
FIRST = ("not settled:", "still moving:", "too short to confirm", SLOWED)  # notes to read before the metrics
ELSEWHERE = ("status", "MFU", "HFU", "notes", "compare")  # rows that other sections of the page show


class RunMaterial(Value, frozen=True):
    """The data that the page of a run shows. Secrets have already been removed."""

    benchmark: Benchmark
    result: Result
    steps: list[Step]
    provenance: dict[str, Any]
    place: str  # the folder of the run, as shown in commands
    bound: Bound | None = None
    nearest: Nearest = (None, "the run was not compared")
    logs: list[LogTail] = []  # only if the run is failed or invalid
    diagnosis: list[tuple[str, str]] = []  # only if the run failed: the first cause, its meaning, and what to do


def run_part(run: RunMaterial, key: str = "run") -> Part:
    result = run.result
    uncomparable = [f"not comparable: {reason}" for reason in result.not_comparable]
    first = [note for note in result.notes if note.startswith(FIRST)]
    slowed = [note for note in first if note.startswith(SLOWED)]
    heading = title(run.benchmark).partition(" · ")[0]
    provenance = {name: value for name, value in run.provenance.items() if name not in ("notes", "run_id")}
    blocks: list[Block] = [
        Box(TONES[result.status], "Why it is not valid", folded(result.reasons)),
        Section("What the logs show", [Facts(run.diagnosis)]),
        Box("warm", "Before you use these figures", [*uncomparable, *first]),
        Headlines(_headlines(result)),
        Section("How the logs end", run.logs),
        Plots(step_plot(result, run.steps, f"{key}-steps")),
        Section("The run", [Facts([row for row in result_rows(result) if row[0] not in ELSEWHERE])]),
        Section("Compared with the peaks", [
            Words([_compared_with_peaks(result, run.bound)]),
            Section("MFU and HFU for every peak and FLOP convention", [Facts(_utilisation(result))], folded=True),
        ]),
        Section("Nearest published reference", [Words(nearest_reference.text(run.nearest).split("\n"), "list")]),
        Section("Notes", [Words([note for note in result.notes if note not in first], "list")]),
        Section("Provenance", [
            Section("Unknown metrics and why", [Facts(list(result.null_because.items()))], folded=True),
            *(_data(name, value) for name, value in provenance.items() if value),
            _data("reported by the framework, for comparison only", result.reported_by_framework),
        ]),
        Section("Verify", [
            Words(["Recompute every metric from the run's raw files:"]),
            Words([f"python launch/verify.py {shlex.quote(run.place)}"], "code"),
        ]),
    ]  # fmt: skip
    seconds, tokens = result.seconds_per_step.median, result.tokens_per_second
    return Part(
        key=key,
        kind="Run",
        verdict=result.status,
        tone=TONES[result.status],
        heading=heading,
        under=described(run.benchmark),
        name=result.run_id,
        blocks=blocks,
        when=started_of(result.run_id),
        figures=(
            UNKNOWN if seconds is None else seconds_text(seconds),
            UNKNOWN if tokens is None else count_text(tokens),
            f"{result.mfu[0].percent:.1f}%" if result.mfu else UNKNOWN,
        ),
        trouble=next(iter([*folded(result.reasons), *result.not_comparable, *slowed]), ""),
    )


def described(benchmark: Benchmark) -> str:
    nodes = f", {plural(benchmark.nodes, 'node')}" if benchmark.nodes > 1 else ""
    return (
        f"{benchmark.backend} ({benchmark.engine}) on {benchmark.gpus} x {benchmark.hardware.title}{nodes} · "
        f"{layout_text(benchmark.parallelism)} · "
        f"{benchmark.batch.global_batch_size} sequences of {benchmark.batch.sequence_length} tokens per step"
    )


def _headlines(result: Result) -> list[Headline]:
    """Return the known metrics, which the page shows in large type."""
    spread, detail = result.seconds_per_step, ""
    if spread.ci95 is not None:
        low, high = map(seconds_text, spread.ci95)
        detail = f"95% interval {low} to {high} · {plural(result.window.counted, 'step')} counted"
    figures = (
        ("seconds per step, median", spread.median, seconds_text, detail),
        ("tokens per second", result.tokens_per_second, count_text, ""),
        ("tokens per second and device", result.tokens_per_second_per_gpu, count_text, ""),
        ("MFU", result.mfu[0].percent if result.mfu else None, "{:.1f}%".format, ""),
        ("days per 10¹² tokens", result.days_per_trillion_tokens, count_text, ""),
        ("loss of the last step", result.loss.last, "{:.4f}".format, ""),
    )
    return [Headline(label, text(value), detail) for label, value, text, detail in figures if value is not None]


def _utilisation(result: Result) -> Rows:
    return [
        (
            f"{name} by {one.counted_by}: {one.percent:.2f}%",
            f"of {one.peak_tflops:.5g} TFLOP/s {one.precision_peak} ({one.table}), {one.peak_source}",
        )
        for name, entries in (("MFU", result.mfu or []), ("HFU", result.hfu or []))
        for one in entries
    ]


def _compared_with_peaks(result: Result, bound: Bound | None) -> str:
    seconds = result.seconds_per_step.median
    if not seconds or result.model_flops_per_step is None:
        return f"No speed is reported: {result.null_because.get('seconds_per_step', 'the reason is unknown')}"
    achieved = result.model_flops_per_step / seconds / result.benchmark.gpus / 1e12
    words = [f"The run reaches {achieved:,.4g} TFLOP/s per device, by the recipe's FLOP count."]
    if bound is not None and bound.seconds:
        times = f"the run took {seconds / bound.seconds:.2f} times as long"
        words.append(f"The lower bound of a step is {seconds_text(bound.seconds)}; {times}.")
    if bound is not None and bound.unknown:
        words.append(f"Not in the bound, because unknown: {'; '.join(bound.unknown)}.")
    return " ".join(words)


def _data(name: str, value: Any) -> Section:
    """Return a folded section that shows a value as JSON."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return Section(name.replace("_", " "), [LogTail(name, text.split("\n"))], folded=True)
