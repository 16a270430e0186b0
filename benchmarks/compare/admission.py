"""Select the runs of each side, refuse to compare sides with different work, and list the warnings. No I/O.

If a difference between the sides affects only some metrics, metrics.py refuses those metrics.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from benchmarks.compare.intervals import FEWEST_RUNS
from benchmarks.compare.runs import Chosen, ComparedRun, Runs
from benchmarks.compare.values import Caution, Side
from benchmarks.request.resolve import LISTED
from benchmarks.text import first_few, plural, reasons_text
from benchmarks.values import benchmark_fields

# All runs of a side must have the same values of these fields. Otherwise the side's mean would mix different work.
OF_THE_WORK = (
    "backend", "engine", "model", "task", "dtype", "hardware", "gpus", "nodes", "parallelism", "sequence_length",
    "micro_batch_size", "gradient_accumulation", "global_batch_size", "lora", "routing", "window", "pgle",
    "inject_slowdown",
)  # fmt: skip


def admitted(chosen: Chosen, *, baseline: bool) -> tuple[Side, list[ComparedRun]]:
    """Return a side with the reason for each excluded run, and the runs that remain for the comparison."""
    left_out = dict(chosen.left_out)
    runs = []
    for run in chosen.runs:
        if why := _why_not(run, baseline=baseline):
            left_out[run.name] = why
        else:
            runs.append(run)
    return Side(label=chosen.label, run_ids=[run.name for run in runs], left_out=left_out), runs


def _why_not(run: ComparedRun, *, baseline: bool) -> str | None:
    result, benchmark = run.result, run.benchmark
    if result.not_comparable:
        return "; ".join(result.not_comparable)
    if benchmark.dtype in benchmark.hardware.emulated:
        return f"the speed has no meaning, because {benchmark.dtype} is emulated on {benchmark.hardware.title}"
    if result.status != "valid":
        return f"{result.status}: {reasons_text(result.reasons) or 'no reason is given'}"
    if baseline and result.slowed_by:
        return f"slowed on purpose by {result.slowed_by:.0%}, so it cannot be a baseline"
    if result.seconds_per_step.median is None:
        return f"no step time: {result.null_because.get('seconds_per_step', 'the reason is unknown')}"
    return None


def refusals(sides: Sequence[Side], runs: Sequence[Runs]) -> list[str]:
    """Return the reasons not to compare the two sides; an empty list if they can be compared."""
    found = []
    for name, side, kept in zip("AB", sides, runs, strict=True):
        if not kept:
            reasons = list(dict.fromkeys(side.left_out.values())) or [f"no run matches {side.label}"]
            found.append(f"{name} has no comparable run ({first_few(reasons, 1)})")
        found += [f"the runs of {name} differ: {'; '.join(texts)}"] if (texts := mixed(kept)) else []
    if found:
        return found
    one, other = (kept[0].result.window.rule for kept in runs)
    if one != other:
        return [f"A and B measure different steps (--window={one} and --window={other})"]
    routing, other_routing = (kept[0].benchmark.routing for kept in runs)
    if routing and other_routing and routing != other_routing:
        return [
            f"the routers of A and B differ ({routing} and {other_routing}), and therefore also the tokens per expert"
        ]
    return _unproven_pgle(*runs)


def mixed(runs: Runs) -> list[str]:
    """Return the fields of OF_THE_WORK that differ between the runs of one side, each with its values."""
    found = []
    for field in OF_THE_WORK:
        values = [field_text(benchmark_fields(run.benchmark)[field]) for run in runs]
        if len(set(values)) > 1:
            texts = [f"{value} ({plural(count, 'run')})" for value, count in Counter(values).items()]
            found.append(f"{field.replace('_', ' ')} {', '.join(texts)}")
    return found


def _unproven_pgle(a: Runs, b: Runs) -> list[str]:
    if a[0].benchmark.instruments.pgle == b[0].benchmark.instruments.pgle:
        return []
    for run in (*a, *b):
        if run.benchmark.instruments.pgle != "off" and not (run.result.pgle and run.result.pgle.seen.applied):
            seen = run.result.pgle.seen.reason if run.result.pgle else "the result does not mention PGLE"
            asked = run.benchmark.instruments.pgle
            return [f"--pgle={asked} was not applied in {run.name}, so it cannot explain a difference: {seen}"]
    return []


def field_text(value: object) -> str:
    """Return a field of a benchmark as text."""
    if value is None:
        return "none"
    short = getattr(value, "short", None)
    return str(short()) if callable(short) else str(getattr(value, "name", value))


# --- warnings -------------------------------------------------------------------------------------


def cautions(a: Runs, b: Runs) -> list[Caution]:
    """Return warnings about conditions that make the verdict less reliable, the most important first."""
    found = []
    if min(len(a), len(b)) < FEWEST_RUNS:
        text = f"fewer than {FEWEST_RUNS} runs on a side, so one disturbed run can look like a difference"
        found.append(Caution(kind="few runs", text=text, next_command=interleaving_command(a, b)))
    if not interleaved(a, b):
        text = "the runs of A and B do not alternate, so a machine that became slower can look like a difference"
        found.append(Caution(kind="not interleaved", text=text, next_command=interleaving_command(a, b)))
    unsettled = [sum(not run.result.window.settled for run in runs) for runs in (a, b)]
    if any(unsettled):
        text = f"{unsettled[0]} of {len(a)} runs of A and {unsettled[1]} of {len(b)} of B had not settled"
        found.append(Caution(kind="not settled", text=f"{text}: the difference may include drift"))
    return found


def interleaved(a: Runs, b: Runs) -> bool:
    """Return whether A and B alternated. By start time, the side must change once per run of the smaller side."""
    began = [(run.began, side) for side, runs in enumerate((a, b)) for run in runs]
    times = sorted((time, side) for time, side in began if time is not None)
    changes = sum(one[1] != other[1] for one, other in pairwise(times))
    return len(times) == len(began) and changes >= min(len(a), len(b))


def interleaving_command(a: Runs, b: Runs) -> str | None:
    """Return the command that runs A and B alternately; None if no list flag of run.py covers their difference."""
    one, other = (runs[0].benchmark for runs in (a, b))
    fields = [benchmark_fields(side) for side in (one, other)]
    values = {name: list(dict.fromkeys(field_text(side[name]) for side in fields)) for name in LISTED}
    kept = ["backend", "model"] if one.hardware.kind == "cpu" else ["backend", "model", "hardware", "gpus"]
    if len(values["backend"]) > 1:  # each backend has its own engine and its own default precision
        del values["engine"]
        kept.append("dtype")
    values = {name: found for name, found in values.items() if len(found) > 1 or name in kept}
    if all(len(found) == 1 for found in values.values()):
        return None
    words = [f"--{name}={','.join(found)}" for name, found in values.items()]
    words += [f"--site={one.site.name}"] if one.site.name == other.site.name != "local" else []
    words += [f"--steps={one.steps}"] if one.steps == other.steps else []
    same = {name: text for name, text in one.settings.overrides.items() if other.settings.overrides.get(name) == text}
    words += [f"--set={name}={text}" for name, text in same.items()]
    return f"python launch/run.py {shlex.join(words)} --repeats={FEWEST_RUNS}"
