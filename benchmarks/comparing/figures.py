"""The figures that are compared: where each stands in a result, which way is better, and what it may be held against.

Pure. A figure is refused alone, with its reason, where the two sides' mean different things by it.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.comparing.runs import ComparedRun
from benchmarks.comparing.values import Direction
from benchmarks.measuring.utilisation import Mfu
from benchmarks.request import lora_words
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Lora, Model

Value = Callable[[ComparedRun], float | None]
NO_DIMENSIONS = ("name", "backend_settings", "source", "date", "max_sequence_length")  # of a model
OTHER_WORK = ("model", "task", "sequence_length")


class FigureKind(NamedTuple):
    """A figure of all runs of both sides; all are compared as logarithms, so differences are ratios."""

    name: str
    unit: str
    direction: Direction
    value: Value
    of_history: Callable[[FinishedRun], float | None]  # what of earlier runs has the same noise
    refused: str | None = None  # why these two sides may not be compared by it
    window: int = 0  # 1, -1: it is, or is the inverse of, seconds/step, whose interval its window gives
    of_ratio: bool = False  # it is a share above 1, which the ratio of 1 + share says
    note: str = ""

    @property
    def speed(self) -> bool:
        return self.window != 0

    def log(self, value: float) -> float | None:
        """None: it has no logarithm, and no ratio."""
        whole = 1 + value if self.of_ratio else value
        return math.log(whole) if whole > 0 and math.isfinite(whole) else None

    def shown(self, log: float) -> float:
        """The figure in its unit, from its logarithm."""
        return 100 * math.expm1(log) if self.of_ratio else math.exp(log)


def figure_kinds(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[FigureKind]:
    """Every figure of these two sides, in the order in which they are shown."""
    work = other_work(a[0], b[0])
    batch = work or _unequal("global batch", [run.benchmark.global_batch_size for run in (a[0], b[0])])
    return [
        FigureKind("seconds/step", "s", "lower", _seconds, _entry_seconds, _step_of_other_size(work, batch), 1),
        FigureKind("tokens/s", "tokens/s", "higher", lambda r: r.result.tokens_per_second, _entry_seconds, work, -1),
        FigureKind(
            "tokens/s per GPU", "tokens/s", "higher", lambda r: r.result.tokens_per_second_per_gpu, _entry_seconds,
            work, -1,
        ),
        _utilisation("MFU", a, b, lambda run: run.result.mfu),
        _utilisation("HFU", a, b, lambda run: run.result.hfu),
        FigureKind(
            "effective tokens/s", "tokens/s", "higher", lambda r: r.result.tokens_per_second_effective,
            lambda entry: entry.seconds_mean, work,
        ),
        FigureKind(
            "excess", "%", "lower", lambda r: r.result.seconds_per_step.excess, _entry_excess, of_ratio=True,
            note="mean over median, less 1; the difference is that of mean over median",
        ),
        FigureKind("last loss", "", "same", lambda r: r.result.loss.last, lambda entry: entry.last_loss,
                   _other_batch(batch) or other_loss(a, b)),
        _memory(a, b, work),
    ]  # fmt: skip


# --- what differs in the work -------------------------------------------------------------------


def other_work(a: ComparedRun, b: ComparedRun) -> str | None:
    """Why a token of one side is not the work of a token of the other."""
    found = [
        _unequal(name.replace("_", " "), [getattr(run.result.benchmark, name) for run in (a, b)])
        for name in OTHER_WORK
    ]
    if not found[0] and (other := other_dimensions(a.benchmark.model, b.benchmark.model)):
        found.append(f"model of the same name ({other})")
    if a.benchmark.lora != b.benchmark.lora and a.benchmark.task == b.benchmark.task:
        found.append(f"set of LoRA adapters ({other_adapters(a.benchmark.lora, b.benchmark.lora)})")
    why = [text for text in found if text]
    return f"another {', '.join(why)}: a token is other work" if why else None


def other_adapters(a: Lora | None, b: Lora | None) -> str:
    """In what the adapters differ; of matrices that one side has fused, that it is those."""
    if a is None or b is None:
        return "one side has none"
    found = [
        f"{name} {getattr(a, name):g} and {getattr(b, name):g}"
        for name in ("rank", "alpha", "dropout")
        if getattr(a, name) != getattr(b, name)
    ]
    if a.targets != b.targets:
        beside = " and ".join(lora_words.beside(lora) for lora in (a, b))
        fused = lora_words.parts(a.targets) == lora_words.parts(b.targets)
        found.append(f"beside {beside}" + (": the same matrices, fused with one adapter or apart" if fused else ""))
    return ", ".join(found)


def other_dimensions(a: Model, b: Model) -> str | None:
    """The dimensions in which two models differ, whatever their names are."""
    names = [
        name for name in a.__struct_fields__ if name not in NO_DIMENSIONS and getattr(a, name) != getattr(b, name)
    ]
    return ", ".join(f"{name} {getattr(a, name)} and {getattr(b, name)}" for name in names) or None


def _step_of_other_size(work: str | None, batch: str | None) -> str | None:
    return work or (f"another {batch}: a step holds more tokens on one side; see tokens/s" if batch else None)


def _other_batch(batch: str | None) -> str | None:
    return f"another {batch}" if batch and not batch.startswith("another") else batch


def other_loss(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> str | None:
    """Why the last losses are of other moments, or of other texts."""
    ends = sorted({run.benchmark.steps for run in (*a, *b)})
    if len(ends) > 1:
        return f"the last steps differ: {', '.join(map(str, ends))}"
    return _unequal("data", [run.benchmark.data for run in (a[0], b[0])])


def _unequal(name: str, values: Sequence[object]) -> str | None:
    return f"{name} ({values[0]} and {values[1]})" if values[0] != values[1] else None


# --- figures that have conditions of their own ----------------------------------------------------


def _seconds(run: ComparedRun) -> float | None:
    return run.result.seconds_per_step.median


def _entry_seconds(entry: FinishedRun) -> float | None:
    return entry.seconds_per_step


def _entry_excess(entry: FinishedRun) -> float | None:
    return None if entry.excess is None else 1 + entry.excess


def _utilisation(
    name: str, a: Sequence[ComparedRun], b: Sequence[ComparedRun], read: Callable[[ComparedRun], list[Mfu] | None]
) -> FigureKind:
    """Of the first convention that all runs have against the same peak of the same precision."""
    first = read(a[0]) or []
    shared = [one for one in first if all(_like(one, read(run)) for run in (*a, *b))]
    if shared:
        chosen = shared[0]

        def value(run: ComparedRun) -> float | None:
            found = _like(chosen, read(run))
            return found.percent if found else None

        against = f"{chosen.convention}, against {chosen.peak_tflops:.4g} TFLOP/s {chosen.precision_peak}"
        return FigureKind(name, "%", "higher", value, _entry_seconds, None, -1, note=against)
    return FigureKind(
        name,
        "%",
        "higher",
        _unknown,
        _entry_seconds,
        _why_no_common(name, (a[0], b[0]), (first, read(b[0]) or [])),
        -1,
    )


def _unknown(_: ComparedRun) -> None:
    """What has no common meaning has no value."""


def _like(one: Mfu, entries: Sequence[Mfu] | None) -> Mfu | None:
    key = (one.convention, one.precision_peak, one.peak_tflops)
    return next((m for m in entries or [] if (m.convention, m.precision_peak, m.peak_tflops) == key), None)


def _why_no_common(name: str, runs: Sequence[ComparedRun], sides: Sequence[Sequence[Mfu]]) -> str:
    missing: dict[str, list[str]] = {}
    for side, run, entries in zip("AB", runs, sides, strict=True):
        if not entries:
            missing.setdefault(run.result.null_because.get(name.lower(), "unknown"), []).append(side)
    if missing:
        return "; ".join(f"{' and '.join(names)} without {name}: {why}" for why, names in missing.items())
    texts = [
        f"{side}: {entries[0].percent:.1f}% ({entries[0].convention}, {entries[0].peak_tflops:.4g} TFLOP/s "
        f"{entries[0].precision_peak})"
        for side, entries in zip("AB", sides, strict=True)
    ]
    return f"no convention and peak in common: {'; '.join(texts)}"


def _memory(a: Sequence[ComparedRun], b: Sequence[ComparedRun], work: str | None) -> FigureKind:
    kinds = {run.result.benchmark.hardware == "cpu" for run in (*a, *b)}
    name = "host memory" if kinds == {True} else "GPU memory"
    refused = work if len(kinds) == 1 else "of a GPU on one side, of the host on the other"
    read = _host_memory if kinds == {True} else _gpu_memory
    note = "the most that a node held, with all that ran beside" if kinds == {True} else "the most that a GPU held"
    return FigureKind(name, "bytes", "lower", read, lambda entry: entry.memory_bytes, refused, note=note)


def _gpu_memory(run: ComparedRun) -> float | None:
    telemetry = run.result.telemetry
    return telemetry.gpu.memory_bytes_max if telemetry and telemetry.gpu else None


def _host_memory(run: ComparedRun) -> float | None:
    return run.result.telemetry.host_memory_bytes_max if run.result.telemetry else None
