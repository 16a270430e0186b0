"""Renders a resolved benchmark and its plan as text, for a dry run. No I/O."""

import re
import shlex

from benchmarks.model import flops, ledger
from benchmarks.model.estimate import PublishedData
from benchmarks.model.forecast import Forecast, forecast, memory_of
from benchmarks.model.forecast_report import expected_lines, forecast_lines, memory_lines
from benchmarks.request.window_rule import describe_rule
from benchmarks.text import Rows, aligned, layout_text, plural, title
from benchmarks.values import Benchmark, Plan, Recompute, Storage

NOTHING_STARTED = "nothing was started (--dry_run)"


def screen_text(benchmark: Benchmark, plan: Plan, found: Forecast) -> str:
    """Return the text of a dry run: the expected results, and the plan with its settings."""
    rows = {name: text.partition(": begins when ")[0] for name, text in _benchmark_rows(benchmark, plan)}
    rows["layout"] += f" ({rows.pop('in short')})"
    rows["phases"] = ", ".join(f"{one.name} on {plural(one.nodes, 'node')}" for one in plan.phases)
    lines = [title(benchmark), "", *expected_lines(benchmark, found), "", "plan", *aligned([*rows.items()])]
    return "\n".join([*lines, "", f"{NOTHING_STARTED}; the whole job: --verbose"])


def plan_text(benchmark: Benchmark, plan: Plan, storage: Storage, published: PublishedData | None = None) -> str:
    """Return the whole plan of a run, with the facts that are known before it starts."""
    lines = [title(benchmark), ""]
    found = None if published is None else forecast(benchmark, storage, published)
    lines += [*expected_lines(benchmark, found), ""] if found is not None else []
    lines += [*aligned(_benchmark_rows(benchmark, plan)), "", "model FLOPs"]
    lines += aligned([*flops_rows(benchmark), *recompute_rows(benchmark, storage.recompute)])
    lines += ["", *memory_lines(memory_of(benchmark, storage))]
    if found is not None:
        lines += ["", *forecast_lines(found)]
    return "\n".join([*lines, *phase_lines(plan), "", NOTHING_STARTED])


def phase_lines(plan: Plan) -> list[str]:
    """Return each phase with the environment, command and mounts that it would start with."""
    lines: list[str] = []
    for number, phase in enumerate(plan.phases, start=1):
        lines += ["", f"phase {number}: {phase.name}"]
        tasks = f"{phase.tasks_per_node} per node, devices per task: {phase.devices_per_task}"
        lines += aligned([("nodes", str(phase.nodes)), ("tasks", tasks)])
        lines += ["  environment"]
        lines += [f"    {name}={value}" for name, value in phase.environment.items() if name != "XLA_FLAGS"]
        if "XLA_FLAGS" in phase.environment:
            lines += ["  XLA_FLAGS", *(f"    {flag}" for flag in phase.environment["XLA_FLAGS"].split())]
        lines += ["  command"]
        lines += [f"    {word} \\" for word in map(_shell_word, phase.command[:-1])]
        lines += [f"    {_shell_word(phase.command[-1])}"]
        if phase.mounts:
            lines += ["  mounts", *(f"    {mount}" for mount in phase.mounts)]
    return lines


def _shell_word(word: str) -> str:
    """Quote a word if a shell needs it. Placeholders that a site fills in are not quoted."""
    filled = re.sub(r"\{(python|repository|phase_dir)\}", "x", word)
    return word if shlex.quote(filled) == filled else shlex.quote(word)


def _benchmark_rows(benchmark: Benchmark, plan: Plan) -> Rows:
    b, pythons = benchmark, benchmark.site.python
    python = pythons.get(b.engine) if isinstance(pythons, dict) else pythons
    return [
        ("model", _model_text(b)),
        (
            "hardware",
            f"{b.gpus} x {b.hardware.name} ({b.hardware.title}) on {plural(b.nodes, 'node')}; site {b.site.name}",
        ),
        ("layout", layout_text(b.parallelism)),
        ("in short", f"{b.parallelism.short()} {b.batch.short()}"),
        *_lora_rows(b),
        (
            "batch",
            f"{b.batch.global_batch_size} sequences of {b.batch.sequence_length} tokens "
            f"({b.batch.micro_batch_size} per device group x {b.batch.gradient_accumulation} accumulation); "
            f"{b.tokens_per_step:,} tokens per step; data {b.data}",
        ),
        ("steps", f"{b.steps}; window {b.window}: {describe_rule(b.window)}"),
        ("recipe", "\n".join([f"{b.recipe.name} ({b.recipe.source})", *b.departures()])),
        ("overrides", ", ".join(f"{k}={v}" for k, v in b.settings.overrides.items()) or "none"),
        ("runs in", b.settings.image or python or plan.environment_name),
        *([("notes", "\n".join(plan.notes))] if plan.notes else []),
    ]


def _model_text(benchmark: Benchmark) -> str:
    model = benchmark.model
    text = f"{model.name}: {flops.parameter_count(model):,} parameters"
    if model.experts is None:
        return text
    active = f"{flops.active_parameter_count(model):,} active per token (with embedding and head)"
    return f"{text}, {active}; {benchmark.routing} routing"


def _lora_rows(benchmark: Benchmark) -> Rows:
    lora = benchmark.lora
    if lora is None:
        return []
    trained = flops.adapter_parameter_count(benchmark.model, lora)
    targets = ", ".join(lora.targets)
    size = f"rank {lora.rank}, alpha {lora.alpha:g}, dropout {lora.dropout:g}"
    return [("adapters", f"{size}, on {targets}: {trained:,} trainable parameters")]


def flops_rows(benchmark: Benchmark) -> Rows:
    """Return the FLOPs per sequence, per token, and per device and step, for each convention; the recipe's first."""
    rows = []
    length = benchmark.batch.sequence_length
    for convention in flops.conventions_for(benchmark.trains, benchmark.model):
        token = flops.flops_per_token(benchmark.model, length, convention)
        of_device = benchmark.tokens_per_step * token / benchmark.gpus
        text = f"{token * length:.5g} per sequence, {token:.5g} per token, {of_device:.4g} per device and step"
        rows.append((convention, text))
    found = ledger.framework_differences(benchmark.model, length)
    return [*rows, *([("differs", "\n".join(one.text() for one in found))] if found else [])]


def recompute_rows(benchmark: Benchmark, recompute: Recompute | None) -> Rows:
    """Return the recomputed FLOPs per sequence by part, and the total FLOPs that HFU counts."""
    if recompute is None:
        return [("recomputed", "unknown: the backend does not report its recomputation")]
    first = ledger.hardware_conventions(benchmark.trains, benchmark.model)[0]
    work = (benchmark.model, benchmark.batch.sequence_length, recompute, first)
    length = benchmark.batch.sequence_length
    parts = [f"{cost * length:.5g} {part}" for part, cost in ledger.recomputed_by_part(*work).items()]
    if not parts:
        return [("recomputed", "nothing: HFU equals MFU")]
    where = "" if recompute.layers is None else f" ({recompute.layers} of {benchmark.model.layers} layers)"
    again, total = ledger.recomputed_flops_per_token(*work), ledger.hardware_flops_per_token(*work)
    return [
        ("recomputed", f"{again * length:.5g} per sequence{where}: {', '.join(parts)}"),
        ("hardware", f"{total * length:.5g} per sequence for HFU ({first} {again / (total - again):+.1%})"),
    ]
