"""Which runs may stand on a side, and which two sides beside each other; else why not. Pure.

What only makes some figures mean other things is refused figure by figure, in figures.py.
"""

from collections.abc import Sequence

from benchmarks.comparing.figures import other_dimensions
from benchmarks.comparing.runs import Chosen, ComparedRun
from benchmarks.comparing.values import Side
from benchmarks.values import Model

# What all runs of a side share; else its figures would be those of a mixture.
OF_THE_WORK = (
    "backend", "engine", "model", "task", "dtype", "hardware", "gpus", "nodes", "parallelism", "sequence_length",
    "micro_batch_size", "gradient_accumulation", "global_batch_size", "lora", "window", "pgle", "inject_slowdown",
)  # fmt: skip
# What else was asked for. Named at the top where the sides differ in it.
ALSO_ASKED = ("steps", "data", "knobs", "environment", "xla_flags")
WORDS = {"knobs": "setting", "environment": "variable", "xla_flags": "XLA flag"}  # of one entry
MOST_NAMED = 4


def admitted(chosen: Chosen, *, baseline: bool) -> tuple[Side, list[ComparedRun]]:
    """The runs of a side that count, and the reason of each other one."""
    left_out = dict(chosen.left_out)
    kept: dict[str, ComparedRun] = {}
    for run in chosen.runs:
        why = why_not(run, baseline=baseline)
        if why is None and run.result.run_id in kept:
            why = f"the same run as {kept[run.result.run_id].name}, copied"
        if why is None:
            kept[run.result.run_id] = run
        else:
            left_out[run.name] = why
    runs = list(kept.values())
    return Side(label=chosen.label, run_ids=[run.name for run in runs], left_out=left_out), runs


def why_not(run: ComparedRun, *, baseline: bool) -> str | None:
    """Why a run does not count on a side; None: it does."""
    result, benchmark = run.result, run.benchmark
    if result.not_comparable:
        return "; ".join(result.not_comparable)
    if benchmark.dtype in benchmark.hardware.emulated:
        return f"{benchmark.dtype} is emulated on {benchmark.hardware.title}: its speed says nothing"
    if result.status != "valid":
        return f"{result.status}: {'; '.join(result.reasons) or 'no reason is given'}"
    if baseline and result.slowed_by:
        return f"slowed on purpose by {result.slowed_by:.0%}: it can be no baseline"
    if result.seconds_per_step.median is None:
        return f"it has no speed: {result.null_because.get('seconds_per_step', 'unknown')}"
    return None


def refusals(sides: Sequence[Side], runs: Sequence[Sequence[ComparedRun]]) -> list[str]:
    """Why the two sides may not be compared at all; empty: they may."""
    found = []
    for name, side, kept in zip("AB", sides, runs, strict=True):
        if not kept:
            found.append(f"{name} has no run that counts: {_all_reasons(side)}")
        found += [f"{name} is a mixture: {text}" for text in mixed(kept)]
    if found:
        return found
    a, b = runs
    return _other_window(a[0], b[0]) + _unproven_pgle(a, b)


def _all_reasons(side: Side) -> str:
    if not side.left_out:
        return "none was found"
    by_reason: dict[str, list[str]] = {}
    for name, why in side.left_out.items():
        by_reason.setdefault(why, []).append(name)
    return "; ".join(f"{_named(names)}: {why}" for why, names in by_reason.items())


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def mixed(runs: Sequence[ComparedRun]) -> list[str]:
    """In what of the work the runs of one side differ."""
    found = []
    for field in OF_THE_WORK:
        values = [shown(getattr(run.benchmark, field)) for run in runs]
        if field == "model":
            values = [_model_text(run.benchmark.model, runs[0].benchmark.model) for run in runs]
        if len(set(values)) > 1:
            counts = {value: values.count(value) for value in dict.fromkeys(values)}
            texts = [f"{value} ({count} run{'s' * (count > 1)})" for value, count in counts.items()]
            found.append(f"{field.replace('_', ' ')} {', '.join(texts)}")
    return found


def _model_text(model: Model, first: Model) -> str:
    other = other_dimensions(first, model) if model.name == first.name else None
    return f"{model.name} ({other})" if other else model.name


def _other_window(a: ComparedRun, b: ComparedRun) -> list[str]:
    one, other = a.result.window.rule, b.result.window.rule
    if one == other:
        return []
    return [f"another window: --window={one} and --window={other} count other steps"]


def _unproven_pgle(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    if a[0].benchmark.pgle == b[0].benchmark.pgle:
        return []
    for run in (*a, *b):
        if run.benchmark.pgle != "off" and not (run.result.pgle and run.result.pgle.seen.applied):
            seen = run.result.pgle.seen.reason if run.result.pgle else "the result does not say that it was"
            return [f"--pgle={run.benchmark.pgle} of {run.name} was not applied, so it can gain nothing: {seen}"]
    return []


# --- what was asked -----------------------------------------------------------------------------


def asked(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    """In what the two requests differ; settings by their names."""
    found = []
    other_backend = (a[0].benchmark.backend, a[0].benchmark.engine) != (b[0].benchmark.backend, b[0].benchmark.engine)
    for field in (*OF_THE_WORK, *ALSO_ASKED):
        one, other = getattr(a[0].benchmark, field), getattr(b[0].benchmark, field)
        if field == "knobs" and other_backend:
            found.append("settings: each framework has its own")
        elif isinstance(one, dict) and isinstance(other, dict):
            names = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
            word = WORDS[field]
            found += [f"{word} {name}: {_setting(one, name)} -> {_setting(other, name)}" for name in names]
        elif shown(one) != shown(other):
            found.append(f"{field.replace('_', ' ')}: {shown(one)} -> {shown(other)}")
    return found


def _setting(settings: dict[str, object], name: str) -> str:
    return str(settings[name]) if name in settings else "not set"


def shown(value: object) -> str:
    """A field of the request as a person reads it."""
    if value is None:
        return "none"
    short = getattr(value, "short", None)
    if callable(short):
        return str(short())
    return str(getattr(value, "name", value))
