"""What a chart or a table says of one run: its figures, what was asked, and the words that name its line. Pure."""

import datetime
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from benchmarks.dashboard.events import plain
from benchmarks.request.window_rule import STEADY
from benchmarks.runs.finished_run import FinishedRun

LOCAL = "local"  # the site that every checkout has: there the host says where
UNKNOWN = "-"


class Figure(NamedTuple):
    name: str
    title: str  # of its column
    of: Callable[[FinishedRun], float | None]


FIGURES = (
    Figure("seconds_per_step", "s/step", lambda run: run.seconds_per_step),
    Figure("tokens_per_second_per_gpu", "tokens/s/GPU", lambda run: run.tokens_per_second_per_gpu),
    Figure("mfu_percent", "MFU %", lambda run: run.mfu_percent),
    Figure("excess_percent", "excess %", lambda run: None if run.excess is None else 100 * run.excess),
    Figure("memory_gb", "memory GB", lambda run: None if run.memory_bytes is None else run.memory_bytes / 1e9),
)
# TensorBoard shows the first five columns of HParams before any click.
FIRST_FIGURES = FIGURES[:3]
FIRST_COLUMNS = ("model", "on", *(figure.title for figure in FIRST_FIGURES))


def row_of(run: FinishedRun) -> dict[str, str | float]:
    """The columns of a run; a figure that is not known has no cell. Counts are text: TensorBoard shows 4 as 4.000."""
    figures = {figure.title: figure.of(run) for figure in FIGURES}
    return {
        "model": run.model,
        "on": f"{run.gpus}x{run.hardware} {run.dtype} {run.backend}",
        **{title: value for title, value in figures.items() if value is not None},
        "dtype": run.dtype,
        "backend": run.backend,
        "engine": run.engine,
        "hardware": run.hardware,
        "gpus": str(run.gpus),
        "nodes": str(run.nodes),
        "site": run.site,
        "task": run.task,
        "global_batch": str(run.global_batch_size),
        "sequence_length": str(run.sequence_length),
        "counted_steps": str(run.counted),
        "parallelism": run.parallelism or UNKNOWN,
        "pgle": run.pgle,
        "commit": (run.commit or UNKNOWN)[:12],
        "suite": run.suite or UNKNOWN,
        "night": run.night or UNKNOWN,
        "status": status(run),
        "mfu_of": UNKNOWN if run.mfu_percent is None else f"{run.mfu_convention}, {run.mfu_precision} {tflops(run)}",
    }


def status(run: FinishedRun) -> str:
    """With what makes a valid run comparable with none."""
    words: list[str] = [run.status]
    words += ["slowed on purpose"] if run.slowed_by else []
    words += ["profiled"] if run.profile not in ("", "none") else []
    return ", ".join(words)


def tflops(run: FinishedRun) -> str:
    """With more digits than people read: a measured peak differs from one measurement to the next."""
    return f"{run.mfu_peak_tflops:.6g} TFLOP/s" if run.mfu_peak_tflops is not None else "unknown"


def why_not_drawn(run: FinishedRun) -> str | None:
    """Why a run is no point of a chart over many runs; None: it is one."""
    if run.status != "valid":
        return run.status
    if run.slowed_by:
        return "slowed on purpose"
    if run.not_comparable:
        return "profiled"
    if run.gpus < 1:
        return "without devices"
    speeds = (run.seconds_per_step, run.tokens_per_second, run.tokens_per_second_per_gpu)
    if not all(speed is not None and 0 < speed < math.inf for speed in speeds):
        return "without a speed"
    return None


def unix_seconds(run: FinishedRun) -> float:
    """Of a run without a time in its name, 0: it comes first."""
    return parsed_time(run.started) or 0.0


def parsed_time(text: str) -> float | None:
    """A time in UTC, whole or a date alone, as Unix time."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()


# --- names ----------------------------------------------------------------------------------------


def newest(entries: Sequence[FinishedRun]) -> list[FinishedRun]:
    """The last run, and those of the last night of each suite. `entries`: the oldest first."""
    nights = {run.suite: run.night for run in entries if run.suite and run.night}
    return [run for run in entries if run is entries[-1] or (run.night and run.night == nights.get(run.suite or ""))]


def run_names(entries: Sequence[FinishedRun]) -> list[str]:
    """When, what, and the end of its id, as a folder: "2026-11-24 00.27 llama2_tiny fp32 jax 1xcpu b722"."""
    short = [_run_name(run) for run in entries]
    many = {name for name, count in Counter(short).items() if count > 1}
    return [plain(run.run_id) if name in many else name for name, run in zip(short, entries, strict=True)]


def _run_name(run: FinishedRun) -> str:
    again = ["rerun"] if run.role == "rerun" else []
    words = [run.model, run.dtype, run.backend, f"{run.gpus}x{run.hardware}", _end(run), *again]
    return " ".join([f"{run.started[:10]} {run.started[11:16].replace(':', '.')}", *map(plain, words)]).strip()


def trial_names(entries: Sequence[FinishedRun], newest: Collection[str]) -> list[str]:
    """In the first column of HParams, which has room for so much, in whose order its rows are: the newest first."""
    short = [
        f"{'(newest)' if run.run_id in newest else run.started[5:10]} {_end(run)}"
        + ("" if run.status == "valid" else f" {run.status}")
        for run in entries
    ]
    many = {name for name, count in Counter(short).items() if count > 1}
    return [run.run_id if name in many else name for name, run in zip(short, entries, strict=True)]


def _end(run: FinishedRun) -> str:
    """What commands take for the run's id, where no other run's ends so."""
    return run.run_id.rpartition("-")[2]


def line_names(kind: str, entries: Sequence[FinishedRun]) -> list[str]:
    """By what people call it: what is trained, by whom, on what; where, and how, only as far as the lines differ.

    What is trained comes first: so the lines of a chart stand together, and TensorBoard gives them other colours.
    """
    rows = [_line_words(run) for run in entries]
    shared = {key for key in _DETAILS if len({row[key] for row in rows}) == 1}
    return [
        f"{kind}/{' '.join(plain(word) for key, word in row.items() if word and key not in shared)}" for row in rows
    ]


_DETAILS = ("place", "task", "sequence", "batch", "parallelism")


def _line_words(run: FinishedRun) -> dict[str, str]:
    return {
        "model": run.model,
        "dtype": run.dtype,
        "suite": run.suite or "",
        "backend": run.backend if run.engine in ("", run.backend) else f"{run.backend}-{run.engine}",
        "devices": f"{run.gpus}x{run.hardware}",
        "place": _place(run),
        "task": run.task,
        "sequence": f"seq{run.sequence_length}",
        "batch": f"batch{run.global_batch_size}",
        "parallelism": run.parallelism,
        "pgle": "" if run.pgle in ("", "off") else f"pgle-{run.pgle}",
        "window": "" if run.window in ("", STEADY) else f"window-{run.window}",
    }


def _place(run: FinishedRun) -> str:
    """The site; of runs on the launcher's own machine, which host that was."""
    if run.site == LOCAL:
        return f"host-{run.host}" if run.host else ""
    return f"site-{run.site}"
