"""How throughput grows with the devices, over all runs of a folder, beside the ideal line.

The step is the device count. A figure is the median of the newest runs at a scale, all with the newest one's batch
and layout. The ideal is the smallest scale's throughput of one device, times the devices. What a sweep says of its
own runs, with ranges, is in benchmarks/scaling.py.
"""

from collections.abc import Sequence

from benchmarks.boards.live import plain
from benchmarks.boards.points import Board, Category, Chart, Point
from benchmarks.boards.series import unix_seconds, work_of
from benchmarks.history.entry import Entry
from benchmarks.statistics import median

KIND = "scaling"
NEWEST = 5  # runs of a scale


def boards(entries: Sequence[Entry]) -> list[Board]:
    """`entries` in the order of time, those that are points. One scale alone is no scaling."""
    groups: dict[str, dict[str, list[Entry]]] = {}
    for entry in entries:
        groups.setdefault(_name(entry), {}).setdefault(work_of(entry), []).append(entry)
    found = []
    for name, works in sorted(groups.items()):
        by_scale: dict[int, dict[str, float]] = {}
        newest = 0.0
        for work, runs in works.items():
            if len({run.gpus for run in runs}) > 1:
                newest = max(newest, unix_seconds(runs[-1]))
                for gpus, scalars in _of_work(work, runs).items():
                    by_scale.setdefault(gpus, {}).update(scalars)
        if by_scale:
            points = [
                Point(step=gpus, unix_seconds=newest, scalars=scalars) for gpus, scalars in sorted(by_scale.items())
            ]
            found.append(Board(name=name, points=points, descriptions=_descriptions(works)))
    return found


def _name(entry: Entry) -> str:
    engine = entry.backend if entry.engine in ("", entry.backend) else f"{entry.backend}-{entry.engine}"
    words = [engine, entry.hardware, entry.task, f"seq{entry.sequence_length}"]
    words += [] if entry.pgle in ("", "off") else [f"pgle-{entry.pgle}"]
    return f"{KIND}/{' '.join(plain(word) for word in words)}"


def _of_work(work: str, runs: Sequence[Entry]) -> dict[int, dict[str, float]]:
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


def _newest_figure(runs: Sequence[Entry]) -> float:
    last = runs[-1]
    alike = [
        run.tokens_per_second
        for run in runs
        if (run.global_batch_size, run.parallelism) == (last.global_batch_size, last.parallelism)
        and run.tokens_per_second is not None
    ]
    return median(alike[-NEWEST:]) or 0.0


def _descriptions(works: Sequence[str] | dict[str, list[Entry]]) -> dict[str, str]:
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
