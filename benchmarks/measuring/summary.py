"""Compute result.json from the records of a run: the metrics, whether they are valid, and the reasons. No I/O."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from benchmarks import statistics
from benchmarks.job_record import AttemptEnd, ProcessEnd
from benchmarks.measuring import settling
from benchmarks.measuring.failures import why_failed
from benchmarks.measuring.figures import SPEED_FIGURES, Figures, SecondsPerStep, measure, no_figures
from benchmarks.measuring.utilisation import Mfu, workload_of
from benchmarks.model import flops
from benchmarks.model.ledger import Difference, framework_differences
from benchmarks.telemetry.gpu import lost_gpus
from benchmarks.telemetry.samples import NodeRecord
from benchmarks.telemetry.summary import RankSpread, Telemetry, of_run, rank_spread
from benchmarks.values import (
    Benchmark,
    BenchmarkName,
    EachTime,
    MlperfOutcome,
    PgleSeen,
    Recompute,
    Routing,
    RunRecord,
    Scalar,
    Step,
    Value,
    Window,
    WorkerFacts,
    first_rank,
    name_words,
)

SCHEMA_VERSION = 1

MADE_UP_DATA = ("mock", "synthetic")
NO_TEXT = "data: no text was read"
SLOWED = "slowed on purpose:"
ALONE = "fewer than two ranks have times for the counted steps"
NOT_ON_RANK_0 = "not_on_rank_0"  # why a step is excluded: other ranks reported it, but rank 0 did not

Status = Literal["valid", "invalid", "failed"]


class BenchmarkFigures(BenchmarkName, frozen=True):
    """The part of the benchmark that result.json repeats for its readers."""

    parallelism: dict[str, int]
    routing: Routing | UnsetType = UNSET  # only for a model with experts, and unknown for the log of another program


class Loss(Value, frozen=True):
    first: float | None
    last: float | None


class Pgle(Value, frozen=True):
    """Profile-guided latency estimation: the mode that was requested, and whether the measured steps used it."""

    way: str
    seen: PgleSeen


class Result(Value, frozen=True):
    """The contents of result.json. A metric that cannot be known is null, and `null_because` contains the reason."""

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
    model_flops_per_step: float | None
    mfu: list[Mfu] | None
    loss: Loss
    trainable_parameters: int | None
    parameters: int | None
    provenance: str | None
    reported_by_framework: dict[str, Scalar | None]
    null_because: dict[str, str]
    notes: list[str]
    attempts: list[AttemptEnd] = []  # how each attempt ended, in order; the metrics come from the last completed one
    telemetry: Telemetry | None = None
    ranks: RankSpread | None = None
    pgle: Pgle | None = None  # None: --pgle=off
    not_comparable: list[str] = []  # why the metrics must not be compared; empty if they can be
    hfu: list[Mfu] | None = None  # MFU that includes recomputed FLOPs
    slowed_by: float = 0.0  # the value of --inject_slowdown; a slowed run is never part of a baseline
    mlperf: MlperfOutcome | None = None  # from the log of an MLPerf submission; None: not a submission, or no log
    flops_differences: list[Difference] = []  # parts of the model that only some frameworks count


# --- a run's result -----------------------------------------------------------------------------


class RunEvidence(Value, frozen=True):
    """Everything from which a run's result is computed."""

    benchmark: Benchmark
    run_id: str
    record: RunRecord  # what the workers wrote in the attempt that the metrics come from
    ended: Sequence[ProcessEnd]  # how the processes of the measured phase ended
    provenance_digest: str | None = None
    notes: Sequence[str] = ()
    failed_before: Sequence[str] = ()  # why the measured phase never started: an earlier phase failed
    attempts: Sequence[AttemptEnd] = ()  # the attempts of a queued run; empty for a local run
    processes: int = 0  # the number of processes of the measured phase, according to the plan
    sampled: Iterable[NodeRecord] = ()  # telemetry of the machines during the attempt
    recompute: Recompute | None = None  # the operations that the backend recomputes; None: unknown
    interrupted: bool = False  # whether the user stopped the run in any phase


def summarise(evidence: RunEvidence) -> tuple[Result, Iterable[Step]]:
    """Return the result of a run, and all its steps with the reason for each excluded step."""
    benchmark, record = evidence.benchmark, evidence.record
    workload = workload_of(benchmark, evidence.recompute)
    tokens = benchmark.tokens_per_step
    own = [msgspec.structs.replace(step, tokens=tokens) for step in first_rank(record.steps)]
    figures, marked = measure(workload, own, benchmark.window)
    failures = why_failed(
        record,
        evidence.ended,
        evidence.attempts,
        evidence.failed_before,
        processes=evidence.processes,
        # A submission ends when it reaches its target, and its log may omit steps.
        steps=0 if benchmark.is_submission else benchmark.steps,
    )
    if failures and not evidence.interrupted:
        failures = [*lost_gpus(evidence.sampled), *failures]
    no_window = not own and (failures or benchmark.is_submission)
    complaints = [] if no_window else figures.complaints  # a run without steps has no window
    pgle = _pgle(benchmark, record, failures)
    doubts = [
        *(f"rank {end.rank}: {failure}" for end in record.ends for failure in end.failures),
        *_other_work(benchmark, record),
        *_unproven_pgle(benchmark, pgle, failed=bool(failures)),
        *complaints,
    ]
    status: Status = "failed" if failures else "invalid" if doubts else "valid"
    figures, speed_notes = _without_false_claims(benchmark, figures, failed=bool(failures))
    facts = next((one for one in record.facts if one.rank == 0), None)
    own_convention = flops.conventions_for(workload.task, workload.model)[0]
    loss, reported = loss_of(own), reported_of(marked)
    unknown = _why_unknown(figures.window, loss, facts, evidence.provenance_digest, reported)
    unknown |= {} if pgle else {"pgle": "it was off (--pgle=off)"}
    unknown |= _why_unknown_of_a_submission(benchmark, record)
    result = Result(
        schema_version=SCHEMA_VERSION,
        run_id=evidence.run_id,
        status=status,
        reasons=[*failures, *doubts],
        benchmark=BenchmarkFigures(
            **name_words(benchmark),
            parallelism=dict(benchmark.parallelism.words()) or {"data": 1},
            routing=benchmark.routing or UNSET,
        ),
        window=figures.window,
        seconds_per_step=figures.seconds_per_step,
        **{name: getattr(figures, name) for name in SPEED_FIGURES},
        model_flops_per_step=None if workload.model.uncounted else workload.flops_per_step(own_convention),
        loss=loss,
        trainable_parameters=facts.trainable_parameters if facts else None,
        parameters=facts.parameters if facts else None,
        provenance=evidence.provenance_digest,
        reported_by_framework=reported,
        null_because={**figures.null_because, **unknown},
        notes=[
            *evidence.notes,
            *_what_it_was(benchmark, record),
            *speed_notes,
            *figures.notes,
            *settling.notes(figures.window),
            *record.unreadable,
        ],
        attempts=list(evidence.attempts),
        pgle=pgle,
        not_comparable=not_comparable(benchmark),
        slowed_by=benchmark.instruments.inject_slowdown,
        mlperf=record.mlperf,
        flops_differences=framework_differences(workload.model, workload.sequence_length),
    )
    result = _with_machines(result, benchmark, record, evidence.sampled, marked)
    # The steps of rank 0 decide which steps are excluded. Other ranks' steps are excluded for the same reasons.
    reasons = {step.step: step.excluded_because for step in marked}
    return result, EachTime(
        lambda: (
            msgspec.structs.replace(step, tokens=tokens, excluded_because=reasons.get(step.step, NOT_ON_RANK_0))
            for step in record.steps
        )
    )


def _why_unknown_of_a_submission(benchmark: Benchmark, record: RunRecord) -> dict[str, str]:
    found = {"mlperf": "the run is not an MLPerf submission"}
    if benchmark.is_submission:
        parameters = "the log of a submission does not report the number of parameters"
        found = {"parameters": parameters, "trainable_parameters": parameters}
        found |= {} if record.mlperf else {"mlperf": "the run wrote no MLLOG"}
    if benchmark.model.uncounted:
        found["model_flops_per_step"] = benchmark.model.uncounted
    return found


def _with_machines(
    result: Result,
    benchmark: Benchmark,
    record: RunRecord,
    sampled: Iterable[NodeRecord],
    marked: Sequence[Step],
) -> Result:
    """Add the telemetry of the machines and the spread between ranks to the result."""
    counted = {step.step for step in marked if step.excluded_because is None}
    unclaimed = None if result.seconds_per_step.median is not None else result.null_because.get("seconds_per_step")
    found, why = of_run(sampled, benchmark, record, marked, result.window, unclaimed)
    ranks = rank_spread(record.steps, counted, record.started)
    nulls = {**result.null_because, **({} if found else {"telemetry": why}), **({} if ranks else {"ranks": ALONE})}
    return msgspec.structs.replace(result, telemetry=found, ranks=ranks, null_because=nulls)


# --- other conditions of the run -------------------------------------------------------------------


def not_comparable(benchmark: Benchmark) -> list[str]:
    """Return why the metrics must not be compared. A profiler slows down even the steps that it does not record."""
    if benchmark.instruments.profile == "none":
        return []
    return [f"profiled (--profile={benchmark.instruments.profile}): recording changes the measured times"]


def _pgle(benchmark: Benchmark, record: RunRecord, failures: Sequence[str]) -> Pgle | None:
    if benchmark.instruments.pgle == "off":
        return None
    why = f"the run failed: {failures[0]}" if failures else "the run recorded no evidence"
    unseen = PgleSeen(applied=False, reason=why)
    return Pgle(way=benchmark.instruments.pgle, seen=record.pgle or unseen)


def _unproven_pgle(benchmark: Benchmark, pgle: Pgle | None, *, failed: bool) -> list[str]:
    """Return why PGLE was requested but not applied. On a CPU, recompiling suffices, because PGLE brings no gain."""
    if pgle is None or pgle.seen.applied or failed:
        return []
    if benchmark.hardware.kind == "cpu" and pgle.seen.recompile_step is not None:
        return []
    return [f"PGLE was not applied: {pgle.seen.reason}"]


def _what_it_was(benchmark: Benchmark, record: RunRecord) -> list[str]:
    """Return notes about the training: made-up data, a slowdown, and the notes of rank 0's worker."""
    made_up = [f"{benchmark.data} {NO_TEXT}"] if benchmark.data in MADE_UP_DATA else []
    first = [note for fact in record.facts if fact.rank == 0 for note in fact.notes]
    last = [note for end in record.ends if end.rank == 0 for note in end.notes]
    slowed = benchmark.instruments.inject_slowdown
    on_purpose = [f"{SLOWED} every step by {slowed:.0%} (--inject_slowdown={slowed:g})"] if slowed else []
    return [*made_up, *on_purpose, *benchmark.departures(), *first, *last]


def _why_unknown(
    window: Window,
    loss: Loss,
    facts: WorkerFacts | None,
    provenance_digest: str | None,
    reported: dict[str, Scalar | None],
) -> dict[str, str]:
    """Return the reason for each null value in a run's result, except for speed metrics."""
    found = unknown_figures(window, loss, reported)
    if facts is None:
        why = "the worker ended before it created the model"
        found |= dict.fromkeys(("parameters", "trainable_parameters"), why)
    if provenance_digest is None:
        found["provenance"] = "the run folder has no provenance.json"
    return found


def unknown_figures(window: Window, loss: Loss, reported: dict[str, Scalar | None]) -> dict[str, str]:
    found: dict[str, str] = {}
    if not window.counted:
        found |= dict.fromkeys(("window.first_step", "window.last_step"), "no step counts")
    if window.settling != "still moving":
        found |= dict.fromkeys(settling.OF_DRIFT, settling.WORDS[window.settling])
    if window.steps_to_tell is None:
        is_short = window.settling == "too short"
        why = "the window has no step, or begins before the step time can have settled"
        found[settling.STEPS_TO_TELL] = why if is_short else settling.WORDS[window.settling]
    for name in ("first", "last"):
        if getattr(loss, name) is None:
            found[f"loss.{name}"] = f"the {name} step has no finite loss"
    for name, value in reported.items():
        if value is None:
            found[f"reported_by_framework.{name}"] = "the framework did not report it for the counted steps"
    return found


def _other_work(benchmark: Benchmark, record: RunRecord) -> list[str]:
    """Return differences between the benchmark and the parameters and mesh that the framework reported."""
    model, lora = benchmark.model, benchmark.lora
    asked = flops.held_parameter_count(model, lora)
    trained = flops.trainable_parameter_count(model, lora)
    found = []
    for fact in record.facts:
        if fact.parameters != asked:
            found.append(
                f"rank {fact.rank}: the framework made {fact.parameters:,} parameters, but {model.name} has {asked:,}"
            )
        if fact.trainable_parameters != trained:
            found.append(
                f"rank {fact.rank}: the framework trained {fact.trainable_parameters:,} parameters "
                f"instead of {trained:,}"
            )
        devices = prod(fact.mesh.values())
        if devices != benchmark.gpus:
            found.append(f"rank {fact.rank}: the mesh has {devices} devices, but the benchmark has {benchmark.gpus}")
    return found


def _without_false_claims(benchmark: Benchmark, figures: Figures, *, failed: bool) -> tuple[Figures, list[str]]:
    """Remove speed metrics if the run failed, or if the device emulates its precision."""
    if failed:
        reason, notes = "the run failed", []
    elif benchmark.dtype in benchmark.hardware.emulated:
        reason = f"the speed has no meaning, because {benchmark.dtype} is emulated on {benchmark.hardware.title}"
        notes = [f"{reason}; the result is valid only for correctness"]
    else:
        return figures, []
    nulled = no_figures(figures.window, {"seconds_per_step": reason}, figures.complaints)
    return nulled, notes


def loss_of(steps: Sequence[Step]) -> Loss:
    losses = [step.loss for step in steps]
    return Loss(first=losses[0] if losses else None, last=losses[-1] if losses else None)


def reported_of(marked: Sequence[Step]) -> dict[str, Scalar | None]:
    """Return the medians of the values that the framework printed for counted steps. No other metric uses them."""
    counted = [step for step in marked if step.excluded_because is None]
    columns = {
        "seconds_per_step_median": [step.framework_seconds for step in counted],
        "tflops_per_device_median": [step.framework_tflops_per_device for step in counted],
        "tokens_per_second_per_device_median": [step.framework_tokens_per_second_per_device for step in counted],
    }
    return {
        name: statistics.median([value for value in values if value is not None]) for name, values in columns.items()
    }
