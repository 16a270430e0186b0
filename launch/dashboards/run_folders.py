"""The newest runs, one by one: a row of the table each, their own live scalars and their profiles, by links.

The profile plugin looks for RUN/plugins/profile/SESSION/HOST.xplane.pb. It writes its caches beside the links, so a
run's own folder stays as it was sealed.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.dashboards.live import plain
from benchmarks.dashboards.points import Board, Category, Chart, Point, Row
from benchmarks.dashboards.runs import FIGURES, asked, reached, unix_seconds
from benchmarks.errors import StepmarkError
from benchmarks.runs.finished_run import FinishedRun
from launch.dashboards.folders import Folder
from launch.running.tensorboard_events import EVENT_FILES

KIND = "runs"
EVENTS = "tensorboard"


def run_folders(output_dir: Path, entries: Sequence[FinishedRun]) -> tuple[list[Folder], list[str]]:
    """A folder a run, and what is odd about any."""
    found, notes = [], []
    for entry in entries:
        started = unix_seconds(entry)
        row = Row(name=entry.run_id, unix_seconds=started, cells=asked(entry))
        links, trouble = _links(output_dir / entry.path, entry.profile)
        notes += [f"{entry.run_id}: {trouble}"] if trouble else []
        board = Board(
            name=f"{KIND}/{plain(entry.run_id)}",
            points=[Point(step=0, unix_seconds=started, scalars=reached(entry))],
            descriptions={f"result/{one.name}": one.description for one in FIGURES},
        )
        found.append(Folder(board=board, told=[row], links=links))
    return found, notes


def categories() -> list[Category]:
    """Of the runs' own steps, while they train and after."""
    charts = [
        Chart(title="seconds of each step", tags=["perf/step_seconds"]),
        Chart(title="tokens/s of one device", tags=["perf/tokens_per_second_per_gpu"]),
        Chart(title="loss", tags=["train/loss"]),
        Chart(title="power of one GPU, W", tags=["telemetry/gpu_power_watts"]),
        Chart(title="memory of one GPU, GB", tags=["telemetry/gpu_memory_gb_highest"]),
        Chart(title="processors busy, %", tags=["telemetry/cpu_utilisation_percent"]),
    ]
    return [Category(title="Each run, step by step", charts=charts)]


# --- links ----------------------------------------------------------------------------------------


def _links(run: Path, profile: str) -> tuple[dict[str, str], str]:
    links = _event_links(run)
    if profile != "xplane":
        return links, ""
    try:
        return links | _profile_links(run), ""
    except (StepmarkError, OSError) as error:
        return links, f"its profile cannot be shown: {error}"


def _event_links(run: Path) -> dict[str, str]:
    return {path.name: str(path) for path in (run / EVENTS).glob(EVENT_FILES)}


def _profile_links(run: Path) -> dict[str, str]:
    """The last profile of the measured phase; ranks of one host are told apart in the name."""
    from launch.reports.trace_files import find_traces

    found = find_traces(run)
    links = {}
    for path, rank in found.ranks.items():
        host = path.name if not rank else f"rank-{rank}.{path.name}"
        links[f"plugins/profile/{plain(path.parent.name)}/{host}"] = str(path)
    return links
