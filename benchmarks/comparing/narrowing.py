"""What to type instead of a side whose runs are of several kinds. Pure."""

from collections import Counter

from benchmarks.comparing.admission import OF_THE_WORK, mixed, shown
from benchmarks.comparing.runs import ComparedRun, Runs

# Field of the work -> key of a condition, where one can tell its values apart.
CONDITIONS = {
    **{name: name for name in ("backend", "engine", "model", "task", "dtype", "gpus", "nodes", "hardware")},
    **{name: name for name in ("sequence_length", "window", "pgle")},
    "global_batch_size": "batch",
    "inject_slowdown": "slowed",
}


def narrowed(typed: tuple[str, str], sides: tuple[Runs, Runs]) -> list[str]:
    """What to type for A and B, to compare the largest part of each that is of one kind; empty where nothing helps.

    A kind that both sides have comes first.
    """
    if not all(sides) or not any(map(mixed, sides)):
        return []
    kept: list[Runs] = [*sides]
    conditions: tuple[list[str], list[str]] = ([], [])
    by_name = [not _is_condition(text) for text in typed]
    for field in OF_THE_WORK:
        for place, side in enumerate(kept):
            own, other = (Counter(_value(run, field) for run in runs) for runs in (side, kept[1 - place]))
            if len(own) == 1:
                continue
            value = _most_common(own, other)
            kept[place] = [run for run in side if _value(run, field) == value]
            if field in CONDITIONS:
                conditions[place].append(f"{CONDITIONS[field]}={value}")
            else:
                by_name[place] = True
    if any(map(mixed, kept)):
        return []
    return [
        ",".join(run.short for run in runs) if names else ",".join([text, *more])
        for text, more, names, runs in zip(typed, conditions, by_name, kept, strict=True)
    ]


def _most_common(own: Counter[str], other: Counter[str]) -> str:
    return max(own, key=lambda value: (value in other, own[value]))


def _value(run: ComparedRun, field: str) -> str:
    value = getattr(run.benchmark, field)
    return f"{value:g}" if isinstance(value, float) else shown(value)


def _is_condition(text: str) -> bool:
    return any(sign in text for sign in "=<>")
