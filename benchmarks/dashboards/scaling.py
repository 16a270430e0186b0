"""How throughput grows with the devices, over all runs of a folder, beside the ideal line.

The step is the device count. A line is of weak scaling (the same batch for each device) or of strong scaling (the
same global batch); of one suite, site or host, and window; and of one layout, but for the axes data and fsdp, which
grow with the devices. So no line mixes them. Of a scale counts the median of its newest runs, all with the newest
one's layout, benchmark and machine. The ideal is the smallest scale's throughput of one device, times the devices.
What a sweep says of its own runs, with ranges, is in benchmarks/sweeps/scaling.py.
"""

import math
from collections.abc import Iterable, Sequence

from benchmarks.dashboards.live import plain
from benchmarks.dashboards.names import engine_word, how_words, place_words, split_words
from benchmarks.dashboards.points import Board, Category, Chart, Point
from benchmarks.dashboards.series import unix_seconds, work_of
from benchmarks.measuring.statistics import median
from benchmarks.runs.finished_run import FinishedRun

KIND = "scaling"
NEWEST = 5  # runs of a scale


def boards(entries: Sequence[FinishedRun]) -> list[Board]:
    """`entries` in the order of time, those that are points. One scale alone is no scaling."""
    groups: dict[str, dict[str, list[FinishedRun]]] = {}
    for entry in entries:
        for kind in _kinds(entry):
            groups.setdefault(f"{_name(entry)} {kind}", {}).setdefault(work_of(entry), []).append(entry)
    found = []
    for name, works in sorted(groups.items()):
        grown = {work: runs for work, runs in works.items() if len({run.gpus for run in runs}) > 1}
        by_scale: dict[int, dict[str, float]] = {}
        for work, runs in grown.items():
            for gpus, scalars in _of_work(work, runs).items():
                by_scale.setdefault(gpus, {}).update(scalars)
        if by_scale:
            newest = max(unix_seconds(runs[-1]) for runs in grown.values())
            points = [
                Point(step=gpus, unix_seconds=newest, scalars=scalars) for gpus, scalars in sorted(by_scale.items())
            ]
            found.append(Board(name=name, points=points, descriptions=_descriptions(grown)))
    return found


def _kinds(entry: FinishedRun) -> list[str]:
    """The lines that a run may be a point of."""
    strong = f"strong batch{entry.global_batch_size}"
    each, rest = divmod(entry.global_batch_size, entry.gpus)
    return [strong] if rest else [f"weak batch{each}_a_device", strong]


def _name(entry: FinishedRun) -> str:
    words = [
        entry.suite or "",
        engine_word(entry),
        entry.hardware,
        *place_words(entry),
        entry.task,
        f"seq{entry.sequence_length}",
        *split_words(entry),
        *how_words(entry),
    ]
    return f"{KIND}/{' '.join(plain(word) for word in words if word)}"


def _of_work(work: str, runs: Sequence[FinishedRun]) -> dict[int, dict[str, float]]:
    measured = {gpus: _newest_figure([run for run in runs if run.gpus == gpus]) for gpus in {r.gpus for r in runs}}
    smallest = min(measured)
    each = measured[smallest] / smallest
    return {
        gpus: {
            f"scaling/{work}/tokens_per_second": value,
            f"scaling/{work}/ideal": each * gpus,
            f"scaling/{work}/efficiency_percent": 100 * value / (each * gpus),
        }
        for gpus, value in measured.items()
    }


def _newest_figure(runs: Sequence[FinishedRun]) -> float:
    """All of them are points, so each has a speed."""
    wanted = _what_it_is(runs[-1])
    alike = [run.tokens_per_second for run in runs if run.tokens_per_second and _what_it_is(run) == wanted]
    return median(alike[-NEWEST:]) or math.nan


def _what_it_is(entry: FinishedRun) -> tuple[str | None, ...]:
    return (entry.parallelism, entry.identity.get("benchmark"), entry.identity.get("machine"))


def _descriptions(works: Iterable[str]) -> dict[str, str]:
    found = {}
    for work in works:
        found[f"scaling/{work}/tokens_per_second"] = (
            f"of all devices, by the device count: median of the newest {NEWEST} runs of a scale at most"
        )
        found[f"scaling/{work}/ideal"] = "the smallest scale's tokens/s of one device, times the devices"
        found[f"scaling/{work}/efficiency_percent"] = "measured over ideal; 100 at the smallest scale"
    return found


def categories(found: Sequence[Board]) -> list[Category]:
    works = sorted(
        {tag.removeprefix("scaling/").removesuffix("/ideal") for board in found for tag in _tags(board)
         if tag.endswith("/ideal")}
    )  # fmt: skip
    charts = []
    for work in works:
        title = work.replace("/", " ")
        charts += [
            Chart(
                title=f"{title}: tokens/s over devices (step), with the ideal line",
                tags=[f"scaling/{work}/tokens_per_second", f"scaling/{work}/ideal"],
            ),
            Chart(title=f"{title}: efficiency over devices (step), %", tags=[f"scaling/{work}/efficiency_percent"]),
        ]
    return [Category(title="Scaling", charts=charts)] if charts else []


def _tags(board: Board) -> list[str]:
    return [tag for point in board.points for tag in point.scalars]
