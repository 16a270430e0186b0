"""Steps -> the uniform figures of result.json. Pure; one way for a run, for verify and for foreign logs."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from benchmarks import flops, statistics
from benchmarks.resolve import layout_words
from benchmarks.values import (
    Benchmark,
    Hardware,
    Model,
    Parallelism,
    RunRecord,
    Scalar,
    Step,
    Value,
    Window,
    WorkerEnd,
    WorkerFacts,
)
from benchmarks.window import choose_window, consistency, missing_steps

SCHEMA_VERSION = 1
SECONDS_A_DAY = 86_400
LARGEST_TIME_DISAGREEMENT = 0.02  # between the window's steps and its wall time

Status = Literal["valid", "invalid", "failed"]


class BenchmarkFigures(Value, frozen=True):
    """The part of the request that a reader of result.json needs."""

    backend: str
    engine: str
    model: str
    task: str
    dtype: str
    hardware: str
    gpus: int
    nodes: int
    sequence_length: int
    global_batch_size: int
    parallelism: dict[str, int]


class SecondsPerStep(Value, frozen=True):
    median: float | None = None
    mean: float | None = None
    stdev: float | None = None
    ci95: list[float] | None = None
    excess: float | None = None


class Mfu(Value, frozen=True):
    convention: str
    precision_peak: str
    peak_tflops: float
    peak_source: str
    percent: float


class Loss(Value, frozen=True):
    first: float | None
    last: float | None


class Result(Value, frozen=True):
    """result.json. A figure that can't be known is null, and `null_because` says why."""

    schema_version: int
    run_id: str
    status: Status
    reasons: list[str]
    benchmark: BenchmarkFigures
    window: Window
    seconds_per_step: SecondsPerStep
    tokens_per_second: float | None
    tokens_per_second_effective: float | None
    tokens_per_second_per_gpu: float | None
    days_per_trillion_tokens: float | None
    model_flops_per_step: float
    mfu: list[Mfu] | None
    loss: Loss
    trainable_parameters: int | None
    parameters: int | None
    provenance: str | None
    reported_by_framework: dict[str, Scalar | None]
    null_because: dict[str, str]
    notes: list[str]


class Ended(Value, frozen=True):
    """How the processes of a run ended, as the site saw it. Lines of exits.jsonl."""

    rank: int
    exit_code: int | None  # None: it was still running when the site let go of it
    interrupted: bool = False


class Workload(Value, frozen=True):
    """What a summary needs to know of the work; a foreign log has this much and no more."""

    model: Model
    hardware: Hardware
    task: str
    dtype: str
    gpus: int
    sequence_length: int
    global_batch_size: int

    @property
    def tokens_per_step(self) -> int:
        return self.sequence_length * self.global_batch_size

    def flops_per_step(self, convention: str) -> float:
        return flops.flops_per_token(self.model, self.sequence_length, convention) * self.tokens_per_step


def workload_of(benchmark: Benchmark) -> Workload:
    return Workload(
        model=benchmark.model,
        hardware=benchmark.hardware,
        task=benchmark.task,
        dtype=benchmark.dtype,
        gpus=benchmark.gpus,
        sequence_length=benchmark.sequence_length,
        global_batch_size=benchmark.global_batch_size,
    )


class Figures(Value, frozen=True):
    """The figures of one window, before anybody judged whether the run is valid."""

    window: Window
    seconds_per_step: SecondsPerStep
    tokens_per_second: float | None
    tokens_per_second_effective: float | None
    tokens_per_second_per_gpu: float | None
    days_per_trillion_tokens: float | None
    mfu: list[Mfu] | None
    null_because: dict[str, str]
    complaints: list[str]  # why the figures cannot be right


# --- figures ------------------------------------------------------------------------------------


def measure(
    workload: Workload, steps: Sequence[Step], rule: str, seconds_resolution: float = 0.0
) -> tuple[Figures, list[Step]]:
    """The figures of one attempt as one rank reported it, and its steps with their exclusions named."""
    window, marked = choose_window(steps, rule, fastest_possible_seconds(workload))
    counted = [step for step in marked if step.excluded_because is None]
    seconds = [step.seconds for step in counted if step.seconds is not None]
    nulls: dict[str, str] = {}
    complaints = _complaints(rule, marked, counted)
    median = statistics.median(seconds)
    if median is None:
        nulls["seconds_per_step"] = "no step of the run is in the window"
        return _no_figures(window, nulls, complaints), marked
    if median <= 0:
        nulls["seconds_per_step"] = "the median step took no measurable time"
        return _no_figures(window, nulls, complaints), marked
    tokens_per_second = workload.tokens_per_step / median
    mfu = _mfu(workload, median, nulls)
    figures = Figures(
        window=window,
        seconds_per_step=_seconds_per_step(seconds, seconds_resolution, nulls),
        tokens_per_second=tokens_per_second,
        tokens_per_second_effective=_effective(workload, marked, counted, nulls),
        tokens_per_second_per_gpu=tokens_per_second / workload.gpus,
        days_per_trillion_tokens=1e12 / tokens_per_second / SECONDS_A_DAY,
        mfu=mfu,
        null_because=nulls,
        complaints=complaints + _impossible(workload, mfu),
    )
    return figures, marked


def fastest_possible_seconds(workload: Workload) -> float | None:
    """A step cannot be faster than its FLOPs (counted the lowest way) at the full peak of all devices."""
    peak = workload.hardware.peaks.get(workload.dtype)
    if peak is None:
        return None
    fewest = min(workload.flops_per_step(name) for name in flops.conventions_for(workload.task))
    return fewest / (peak.tflops * 1e12 * workload.gpus)


def _seconds_per_step(seconds: list[float], resolution: float, nulls: dict[str, str]) -> SecondsPerStep:
    interval = statistics.median_interval(seconds, resolution)
    if interval is None:
        nulls["seconds_per_step.ci95"] = f"{len(seconds)} counted steps are too few for an interval"
    if len(seconds) < 2:
        nulls["seconds_per_step.stdev"] = "one counted step has no spread"
    return SecondsPerStep(
        median=statistics.median(seconds),
        mean=statistics.mean(seconds),
        stdev=statistics.stdev(seconds),
        ci95=[interval.low, interval.high] if interval else None,
        excess=statistics.excess(seconds),
    )


def _effective(workload: Workload, marked: list[Step], counted: list[Step], nulls: dict[str, str]) -> float | None:
    """Tokens over elapsed: every step from the window's first to its last, excluded ones between them too."""
    first, last = marked.index(counted[0]), marked.index(counted[-1])
    inside = marked[first : last + 1]
    if any(step.seconds is None for step in inside):
        nulls["tokens_per_second_effective"] = "a step inside the window has no time"
        return None
    elapsed = sum(step.seconds or 0.0 for step in inside)
    return workload.tokens_per_step * len(inside) / elapsed if elapsed > 0 else None


def _mfu(workload: Workload, median: float, nulls: dict[str, str]) -> list[Mfu] | None:
    """Every convention against every peak that applies; the recipe's, at the run's own precision, first."""
    own = workload.hardware.peaks.get(workload.dtype)
    if own is None:
        has = ", ".join(workload.hardware.peaks) or "none"
        nulls["mfu"] = (
            f"{workload.hardware.name} has no published {workload.dtype} peak (it has: {has}), and none was measured"
        )
        return None
    precisions = [workload.dtype]
    if workload.dtype == "fp8" and "bf16" in workload.hardware.peaks:
        precisions.append("bf16")
    entries = []
    for precision in precisions:
        peak = workload.hardware.peaks[precision]
        for convention in flops.conventions_for(workload.task):
            achieved = workload.flops_per_step(convention) / median / workload.gpus
            entries.append(
                Mfu(
                    convention=convention,
                    precision_peak=precision,
                    peak_tflops=peak.tflops,
                    peak_source=peak.source,
                    percent=100 * achieved / (peak.tflops * 1e12),
                )
            )
    return entries


def _complaints(rule: str, marked: list[Step], counted: list[Step]) -> list[str]:
    found = []
    missing = missing_steps(rule, marked)
    if missing:
        found.append(f"window {rule}: {missing} of its steps are missing from the run")
    if not counted:
        found.append("no step of the run is in the window")
    disagreement = consistency(marked, counted) if counted else None
    if disagreement is not None and disagreement > LARGEST_TIME_DISAGREEMENT:
        found.append(
            f"the window's steps and its wall time differ by {disagreement:.1%}: the step times cannot be right"
        )
    return found


def _impossible(workload: Workload, mfu: list[Mfu] | None) -> list[str]:
    """A figure above the hardware's peak is wrong, whatever made it."""
    too_high = [m for m in mfu or [] if m.precision_peak == workload.dtype and m.percent > 100]
    if not too_high:
        return []
    worst = max(too_high, key=lambda m: m.percent)
    return [
        f"MFU {worst.percent:.1f}% ({worst.convention}) is above the peak of {workload.hardware.title} "
        f"({worst.peak_tflops:g} TFLOP/s {worst.precision_peak}): a step cannot be that fast"
    ]


def _no_figures(window: Window, nulls: dict[str, str], complaints: list[str]) -> Figures:
    for name in ("tokens_per_second", "tokens_per_second_effective", "mfu"):
        nulls.setdefault(name, nulls["seconds_per_step"])
    return Figures(
        window=window,
        seconds_per_step=SecondsPerStep(),
        tokens_per_second=None,
        tokens_per_second_effective=None,
        tokens_per_second_per_gpu=None,
        days_per_trillion_tokens=None,
        mfu=None,
        null_because=nulls,
        complaints=complaints,
    )


# --- a run's result -----------------------------------------------------------------------------


def summarise(
    benchmark: Benchmark,
    run_id: str,
    record: RunRecord,
    ended: Sequence[Ended],
    provenance_digest: str | None,
    notes: Sequence[str] = (),
) -> tuple[Result, list[Step]]:
    """The result of a run from what its last attempt wrote, and all its steps with their exclusions named."""
    workload = workload_of(benchmark)
    tokens = benchmark.tokens_per_step
    own = [msgspec.structs.replace(step, tokens=tokens) for step in record.steps]
    first_rank = [step for step in own if step.rank == 0]
    figures, marked = measure(workload, first_rank, benchmark.window)
    failures = _why_failed(benchmark, record, ended, first_rank)
    doubts = [*_broken_assertions(record), *figures.complaints]
    status: Status = "failed" if failures else "invalid" if doubts else "valid"
    figures, speed_notes = _without_false_claims(benchmark, figures, failed=bool(failures))
    facts = _first_facts(record)
    result = Result(
        schema_version=SCHEMA_VERSION,
        run_id=run_id,
        status=status,
        reasons=[*failures, *doubts],
        benchmark=_benchmark_figures(benchmark),
        window=figures.window,
        seconds_per_step=figures.seconds_per_step,
        tokens_per_second=figures.tokens_per_second,
        tokens_per_second_effective=figures.tokens_per_second_effective,
        tokens_per_second_per_gpu=figures.tokens_per_second_per_gpu,
        days_per_trillion_tokens=figures.days_per_trillion_tokens,
        model_flops_per_step=workload.flops_per_step(flops.conventions_for(benchmark.task)[0]),
        mfu=figures.mfu,
        loss=_loss(first_rank),
        trainable_parameters=facts.trainable_parameters if facts else None,
        parameters=facts.parameters if facts else None,
        provenance=provenance_digest,
        reported_by_framework=_reported(marked),
        null_because=figures.null_because,
        notes=[*notes, *speed_notes, *_window_notes(figures.window), *record.unreadable],
    )
    # Exclusions are decided on rank 0; the other ranks' steps carry the same reason.
    reasons = {step.step: step.excluded_because for step in marked}
    everything = [_with_reason(step, reasons.get(step.step, step.excluded_because)) for step in own]
    return result, everything


def _with_reason(step: Step, reason: str | None) -> Step:
    return msgspec.structs.replace(step, excluded_because=reason)


def _first_facts(record: RunRecord) -> WorkerFacts | None:
    return next((f for f in record.facts if f.rank == 0), None)


def _why_failed(benchmark: Benchmark, record: RunRecord, ended: Sequence[Ended], steps: Sequence[Step]) -> list[str]:
    """The run did not go through: who ended it, and how far it came."""
    reached = f"after step {steps[-1].step}" if steps else "before its first step"
    ends = {end.rank: end for end in record.ends}
    found = []
    if any(process.interrupted for process in ended):
        return [f"interrupted by the user {reached}"]
    for process in ended:
        end = ends.get(process.rank)
        if process.exit_code == 0 and end is not None and end.status == "done":
            continue
        found.append(f"rank {process.rank} {_how_it_ended(process, end)} {reached}")
    if not ended:
        found.append(f"the run has no record of its end: the launcher was killed {reached}")
    elif not found and len(steps) < benchmark.steps:
        found.append(f"{len(steps)} of {benchmark.steps} steps were trained")
    return found


def _how_it_ended(process: Ended, end: WorkerEnd | None) -> str:
    if end is not None and end.status == "error":
        return f"failed ({end.message})"
    if process.exit_code is None:
        return "did not end and was killed"
    if process.exit_code < 0:
        return f"was killed by signal {-process.exit_code}"
    if process.exit_code == 0:
        return "ended without saying so"
    return f"ended with exit code {process.exit_code}"


def _broken_assertions(record: RunRecord) -> list[str]:
    return [f"rank {end.rank}: {failure}" for end in record.ends for failure in end.failures]


def _without_false_claims(benchmark: Benchmark, figures: Figures, *, failed: bool) -> tuple[Figures, list[str]]:
    """A failed run and an emulated precision report no speed."""
    if failed:
        reason, notes = "the run failed", []
    elif benchmark.dtype in benchmark.hardware.emulated:
        reason = f"{benchmark.dtype} is emulated on {benchmark.hardware.title}: its speed says nothing"
        notes = [f"{reason}; the result is valid for correctness only"]
    else:
        return figures, []
    nulled = _no_figures(figures.window, {"seconds_per_step": reason}, figures.complaints)
    return nulled, notes


def _window_notes(window: Window) -> list[str]:
    if window.counted and not window.settled:
        return ["not settled: the run is too short to show that its step time has settled, so it may still drift"]
    return []


def _benchmark_figures(benchmark: Benchmark) -> BenchmarkFigures:
    return BenchmarkFigures(
        backend=benchmark.backend,
        engine=benchmark.engine,
        model=benchmark.model.name,
        task=benchmark.task,
        dtype=benchmark.dtype,
        hardware=benchmark.hardware.name,
        gpus=benchmark.gpus,
        nodes=benchmark.nodes,
        sequence_length=benchmark.sequence_length,
        global_batch_size=benchmark.global_batch_size,
        parallelism=parallelism_figures(benchmark.parallelism),
    )


def parallelism_figures(parallelism: Parallelism) -> dict[str, int]:
    return dict(layout_words(parallelism)) or {"data": 1}


def _loss(steps: Sequence[Step]) -> Loss:
    losses = [step.loss for step in steps]
    return Loss(first=losses[0] if losses else None, last=losses[-1] if losses else None)


def _reported(marked: Sequence[Step]) -> dict[str, Scalar | None]:
    """What the framework itself printed for the counted steps: kept beside ours, never used."""
    counted = [step for step in marked if step.excluded_because is None]
    columns = {
        "seconds_per_step_median": [step.framework_seconds for step in counted],
        "tflops_per_device_median": [step.framework_tflops_per_device for step in counted],
        "tokens_per_second_per_device_median": [step.framework_tokens_per_second_per_device for step in counted],
    }
    return {
        name: statistics.median([value for value in values if value is not None]) for name, values in columns.items()
    }


# --- a foreign log's result ---------------------------------------------------------------------


def summarise_foreign(
    steps: list[Step],
    model: Model,
    hardware: Hardware,
    gpus: int,
    dtype: str,
    global_batch_size: int,
    sequence_length: int,
    window: str,
    seconds_resolution: float,
) -> dict[str, object]:
    """The same figures from a log that Stepmark did not write; its step times are the framework's own."""
    workload = Workload(
        model=model,
        hardware=hardware,
        task="pretrain",
        dtype=dtype,
        gpus=gpus,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
    )
    figures, marked = measure(workload, steps, window, seconds_resolution)
    found: dict[str, object] = msgspec.to_builtins(figures)
    complaints = found.pop("complaints")
    return {
        "status": "invalid" if complaints else "valid",
        "reasons": complaints,
        **found,
        "model_flops_per_step": workload.flops_per_step(flops.conventions_for("pretrain")[0]),
        "loss": msgspec.to_builtins(_loss(marked)),
        "reported_by_framework": _reported(marked),
    }
