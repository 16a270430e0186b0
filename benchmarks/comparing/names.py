"""What the sides of a comparison are called: what differs between them, in few words. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.comparing.admission import ALSO_ASKED, OF_THE_WORK, shown
from benchmarks.comparing.runs import ComparedRun, Runs
from benchmarks.rendering.columns import plural
from benchmarks.values import Benchmark

FRAMEWORKS = {"maxtext": "MaxText", "nemo": "NeMo", "bridge": "Megatron Bridge"}  # others by their engine's own name
MOST_SETTINGS = 2  # more of them are no name; they are listed where the requests differ


class Names(NamedTuple):
    a: str
    b: str
    prefix: str = ""  # of the first that a sentence names: "MaxText "
    work: str = ""  # what both sides train, and on what: " for llama2_70b on 64 H100"


def _framework(benchmark: Benchmark) -> str:
    return FRAMEWORKS.get(benchmark.engine, benchmark.engine)


def _slowed(benchmark: Benchmark) -> str:
    return f"slowed by {benchmark.inject_slowdown:.0%}" if benchmark.inject_slowdown else "not slowed"


def _devices(benchmark: Benchmark) -> str:
    if benchmark.hardware.kind == "cpu":
        return f"on {plural(benchmark.gpus, 'CPU device')}"
    return f"on {benchmark.gpus} {benchmark.hardware.name.upper().replace('_', ' ')}"


# What names a side before anything else, in the order in which it is said.
WORDS: dict[str, Callable[[Benchmark], str]] = {
    "framework": _framework,
    "model": lambda benchmark: benchmark.model.name,
    "task": lambda benchmark: benchmark.task,
    "dtype": lambda benchmark: benchmark.dtype,
    "PGLE": lambda benchmark: f"pgle={benchmark.pgle}",
    "slowdown": _slowed,
    "devices": _devices,
}


def names_of(a: Runs, b: Runs, typed: tuple[str, str]) -> Names:
    """`typed`: what was asked for on each side."""
    one, other = a[0].benchmark, b[0].benchmark
    words = {name: (word(one), word(other)) for name, word in WORDS.items()}
    common = {name: first for name, (first, second) in words.items() if first == second}
    differ = [pair for name, pair in words.items() if name not in common]
    by_tag = _tags_typed(typed)
    if differ and not by_tag:
        first, second = (" ".join(column) for column in zip(*differ, strict=True))
        prefix = f"{common['framework']} " if "framework" in common else ""
        return Names(first, second, prefix, _work(common, ("model",)))
    found = by_tag or _settings(a, b) or _tags(a, b) or _nights(a, b, typed) or _conditions(typed) or _ids(a, b)
    return Names(*found, work=_work(common, ("framework", "model")))


def _work(common: dict[str, str], names: Sequence[str]) -> str:
    trained = " ".join(common[name] for name in names if name in common)
    devices = f" {common['devices']}" if "devices" in common else ""
    return f"{f' for {trained}' if trained else ''}{devices}"


# --- where no such word differs -------------------------------------------------------------------


def _tags_typed(typed: tuple[str, str]) -> tuple[str, str] | None:
    first, second = (text.partition("tag=") for text in _own_conditions(typed))
    plain = all(not before and tag and "=" not in tag and "," not in tag for before, _, tag in (first, second))
    return (first[2], second[2]) if plain else None


def _settings(a: Runs, b: Runs) -> tuple[str, str] | None:
    """One or two settings that all runs of a side share."""
    first, second = ([_settings_of(run.benchmark) for run in side] for side in (a, b))
    names = [name for name in {**first[0], **second[0]} if first[0].get(name) != second[0].get(name)]
    same = all(side[0].get(name) == one.get(name) for side in (first, second) for one in side for name in names)
    if not names or len(names) > MOST_SETTINGS or not same:
        return None
    of_a, of_b = (
        ", ".join(f"{name}={side[0][name]}" for name in names if name in side[0]) or "default"
        for side in (first, second)
    )
    return of_a, of_b


def _settings_of(benchmark: Benchmark) -> dict[str, str]:
    found: dict[str, str] = {}
    for field in (*OF_THE_WORK, *ALSO_ASKED):
        value = getattr(benchmark, field)
        found |= {name: str(one) for name, one in value.items()} if isinstance(value, dict) else {field: shown(value)}
    return found


def _tags(a: Runs, b: Runs) -> tuple[str, str] | None:
    """A tag that all runs of a side have, and none of the other."""
    one, other = _own_tags(a, b), _own_tags(b, a)
    return (one[0], other[0]) if one and other else None


def _own_tags(side: Runs, other: Runs) -> list[str]:
    all_have = set.intersection(*(_tags_of(run) for run in side))
    return sorted(all_have - set().union(*(_tags_of(run) for run in other)))


def _tags_of(run: ComparedRun) -> set[str]:
    labels = run.provenance.get("labels")
    return set(labels.get("tags") or []) if isinstance(labels, dict) else set()


def _nights(a: Runs, b: Runs, typed: tuple[str, str]) -> tuple[str, str] | None:
    """Where the sides were chosen by their nights alone."""
    if not all(word.startswith("night") for text in _own_conditions(typed) for word in text.split(",")):
        return None
    of_a, of_b = (sorted({_night_of(run) for run in side}) for side in (a, b))
    return (_nights_text(of_a), _nights_text(of_b)) if of_a[0] and of_b[0] and of_a != of_b else None


def _night_of(run: ComparedRun) -> str:
    """Empty, if none has started it."""
    labels = run.provenance.get("labels")
    nightly = labels.get("nightly") if isinstance(labels, dict) else None
    return str(nightly.get("night", "")) if isinstance(nightly, dict) else ""


def _nights_text(nights: Sequence[str]) -> str:
    return f"night {nights[0]}" if len(nights) == 1 else f"{len(nights)} nights from {nights[0]} to {nights[-1]}"


def _conditions(typed: tuple[str, str]) -> tuple[str, str] | None:
    of_a, of_b = _own_conditions(typed)
    return (of_a, of_b) if all(set(text) & set("=<>") for text in (of_a, of_b)) else None


def _own_conditions(typed: tuple[str, str]) -> tuple[str, str]:
    """What was typed on one side alone."""
    first, second = (text.split(",") for text in typed)
    of_a, of_b = (
        ",".join(word for word in own if word not in others) for own, others in ((first, second), (second, first))
    )
    return of_a, of_b


def _ids(a: Runs, b: Runs) -> tuple[str, str]:
    first, second = (side[0].short + (f" and {len(side) - 1} more" if len(side) > 1 else "") for side in (a, b))
    return first, second
