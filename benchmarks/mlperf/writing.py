"""What a run's MLLOG says: one frozen value with all that is needed, and the records it becomes, in order. Pure.

The keys are those that the rulesets up to 6.1.0 require; a ruleset ignores what it does not know. Every value is
the run's own: a setting that differs from the rules is written as it was, and the checkers find it.
launch/mlperf/emit.py writes the records with the package's own logger.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from benchmarks.convergence.reached import reached_at
from benchmarks.errors import RequestError
from benchmarks.inside.goal import Goal
from benchmarks.mlperf.definitions import MlperfBenchmark, Optimizer, steps_apart
from benchmarks.secret_rules import why_secret
from benchmarks.values import Benchmark, Convergence, Lora, Parallelism, RunRecord, Step, Value

RESULT_FILE = "result_0.txt"  # as the package checker looks for it
SEED = 1234  # of the order of the text, in both backends
# Our names of precisions -> those of the rules.
PRECISIONS = {"fp32": "fp32", "tf32": "tf32", "bf16": "bfloat16", "fp16": "fp16", "fp8": "fp8", "fp4": "nvfp4"}


class Entry(Value, frozen=True):
    """One line to write."""

    time_ms: int
    key: str
    value: Any = None
    event: Literal["start", "end", "point"] = "point"
    metadata: dict[str, Any] = {}


class WrittenEvaluation(Value, frozen=True):
    """One evaluation of a run: when it ran, after how many samples, and what it found."""

    step: int
    samples: int
    value: float
    start_ms: int
    stop_ms: int


class WrittenStep(Value, frozen=True):
    """One training step worth a line."""

    step: int
    time_ms: int
    loss: float | None
    seconds: float | None = None


class WrittenRun(Value, frozen=True):
    """One run with a target, with all that its MLLOG says. Times are Unix milliseconds."""

    benchmark: MlperfBenchmark
    org: str
    platform: str
    batch: int
    gradient_accumulation: int
    micro_batch: int
    sequence_length: int
    max_steps: int
    learning_rate: float
    optimizer: Optimizer  # as the run had it
    lora: Lora | None
    dtype: str  # of all arithmetic
    parallelism: Parallelism
    seed: int
    train_samples: int
    eval_samples: int
    cache_cleared: bool
    init_start_ms: int
    init_stop_ms: int
    run_start_ms: int
    run_stop_ms: int | None  # None: the run ended without a word, and so does its log
    status: Literal["success", "aborted"]
    evaluations: list[WrittenEvaluation]
    steps: list[WrittenStep] = []


def written(
    rules: MlperfBenchmark,
    benchmark: Benchmark,
    towards: Convergence,
    goal: Goal,
    record: RunRecord,
    steps: Sequence[Step],
    org: str,
) -> WrittenRun | None:
    """`steps` are those of rank 0. None where no step was begun: there is nothing to tell."""
    started = next((one for one in record.started if one.rank == 0), None)
    if started is None:
        return None
    unix, schedule, evaluations = started.unix_seconds, towards.schedule, record.evaluations
    success, stopped = reached_at(goal, evaluations) is not None, None
    if success or (evaluations and evaluations[-1].steps == benchmark.steps):
        stopped = evaluations[-1].ended_unix
    elif len(steps) >= benchmark.steps and steps[-1].elapsed_seconds is not None:
        stopped = unix + steps[-1].elapsed_seconds
    return WrittenRun(
        benchmark=rules,
        org=org,
        platform=f"{benchmark.gpus}x{benchmark.hardware.name}",
        batch=benchmark.global_batch_size,
        gradient_accumulation=benchmark.gradient_accumulation,
        micro_batch=benchmark.micro_batch_size,
        sequence_length=benchmark.sequence_length,
        max_steps=benchmark.steps,
        learning_rate=schedule.learning_rate,
        optimizer=msgspec.structs.replace(
            rules.optimizer,
            beta_1=schedule.beta1,
            beta_2=schedule.beta2,
            epsilon=schedule.epsilon,
            weight_decay=schedule.weight_decay,
            gradient_clip_norm=schedule.clip_norm,
            warmup_steps=schedule.warmup_steps,
            end_rate_ratio=schedule.final_learning_rate / schedule.learning_rate,
            decay_and_warmup_steps=schedule.steps if rules.optimizer.decay_and_warmup_steps else None,
        ),
        lora=benchmark.lora,
        dtype=benchmark.dtype,
        parallelism=benchmark.parallelism,
        seed=SEED,
        train_samples=rules.train_samples,
        eval_samples=towards.evaluation_sequences,
        cache_cleared=False,  # nobody did: its text is some 100 kB, and read once
        init_start_ms=_ms(started.launched_unix_seconds or unix),
        init_stop_ms=_ms(unix),
        run_start_ms=_ms(unix),
        run_stop_ms=None if stopped is None else _ms(stopped),
        status="success" if success else "aborted",
        evaluations=[
            WrittenEvaluation(
                step=one.steps,
                samples=one.sequences,
                value=float("nan") if one.loss is None else one.loss,
                start_ms=_ms(one.ended_unix - one.seconds),
                stop_ms=_ms(one.ended_unix),
            )
            for one in evaluations
        ],
        steps=[
            WrittenStep(step.step + 1, _ms(unix + step.elapsed_seconds), step.loss, step.seconds)
            for step in steps
            if step.elapsed_seconds is not None
        ],
    )


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


# --- a run as lines ---------------------------------------------------------------------------


def entries(run: WrittenRun) -> list[Entry]:
    """Every line, by its time; what has the same time, in the order that the rules ask for."""
    began, ready = run.init_start_ms, run.init_stop_ms
    found = [
        Entry(began, "cache_clear", run.cache_cleared),
        Entry(began, "init_start", event="start"),
        *(Entry(ready, key, value) for key, value in _settings(run).items()),
        Entry(ready, "init_stop", event="end"),
        Entry(run.run_start_ms, "run_start", event="start"),
        *sorted([*_blocks(run), *_steps(run)], key=lambda entry: entry.time_ms),
    ]
    if run.run_stop_ms is not None:
        samples = run.evaluations[-1].samples if run.evaluations else 0
        metadata = {"status": run.status, "samples_count": samples}
        found.append(Entry(run.run_stop_ms, "run_stop", event="end", metadata=metadata))
    _refuse_secrets(found)
    return found


def _settings(run: WrittenRun) -> dict[str, Any]:
    """The settings, the warm-up before the decay that a rule computes from it."""
    optimizer = run.optimizer
    warmup = optimizer.warmup_steps or 0
    if run.dtype not in PRECISIONS:
        what, where = f"the rules have no name for the precision '{run.dtype}'", "lowest_numerical_precision"
        raise RequestError(what, where=where, why=f"known: {', '.join(PRECISIONS)}")
    kinds = (f"lowest_numerical_precision_in_{kind}" for kind in ("linear", "attn", "comm"))
    return {
        "submission_benchmark": run.benchmark.name,
        "submission_org": run.org,
        "submission_division": "closed",
        "submission_status": "onprem",
        "submission_platform": run.platform,
        "target_accuracy": run.benchmark.target.at_most,
        "seed": run.seed,
        "global_batch_size": run.batch,
        "micro_batch_size": run.micro_batch,
        "gradient_accumulation_steps": run.gradient_accumulation,
        "max_sequence_length": run.sequence_length,
        "max_steps": run.max_steps,
        "train_samples": run.train_samples,
        "eval_samples": run.eval_samples,
        "evaluation_frequency": steps_apart(run.benchmark.evaluation, run.batch) * run.batch,
        "opt_name": optimizer.name,
        "opt_base_learning_rate": run.learning_rate,
        "opt_end_learning_rate": run.learning_rate * optimizer.end_rate_ratio,
        "opt_learning_rate_warmup_steps": warmup,
        "opt_learning_rate_decay_steps": (optimizer.decay_and_warmup_steps or run.max_steps) - warmup,
        "opt_learning_rate_decay_schedule": optimizer.schedule,
        "opt_learning_rate_training_steps": run.max_steps,
        "opt_adamw_beta_1": optimizer.beta_1,
        "opt_adamw_beta_2": optimizer.beta_2,
        "opt_adamw_epsilon": optimizer.epsilon,
        "opt_adamw_weight_decay": optimizer.weight_decay,
        "opt_gradient_clip_norm": optimizer.gradient_clip_norm,
        **({"lora_rank": run.lora.rank, "lora_alpha": run.lora.alpha} if run.lora else {}),
        **dict.fromkeys(kinds, PRECISIONS[run.dtype]),
        "tensor_parallelism": run.parallelism.tensor,
        "pipeline_parallelism": run.parallelism.pipeline,
        "context_parallelism": run.parallelism.context,
        "expert_parallelism": 1,
        "config_filename": "benchmark.json",
    }


def _blocks(run: WrittenRun) -> Iterator[Entry]:
    """Each block from the evaluation before it to the next; the last ends with the run where it has no evaluation."""
    began, at = run.run_start_ms, _where(0, 0)
    for one in run.evaluations:
        here = _where(one.step, one.samples)
        yield Entry(began, "block_start", event="start", metadata=at)
        yield Entry(one.start_ms, "block_stop", event="end", metadata=here)
        yield Entry(one.start_ms, "eval_start", event="start", metadata=here)
        yield Entry(one.stop_ms, "eval_accuracy", one.value, metadata=here)
        yield Entry(one.stop_ms, "eval_stop", event="end", metadata=here)
        began, at = one.stop_ms, here
    last = max([step.step for step in run.steps], default=at["step"])
    ends_so = run.evaluations and (run.status == "success" or last <= at["step"])
    if run.run_stop_ms is not None and not ends_so:
        yield Entry(began, "block_start", event="start", metadata=at)
        yield Entry(run.run_stop_ms, "block_stop", event="end", metadata=_where(last, last * run.batch))


def _where(step: int, samples: int) -> dict[str, Any]:
    return {"samples_count": samples, "step": step}


def _steps(run: WrittenRun) -> Iterator[Entry]:
    for one in run.steps:
        stats = {"train_loss": one.loss, "train_step_time": one.seconds}
        known = {key: value for key, value in stats.items() if value is not None}
        yield Entry(one.time_ms, "tracked_stats", known, metadata=_where(one.step, one.step * run.batch))


def _refuse_secrets(found: list[Entry]) -> None:
    """The log is published: what looks like a token or a login must not be in it. The value is not repeated here."""
    for entry in found:
        if isinstance(entry.value, str) and (why := why_secret(entry.value)):
            what = f"{entry.key} looks like a secret, which must not be written into a log"
            raise RequestError(what, where=f"MLLOG: {entry.key}", why=why)
