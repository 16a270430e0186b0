"""A run's page: what was measured and how well that is known, where it lies, what ran, where it comes from. Pure."""

from collections.abc import Sequence
from typing import Any

from benchmarks.measuring.summary import Result
from benchmarks.measuring.utilisation import Mfu
from benchmarks.pages.elements import UNKNOWN, Cell, Facts, Headline, LogTail, Table, Tone, cells, plural, table
from benchmarks.pages.page import Part, page, render
from benchmarks.pages.provenance import provenance_lists
from benchmarks.pages.roof import roof_in_words, roof_plot
from benchmarks.pages.spread_plot import quantiles, spread_plot
from benchmarks.pages.step_plots import EARLIER, drawable, step_plot
from benchmarks.planning.bounds import Bound
from benchmarks.references import nearest_reference
from benchmarks.references.nearest_reference import Nearest
from benchmarks.rendering.report import count_text, result_rows, seconds_text, title
from benchmarks.values import Benchmark, Step, Value

TONES: dict[str, Tone] = {"valid": "good", "invalid": "warm", "failed": "bad"}
MOST_STEP_ROWS = 400
# Rows of the table at a run's end that stand elsewhere on the page.
SAID_ELSEWHERE = (
    "status", "seconds/step", "tokens/s", "of the peak", "MFU", "HFU", "steps", "notes", "compare", "loss",
)  # fmt: skip


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


def run_page(material: RunMaterial) -> str:
    return page([run_part(material)])


def run_part(material: RunMaterial, key: str = "run") -> Part:
    result, steps = material.result, material.steps
    html = render(
        "run.html.j2",
        key=key,
        run=material,
        result=result,
        title=title(material.benchmark).partition(" · ")[0],
        under=_under(material.benchmark),
        tone=TONES[result.status],
        warnings=_warnings(result),
        headlines=headlines(result),
        step_plot=step_plot(result, steps, f"{key}-steps"),
        spread_plot=spread_plot(result, steps, f"{key}-spread"),
        spread_table=_spread_table(result, steps),
        roof_plot=roof_plot(result, material.bound, f"{key}-roof"),
        diagnosis=Facts("", material.diagnosis),
        roof_words=roof_in_words(result, material.bound),
        mfu_table=mfu_table(result),
        hfu_why=None if result.hfu or not result.mfu else result.null_because.get("hfu"),
        beside_table=_beside_table(material.nearest[0]),
        more=Facts("", [row for row in result_rows(result) if row[0] not in SAID_ELSEWHERE]),
        ranks_table=_ranks_table(result),
        attempts_table=_attempts_table(result),
        framework=_framework(result),
        notes=_notes(result),
        unknown=Facts("", list(result.null_because.items())),
        provenance=provenance_lists(material.provenance),
        step_table=_step_table(steps),
        step_rows_left_out=max(0, len(steps) - MOST_STEP_ROWS),
    )
    return Part(key, result.run_id, "run", html)


def _under(benchmark: Benchmark) -> str:
    layout = " x ".join(f"{name} {size}" for name, size in benchmark.parallelism.words()) or "one device"
    nodes = f", {plural(benchmark.nodes, 'node')}" if benchmark.nodes > 1 else ""
    return (
        f"{benchmark.backend} ({benchmark.engine}) on {benchmark.gpus} x {benchmark.hardware.title}{nodes} · "
        f"{layout} · "
        f"{benchmark.global_batch_size} sequences of {benchmark.sequence_length} tokens a step"
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
    """Without those that already stand among the warnings."""
    said = ("not settled:",) if result.seconds_per_step.median is not None else ()
    return [note for note in result.notes if not note.startswith((*said, "slowed on purpose:"))]


# --- the figures --------------------------------------------------------------------------------


def headlines(result: Result) -> list[Headline]:
    """In large type. Where no speed is claimed, that is said once, with the reason."""
    spread, nulls = result.seconds_per_step, result.null_because
    if spread.median is None:
        return [Headline("seconds per step", "not claimed", nulls.get("seconds_per_step", "unknown")), *_loss(result)]
    found = [
        Headline(
            "seconds per step, median",
            seconds_text(spread.median),
            f"{_interval(result)} · {plural(result.window.counted, 'step')} counted",
            spread.median,
            "seconds_per_step.median",
        ),
        _figure(result, "tokens per second", "tokens_per_second", "at the median step"),
        _figure(result, "tokens per second and device", "tokens_per_second_per_gpu", "at the median step"),
        _figure(result, "effective tokens per second", "tokens_per_second_effective", _excess(result)),
        _mfu_headline(result),
        _figure(result, "days per 10¹² tokens", "days_per_trillion_tokens", "at the median step"),
    ]
    return [*found, *_loss(result)]


def _interval(result: Result) -> str:
    ci95 = result.seconds_per_step.ci95
    if ci95 is None:
        return result.null_because.get("seconds_per_step.ci95", "no interval")
    return f"95% interval {seconds_text(ci95[0])} to {seconds_text(ci95[1])}"


def _figure(result: Result, label: str, name: str, detail: str) -> Headline:
    value = getattr(result, name)
    if value is None:
        return Headline(label, "unknown", result.null_because.get(name, "unknown"))
    return Headline(label, count_text(value), detail, value, name)


def _excess(result: Result) -> str:
    excess = result.seconds_per_step.excess
    return "all time between the first and last counted step" + (
        f"; mean over median {excess:+.1%}" if excess is not None else ""
    )


def _mfu_headline(result: Result) -> Headline:
    if not result.mfu:
        return Headline("MFU", "unknown", result.null_because.get("mfu", "unknown"))
    first = result.mfu[0]
    of = f"of {first.peak_tflops:.5g} TFLOP/s {first.precision_peak} ({first.table}), counted by {first.counted_by}"
    return Headline("MFU", f"{first.percent:.1f}%", of, first.percent, "mfu.0.percent")


def _loss(result: Result) -> list[Headline]:
    first, last = result.loss.first, result.loss.last
    if last is None:
        return [Headline("loss", "unknown", result.null_because.get("loss.last", "unknown"))]
    before = f"from {first:.4f}" if first is not None else result.null_because.get("loss.first", "")
    return [Headline("loss of the last step", f"{last:.4f}", before, last, "loss.last")]


def mfu_table(result: Result) -> Table | None:
    """Every convention against every peak; a row for each peak."""
    if not result.mfu:
        return None
    names = list(dict.fromkeys(m.counted_by for m in result.mfu))
    rows = _peak_rows("MFU", "mfu", result.mfu, names) + _peak_rows("HFU", "hfu", result.hfu or [], names)
    titles = ["figure and peak", *(f"#{name}" for name in names), "source of the peak"]
    return table("A column for each way to count the FLOPs", titles, rows)


def _peak_rows(figure: str, field: str, entries: Sequence[Mfu], names: Sequence[str]) -> list[list[Cell]]:
    rows = []
    for peak in dict.fromkeys((m.table, m.precision_peak) for m in entries):
        found = {m.counted_by: (n, m) for n, m in enumerate(entries) if (m.table, m.precision_peak) == peak}
        tflops = sorted({m.peak_tflops for _, m in found.values()})
        rate = " to ".join(f"{one:.5g}" for one in (tflops[:1] + tflops[-1:] if len(tflops) > 1 else tflops))
        first = next(iter(found.values()))[1]
        row = [Cell(f"{figure} of {rate} TFLOP/s {peak[1]} ({peak[0]})")]
        for name in names:
            number, entry = found.get(name, (0, None))
            row.append(
                Cell(f"{entry.percent:.2f}%", value=entry.percent, field=f"{field}.{number}.percent")
                if entry
                else Cell(UNKNOWN, "muted")
            )
        rows.append([*row, Cell(first.peak_source, "muted")])
    return rows


def _beside_table(found: nearest_reference.Beside | None) -> Table | None:
    if found is None:
        return None
    rows = [cells(*_theirs_and_ours(text)) for text in found.differs]
    return table("What differs besides", ["what", "published", "here"], rows) if rows else None


def _theirs_and_ours(text: str) -> tuple[str, str, str]:
    """`GPUs 64, here 32` as three cells."""
    theirs, _, ours = text.partition(", here ")
    for name in ("global batch", "sequence length"):
        if theirs.startswith(name):
            return name, theirs.removeprefix(name).strip(), ours
    name, _, value = theirs.partition(" ")
    return name, value, ours


# --- what lies behind them ----------------------------------------------------------------------


def _spread_table(result: Result, steps: Sequence[Step]) -> Table | None:
    counted = [step.seconds for step in drawable(steps).get(None, []) if step.seconds is not None]
    spread = result.seconds_per_step
    if spread.median is None or len(counted) < 3:
        return None
    rows = [[Cell(name), Cell(seconds_text(value))] for name, value in quantiles(counted)]
    if spread.mean is not None:
        rows.append([Cell("mean"), Cell(seconds_text(spread.mean), value=spread.mean, field="seconds_per_step.mean")])
    if spread.stdev is not None:
        shown = Cell(seconds_text(spread.stdev), value=spread.stdev, field="seconds_per_step.stdev")
        rows.append([Cell("standard deviation"), shown])
    return table("Seconds of the counted steps", ["of the counted steps", "#a step"], rows)


def _ranks_table(result: Result) -> Table | None:
    if result.ranks is None:
        return None
    rows = [
        cells(str(rank.rank), rank.host or "not said", seconds_text(rank.seconds_per_step))
        for rank in result.ranks.worst
    ]
    return table("The slowest ranks", ["rank", "host", "#seconds per step"], rows)


def _attempts_table(result: Result) -> Table | None:
    if len(result.attempts) < 2:
        return None
    rows = [
        [Cell(str(one.attempt)), Cell(one.outcome.replace("_", " ")), Cell(f"{one.steps:,}"), Cell(one.text)]
        for one in result.attempts
    ]
    return table("Attempts; the last one gives the figures", ["attempt", "outcome", "#steps", "what happened"], rows)


def _framework(result: Result) -> Facts:
    """What the framework printed, which is kept beside our figures and never used."""
    known = {name: value for name, value in result.reported_by_framework.items() if value is not None}
    texts = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in known.values()]
    return Facts("", [(name.replace("_", " "), text) for name, text in zip(known, texts, strict=True)])


def _step_table(steps: Sequence[Step]) -> Table:
    rows = [
        [
            Cell(str(step.step) + (f" of attempt {step.attempt}" if step.excluded_because == EARLIER else "")),
            Cell(str(step.rank)),
            Cell(seconds_text(step.seconds) if step.seconds is not None else UNKNOWN),
            Cell(f"{step.loss:.4f}" if step.loss is not None else UNKNOWN),
            Cell(step.excluded_because or "counted", "muted" if step.excluded_because else ""),
        ]
        for step in steps[:MOST_STEP_ROWS]
    ]
    return table("Every step", ["step", "#rank", "#seconds", "#loss", "counted, or why not"], rows, "scroll")
