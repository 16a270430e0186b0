"""A run's page: what was measured and how well that is known, where it lies, what ran, where it comes from. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.measuring.figures import usable_seconds
from benchmarks.measuring.summary import Result
from benchmarks.measuring.utilisation import Mfu
from benchmarks.pages.page import (
    UNKNOWN,
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
from benchmarks.pages.run_plots import (
    EARLIER,
    drawable,
    quantiles,
    roof_in_words,
    roof_plot,
    spread_plot,
    step_plot,
)
from benchmarks.planning.bounds import Bound
from benchmarks.references.nearest_reference import Nearest
from benchmarks.rendering.columns import plural
from benchmarks.rendering.report import count_text, layout_text, result_rows, seconds_text, title
from benchmarks.values import Benchmark, Step, Value

TONES: dict[str, Tone] = {"valid": "good", "invalid": "warm", "failed": "bad"}
MOST_STEP_ROWS = 400
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
    roof = roof_plot(result, run.bound, f"{key}-roof")
    no_steps = [] if drawable(steps) else ["No step has a time."]
    blocks: list[Block] = [
        Box(TONES[result.status], _why(result.status), result.reasons),
        Section("What the logs say", [Facts(run.diagnosis)]),
        Box("warm", "Before you use these figures", _warnings(result)),
        Box("warm", "Unreadable files", run.missing),
        Headlines(headlines(result)),
        Section("How the logs end", run.logs),
        Plots([*step_plot(result, steps, f"{key}-steps"), *spread_plot(result, steps, f"{key}-spread"), *roof]),
        Section("Seconds of each step", [Words(no_steps)]),
        Section("Compared with the peaks", [] if roof else [Words([roof_in_words(result, run.bound)])]),
        Section("Utilisation", [mfu_table(result), Words(_why_no_hfu(result), "muted")]),
        Section("Nearest published reference", _published(run.nearest)),
        Section("Machines and attempts", [
            Facts([row for row in result_rows(result) if row[0] not in ELSEWHERE]),
            _ranks_table(result),
            _attempts_table(result),
        ]),
        Section("Notes", [Words(_notes(result), "list")]),
        Section("Provenance", [
            Fold("Quantiles of the counted steps", "", [_spread_table(result, steps)]),
            Fold("Every step", _rows_left_out(steps), [_step_table(steps)]),
            Fold("Reported by the framework", "medians, for comparison only", [Facts(_framework(result))]),
            Fold("Unknown figures and why", "", [Facts(list(result.null_because.items()))]),
            *(Fold(heading, "", [Facts(rows)]) for heading, rows in provenance_lists(run.provenance).items()),
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


def headlines(result: Result) -> list[Headline]:
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


def mfu_table(result: Result) -> Table:
    """Every convention against every peak; a row for each peak."""
    names = list(dict.fromkeys(m.counted_by for m in result.mfu or []))
    rows = _peak_rows("mfu", result.mfu or [], names)
    rows += _peak_rows("hfu", result.hfu or [], names) if rows else []
    titles = ["figure and peak", *(f"#{name}" for name in names), "source of the peak"]
    return Table("A column for each way to count the FLOPs", titles, rows)


def _peak_rows(field: str, entries: Sequence[Mfu], names: Sequence[str]) -> list[list[Cell]]:
    rows = []
    for peak in dict.fromkeys((m.table, m.precision_peak) for m in entries):
        found = {m.counted_by: (n, m) for n, m in enumerate(entries) if (m.table, m.precision_peak) == peak}
        tflops = [m.peak_tflops for _, m in found.values()]
        rate = " to ".join(dict.fromkeys(f"{one:.5g}" for one in (min(tflops), max(tflops))))
        row = [Cell(f"{field.upper()} of {rate} TFLOP/s {peak[1]} ({peak[0]})")]
        for name in names:
            number, entry = found.get(name, (0, None))
            row.append(
                Cell(f"{entry.percent:.2f}%", value=entry.percent, field=f"{field}.{number}.percent")
                if entry
                else Cell(UNKNOWN, "muted")
            )
        rows.append([*row, Cell(next(iter(found.values()))[1].peak_source, "muted")])
    return rows


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
    rows = [[Cell(text) for text in _theirs_and_ours(one)] for one in found.differs]
    return [
        Words([f"{found.ratio:.3f} times the tokens per second and GPU of {found.reference} ({theirs})."]),
        Words([found.source], "muted"),
        Table("Other differences", ["what", "published", "here"], rows),
        Words([] if rows else ["No other known difference."]),
    ]


def _theirs_and_ours(text: str) -> tuple[str, str, str]:
    """`GPUs 64, here 32` as three cells."""
    theirs, _, ours = text.partition(", here ")
    for name in ("global batch", "sequence length"):
        if theirs.startswith(name):
            return name, theirs.removeprefix(name).strip(), ours
    name, _, value = theirs.partition(" ")
    return name, value, ours


# --- what lies behind them ----------------------------------------------------------------------


def _spread_table(result: Result, steps: Sequence[Step]) -> Table:
    counted, spread = usable_seconds(drawable(steps).get(None, [])), result.seconds_per_step
    rows: list[list[Cell]] = []
    if spread.median is not None and len(counted) >= 3:
        rows = [[Cell(name), Cell(seconds_text(value))] for name, value in quantiles(counted).items()]
        for name, field, value in (("mean", "mean", spread.mean), ("standard deviation", "stdev", spread.stdev)):
            if value is not None:
                shown = Cell(seconds_text(value), value=value, field=f"seconds_per_step.{field}")
                rows.append([Cell(name), shown])
    return Table("Seconds of the counted steps", ["of the counted steps", "#per step"], rows)


def _ranks_table(result: Result) -> Table:
    rows = [
        [Cell(str(rank.rank)), Cell(rank.host or "not known"), Cell(seconds_text(rank.seconds_per_step))]
        for rank in (result.ranks.worst if result.ranks else [])
    ]
    return Table("The slowest ranks", ["rank", "host", "#seconds per step"], rows)


def _attempts_table(result: Result) -> Table:
    rows = [
        [Cell(str(one.attempt)), Cell(one.outcome.replace("_", " ")), Cell(f"{one.steps:,}"), Cell(one.text)]
        for one in result.attempts
    ]
    titles = ["attempt", "outcome", "#steps", "what happened"]
    return Table("Attempts; the last one gives the figures", titles, rows if len(rows) > 1 else [])


def _framework(result: Result) -> list[tuple[str, str]]:
    """What the framework printed, which is kept beside our figures and never used."""
    known = {name: value for name, value in result.reported_by_framework.items() if value is not None}
    return [
        (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in known.items()
    ]


def _rows_left_out(steps: Sequence[Step]) -> str:
    more = len(steps) - MOST_STEP_ROWS
    return f"{MOST_STEP_ROWS} shown, {more} more in steps.jsonl" if more > 0 else ""


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
    return Table("Every step", ["step", "#rank", "#seconds", "#loss", "counted, or why not"], rows, scroll=True)


# --- provenance -----------------------------------------------------------------------------------

# In the order in which somebody who hunts a difference asks: heading -> parts of provenance.json.
GROUPS = {
    "What was run": ("command", "git", "stepmark", "labels"),
    "Inside the framework": ("worker",),
    "Arguments, environment and XLA flags of each phase": ("phases",),
    "Environments": ("environment", "launcher"),
    "Machine": ("machine",),
    "Shell variables": ("shell",),
    "Digests of the raw files (SHA-256)": ("files",),
}
NOT_SHOWN = ("notes", "run_id")  # they are elsewhere on the page


def provenance_lists(provenance: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """A list for each part of the file, also for those that this version does not know."""
    known = {name for names in GROUPS.values() for name in names}
    others = tuple(name for name in provenance if name not in known and name not in NOT_SHOWN)
    return {
        heading: [
            row
            for name in names
            for row in _leaves("" if len(names) == 1 and heading != "Other" else name, provenance.get(name))
        ]
        for heading, names in {**GROUPS, "Other": others}.items()
    }


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
