"""Format a result as labelled lines: a few for the end of a run, or all for --verbose and the run's page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.measuring import settling
from benchmarks.measuring.figures import few_steps
from benchmarks.measuring.settling import WORDS
from benchmarks.measuring.summary import NO_TEXT, SLOWED, Result
from benchmarks.measuring.utilisation import Mfu
from benchmarks.telemetry.summary import telemetry_rows
from benchmarks.text import Rows, columns, count_text, duration_text, folded, plural, seconds_text
from benchmarks.values import Benchmark

if TYPE_CHECKING:
    from benchmarks.logs.foreign import ForeignResult


def short_rows(result: Result, benchmark: Benchmark) -> Rows:
    """Return one line per metric of a successful run: step time, throughput, MFU, and loss or the MLPerf target."""
    spread, nulls, rows = result.seconds_per_step, result.null_because, []
    if spread.median is None:
        rows.append(("Step time", f"not reported: {nulls.get('seconds_per_step', 'not measured')}"))
    else:
        ends = f"95% CI {seconds_text(spread.ci95[0])} to {seconds_text(spread.ci95[1])}, " if spread.ci95 else ""
        rows.append(("Step time", f"{seconds_text(spread.median)}   ({ends}{plural(result.window.counted, 'step')})"))
    if result.tokens_per_second is not None and result.tokens_per_second_per_gpu is not None:
        device = "CPU device" if benchmark.hardware.kind == "cpu" else "GPU"
        each = f"   ({count_text(result.tokens_per_second_per_gpu)} per {device})" if benchmark.gpus > 1 else ""
        rows.append(("Throughput", f"{count_text(result.tokens_per_second)} tokens/s{each}"))
    if result.mfu:
        first = result.mfu[0]
        rows.append(("MFU", f"{first.percent:.1f}%   of {first.peak_tflops:,.5g} TFLOP/s {first.precision_peak}"))
    elif spread.median is not None:
        no_peak = benchmark.dtype not in benchmark.hardware.peaks and not benchmark.model.uncounted
        why = f"no published {benchmark.dtype} peak; measure one with `python launch/peak.py`"
        rows.append(("MFU", f"unknown: {why if no_peak else nulls['mfu']}"))
    loss = ("Loss", f"{_number(result.loss.first)} -> {_number(result.loss.last)}")
    return [*rows, *([(label.capitalize(), text) for label, text in _target_rows(result)][:1] or [loss])]


def warnings(result: Result) -> list[str]:
    """Return the warnings that the user needs before using the metrics, without repetition, most important first."""
    window, machines = result.window, dict(telemetry_rows(result.telemetry))
    too_short = window.settling == "too short" and window.counted > 0
    known = {*settling.notes(window), *few_steps(window.counted)} if too_short else set()
    notes = [note for note in result.notes if note not in known and not note.endswith(NO_TEXT)]
    found = [f"never compared: {reason}" for reason in result.not_comparable]
    found += [note for note in notes if note.startswith((SLOWED, "MFU is "))]
    found += [
        f"{name}: {machines[name]}" for name in ("throttled", "GPU errors") if machines.get(name, "never") != "never"
    ]
    found += [f"{len(result.attempts)} attempts; the metrics come from one"] if len(result.attempts) > 1 else []
    if too_short and result.seconds_per_step.median is not None:
        steps = "" if window.steps_to_tell is None else f" (needs about {window.steps_to_tell:,} steps)"
        found.append(f"Too short to confirm a steady state{steps}")
    return [*found, *(note for note in notes if note not in found)]


def result_rows(result: Result) -> Rows:
    """Return everything that is known about the result of a run."""
    rows: Rows = [("status", "\n".join([result.status, *(f"- {reason}" for reason in folded(result.reasons))]))]
    rows += speed_rows(result)
    if result.flops_differences:
        rows.append(("FLOPs", "\n".join(one.text() for one in result.flops_differences)))
    rows.append(("loss", f"{_number(result.loss.first)} -> {_number(result.loss.last)}"))
    rows.append(("steps", window_text(result)))
    rows += _target_rows(result)
    rows += _attempt_rows(result)
    rows += telemetry_rows(result.telemetry, result.ranks)
    if result.pgle is not None:
        seen = result.pgle.seen
        rows.append(("PGLE", f"{result.pgle.way}, {'applied' if seen.applied else 'not applied'}: {seen.reason}"))
    if result.not_comparable:
        rows.append(("compare", "\n".join(f"never: {reason}" for reason in result.not_comparable)))
    if result.notes:
        rows.append(("notes", "\n".join(result.notes)))
    return rows


def _target_rows(result: Result) -> Rows:
    """Return whether an MLPerf submission reached its target, when, and how long its parts took, from its log."""
    if (outcome := result.mlperf) is None:
        return []
    values = [one.value for one in outcome.evaluations if one.value is not None]
    best = f", the best of {len(values)} evaluations was {min(values):g}" if values else ""
    samples = f" after {outcome.samples:,} samples" if outcome.samples is not None else ""
    target = f"loss {outcome.target:g} ({outcome.benchmark}, {outcome.division}): {outcome.status}{samples}{best}"
    parts = ", ".join(f"{seconds:.1f} s {name}" for name, seconds in outcome.parts.items() if seconds)
    rows = [("target", target)]
    if outcome.seconds is not None:
        word = "to train" if outcome.status == "success" else "until then"
        init = "" if outcome.init_seconds is None else f"; {outcome.init_seconds:.1f} s of initialization before"
        rows.append((word, f"{duration_text(outcome.seconds)}{f': {parts}' if parts else ''}{init}"))
    return rows


def _attempt_rows(result: Result) -> Rows:
    """Return a row that lists the attempts. Omit a single attempt unless its text adds to the status."""
    texts = [f"{one.attempt}: {one.steps} steps; {one.text}" for one in result.attempts]
    if len(texts) == 1:
        texts = [f"1, {one.text}" for one in result.attempts if one.text not in ("completed", *result.reasons)]
    return [("attempts", "\n".join(texts))] if texts else []


def speed_rows(result: "Result | ForeignResult") -> Rows:
    spread = result.seconds_per_step
    if spread.median is None:
        return [("seconds/step", "not reported: " + result.null_because.get("seconds_per_step", "unknown"))]
    interval = (
        f"95% interval {seconds_text(spread.ci95[0])} to {seconds_text(spread.ci95[1])}"
        if spread.ci95
        else result.null_because.get("seconds_per_step.ci95", "no interval")
    )
    excess = f"{spread.excess:+.1%}" if spread.excess is not None else "unknown"
    rows = [("seconds/step", f"{seconds_text(spread.median)} median, {interval}")]
    if result.tokens_per_second is not None:
        effective = result.tokens_per_second_effective
        shown = count_text(effective) if effective is not None else "unknown"
        at_median = f"{count_text(result.tokens_per_second)} at the median"
        rows.append(("tokens/s", f"{at_median}; {shown} effective (mean step vs. median {excess})"))
    if not result.mfu:
        return [*rows, ("MFU", "unknown: " + result.null_because["mfu"])]
    rows.append(("MFU", mfu_text(result.mfu)))
    rows.append(("HFU", mfu_text(result.hfu) if result.hfu else "unknown: " + result.null_because["hfu"]))
    return rows


def mfu_text(entries: Sequence[Mfu]) -> str:
    """Return a table of MFU values with one column per convention and one line per peak."""
    names = list(dict.fromkeys(m.counted_by for m in entries))
    peaks = list(dict.fromkeys((m.table, m.precision_peak) for m in entries))
    table = [[*names, "of a device's TFLOP/s"]]
    for peak in peaks:
        found = {m.counted_by: m for m in entries if (m.table, m.precision_peak) == peak}
        tflops = sorted(m.peak_tflops for m in found.values())  # a mixed-precision peak differs between conventions
        span = " to ".join(dict.fromkeys(f"{one:.5g}" for one in (tflops[0], tflops[-1])))
        table.append([*(f"{found[name].percent:.2f}%" for name in names), f"{span} {peak[1]} ({peak[0]})"])
    return "\n".join(columns(table, indent=""))


def window_text(result: "Result | ForeignResult") -> str:
    window = result.window
    out = ", ".join(f"{count} {reason}" for reason, count in window.excluded.items()) or "none"
    span = f"steps {window.first_step}-{window.last_step}" if window.counted else "no step"
    return f"{window.counted} counted ({window.rule}: {span}, {WORDS[window.settling]}); excluded: {out}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"
