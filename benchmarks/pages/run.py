"""A run's page: what was measured and how well that is known, where it lies, what ran, where it comes from. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.measuring.summary import Result
from benchmarks.pages.page import (
    Block,
    Box,
    Cell,
    Facts,
    Fold,
    Headline,
    Headlines,
    LogTail,
    Part,
    Plots,
    Section,
    Table,
    Tone,
    Words,
)
from benchmarks.pages.step_plot import drawable, step_plot
from benchmarks.planning.bounds import Bound
from benchmarks.references.nearest_reference import Nearest
from benchmarks.rendering.columns import plural
from benchmarks.rendering.report import count_text, layout_text, result_rows, seconds_text, title
from benchmarks.values import Benchmark, Step, Value

TONES: dict[str, Tone] = {"valid": "good", "invalid": "warm", "failed": "bad"}
# Rows of the table at a run's end that are elsewhere on the page.
ELSEWHERE = ("status", "seconds/step", "tokens/s", "of the peak", "MFU", "HFU", "steps", "notes", "compare", "loss")


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
    blocks: list[Block] = [
        Box(TONES[result.status], _why(result.status), result.reasons),
        Section("What the logs say", [Facts(run.diagnosis)]),
        Box("warm", "Before you use these figures", _warnings(result)),
        Box("warm", "Unreadable files", run.missing),
        Headlines(_headlines(result)),
        Section("How the logs end", run.logs),
        Plots(step_plot(result, steps, f"{key}-steps")),
        Words([] if drawable(steps) else ["No step has a time."]),
        Section("Compared with the peaks", [
            Words([_compared_with_peaks(result, run.bound)]),
            _utilisation(result),
            Words(_why_no_hfu(result), "muted"),
        ]),
        Section("Nearest published reference", _published(run.nearest)),
        Section("Machines and attempts", [Facts([row for row in result_rows(result) if row[0] not in ELSEWHERE])]),
        Section("Notes", [Words(_notes(result), "list")]),
        Section("Provenance", [
            Fold("Reported by the framework, for comparison only", [Facts(_framework(result))]),
            Fold("Unknown figures and why", [Facts(list(result.null_because.items()))]),
            *_provenance(run.provenance),
        ]),
        Section("Verify", [
            Words(["Recompute every figure from the run's raw files:"]),
            Words([f"python launch/verify.py {run.place}"], "code"),
        ]),
    ]  # fmt: skip
    heading = title(run.benchmark).partition(" · ")[0]
    tone = TONES[result.status]
    return Part(key, "Run", result.run_id, result.status, tone, heading, _under(run.benchmark), result.run_id, blocks)


def _why(status: str) -> str:
    return "Why it failed" if status == "failed" else f"Why it is {status}"


def _under(benchmark: Benchmark) -> str:
    nodes = f", {plural(benchmark.nodes, 'node')}" if benchmark.nodes > 1 else ""
    return (
        f"{benchmark.backend} ({benchmark.engine}) on {benchmark.gpus} x {benchmark.hardware.title}{nodes} · "
        f"{layout_text(benchmark.parallelism)} · "
        f"{benchmark.global_batch_size} sequences of {benchmark.sequence_length} tokens per step"
    )


def _warnings(result: Result) -> list[str]:
    """What a reader must know before the figures."""
    found = [f"not to be compared: {reason}" for reason in result.not_comparable]
    if result.slowed_by:
        found.append(f"slowed on purpose: every step by {result.slowed_by:.0%}; no baseline may hold this run")
    if result.seconds_per_step.median is not None and not result.window.settled:
        found.append("not settled: step times may still drift, and the interval does not cover that")
    return found


def _notes(result: Result) -> list[str]:
    """Without those that are among the warnings."""
    warned = ("not settled:",) if result.seconds_per_step.median is not None else ()
    return [note for note in result.notes if not note.startswith((*warned, "slowed on purpose:"))]


# --- the figures --------------------------------------------------------------------------------


def _headlines(result: Result) -> list[Headline]:
    """In large type. Where no speed is claimed, that is said once, with the reason."""
    spread, nulls = result.seconds_per_step, result.null_because
    if spread.median is None:
        return [Headline("seconds per step", "not claimed", nulls.get("seconds_per_step", "unknown")), _loss(result)]
    interval = nulls.get("seconds_per_step.ci95", "no interval")
    if spread.ci95 is not None:
        interval = f"95% interval {seconds_text(spread.ci95[0])} to {seconds_text(spread.ci95[1])}"
    counted = f"{interval} · {plural(result.window.counted, 'step')} counted"
    excess = f"; mean over median {spread.excess:+.1%}" if spread.excess is not None else ""
    of_window = f"all time between the first and last counted step{excess}"
    median = seconds_text(spread.median)
    return [
        Headline("seconds per step, median", median, counted, spread.median, "seconds_per_step.median"),
        _figure(result, "tokens per second", "tokens_per_second"),
        _figure(result, "tokens per second and device", "tokens_per_second_per_gpu"),
        _figure(result, "effective tokens per second", "tokens_per_second_effective", of_window),
        _mfu_headline(result),
        _figure(result, "days per 10¹² tokens", "days_per_trillion_tokens"),
        _loss(result),
    ]


def _figure(result: Result, label: str, name: str, detail: str = "at the median step") -> Headline:
    value = getattr(result, name)
    if value is None:
        return Headline(label, "unknown", result.null_because.get(name, "unknown"))
    return Headline(label, count_text(value), detail, value, name)


def _mfu_headline(result: Result) -> Headline:
    if not result.mfu:
        return Headline("MFU", "unknown", result.null_because.get("mfu", "unknown"))
    first = result.mfu[0]
    of = f"of {first.peak_tflops:.5g} TFLOP/s {first.precision_peak} ({first.table}), counted by {first.counted_by}"
    return Headline("MFU", f"{first.percent:.1f}%", of, first.percent, "mfu.0.percent")


def _loss(result: Result) -> Headline:
    first, last = result.loss.first, result.loss.last
    if last is None:
        return Headline("loss", "unknown", result.null_because.get("loss.last", "unknown"))
    before = f"from {first:.4f}" if first is not None else result.null_because.get("loss.first", "")
    return Headline("loss of the last step", f"{last:.4f}", before, last, "loss.last")


def _utilisation(result: Result) -> Table:
    """Every convention against every peak."""
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
    return Table("Utilisation", ["figure and peak", "FLOPs counted by", "#percent", "source of the peak"], rows)


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


def _why_no_hfu(result: Result) -> list[str]:
    why = None if result.hfu or not result.mfu else result.null_because.get("hfu")
    return [f"HFU is unknown: {why}"] if why else []


def _published(nearest: Nearest) -> list[Block]:
    found, why = nearest
    if found is None:
        return [Words([f"No reference: {why}."])]
    theirs = (
        f"{found.reference_tokens_per_second_per_gpu:,.0f} tokens/s per GPU, {found.reference_seconds:.4g} s a step"
    )
    return [
        Words([f"{found.ratio:.3f} times the tokens per second and GPU of {found.reference} ({theirs})."]),
        Words([found.source], "muted"),
        Words([f"published with {one}" for one in found.differs] or ["No other known difference."], "list"),
    ]


# --- what lies behind them ----------------------------------------------------------------------


def _framework(result: Result) -> list[tuple[str, str]]:
    """What the framework printed, which is kept beside our figures and never used."""
    known = {name: value for name, value in result.reported_by_framework.items() if value is not None}
    return [
        (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in known.items()
    ]


def _provenance(provenance: Mapping[str, Any]) -> list[Fold]:
    """A list for each part of the file but those that are elsewhere on the page."""
    parts = {name: value for name, value in provenance.items() if name not in ("notes", "run_id")}
    return [Fold(name.replace("_", " "), [Facts(list(_leaves("", value)))]) for name, value in parts.items()]


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every leaf with the path to it; a list of words is one text, a line each where they are many."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name} {key}".strip(), inner)
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            yield from _leaves(f"{name} {number}".strip() if len(value) > 1 else name, inner)
    elif isinstance(value, list):
        if value:
            yield name or "value", "\n".join(map(str, value))
    elif value not in (None, ""):
        yield name or "value", str(value)
