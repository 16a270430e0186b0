"""A run of Stepmark's own that trained towards a target -> what its MLLOG says. Pure."""

from collections.abc import Sequence

from benchmarks.convergence.reached import reached_at
from benchmarks.inside.goal import Goal
from benchmarks.mlperf.definitions import MlperfBenchmark, Optimizer
from benchmarks.mlperf.writing import Precision, Submission, WrittenEvaluation, WrittenRun, WrittenStep
from benchmarks.values import Benchmark, Convergence, RunRecord, Step

SEED = 1234  # of the order of the text, in both backends


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
    begun = _ms(started.unix_seconds)
    success = reached_at(goal, record.evaluations) is not None
    schedule = towards.schedule
    return WrittenRun(
        benchmark=rules,
        submission=Submission(org=org, platform=f"{benchmark.gpus}x{benchmark.hardware.name}"),
        batch=benchmark.global_batch_size,
        gradient_accumulation=benchmark.gradient_accumulation,
        micro_batch=benchmark.micro_batch_size,
        sequence_length=benchmark.sequence_length,
        max_steps=benchmark.steps,
        learning_rate=schedule.learning_rate,
        warmup_steps=schedule.warmup_steps,
        optimizer=Optimizer(
            name=rules.optimizer.name,
            beta_1=schedule.beta1,
            beta_2=schedule.beta2,
            epsilon=schedule.epsilon,
            weight_decay=schedule.weight_decay,
            gradient_clip_norm=schedule.clip_norm,
            schedule=rules.optimizer.schedule,
            warmup_steps=schedule.warmup_steps,
            end_rate_ratio=schedule.final_learning_rate / schedule.learning_rate,
            decay_and_warmup_steps=schedule.steps if rules.optimizer.decay_and_warmup_steps else None,
        ),
        lora=benchmark.lora,
        precision=Precision(linear=benchmark.dtype, attention=benchmark.dtype, communication=benchmark.dtype),
        parallelism=benchmark.parallelism,
        config_filename="benchmark.json",
        seed=SEED,
        train_samples=rules.train_samples,
        eval_samples=towards.evaluation_sequences,
        cache_cleared=False,  # nobody did: its text is some 100 kB, and read once
        init_start_ms=_ms(started.launched_unix_seconds or started.unix_seconds),
        init_stop_ms=begun,
        run_start_ms=begun,
        run_stop_ms=_stop(record, steps, success=success, asked=benchmark.steps, begun=started.unix_seconds),
        status="success" if success else "aborted",
        evaluations=[
            WrittenEvaluation(
                step=one.steps,
                samples=one.sequences,
                value=float("nan") if one.loss is None else one.loss,
                start_ms=_ms(one.ended_unix - one.seconds),
                stop_ms=_ms(one.ended_unix),
            )
            for one in record.evaluations
        ],
        steps=[
            WrittenStep(
                step=step.step + 1,
                time_ms=_ms(started.unix_seconds + step.elapsed_seconds),
                loss=step.loss,
                seconds=step.seconds,
            )
            for step in steps
            if step.elapsed_seconds is not None
        ],
    )


def _stop(record: RunRecord, steps: Sequence[Step], *, success: bool, asked: int, begun: float) -> int | None:
    """When the run ended: at its target, or after the last step it was allowed; None where it was cut off."""
    if success or (record.evaluations and record.evaluations[-1].steps == asked):
        return _ms(record.evaluations[-1].ended_unix)
    if len(steps) < asked or steps[-1].elapsed_seconds is None:
        return None
    return _ms(begun + steps[-1].elapsed_seconds)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
