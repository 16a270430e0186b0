"""Runs for tests, with made-up values."""

from typing import Any

import msgspec

from benchmarks.configs import Configs
from benchmarks.mlperf.definitions import first_evaluation
from benchmarks.mlperf.writing import WrittenEvaluation, WrittenRun, WrittenStep
from benchmarks.values import Parallelism

CONFIGS = Configs()
START_MS = 1_760_000_000_000
BATCHES = {"llama2_70b_lora": 8, "llama31_8b": 16, "flux1": 1024}
# Samples to converge that lie at the reference's mean, in whole intervals.
EVALUATIONS = {"llama2_70b_lora": 6, "llama31_8b": 13, "flux1": 34}


def made_run(name: str = "llama2_70b_lora", *, seed: int = 1, step_ms: int = 400, **changes: Any) -> WrittenRun:
    """A run that evaluates as the rules have it and meets the target in its last evaluation."""
    benchmark = CONFIGS.mlperf(name)
    batch = changes.get("batch", BATCHES[name])
    evaluations = _evaluations(name, batch, step_ms, changes.pop("count", EVALUATIONS[name]))
    run = WrittenRun(
        benchmark=benchmark,
        org="SYNTHETIC",
        platform="1xSynthetic",
        batch=batch,
        gradient_accumulation=1,
        micro_batch=1,
        sequence_length=benchmark.sequence_length or 1,
        max_steps=benchmark.max_steps or 100_000,
        learning_rate=4e-4,
        optimizer=msgspec.structs.replace(
            benchmark.optimizer,
            warmup_steps=96 if benchmark.optimizer.warmup_steps is None else benchmark.optimizer.warmup_steps,
        ),
        lora=benchmark.lora,
        dtype="bf16",
        parallelism=Parallelism(tensor=4, data=2),
        seed=seed,
        train_samples=benchmark.train_samples,
        eval_samples=benchmark.eval_samples,
        cache_cleared=True,
        init_start_ms=START_MS,
        init_stop_ms=START_MS + 60_000,
        run_start_ms=START_MS + 60_001,
        run_stop_ms=evaluations[-1].stop_ms + 50,
        status="success",
        evaluations=evaluations,
        steps=_steps(evaluations, step_ms),
    )
    return msgspec.structs.replace(run, **changes)


def _evaluations(name: str, batch: int, step_ms: int, count: int) -> list[WrittenEvaluation]:
    benchmark = CONFIGS.mlperf(name)
    first = first_evaluation(benchmark, batch)
    found: list[WrittenEvaluation] = []
    for place in range(count):
        step = first.step + place * first.steps_apart
        before = found[-1].stop_ms if found else START_MS + 60_001
        trained = step - (found[-1].step if found else 0)
        start = before + trained * step_ms
        last = place == count - 1
        found.append(
            WrittenEvaluation(
                step=step,
                samples=step * batch,
                value=benchmark.target.at_most * (0.999 if last else 1.01 + 0.01 * (count - place)),
                start_ms=start,
                stop_ms=start + 2000,
            )
        )
    return found


def _steps(evaluations: list[WrittenEvaluation], step_ms: int) -> list[WrittenStep]:
    """A line every tenth step of each block."""
    found, begin, at = [], 0, START_MS + 60_001
    for one in evaluations:
        for step in range(begin + 10, one.step + 1, 10):
            loss = one.value + 0.1
            found.append(WrittenStep(step=step, time_ms=at + (step - begin) * step_ms, loss=loss))
        begin, at = one.step, one.stop_ms
    return found
