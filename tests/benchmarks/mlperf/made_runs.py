"""Runs of MLPerf with made-up values, as NVIDIA's submissions log them and as they are read again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from benchmarks.configs import Configs
from benchmarks.mlperf.definitions import MlperfBenchmark, first_evaluation, read_definition
from benchmarks.mlperf.run_log import LoggedRun, Record, read_runs
from benchmarks.values import Step, Value

CONFIGS = Configs()
LORA = read_definition(CONFIGS, "llama2_70b_lora")
START_MS = 1_760_000_000_000
BEGUN = START_MS / 1000 + 60
BATCHES = {"llama2_70b_lora": 8, "llama31_8b": 16, "flux1": 1024}
# Samples to converge that lie at the reference's mean, in whole intervals.
EVALUATIONS = {"llama2_70b_lora": 6, "llama31_8b": 13, "flux1": 34}
replace = msgspec.structs.replace


class Evaluation(Value, frozen=True):
    """One evaluation of a run."""

    steps: int
    sequences: int
    loss: float | None
    seconds: float
    ended_unix: float


class WrittenRun(Value, frozen=True):
    """One run, with everything that its log says."""

    settings: dict[str, Any]
    launched_unix: float
    started_unix: float
    stopped_unix: float | None  # None: the log has no run_stop
    status: str
    evaluations: list[Evaluation]
    steps: list[Step]


class Entry(NamedTuple):
    """One line of the log."""

    time_ms: int
    key: str
    value: Any = None
    event: Literal["INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"] = "POINT_IN_TIME"
    metadata: dict[str, Any] = {}


# --- a run as the rules have it -----------------------------------------------------------------


def made_run(
    name: str = "llama2_70b_lora",
    *,
    batch: int | None = None,
    count: int | None = None,
    step_seconds: float = 0.4,
    extra_lines: dict[str, Any] | None = None,
    **changes: Any,
) -> WrittenRun:
    """Return a run that evaluates by the rules and meets the target in its last evaluation.

    `said` are settings that it logs in addition to its own, or instead of them.
    """
    rules, batch = read_definition(CONFIGS, name), batch or BATCHES[name]
    evaluations = _evaluations(rules, batch, step_seconds, count or EVALUATIONS[name])
    run = WrittenRun(
        settings=_settings(rules, batch) | {"seed": 1, **(extra_lines or {})},
        launched_unix=BEGUN - 60,
        started_unix=BEGUN,
        stopped_unix=evaluations[-1].ended_unix + 0.05,
        status="success",
        evaluations=evaluations,
        steps=_steps(evaluations, step_seconds),
    )
    return replace(run, **changes)


def _settings(rules: MlperfBenchmark, batch: int) -> dict[str, Any]:
    """What the rulesets up to 6.1.0 require; a ruleset ignores what it does not know."""
    optimizer, last = rules.optimizer, rules.max_steps or 100_000
    warmup, end_ratio = (0, 0.0) if rules.lora else (96, 0.1)
    kinds = (f"lowest_numerical_precision_in_{kind}" for kind in ("linear", "attn", "comm"))
    lora = {"lora_rank": rules.lora.rank, "lora_alpha": rules.lora.alpha} if rules.lora else {}
    return {
        "submission_benchmark": rules.name,
        "submission_org": "SYNTHETIC",
        "submission_division": "closed",
        "submission_status": "onprem",
        "submission_platform": "1xcpu",
        "target_accuracy": rules.target.at_most,
        "global_batch_size": batch,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "max_sequence_length": rules.sequence_length or 1,
        "max_steps": last,
        "train_samples": 3901,
        "eval_samples": rules.eval_samples,
        "evaluation_frequency": -(-rules.evaluation.every_samples // batch) * batch,
        "opt_name": optimizer.name,
        "opt_base_learning_rate": 4e-4,
        "opt_end_learning_rate": 4e-4 * end_ratio,
        "opt_learning_rate_warmup_steps": warmup,
        "opt_learning_rate_decay_steps": (optimizer.decay_and_warmup_steps or last) - warmup,
        "opt_learning_rate_decay_schedule": optimizer.schedule,
        "opt_learning_rate_training_steps": last,
        "opt_adamw_beta_1": optimizer.beta_1,
        "opt_adamw_beta_2": optimizer.beta_2,
        "opt_adamw_epsilon": optimizer.epsilon,
        "opt_adamw_weight_decay": optimizer.weight_decay,
        "opt_gradient_clip_norm": optimizer.gradient_clip_norm,
        **lora,
        **dict.fromkeys(kinds, "bfloat16"),
        "tensor_parallelism": 1,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
        "config_filename": "config.sh",
    }


def _evaluations(rules: MlperfBenchmark, batch: int, step_seconds: float, count: int) -> list[Evaluation]:
    first, ended, before = first_evaluation(rules, batch), BEGUN, 0
    found: list[Evaluation] = []
    for place in range(count):
        step = first.step + place * first.steps_apart
        ended += (step - before) * step_seconds + 2
        before = step
        loss = rules.target.at_most * (0.999 if place == count - 1 else 1.01 + 0.01 * (count - place))
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


# --- a run as lines ------------------------------------------------------------------------------


def entries(run: WrittenRun) -> list[Entry]:
    """Every line, by its time; lines of the same time are in the order that the rules ask for."""
    began, ready = _ms(run.launched_unix), _ms(run.started_unix)
    found = [
        Entry(began, "cache_clear", True),
        Entry(began, "init_start", event="INTERVAL_START"),
        *(Entry(ready, key, value) for key, value in run.settings.items()),
        Entry(ready, "init_stop", event="INTERVAL_END"),
        Entry(ready, "run_start", event="INTERVAL_START"),
        *sorted([*_blocks(run), *_step_entries(run)], key=lambda entry: entry.time_ms),
    ]
    if run.stopped_unix is not None:
        metadata = {"status": run.status, "samples_count": run.evaluations[-1].sequences}
        found.append(Entry(_ms(run.stopped_unix), "run_stop", event="INTERVAL_END", metadata=metadata))
    return found


def _blocks(run: WrittenRun) -> Iterator[Entry]:
    """Each block from the evaluation before it to the next."""
    began, at = _ms(run.started_unix), _where(0, 0)
    for one in run.evaluations:
        here = _where(one.steps, one.sequences)
        paused, ended = _ms(one.ended_unix - one.seconds), _ms(one.ended_unix)
        yield Entry(began, "block_start", event="INTERVAL_START", metadata=at)
        yield Entry(paused, "block_stop", event="INTERVAL_END", metadata=here)
        yield Entry(paused, "eval_start", event="INTERVAL_START", metadata=here)
        yield Entry(ended, "eval_accuracy", float("nan") if one.loss is None else one.loss, metadata=here)
        yield Entry(ended, "eval_stop", event="INTERVAL_END", metadata=here)
        began, at = ended, here


def _step_entries(run: WrittenRun) -> Iterator[Entry]:
    for one in run.steps:
        stats = {"train_loss": one.loss, "train_step_time": one.seconds}
        known = {key: value for key, value in stats.items() if value is not None}
        place = _where(one.step + 1, (one.step + 1) * run.settings["global_batch_size"])
        yield Entry(_ms(run.started_unix + (one.elapsed_seconds or 0.0)), "tracked_stats", known, metadata=place)


def _where(step: int, samples: int) -> dict[str, Any]:
    return {"samples_count": samples, "step": step}


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def write(run: WrittenRun, path: Path) -> Path:
    """The log of a run, as mlperf_logging writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    place = {"file": "train.py", "lineno": 1}
    lines = [
        {
            "namespace": "",
            "time_ms": one.time_ms,
            "event_type": one.event,
            "key": one.key,
            "value": one.value,
            "metadata": {**place, **one.metadata},
        }
        for one in entries(run)
    ]
    path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
    return path


def logged(run: WrittenRun) -> LoggedRun:
    """A written run as it is read again."""
    records = [
        Record(line=n, key=e.key, value=e.value, metadata=e.metadata, time_ms=float(e.time_ms))
        for n, e in enumerate(entries(run), start=1)
    ]
    (read,) = read_runs(records)
    return read
