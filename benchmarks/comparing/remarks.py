"""What a reader of a comparison must know beside its figures. Pure; the most important first."""

from collections.abc import Sequence

from benchmarks.comparing.admission import ALSO_ASKED, shown
from benchmarks.comparing.intervals import FEWEST_RUNS
from benchmarks.comparing.runs import ComparedRun

Runs = Sequence[ComparedRun]


def remarks(a: Runs, b: Runs) -> list[str]:
    return [*_slowed(b), *_copies(a, b), *_lengths(a, b), *_unsettled(a, b), *_few(a, b),
            *_times(a, b), *_varying(a, b), *(note for run in (*a, *b) for note in run.notes)]  # fmt: skip


def _slowed(b: Runs) -> list[str]:
    """Of A none is left."""
    slowed = b[0].result.slowed_by
    return [f"B WAS SLOWED ON PURPOSE by {slowed:.0%} (--inject_slowdown={slowed:g})"] if slowed else []


def _copies(a: Runs, b: Runs) -> list[str]:
    shared = {run.result.run_id for run in a} & {run.result.run_id for run in b}
    return [f"on both sides, in two folders: {', '.join(sorted(shared))}"] if shared else []


def _lengths(a: Runs, b: Runs) -> list[str]:
    spans = [_span(runs) for runs in (a, b)]
    return [f"the counted steps differ: A {spans[0]}, B {spans[1]}"] if spans[0] != spans[1] else []


def _span(runs: Runs) -> str:
    windows = [run.result.window for run in runs]
    first = [window.first_step for window in windows if window.first_step is not None]
    last = [window.last_step for window in windows if window.last_step is not None]
    return f"{_range(first)} to {_range(last)}"


def _range(numbers: Sequence[int]) -> str:
    if not numbers:
        return "unknown"
    return str(numbers[0]) if min(numbers) == max(numbers) else f"{min(numbers)}...{max(numbers)}"


def _unsettled(a: Runs, b: Runs) -> list[str]:
    counts = [sum(not run.result.window.settled for run in runs) for runs in (a, b)]
    if not any(counts):
        return []
    return [
        f"not settled: {counts[0]} of {len(a)} runs of A, {counts[1]} of {len(b)} of B: where step times still "
        "drift, the difference holds some of that"
    ]


def _few(a: Runs, b: Runs) -> list[str]:
    if min(len(a), len(b)) >= FEWEST_RUNS:
        return []
    return ["fewer than 3 runs on a side: a run that was disturbed looks like a change; more runs tell them apart"]


def _times(a: Runs, b: Runs) -> list[str]:
    """Runs in turns share what changes with the time; one side after the other does not."""
    if len(a) < FEWEST_RUNS or len(b) < FEWEST_RUNS:
        return []
    first, second = sorted((a, b), key=lambda runs: min(run.started for run in runs))
    if max(run.started for run in first) >= min(run.started for run in second):
        return []
    names = ("A", "B") if first is a else ("B", "A")
    return [
        f"all runs of {names[0]} began before those of {names[1]}: what changed with the time is in the difference"
    ]


def _varying(a: Runs, b: Runs) -> list[str]:
    """Settings that do not make it other work, and still are not the same in all runs of a side."""
    found = []
    for name, runs in (("A", a), ("B", b)):
        fields = [field for field in ALSO_ASKED if _varies(runs, field)]
        if fields:
            found.append(f"not the same in all runs of {name}: {', '.join(f.replace('_', ' ') for f in fields)}")
    return found


def _varies(runs: Runs, field: str) -> bool:
    return len({shown(getattr(run.benchmark, field)) for run in runs}) > 1
