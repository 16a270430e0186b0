"""What a run's MLLOG says: its settings, its times, and the records they become, in order. Pure.

The keys are those that the rulesets up to 6.1.0 require; a ruleset ignores what it does not know. Every value is
the run's own: a setting that differs from the rules is written as it was, and the checkers find it.
launch/mlperf/emit.py writes the records with the package's own logger.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from benchmarks.convergence.reached import reached_at
from benchmarks.errors import RequestError
from benchmarks.inside.goal import Goal
from benchmarks.mlperf.definitions import MlperfBenchmark, steps_apart
from benchmarks.secret_rules import why_secret
from benchmarks.values import Benchmark, Convergence, Evaluation, RunRecord, Step, Value

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


class WrittenRun(Value, frozen=True):
    """One run with a target, with all that its MLLOG says."""

    settings: dict[str, Any]  # by their keys
    cache_cleared: bool
    launched_unix: float
    started_unix: float
    stopped_unix: float | None  # None: the run ended without a word, and so does its log
    status: Literal["success", "aborted"]
    evaluations: list[Evaluation]
    steps: list[Step]  # of rank 0, timed from the start


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
    unix, evaluations = started.unix_seconds, record.evaluations
    success, stopped = reached_at(goal, evaluations) is not None, None
    if success or (evaluations and evaluations[-1].steps == benchmark.steps):
        stopped = evaluations[-1].ended_unix
    elif len(steps) >= benchmark.steps and steps[-1].elapsed_seconds is not None:
        stopped = unix + steps[-1].elapsed_seconds
    return WrittenRun(
        settings=settings(rules, benchmark, towards, org),
        cache_cleared=False,  # nobody did: its text is some 100 kB, and read once
        launched_unix=started.launched_unix_seconds or unix,
        started_unix=unix,
        stopped_unix=stopped,
        status="success" if success else "aborted",
        evaluations=evaluations,
        steps=list(steps),
    )


def settings(rules: MlperfBenchmark, benchmark: Benchmark, towards: Convergence, org: str) -> dict[str, Any]:
    """The settings, the warm-up before the decay that a rule computes from it."""
    schedule, batch, layout = towards.schedule, benchmark.global_batch_size, benchmark.parallelism
    if benchmark.dtype not in PRECISIONS:
        what, where = f"the rules have no name for the precision '{benchmark.dtype}'", "lowest_numerical_precision"
        raise RequestError(what, where=where, why=f"known: {', '.join(PRECISIONS)}")
    kinds = (f"lowest_numerical_precision_in_{kind}" for kind in ("linear", "attn", "comm"))
    lora = {"lora_rank": benchmark.lora.rank, "lora_alpha": benchmark.lora.alpha} if benchmark.lora else {}
    scheduled = schedule.steps if rules.optimizer.decay_and_warmup_steps else benchmark.steps
    return {
        "submission_benchmark": rules.name,
        "submission_org": org,
        "submission_division": "closed",
        "submission_status": "onprem",
        "submission_platform": f"{benchmark.gpus}x{benchmark.hardware.name}",
        "target_accuracy": rules.target.at_most,
        "seed": SEED,
        "global_batch_size": batch,
        "micro_batch_size": benchmark.micro_batch_size,
        "gradient_accumulation_steps": benchmark.gradient_accumulation,
        "max_sequence_length": benchmark.sequence_length,
        "max_steps": benchmark.steps,
        "train_samples": rules.train_samples,
        "eval_samples": towards.evaluation_sequences,
        "evaluation_frequency": steps_apart(rules.evaluation, batch) * batch,
        "opt_name": rules.optimizer.name,
        "opt_base_learning_rate": schedule.learning_rate,
        "opt_end_learning_rate": schedule.final_learning_rate,
        "opt_learning_rate_warmup_steps": schedule.warmup_steps,
        "opt_learning_rate_decay_steps": scheduled - schedule.warmup_steps,
        "opt_learning_rate_decay_schedule": rules.optimizer.schedule,
        "opt_learning_rate_training_steps": benchmark.steps,
        "opt_adamw_beta_1": schedule.beta1,
        "opt_adamw_beta_2": schedule.beta2,
        "opt_adamw_epsilon": schedule.epsilon,
        "opt_adamw_weight_decay": schedule.weight_decay,
        "opt_gradient_clip_norm": schedule.clip_norm,
        **lora,
        **dict.fromkeys(kinds, PRECISIONS[benchmark.dtype]),
        "tensor_parallelism": layout.tensor,
        "pipeline_parallelism": layout.pipeline,
        "context_parallelism": layout.context,
        "expert_parallelism": 1,
        "config_filename": "benchmark.json",
    }


# --- a run as lines ---------------------------------------------------------------------------


def entries(run: WrittenRun) -> list[Entry]:
    """Every line, by its time; what has the same time, in the order that the rules ask for."""
    began, ready = _ms(run.launched_unix), _ms(run.started_unix)
    found = [
        Entry(began, "cache_clear", run.cache_cleared),
        Entry(began, "init_start", event="start"),
        *(Entry(ready, key, value) for key, value in run.settings.items()),
        Entry(ready, "init_stop", event="end"),
        Entry(ready, "run_start", event="start"),
        *sorted([*_blocks(run), *_steps(run)], key=lambda entry: entry.time_ms),
    ]
    if run.stopped_unix is not None:
        samples = run.evaluations[-1].sequences if run.evaluations else 0
        metadata = {"status": run.status, "samples_count": samples}
        found.append(Entry(_ms(run.stopped_unix), "run_stop", event="end", metadata=metadata))
    _refuse_secrets(found)
    return found


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _blocks(run: WrittenRun) -> Iterator[Entry]:
    """Each block from the evaluation before it to the next; the last ends with the run where it has no evaluation."""
    began, at = _ms(run.started_unix), _where(0, 0)
    for one in run.evaluations:
        here = _where(one.steps, one.sequences)
        paused, ended = _ms(one.ended_unix - one.seconds), _ms(one.ended_unix)
        yield Entry(began, "block_start", event="start", metadata=at)
        yield Entry(paused, "block_stop", event="end", metadata=here)
        yield Entry(paused, "eval_start", event="start", metadata=here)
        yield Entry(ended, "eval_accuracy", float("nan") if one.loss is None else one.loss, metadata=here)
        yield Entry(ended, "eval_stop", event="end", metadata=here)
        began, at = ended, here
    trained = max((step.step + 1 for step in run.steps if step.elapsed_seconds is not None), default=at["step"])
    ends_so = run.evaluations and (run.status == "success" or trained <= at["step"])
    if run.stopped_unix is not None and not ends_so:
        there = _where(trained, trained * run.settings["global_batch_size"])
        yield Entry(began, "block_start", event="start", metadata=at)
        yield Entry(_ms(run.stopped_unix), "block_stop", event="end", metadata=there)


def _where(step: int, samples: int) -> dict[str, Any]:
    return {"samples_count": samples, "step": step}


def _steps(run: WrittenRun) -> Iterator[Entry]:
    for one in run.steps:
        if one.elapsed_seconds is not None:
            stats = {"train_loss": one.loss, "train_step_time": one.seconds}
            known = {key: value for key, value in stats.items() if value is not None}
            place = _where(one.step + 1, (one.step + 1) * run.settings["global_batch_size"])
            yield Entry(_ms(run.started_unix + one.elapsed_seconds), "tracked_stats", known, metadata=place)


def _refuse_secrets(found: list[Entry]) -> None:
    """The log is published: what looks like a token or a login must not be in it. The value is not repeated here."""
    for entry in found:
        if isinstance(entry.value, str) and (why := why_secret(entry.value)):
            what = f"{entry.key} looks like a secret, which must not be written into a log"
            raise RequestError(what, where=f"MLLOG: {entry.key}", why=why)
