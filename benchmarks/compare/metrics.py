"""Define the metrics that are compared: how to read each from a result, and when its comparison is refused. No I/O.

If a metric has different meanings on the two sides, it is refused with a reason; other metrics are still compared.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.compare.runs import ComparedRun, Runs
from benchmarks.measuring.utilisation import Mfu
from benchmarks.values import Model

NO_DIMENSIONS = ("name", "backend_settings", "source", "date", "max_sequence_length")  # not dimensions of a model


class ComparedMetric(NamedTuple):
    """A metric to compare. Stepmark compares logarithms, so differences are ratios."""

    name: str
    unit: str
    value: Callable[[ComparedRun], float | None]
    refused: str | None = None  # why this metric is not comparable between the two sides
    step_time: int = 0  # 1: proportional to step time; -1: to its inverse; the first such metric gets the verdict
    flagged: bool = False  # whether the report marks a change by more than the margin
    note: str = ""


def compared_metrics(a: Runs, b: Runs) -> list[ComparedMetric]:
    """Return the metrics to compare, in the order of the report."""
    work = _other_work(a[0], b[0])
    other_batch = _unequal("global batch", *(run.benchmark.batch.global_batch_size for run in (a[0], b[0])))
    batch = f"they differ in {other_batch}" if other_batch else None
    step = f"{batch}, so a step of one side has more tokens; compare tokens/s instead" if batch else None
    ends = sorted({run.benchmark.steps for run in (*a, *b)})
    other_end = f"the runs end at different steps: {', '.join(map(str, ends))}" if len(ends) > 1 else None
    other_data = _unequal("data", a[0].benchmark.data, b[0].benchmark.data)
    per_gpu = ComparedMetric(
        "tokens/s per GPU", "tokens/s", lambda run: run.result.tokens_per_second_per_gpu, work, step_time=-1
    )
    return [
        ComparedMetric(
            "seconds/step", "s", lambda run: run.result.seconds_per_step.median, work or step, step_time=1
        ),
        ComparedMetric("tokens/s", "tokens/s", lambda run: run.result.tokens_per_second, work, step_time=-1),
        *([per_gpu] if a[0].benchmark.gpus != b[0].benchmark.gpus else []),
        _utilisation("MFU", a, b, lambda run: run.result.mfu or []),
        _utilisation("HFU", a, b, lambda run: run.result.hfu or []),
        ComparedMetric("effective tokens/s", "tokens/s", lambda run: run.result.tokens_per_second_effective, work),
        ComparedMetric(
            "last loss",
            "",
            lambda run: run.result.loss.last,
            work or batch or other_end or other_data,
            flagged=True,
        ),
        _memory(a, b, work),
    ]


# --- what differs in the work -------------------------------------------------------------------


def _other_work(a: ComparedRun, b: ComparedRun) -> str | None:
    """Return why processing a token is different work on the two sides; None if it is the same work."""
    names = ("model", "task", "sequence_length")
    one, other = a.result.benchmark, b.result.benchmark
    found = [_unequal(name.replace("_", " "), getattr(one, name), getattr(other, name)) for name in names]
    if not found[0] and (dimensions := other_dimensions(a.benchmark.model, b.benchmark.model)):
        found.append(f"dimensions of the model ({dimensions})")
    if a.benchmark.lora != b.benchmark.lora and a.benchmark.task == b.benchmark.task:
        found.append("LoRA adapters (rank, alpha, dropout or targets)")
    why = ", ".join(filter(None, found))
    return f"they differ in {why}, so a token needs different work" if why else None


def other_dimensions(a: Model, b: Model) -> str | None:
    """Return the dimensions in which two models with the same name differ; None if they do not differ."""
    names = [name for name in a.__struct_fields__ if name not in NO_DIMENSIONS]
    pairs = [(name, getattr(a, name), getattr(b, name)) for name in names] if a.name == b.name else []
    return ", ".join(f"{name} {one} and {other}" for name, one, other in pairs if one != other) or None


def _unequal(name: str, one: object, other: object) -> str | None:
    return f"{name} ({one} and {other})" if one != other else None


# --- metrics with their own conditions ----------------------------------------------------


def _utilisation(name: str, a: Runs, b: Runs, read: Callable[[ComparedRun], Sequence[Mfu]]) -> ComparedMetric:
    """Return MFU or HFU by the first convention that all runs share, including the same peak and precision."""
    found = [[_convention(one) for one in read(run)] for run in (*a, *b)]
    shared = next((one for one in found[0] if all(one in others for others in found)), None)

    def percent(run: ComparedRun) -> float | None:
        return next((one.percent for one in read(run) if shared in (None, _convention(one))), None)

    refused = None
    if shared is None:
        firsts = [next(iter(found[place]), "none") for place in (0, len(a))]
        refused = f"no common FLOP convention and peak (A: {firsts[0]}; B: {firsts[1]})"
    return ComparedMetric(name, "%", percent, refused, step_time=-1, note=shared or "")


def _convention(one: Mfu) -> str:
    return f"{one.convention}, {one.peak_tflops:.4g} TFLOP/s {one.precision_peak}"


def _memory(a: Runs, b: Runs, work: str | None) -> ComparedMetric:
    if all(run.result.benchmark.hardware == "cpu" for run in (*a, *b)):
        return ComparedMetric(
            "host memory",
            "bytes",
            lambda run: run.result.telemetry.host_memory_bytes_max if run.result.telemetry else None,
            work,
            flagged=True,
            note="the highest use of a node, including other programs on it",
        )
    return ComparedMetric(
        "GPU memory",
        "bytes",
        lambda run: run.gpu.memory_bytes_max if run.gpu else None,
        work,
        flagged=True,
        note="the highest use of a GPU",
    )
