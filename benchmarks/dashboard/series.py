"""Many runs -> a board for each series: the runs that trained the same in the same way on the same machine.

A point is a run. The points of a series are numbered in the order of time, and each has its own time of day, so both
axes of a chart say something.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.dashboard.events import plain
from benchmarks.dashboard.points import Board, Point
from benchmarks.dashboard.runs import FIGURES, line_names, tflops, unix_seconds, why_not_drawn
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.identity import SHOWN_DIGITS

KIND = "series"
# Groups of tags. The tab Time Series has them in this order, so what people look for first comes first (the nights'
# are 2 and 7: nights.tag_of).
MFU = "4 MFU percent"
GROUPS = {
    "seconds_per_step": "1 seconds per step",
    "tokens_per_second_per_gpu": "3 tokens per second of one device",
    "memory_gb": "5 memory GB",
    "excess_percent": "6 excess percent",
}


def drawn(entries: Iterable[FinishedRun]) -> tuple[list[FinishedRun], dict[str, int]]:
    """The runs that are points, in the order of time; and how many are not, by the reason."""
    reasons = [(entry, why_not_drawn(entry)) for entry in entries]
    kept = [entry for entry, why in reasons if why is None]
    left_out = Counter(why for _, why in reasons if why is not None)
    return sorted(kept, key=lambda entry: (entry.started, entry.run_id)), dict(left_out)


def lines_of(entries: Sequence[FinishedRun]) -> list[str]:
    """The line of each run; where one would mix benchmarks or machines, its digests tell them apart."""
    names = line_names(KIND, entries)
    digests: dict[tuple[str, str], set[str]] = {}
    for name, run in zip(names, entries, strict=True):
        for kind in ("benchmark", "machine"):
            digests.setdefault((name, kind), set()).add(run.origin.identity.get(kind, "unknown"))
    return [
        " ".join([name, *(
            plain(f"{kind}-{run.origin.identity.get(kind, 'unknown')[:SHOWN_DIGITS]}")
            for kind in ("benchmark", "machine")
            if len(digests[name, kind]) > 1
        )])
        for name, run in zip(names, entries, strict=True)
    ]  # fmt: skip


def boards(entries: Sequence[FinishedRun]) -> list[Board]:
    """Return a board for each series of the runs, which are as `drawn` gives them."""
    points: dict[str, list[Point]] = {}
    for entry, name in zip(entries, lines_of(entries), strict=True):
        ours = points.setdefault(name, [])
        ours.append(Point(step=len(ours), unix_seconds=unix_seconds(entry), scalars=_scalars(entry)))
    return [Board(name=name, points=found) for name, found in sorted(points.items())]


def _scalars(entry: FinishedRun) -> dict[str, float]:
    work = f"{plain(entry.benchmark.model)} {plain(entry.benchmark.dtype)}"  # the runs of one chart
    found = {f"{GROUPS[figure.name]}/{work}": figure.of(entry) for figure in FIGURES if figure.name in GROUPS}
    # Convention and peak: a line has one of each, since percentages of another peak are other percentages.
    peak = plain(f"{entry.mfu.convention} {entry.mfu.precision} {tflops(entry)}")
    found[f"{MFU}/{work} {peak}"] = entry.mfu.percent
    return {tag: value for tag, value in found.items() if value is not None}
