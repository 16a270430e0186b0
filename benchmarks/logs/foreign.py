"""Compute the result of a log that Stepmark did not write, and compare it with the rates in the log. No I/O."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from benchmarks import statistics
from benchmarks.measuring import settling
from benchmarks.measuring.figures import Resolution, SecondsPerStep, measure
from benchmarks.measuring.summary import Loss, loss_of, reported_of, unknown_figures
from benchmarks.measuring.utilisation import Mfu, Workload
from benchmarks.model import flops
from benchmarks.model.ledger import Attribution, attribute
from benchmarks.reading.log_stream import GRADIENT_NOT_FINITE, can_be_a_time
from benchmarks.reading.read_log import MFU_RATE, SAMPLES_RATE, TOKENS_RATE, one_series, stride
from benchmarks.values import Scalar, Step, Value, Window

TOKENS_AGREE = 0.02  # a relative tolerance, because printed seconds have only three decimals
# Tolerance in addition to rounding. A framework may count FLOPs with a padded vocabulary: with tensor
# parallelism of 8, Megatron's count for Llama 3.1 8B is 0.04% larger.
PADDED_VOCABULARY = 5e-4
REFUTED = 2.0  # a wrong flag; conventions, recomputation and padding change FLOPs by less than this
ENOUGH_TO_SEE_TRAINING = 4  # in steps; equal to the constant in worker_kit.py, which typed code cannot import


class ForeignBenchmark(Value, frozen=True):
    """The facts about a run that the user states in flags."""

    model: str
    task: str
    dtype: str
    hardware: str
    gpus: int
    sequence_length: int
    global_batch_size: int


class ForeignResult(Value, frozen=True):
    """The result of a run that Stepmark did not start, with the fields of Result."""

    status: Literal["valid", "invalid"]
    reasons: list[str]
    benchmark: ForeignBenchmark
    window: Window
    seconds_per_step: SecondsPerStep
    tokens_per_second: float | None
    tokens_per_second_effective: float | None
    tokens_per_second_per_gpu: float | None
    days_per_trillion_tokens: float | None
    mfu: list[Mfu] | None
    hfu: list[Mfu] | None
    model_flops_per_step: float | None
    loss: Loss
    reported_by_framework: dict[str, Scalar | None]
    null_because: dict[str, str]
    notes: list[str]


def summarise_foreign(
    steps: list[Step],
    workload: Workload,
    window: str,
    seconds_resolution: Resolution,
    rate_resolution: Resolution,
    *,
    prints_loss: bool = True,
) -> ForeignResult:
    """Return the result of a log that Stepmark did not write. Its step times are those that the framework printed, or
    Stepmark computes them from a printed rate and the flags."""
    finite = [
        step if step.loss is None or math.isfinite(step.loss) else msgspec.structs.replace(step, loss=None)
        for step in one_series(steps)
    ]  # JSON has no NaN, so a loss that is not finite becomes null and is reported as a complaint
    steps, of_times = _timed(finite, workload)
    figures, marked = measure(workload, steps, window, seconds_resolution)
    counted_by = _whose_convention(workload, marked, seconds_resolution, rate_resolution)
    complaints = [
        *figures.complaints,
        *_other_batch_than_the_log(workload, marked),
        *_other_than_the_log(workload, marked),
        *_other_flops_than_the_log(counted_by),
        *_not_finite(steps, prints_loss=prints_loss),
    ]
    losses = [step.loss for step in steps if step.loss is not None]
    if len(losses) >= ENOUGH_TO_SEE_TRAINING and len(set(losses)) == 1:
        complaints.append(
            f"the loss is the same to the last printed digit in all {len(losses)} steps: nothing was trained"
        )
    loss, reported = loss_of(marked), {**reported_of(marked), **_rates_of(marked)}
    measured = msgspec.structs.asdict(figures)
    del measured["complaints"]  # `reasons` contains them
    return ForeignResult(
        **measured
        | {
            "status": "invalid" if complaints else "valid",
            "reasons": complaints,
            "benchmark": ForeignBenchmark(
                model=workload.model.name,
                task=workload.task,
                dtype=workload.dtype,
                hardware=workload.hardware.name,
                gpus=workload.gpus,
                sequence_length=workload.sequence_length,
                global_batch_size=workload.global_batch_size,
            ),
            "model_flops_per_step": workload.flops_per_step(flops.conventions_for(workload.task, workload.model)[0]),
            "loss": loss,
            "reported_by_framework": reported,
            "null_because": {**figures.null_because, **unknown_figures(figures.window, loss, reported)},
            "notes": [
                of_times,
                *([f"the log's TFLOP/s imply {counted_by.text}"] if counted_by else []),
                *_other_mfu_than_the_log(figures.mfu or [], marked),
                *_stride_notes(steps),
                *figures.notes,
                *settling.notes(figures.window),
            ],
        }
    )


PRINTED_TIMES = "the step times come from the framework's own lines"


def _timed(steps: list[Step], workload: Workload) -> tuple[list[Step], str]:
    """Return the steps and a note. If the log has no step times, compute them from its rates and the flags."""
    if any(step.seconds is not None for step in steps):
        return steps, PRINTED_TIMES
    by_rate = [(step, _seconds_by_rate(step, workload)) for step in steps]
    timed = [
        msgspec.structs.replace(step, seconds=seconds if seconds is not None and can_be_a_time(seconds) else None)
        for step, seconds in by_rate
    ]
    return timed, (
        "the log has no step times, so Stepmark computes them from the printed rates and the flags, which the log "
        "therefore cannot confirm"
    )


def _seconds_by_rate(step: Step, workload: Workload) -> float | None:
    rates = step.framework_rates or {}
    if step.framework_tokens_per_second_per_device:
        return workload.tokens_per_step / workload.gpus / step.framework_tokens_per_second_per_device
    if rates.get(TOKENS_RATE):
        return workload.tokens_per_step / rates[TOKENS_RATE]
    return workload.global_batch_size / rates[SAMPLES_RATE] if rates.get(SAMPLES_RATE) else None


def _rates_of(marked: Sequence[Step]) -> dict[str, float | None]:
    """Return the median over the counted steps of each rate of the whole job that the framework printed."""
    counted = [step.framework_rates or {} for step in marked if step.excluded_because is None]
    names = sorted({name for rates in counted for name in rates})
    return {
        f"{name}_median": statistics.median([rates[name] for rates in counted if name in rates]) for name in names
    }


def _other_batch_than_the_log(workload: Workload, steps: Sequence[Step]) -> list[str]:
    """Return a complaint if a counted step's batch in the log differs from the flag. If no step counts, use all."""
    asked = workload.global_batch_size
    judged = [step for step in steps if step.excluded_because is None] or steps
    others = [s for s in judged if s.framework_global_batch_size not in (None, asked)]
    if not others:
        return []
    logged = ", ".join(f"{size:,}" for size in sorted({s.framework_global_batch_size or 0 for s in others}))
    return [
        f"the log's global batch is {logged} in {len(others)} of {len(judged)} steps "
        f"(first: {others[0].step}), but --global_batch_size is {asked:,}"
    ]


def _other_than_the_log(workload: Workload, steps: Sequence[Step]) -> list[str]:
    """Return a complaint if the log's tokens/s imply another number of tokens per step than the flags."""
    logged = statistics.median(
        [
            step.seconds * step.framework_tokens_per_second_per_device * workload.gpus
            for step in steps
            if step.seconds and step.framework_tokens_per_second_per_device
        ]
    )
    if logged is None or abs(logged / workload.tokens_per_step - 1) <= TOKENS_AGREE:
        return []
    return [
        f"the log's tokens/s imply {logged:,.0f} tokens per step, but the flags imply {workload.tokens_per_step:,}: "
        "check GPUs, global batch and sequence length"
    ]


def _whose_convention(
    workload: Workload, steps: Sequence[Step], seconds_resolution: Resolution, rate_resolution: Resolution
) -> Attribution | None:
    """Return the convention that explains the FLOPs per token in the log; None if the log has no TFLOP/s."""
    ratios, uncertainties = [], []
    for step in steps:
        tflops, printed = step.framework_tflops_per_device, step.framework_tokens_per_second_per_device
        if step.excluded_because is not None or not tflops or not step.seconds:
            continue
        tokens_per_second = printed or workload.tokens_per_step / workload.gpus / step.seconds
        ratios.append(tflops * 1e12 / tokens_per_second)
        of_throughput = (
            _half_a_digit(printed, rate_resolution) if printed else _half_a_digit(step.seconds, seconds_resolution)
        )
        uncertainties.append(PADDED_VOCABULARY + _half_a_digit(tflops, rate_resolution) + of_throughput)
    per_token, uncertainty = statistics.median(ratios), statistics.median(uncertainties)
    if per_token is None or uncertainty is None:
        return None
    names = flops.conventions_for(workload.task, workload.model, printed=True)
    return attribute(workload.model, workload.sequence_length, per_token, uncertainty, names)


def _other_flops_than_the_log(found: Attribution | None) -> list[str]:
    if found is None or 1 / REFUTED < found.ratio < REFUTED:
        return []
    asked = "check model, GPUs, global batch and sequence length"
    return [f"the log's TFLOP/s are {found.ratio:.2g} times the TFLOP/s that the flags imply: {asked}"]


def _other_mfu_than_the_log(entries: Sequence[Mfu], steps: Sequence[Step]) -> list[str]:
    """Return a note if the printed MFU disagrees. Some frameworks assume a fixed peak (nanoGPT: that of an A100)."""
    rates = [(step.framework_rates or {}).get(MFU_RATE) for step in steps if step.excluded_because is None]
    printed = statistics.median([rate for rate in rates if rate is not None and rate > 0])
    if printed is None or not entries:
        return []
    ratio = min((printed / one.percent for one in entries), key=lambda one: abs(math.log(one)))
    if 1 / REFUTED < ratio < REFUTED:
        return []
    return [f"the log's MFU is {ratio:.2g} times Stepmark's nearest MFU: it uses another peak, or a flag is wrong"]


def _half_a_digit(value: float, resolution: Resolution) -> float:
    """Return the largest relative error that rounding may cause in a value."""
    return resolution(value) / 2 / abs(value)


def _stride_notes(steps: Sequence[Step]) -> list[str]:
    every = stride([step.step for step in steps])
    if every == 1:
        return []
    return [
        f"the log has one line for every {every} steps: if a line is their mean (Megatron, NeMo), the 95% interval "
        "describes these means, and the spread of single steps is unknown"
    ]


def _not_finite(steps: Sequence[Step], *, prints_loss: bool) -> list[str]:
    """Return complaints about losses and gradient norms that are not finite."""
    losses = [s.step for s in steps if prints_loss and s.loss is None and s.excluded_because is None]
    gradients = [step.step for step in steps if step.excluded_because == GRADIENT_NOT_FINITE]
    return [
        f"the {what} is not finite in {len(broken)} steps (first: {broken[0]})"
        for what, broken in (("loss", losses), ("gradient norm", gradients))
        if broken
    ]
