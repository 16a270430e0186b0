"""The table of the tab HParams: what a run was asked for, beside what it reached. One row a run."""

from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Value

Cell = str | float


class Column(Value, frozen=True):
    tag: str
    title: str
    description: str


# Figures are scalars of the run's folder, so a row has those that are known.
FIGURES = (
    Column(tag="result/seconds_per_step", title="s/step", description="the median of the counted steps"),
    Column(tag="result/tokens_per_second_per_gpu", title="tokens/s/GPU", description="from the median step"),
    Column(tag="result/mfu_percent", title="MFU %", description="by the convention and peak of the column mfu_of"),
    Column(tag="result/excess_percent", title="excess %", description="mean over median, less 1"),
    Column(tag="result/memory_gb", title="memory GB", description="the most that a device held; of a CPU, the host"),
    Column(tag="result/counted_steps", title="steps", description="that the figures are made of"),
)
UNKNOWN = "-"

# Of the columns before the figures, those that are seen at first; the others are a click away.
ALWAYS_SHOWN = ("model", "dtype", "backend", "gpus")
SHOWN_WHERE_DIFFERENT = ("hardware", "site", "task", "pgle", "suite", "status")


def asked(entry: FinishedRun) -> dict[str, Cell]:
    """The columns before the figures, in their order."""
    return {
        "model": entry.model,
        "dtype": entry.dtype,
        "backend": entry.backend,
        "engine": entry.engine,
        "hardware": entry.hardware,
        "gpus": float(entry.gpus),
        "nodes": float(entry.nodes),
        "site": entry.site,
        "task": entry.task,
        "global_batch": float(entry.global_batch_size),
        "sequence_length": float(entry.sequence_length),
        "parallelism": entry.parallelism or UNKNOWN,
        "pgle": entry.pgle,
        "commit": (entry.commit or UNKNOWN)[:12],
        "suite": entry.suite or UNKNOWN,
        "night": entry.night or UNKNOWN,
        "status": _status(entry),
        "mfu_of": _peak(entry),
    }


def reached(entry: FinishedRun) -> dict[str, float]:
    found = {
        "result/seconds_per_step": entry.seconds_per_step,
        "result/tokens_per_second_per_gpu": entry.tokens_per_second_per_gpu,
        "result/mfu_percent": entry.mfu_percent,
        "result/excess_percent": None if entry.excess is None else 100 * entry.excess,
        "result/memory_gb": None if entry.memory_bytes is None else entry.memory_bytes / 1e9,
        "result/counted_steps": float(entry.counted),
    }
    return {tag: value for tag, value in found.items() if value is not None}


def _status(entry: FinishedRun) -> str:
    """With what makes a valid run comparable with none."""
    words: list[str] = [entry.status]
    if entry.slowed_by:
        words.append("slowed on purpose")
    if entry.profile not in ("", "none"):
        words.append("profiled")
    return ", ".join(words)


def _peak(entry: FinishedRun) -> str:
    if entry.mfu_percent is None:
        return UNKNOWN
    return f"{entry.mfu_convention}, {entry.mfu_precision} {entry.mfu_peak_tflops:.4g} TFLOP/s"
