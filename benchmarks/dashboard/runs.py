"""Select the data of one run for charts and tables: its metrics, its benchmark, and the name of its line. No I/O."""

import datetime
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.dashboard.events import plain
from benchmarks.request.window_rule import STEADY
from benchmarks.runs.finished_run import FinishedRun

LOCAL = "local"  # every checkout has a site with this name, so only the host's name identifies the machine
UNKNOWN = "-"


class Figure(NamedTuple):
    name: str
    title: str  # the title of the column
    of: Callable[[FinishedRun], float | None]


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


FIGURES = (
    Figure("seconds_per_step", "s/step", lambda run: run.metrics.seconds_per_step),
    Figure("tokens_per_second_per_gpu", "tokens/s/GPU", lambda run: run.metrics.tokens_per_second_per_gpu),
    Figure("mfu_percent", "MFU %", lambda run: run.mfu.percent),
    Figure("excess_percent", "excess %", lambda run: _scaled(run.metrics.excess, 100)),
    Figure("memory_gb", "memory GB", lambda run: _scaled(run.metrics.memory_bytes, 1e-9)),
)
# TensorBoard shows the first five columns of HParams without a click.
FIRST_COLUMNS = ("model", "on", *(figure.title for figure in FIGURES[:3]))


def row_of(run: FinishedRun) -> dict[str, str | float]:
    """Return the columns of a run, without unknown metrics. Counts are text, because TensorBoard shows 4 as 4.000."""
    figures = {figure.title: figure.of(run) for figure in FIGURES}
    benchmark, labels = run.benchmark, run.labels
    return {
        "model": benchmark.model,
        "on": f"{benchmark.gpus}x{benchmark.hardware} {benchmark.dtype} {benchmark.backend}",
        **{title: value for title, value in figures.items() if value is not None},
        "dtype": benchmark.dtype,
        "backend": benchmark.backend,
        "engine": benchmark.engine,
        "hardware": benchmark.hardware,
        "gpus": str(benchmark.gpus),
        "nodes": str(benchmark.nodes),
        "site": benchmark.site,
        "task": benchmark.task,
        "global_batch": str(benchmark.global_batch_size),
        "sequence_length": str(benchmark.sequence_length),
        "counted_steps": str(run.window.counted),
        "parallelism": benchmark.parallelism or UNKNOWN,
        "pgle": benchmark.pgle,
        "commit": (run.origin.commit or UNKNOWN)[:12],
        "suite": labels.suite or UNKNOWN,
        "night": labels.night or UNKNOWN,
        "status": status(run),
        "mfu_of": UNKNOWN if run.mfu.percent is None else f"{run.mfu.convention}, {run.mfu.precision} {tflops(run)}",
    }


def status(run: FinishedRun) -> str:
    """Return the status as text, with a remark if the run was slowed down or profiled."""
    words: list[str] = [run.status]
    words += ["slowed on purpose"] if run.slowed_by else []
    words += ["profiled"] if run.benchmark.profile not in ("", "none") else []
    return ", ".join(words)


def tflops(run: FinishedRun) -> str:
    """Return the peak with six digits, so that two measurements of a peak differ."""
    return f"{run.mfu.peak_tflops:.6g} TFLOP/s" if run.mfu.peak_tflops is not None else "unknown"


def why_not_drawn(run: FinishedRun) -> str | None:
    """Return why charts about many runs omit this run, or None."""
    if run.status != "valid":
        return run.status
    if run.slowed_by:
        return "slowed on purpose"
    if run.not_comparable:
        return "profiled"
    speeds = (run.metrics.seconds_per_step, run.metrics.tokens_per_second, run.metrics.tokens_per_second_per_gpu)
    if not all(speed is not None and 0 < speed < math.inf for speed in speeds):
        return "without a speed"
    return None


def unix_seconds(run: FinishedRun) -> float:
    """Return the start of a run as Unix time, or 0 if the run's name does not contain a time."""
    return parsed_time(run.started) or 0.0


def parsed_time(text: str) -> float | None:
    """Return the Unix time of a UTC time or date, or None."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()


# --- names ----------------------------------------------------------------------------------------


def newest(entries: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Return the last run, and all runs of each suite's last night. `entries` are sorted, the oldest first."""
    nights = {run.labels.suite: run.labels.night for run in entries if run.labels.suite and run.labels.night}
    last = [run.labels.night and run.labels.night == nights.get(run.labels.suite or "") for run in entries]
    return [run for run, of_last in zip(entries, last, strict=True) if run is entries[-1] or of_last]


def run_name(run: FinishedRun) -> str:
    """Return the name of a run's folder: time, benchmark and id ("2026-11-24 00.27 tiny fp32 jax 1xcpu b722")."""
    benchmark = run.benchmark
    again = ["rerun"] if run.labels.role == "rerun" else []
    devices = f"{benchmark.gpus}x{benchmark.hardware}"
    words = [benchmark.model, benchmark.dtype, benchmark.backend, devices, _end(run), *again]
    return " ".join([f"{run.started[:10]} {run.started[11:16].replace(':', '.')}", *map(plain, words)]).strip()


def trial_name(run: FinishedRun, *, newest: bool) -> str:
    """Return a name for the narrow first column of HParams. Sorting by these names puts the newest run first."""
    when = "(newest)" if newest else run.started[5:10]
    return " ".join([when, _end(run), *([] if run.status == "valid" else [run.status])])


def _end(run: FinishedRun) -> str:
    """Return the end of a run's id. Commands accept it as a name if it is unique."""
    return run.run_id.rpartition("-")[2]


def line_names(kind: str, entries: Sequence[FinishedRun]) -> list[str]:
    """Return the names of lines: model, framework and hardware, and details such as site and layout if they differ.

    Each name begins with the model, so the lines of one chart are adjacent, and TensorBoard colours them differently.
    """
    rows = [_line_words(run) for run in entries]
    shared = {key for key in _DETAILS if len({row[key] for row in rows}) == 1}
    return [
        f"{kind}/{' '.join(plain(word) for key, word in row.items() if word and key not in shared)}" for row in rows
    ]


_DETAILS = ("place", "task", "sequence", "batch", "parallelism", "settings")
LONGEST_SETTINGS = 60  # in characters, because the name of a folder has at most 255 bytes


def _line_words(run: FinishedRun) -> dict[str, str]:
    benchmark = run.benchmark
    is_usual = benchmark.engine in ("", benchmark.backend)
    return {
        "model": benchmark.model,
        "dtype": benchmark.dtype,
        "suite": run.labels.suite or "",
        "backend": benchmark.backend if is_usual else f"{benchmark.backend}-{benchmark.engine}",
        "devices": f"{benchmark.gpus}x{benchmark.hardware}",
        "place": _place(run),
        "task": benchmark.task,
        "sequence": f"seq{benchmark.sequence_length}",
        "batch": f"batch{benchmark.global_batch_size}",
        "parallelism": benchmark.parallelism,
        "settings": benchmark.settings[:LONGEST_SETTINGS],
        "pgle": "" if benchmark.pgle in ("", "off") else f"pgle-{benchmark.pgle}",
        "window": "" if benchmark.window in ("", STEADY) else f"window-{benchmark.window}",
    }


def _place(run: FinishedRun) -> str:
    """Return the site of a run, or the host for a run on the launcher's own machine."""
    if run.benchmark.site == LOCAL:
        return f"host-{run.origin.host}" if run.origin.host else ""
    return f"site-{run.benchmark.site}"
