"""What a chart or a table says of one run: its figures, what was asked, and the words that name its line. Pure."""

import datetime
import math
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.dashboards.live import plain
from benchmarks.measuring.window import STEADY
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
    Figure("counted_steps", "steps", lambda run: float(run.counted)),
)


def asked(run: FinishedRun) -> dict[str, str | float]:
    """The columns before the figures, in their order."""
    return {
        "model": run.model,
        "dtype": run.dtype,
        "backend": run.backend,
        "engine": run.engine,
        "hardware": run.hardware,
        "gpus": float(run.gpus),
        "nodes": float(run.nodes),
        "site": run.site,
        "task": run.task,
        "global_batch": float(run.global_batch_size),
        "sequence_length": float(run.sequence_length),
        "parallelism": run.parallelism or UNKNOWN,
        "pgle": run.pgle,
        "commit": (run.commit or UNKNOWN)[:12],
        "suite": run.suite or UNKNOWN,
        "night": run.night or UNKNOWN,
        "status": _status(run),
        "mfu_of": UNKNOWN if run.mfu_percent is None else f"{run.mfu_convention}, {run.mfu_precision} {tflops(run)}",
    }


def reached(run: FinishedRun) -> dict[str, float]:
    """Tag -> the figures that are known."""
    found = {f"result/{figure.name}": figure.of(run) for figure in FIGURES}
    return {tag: value for tag, value in found.items() if value is not None}


def _status(run: FinishedRun) -> str:
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


# --- words of a line's name -----------------------------------------------------------------------


def work_of(run: FinishedRun) -> str:
    """What is trained, at which precision: the runs of one chart."""
    return f"{plain(run.model)}/{plain(run.dtype)}"


def line_name(kind: str, run: FinishedRun) -> str:
    """By what people call it: who trains it how, on what, and where; what is seldom unusual, only where it is."""
    words = [
        run.suite or "",
        run.backend if run.engine in ("", run.backend) else f"{run.backend}-{run.engine}",
        f"{run.gpus}x{run.hardware}",
        *_place(run),
        run.task,
        f"seq{run.sequence_length}",
        f"batch{run.global_batch_size}",
        run.parallelism,
        "" if run.pgle in ("", "off") else f"pgle-{run.pgle}",
        "" if run.window in ("", STEADY) else f"window-{run.window}",
    ]
    return f"{kind}/{' '.join(plain(word) for word in words if word)}"


def _place(run: FinishedRun) -> list[str]:
    """The site; of runs on the launcher's own machine, which host that was."""
    if run.site == LOCAL:
        return [f"host-{run.host}"] if run.host else []
    return [f"site-{run.site}"]
