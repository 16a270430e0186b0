"""Runs for tests, with made-up values: as they are written, and as they are read again."""

from typing import Any

import msgspec

from benchmarks.configs import Configs
from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation
from benchmarks.mlperf.records import Record
from benchmarks.mlperf.run_log import LoggedRun, read_runs
from benchmarks.mlperf.writing import WrittenRun, entries, settings
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Evaluation, Schedule, Step
from jax_backend import BACKEND

CONFIGS = Configs()
LORA = CONFIGS.mlperf("llama2_70b_lora")
START_MS = 1_760_000_000_000
BEGUN = START_MS / 1000 + 60
BATCHES = {"llama2_70b_lora": 8, "llama31_8b": 16, "flux1": 1024}
# Samples to converge that lie at the reference's mean, in whole intervals.
EVALUATIONS = {"llama2_70b_lora": 6, "llama31_8b": 13, "flux1": 34}
TINY = resolve(Request(backend="jax", task="mlperf", model="llama31_8b_tiny"), CONFIGS, BACKEND)
replace = msgspec.structs.replace


def made_run(
    name: str = "llama2_70b_lora",
    *,
    rules: MlperfBenchmark | None = None,
    batch: int | None = None,
    count: int | None = None,
    step_seconds: float = 0.4,
    said: dict[str, Any] | None = None,
    **changes: Any,
) -> WrittenRun:
    """A run that evaluates as the rules have it and meets the target in its last evaluation; `said` are settings
    that it logs beside its own or in their place."""
    real, rules = CONFIGS.mlperf(name), rules or CONFIGS.mlperf(name)
    batch = batch or BATCHES[name]
    evaluations = _evaluations(real, rules.target.at_most, batch, step_seconds, count or EVALUATIONS[name])
    run = WrittenRun(
        settings=_settings(rules, batch) | {"seed": 1, **(said or {})},
        cache_cleared=True,
        launched_unix=BEGUN - 60,
        started_unix=BEGUN,
        stopped_unix=evaluations[-1].ended_unix + 0.05,
        status="success",
        evaluations=evaluations,
        steps=_steps(evaluations, step_seconds),
    )
    return replace(run, **changes)


def _settings(rules: MlperfBenchmark, batch: int) -> dict[str, Any]:
    optimizer, assumed = rules.optimizer, TINY.convergence
    assert assumed is not None
    last = rules.max_steps or 100_000
    schedule = Schedule(
        learning_rate=4e-4,
        final_learning_rate=4e-4 * optimizer.end_rate_ratio,
        warmup_steps=96 if optimizer.warmup_steps is None else optimizer.warmup_steps,
        steps=optimizer.decay_and_warmup_steps or last,
        beta1=optimizer.beta_1,
        beta2=optimizer.beta_2,
        epsilon=optimizer.epsilon,
        weight_decay=optimizer.weight_decay,
        clip_norm=optimizer.gradient_clip_norm,
    )
    sizes = {"global_batch_size": batch, "sequence_length": rules.sequence_length or 1, "steps": last}
    benchmark = replace(TINY, lora=rules.lora, dtype="bf16", **sizes)
    towards = replace(assumed, evaluation_sequences=rules.eval_samples, schedule=schedule)
    return settings(rules, benchmark, towards, "SYNTHETIC")


def _evaluations(
    real: MlperfBenchmark, target: float, batch: int, step_seconds: float, count: int
) -> list[Evaluation]:
    first, ended, before = first_evaluation(real, batch), BEGUN, 0
    found: list[Evaluation] = []
    for place in range(count):
        step = first.step + place * first.steps_apart
        ended += (step - before) * step_seconds + 2
        before = step
        loss = target * (0.999 if place == count - 1 else 1.01 + 0.01 * (count - place))
        found.append(Evaluation(steps=step, sequences=step * batch, loss=loss, seconds=2.0, ended_unix=ended))
    return found


def _steps(evaluations: list[Evaluation], step_seconds: float) -> list[Step]:
    """A line every tenth step of each block."""
    found, begin, elapsed = [], 0, 0.0
    for one in evaluations:
        for step in range(begin + 10, one.steps + 1, 10):
            at = elapsed + (step - begin) * step_seconds
            found.append(Step(step - 1, None, (one.loss or 0) + 0.1, None, elapsed_seconds=at))
        begin, elapsed = one.steps, one.ended_unix - BEGUN
    return found


def logged(run: WrittenRun) -> LoggedRun:
    """A written run as it is read again."""
    records = [
        Record(line=n, key=e.key, value=e.value, metadata=e.metadata, time_ms=float(e.time_ms))
        for n, e in enumerate(entries(run), start=1)
    ]
    (read,) = read_runs(records)
    return read
