"""What a person reads: results, plans and lists as labelled lines of text. Pure; no screen, no colours."""

import re
import shlex
from collections.abc import Mapping, Sequence

from benchmarks import capacity, flops, ledger
from benchmarks.ledger import Recompute
from benchmarks.summary import Result, departures
from benchmarks.telemetry.rows import telemetry_rows
from benchmarks.utilisation import Mfu, workload_of
from benchmarks.values import Benchmark, Parallelism, Plan, Recipe, Step
from benchmarks.window import describe_rule

Rows = list[tuple[str, str]]


def seconds_text(seconds: float) -> str:
    """Four significant digits with the unit that suits: 6.999 s, 15.21 ms."""
    if seconds >= 1:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"


def count_text(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def bytes_text(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size / 1e3:.1f} kB"


def layout_text(layout: Parallelism) -> str:
    return " x ".join(f"{word} {size}" for word, size in layout.words()) or "one device"


def aligned(rows: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Labels in one column, texts in the next; the lines of a long text stay in theirs."""
    width = max((len(label) for label, _ in rows), default=0)
    lines = []
    for label, text in rows:
        first, *more = text.split("\n")
        lines.append(f"{indent}{label:<{width}}  {first}".rstrip())
        lines.extend(f"{indent}{'':<{width}}  {line}".rstrip() for line in more)
    return lines


# --- a result -----------------------------------------------------------------------------------


def title(benchmark: Benchmark) -> str:
    return (
        f"{benchmark.model.name} {benchmark.task} {benchmark.dtype} · {benchmark.backend} ({benchmark.engine}) · "
        f"{benchmark.gpus} x {benchmark.hardware.name}"
    )


def columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  " + "  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in table]


def result_rows(result: Result) -> Rows:
    """The short table at the end of a run."""
    rows: Rows = [("status", "\n".join([result.status, *(f"- {reason}" for reason in result.reasons)]))]
    rows += _speed_rows(result)
    rows.append(("loss", f"{_number(result.loss.first)} -> {_number(result.loss.last)}"))
    rows.append(("steps", _window_text(result)))
    rows += _until_rows(result)
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


def _until_rows(result: Result) -> Rows:
    """What --until asked, whether it was reached, and what that saved."""
    until = result.until
    if until is None:
        return []
    asked = f"ci:{100 * until.target:g}%, {until.why}"
    if until.saving is None or until.device_seconds is None or until.fixed_device_seconds is None:
        return [("until", asked)]
    cost = f"{until.steps} of {until.fixed_steps} steps: {count_text(until.device_seconds)} device-seconds"
    if until.steps < until.fixed_steps:
        cost += f" of {count_text(until.fixed_device_seconds)}, {until.saving:.0%} saved"
    return [("until", f"{asked}\n{cost}")]


def _attempt_rows(result: Result) -> Rows:
    """Of several attempts all; of one what the status does not say already (which job, on which nodes)."""
    if len(result.attempts) > 1:
        return [("attempts", "\n".join(f"{one.attempt}: {one.steps} steps; {one.text}" for one in result.attempts))]
    return [
        ("attempts", f"1, {one.text}")
        for one in result.attempts
        if one.text != "completed" and one.text not in result.reasons
    ]


def _speed_rows(result: Result) -> Rows:
    spread = result.seconds_per_step
    if spread.median is None:
        return [("seconds/step", "not claimed: " + result.null_because.get("seconds_per_step", "unknown"))]
    interval = (
        f"95% interval {seconds_text(spread.ci95[0])} to {seconds_text(spread.ci95[1])}"
        if spread.ci95
        else result.null_because.get("seconds_per_step.ci95", "no interval")
    )
    excess = f"{spread.excess:+.1%}" if spread.excess is not None else "unknown"
    rows = [("seconds/step", f"{seconds_text(spread.median)} median, {interval}")]
    if result.tokens_per_second is not None:
        rows.append(("tokens/s", _tokens_text(result, excess)))
    if not result.mfu:
        return [*rows, ("MFU", "unknown: " + result.null_because["mfu"])]
    rows += [("of the peak", placed_text(result.mfu)), ("MFU", mfu_text(result.mfu))]
    rows.append(("HFU", mfu_text(result.hfu) if result.hfu else "unknown: " + result.null_because["hfu"]))
    return rows


def _tokens_text(result: Result, excess: str) -> str:
    effective = result.tokens_per_second_effective
    shown = count_text(effective) if effective is not None else "unknown"
    return f"{count_text(result.tokens_per_second or 0)} at the median; {shown} effective (mean over median {excess})"


def placed_text(entries: Sequence[Mfu]) -> str:
    """Between which peaks the run lies: 52.6% of 989 (datasheet), 65.5% of 794.5 (achievable)"""
    first = entries[0]
    same = [m for m in entries if (m.counted_by, m.precision_peak) == (first.counted_by, first.precision_peak)]
    places = ", ".join(f"{m.percent:.1f}% of {m.peak_tflops:.5g} ({m.table})" for m in same)
    return f"{places}; TFLOP/s {first.precision_peak} a device, counted by {first.counted_by}"


def mfu_text(entries: Sequence[Mfu]) -> str:
    """The conventions side by side, a line for each peak."""
    names = list(dict.fromkeys(m.counted_by for m in entries))
    peaks = list(dict.fromkeys((m.table, m.precision_peak) for m in entries))
    table = [[*names, "of a device's TFLOP/s"]]
    for peak in peaks:
        found = {m.counted_by: m for m in entries if (m.table, m.precision_peak) == peak}
        table.append([*(f"{found[name].percent:.2f}%" for name in names), _peak_text([*found.values()])])
    return "\n".join(line.strip() for line in columns(table))


def _peak_text(entries: Sequence[Mfu]) -> str:
    """A mix of precisions is another peak by each convention: its range."""
    tflops = [m.peak_tflops for m in entries]
    low, high = f"{min(tflops):.5g}", f"{max(tflops):.5g}"
    return f"{low if low == high else f'{low} to {high}'} {entries[0].precision_peak} ({entries[0].table})"


def _window_text(result: Result) -> str:
    window = result.window
    out = ", ".join(f"{count} {reason}" for reason, count in window.excluded.items()) or "none"
    span = f"steps {window.first_step}-{window.last_step}" if window.counted else "no step"
    settled = "settled" if window.settled else "not settled"
    return f"{window.counted} counted ({window.rule}: {span}, {settled}); left out: {out}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def step_text(
    step: Step,
    total_steps: int,
    typical_seconds: float | None,
    seconds_left: float | None,
    *,
    at_most: bool = False,
) -> str:
    """The live line: where the run is, how fast, and how long it still takes; `at_most` where it may end early."""
    words = [f"step {step.step + 1}/{total_steps}"]
    if typical_seconds:
        words.append(f"{seconds_text(typical_seconds)}/step")
        if step.tokens:
            words.append(f"{count_text(step.tokens / typical_seconds)} tokens/s")
    if step.loss is not None:
        words.append(f"loss {step.loss:.3f}")
    if seconds_left is not None:
        words.append(f"{'at most ' if at_most else ''}{duration_text(seconds_left)} left")
    return " · ".join(words)


def duration_text(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# --- a plan -------------------------------------------------------------------------------------


def plan_text(benchmark: Benchmark, plan: Plan, storage: capacity.Storage) -> str:
    """Everything a dry run shows: what would run, with which settings, and what it needs."""
    lines = [title(benchmark), ""]
    lines += aligned([*_benchmark_rows(benchmark), ("runs in", plan.environment_name)])
    lines += ["", "model FLOPs"]
    lines += aligned([*flops_rows(benchmark), *recompute_rows(benchmark, storage.recompute)])
    lines += ["", "memory per device (estimate)"]
    lines += aligned(memory_rows(benchmark, storage))
    for number, phase in enumerate(plan.phases, start=1):
        lines += ["", f"phase {number}: {phase.name}"]
        tasks = f"{phase.tasks_per_node} a node, devices a task: {phase.devices_per_task}"
        lines += aligned([("nodes", str(phase.nodes)), ("tasks", tasks)])
        lines += ["  environment"]
        lines += [f"    {name}={value}" for name, value in phase.environment.items() if name != "XLA_FLAGS"]
        if "XLA_FLAGS" in phase.environment:
            lines += ["  XLA_FLAGS", *(f"    {flag}" for flag in phase.environment["XLA_FLAGS"].split())]
        lines += ["  command"]
        lines += [f"    {word} \\" for word in map(_shell_word, phase.command[:-1])]
        lines += [f"    {_shell_word(phase.command[-1])}"]
    lines += ["", "nothing was started (--dry_run)"]
    return "\n".join(lines)


def _shell_word(word: str) -> str:
    """Quoted where a shell needs it; the placeholders that a site fills in stay readable."""
    filled = re.sub(r"\{(python|repository|phase_dir)\}", "x", word)
    return word if shlex.quote(filled) == filled else shlex.quote(word)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _benchmark_rows(benchmark: Benchmark) -> Rows:
    b = benchmark
    return [
        ("model", f"{b.model.name}: {flops.parameter_count(b.model):,} parameters"),
        ("hardware", f"{b.gpus} x {b.hardware.name} ({b.hardware.title}) on {_nodes(b.nodes)}; site {b.site.name}"),
        ("layout", layout_text(b.parallelism)),
        ("in short", _in_short(b)),
        *_lora_rows(b),
        (
            "batch",
            f"{b.global_batch_size} sequences of {b.sequence_length} tokens "
            f"({b.micro_batch_size} a device group x {b.gradient_accumulation} accumulation); "
            f"{b.tokens_per_step:,} tokens a step; data {b.data}",
        ),
        ("steps", f"{_steps_text(b)}; window {b.window}: {describe_rule(b.window)}"),
        ("recipe", "\n".join([f"{b.recipe.name} ({b.recipe.source})", *departures(b)])),
        ("overrides", ", ".join(f"{k}={v}" for k, v in b.overrides.items()) or "none"),
    ]


def _steps_text(benchmark: Benchmark) -> str:
    until = benchmark.until
    if until is None:
        return str(benchmark.steps)
    return f"{benchmark.steps} at most, until the median is known to +-{100 * until.half_width:g}% (--until)"


def _in_short(b: Benchmark) -> str:
    return f"{b.parallelism.short()} MBS{b.micro_batch_size} GBS{b.global_batch_size} GA{b.gradient_accumulation}"


def _lora_rows(benchmark: Benchmark) -> Rows:
    lora = benchmark.lora
    if lora is None:
        return []
    trained = flops.adapter_parameter_count(benchmark.model, lora)
    beside = ", ".join(lora.targets)
    size = f"rank {lora.rank}, alpha {lora.alpha:g}, dropout {lora.dropout:g}"
    return [("adapters", f"{size}, beside {beside}: {trained:,} trainable parameters")]


def flops_rows(benchmark: Benchmark) -> Rows:
    """A sequence, a token and a device-step, by convention; the recipe's first."""
    workload = workload_of(benchmark)
    rows = []
    for convention in flops.conventions_for(benchmark.task):
        step = workload.flops_per_step(convention)
        rows.append(
            (
                convention,
                f"{step / benchmark.global_batch_size:.5g} a sequence, "
                f"{step / benchmark.tokens_per_step:.5g} a token, "
                f"{step / benchmark.gpus:.4g} a device and step",
            )
        )
    return rows + _stated_rows(benchmark)


def _stated_rows(benchmark: Benchmark) -> Rows:
    """What the recipe's source says beside what its formula gives: published figures are rounded, some are wrong."""
    stated = benchmark.recipe.stated_flops_per_sequence
    if stated is None:
        return []
    first = flops.conventions_for(benchmark.task)[0]
    counted = workload_of(benchmark).flops_per_step(first) / benchmark.global_batch_size
    return [("stated", f"{stated:.5g} a sequence by the recipe's source ({stated / counted - 1:+.2%} of {first})")]


def recompute_rows(benchmark: Benchmark, recompute: Recompute | None) -> Rows:
    """What a sequence costs besides, by part, and all that the hardware does: the FLOPs of HFU."""
    if recompute is None:
        return [("recomputed", "unknown: the backend does not say what it computes twice")]
    first = ledger.hardware_conventions(benchmark.task)[0]
    work = (benchmark.model, benchmark.sequence_length, recompute, first)
    length = benchmark.sequence_length
    parts = [f"{cost * length:.5g} {part}" for part, cost in ledger.recomputed_by_part(*work).items()]
    if not parts:
        return [("recomputed", "nothing: HFU is MFU")]
    where = "" if recompute.layers is None else f" ({recompute.layers} of {benchmark.model.layers} layers)"
    again, total = ledger.recomputed_flops_per_token(*work), ledger.hardware_flops_per_token(*work)
    return [
        ("recomputed", f"{again * length:.5g} a sequence{where}: {', '.join(parts)}"),
        ("hardware", f"{total * length:.5g} a sequence, {again / (total - again):+.1%} of {first}: the FLOPs of HFU"),
    ]


def memory_rows(benchmark: Benchmark, storage: capacity.Storage) -> Rows:
    parts = capacity.memory_by_part(benchmark, storage)
    rows = [(name.replace("_", " "), bytes_text(size)) for name, size in parts.items()]
    total = sum(parts.values())
    memory_gb = benchmark.hardware.memory_gb
    if memory_gb is None:
        return [
            *rows,
            ("total", f"{bytes_text(total)} x {benchmark.gpus} = {bytes_text(total * benchmark.gpus)}"),
        ]
    usable = memory_gb * 1e9 * storage.usable_fraction
    verdict = "fits" if total <= usable else "DOES NOT FIT"
    return [
        *rows,
        (
            "total",
            f"{bytes_text(total)} of {bytes_text(usable)} usable: {verdict} ({usable / total - 1:+.0%} room)",
        ),
    ]


# --- what there is ------------------------------------------------------------------------------


def recipe_rows(recipes: Sequence[Recipe]) -> Rows:
    rows = []
    for recipe in recipes:
        dtypes = "; ".join(f"{name}: {', '.join(kinds)}" for name, kinds in recipe.dtypes.items())
        scales = ", ".join(str(layout.gpus) for layout in recipe.layouts)
        text = f"{recipe.title}\nmodels {', '.join(recipe.models)} · {dtypes} · devices {scales}"
        rows.append((recipe.name, text))
    return rows


def listing_text(sections: Mapping[str, Rows]) -> str:
    lines: list[str] = []
    for heading, rows in sections.items():
        lines += [heading, *(aligned(rows) if rows else ["  none"]), ""]
    return "\n".join(lines).rstrip()
