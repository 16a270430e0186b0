"""What a run came to on its way to a target, recomputed from what its worker wrote; and what proves nothing."""

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.convergence.goals import goal_of, option
from benchmarks.errors import RequestError
from benchmarks.job_record import Ended
from benchmarks.measuring.summary import Result, summarise
from benchmarks.mlperf.writing import entries, written
from benchmarks.rendering.report import result_rows
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Evaluation, RunRecord, Started, Step, WorkerEnd, WorkerFacts
from jax_backend import BACKEND as JAX
from nemo_backend import BACKEND as NEMO

CONFIGS = Configs()
BEGUN = 1_763_000_000.0
STEP_SECONDS, EVALUATION_SECONDS = 0.5, 2.0


def benchmark_of(**typed: object) -> Benchmark:
    request = {"backend": "jax", "task": "mlperf", "model": "llama31_8b_tiny", **typed}
    return resolve(Request(**request), CONFIGS, NEMO if typed.get("backend") == "nemo" else JAX)


def record_of(benchmark: Benchmark, losses: list[float | None], steps: int | None = None) -> RunRecord:
    """A run that evaluates as it is told to, with these losses; it ends after the last of them."""
    goal = goal_of(benchmark)
    assert goal is not None
    due = [goal.first + place * goal.every for place in range(len(losses))]
    elapsed, trained, evaluations = 0.0, [], []
    for step in range(steps if steps is not None else due[-1]):
        paused = EVALUATION_SECONDS if step in due else None
        elapsed += STEP_SECONDS + (paused or 0.0)
        trained.append(
            Step(
                step=step,
                seconds=STEP_SECONDS,
                loss=5.0 - step / 500,
                tokens=None,
                elapsed_seconds=elapsed,
                paused_seconds=paused,
            )
        )
    for place, (at, loss) in enumerate(zip(due, losses, strict=True), start=1):
        ended = BEGUN + at * STEP_SECONDS + place * EVALUATION_SECONDS
        evaluations.append(
            Evaluation(steps=at, sequences=16 * at, loss=loss, seconds=EVALUATION_SECONDS, ended_unix=ended)
        )
    facts = WorkerFacts(
        rank=0, process_count=1, device_count=1, local_device_count=1, device_kind="cpu", platform="cpu",
        parameters=426_624, trainable_parameters=426_624, mesh={}, versions={}, argv=[],
    )  # fmt: skip
    return RunRecord(
        attempt=1,
        facts=[facts],
        steps=trained,
        ends=[WorkerEnd(rank=0, status="done")],
        unreadable=[],
        started=[Started(rank=0, unix_seconds=BEGUN, host="h", launched_unix_seconds=BEGUN - 10)],
        evaluations=evaluations,
    )


def result_of(benchmark: Benchmark, record: RunRecord) -> Result:
    return summarise(benchmark, "run-1", record, [Ended(rank=0, exit_code=0)], "sha256:abc")[0]


def test_a_target_that_is_reached_ends_a_valid_run_with_its_time_taken_apart() -> None:
    benchmark = benchmark_of()
    result = result_of(benchmark, record_of(benchmark, [5.0, 4.0, 3.3]))
    assert (result.status, result.reasons) == ("valid", [])
    found = result.convergence
    assert found is not None
    assert (found.status, found.sequences, found.last_loss) == ("success", 1152, 3.3)
    taken = found.time_to_train
    assert taken is not None
    assert taken.training_seconds == pytest.approx(72 * STEP_SECONDS)
    assert taken.evaluation_seconds == pytest.approx(3 * EVALUATION_SECONDS)
    parts = (taken.training_seconds, taken.evaluation_seconds, taken.checkpoint_seconds, taken.other_seconds)
    assert sum(parts) == pytest.approx(taken.total_seconds)
    assert (taken.init_seconds, taken.samples, taken.steps) == (10.0, 1152, 72)
    rows = dict(result_rows(result))
    first, second = rows["target"].split("\n")
    assert first == "loss 3.3 (llama31_8b_tiny): success after 1,152 sequences, 3 evaluations"
    assert benchmark.convergence is not None
    reference = benchmark.convergence.reference
    assert reference is not None
    assert found.deviations == pytest.approx((1152 - reference.mean_sequences) / reference.stdev_sequences)
    assert (
        second == f"reference runs need {reference.mean_sequences:,.0f}: {found.deviations:+.1f} standard deviations"
    )
    assert rows["to train"].startswith(
        "42 s: 36.0 s of training, 0.0 s of it idle; 6.0 s of evaluation; 10.0 s of init"
    )


def test_a_run_that_never_reaches_its_target_is_aborted_and_invalid() -> None:
    benchmark = benchmark_of(steps=48)
    result = result_of(benchmark, record_of(benchmark, [5.0, 4.0]))
    assert result.status == "invalid"
    assert result.reasons == [
        "aborted: the loss was 4.0000 at best in 2 evaluations and 768 sequences, the target is 3.3"
    ]
    assert result.convergence is not None
    assert (result.convergence.status, result.convergence.time_to_train) == ("aborted", None)
    assert result.null_because["convergence.time_to_train"] == "the target was not reached"


@pytest.mark.parametrize(
    ("losses", "change", "reason"),
    [
        ([5.0, 4.0, 3.3], {"losses": [5.0, 3.2, 3.1]}, "the target was reached after step 48, and 24 more steps"),
        ([5.0, 4.0, 3.3], {"drop": 1}, "2 evaluations were written down, 3 were due: step 48 differs"),
        ([5.0, 4.0, 3.3], {"sequences": 1}, "the evaluation after step 24 says 1 sequences, not 384"),
        ([5.0, None, None], {}, "aborted: the loss was 5.0000 at best"),
    ],
)
def test_evaluations_that_are_not_those_of_the_goal_prove_nothing(
    losses: list[float | None], change: dict[str, object], reason: str
) -> None:
    benchmark = benchmark_of(steps=72)
    record = record_of(benchmark, losses)
    evaluations = list(record.evaluations)
    if "drop" in change:
        evaluations.pop(1)
    if "sequences" in change:
        evaluations[0] = msgspec.structs.replace(evaluations[0], sequences=1)
    if "losses" in change:
        evaluations = record_of(benchmark, [5.0, 3.2, 3.1]).evaluations
    result = result_of(benchmark, msgspec.structs.replace(record, evaluations=evaluations))
    assert result.status != "valid"
    if result.status == "invalid":
        assert any(reason in one for one in result.reasons), result.reasons


def test_a_run_that_ends_before_its_target_and_its_last_step_has_failed() -> None:
    benchmark = benchmark_of()
    result = result_of(benchmark, record_of(benchmark, [5.0, 4.0], steps=50))
    assert result.status == "failed"
    assert "50 of 384 steps were trained" in result.reasons
    assert result.convergence is not None
    assert result.convergence.status == "failed"


# --- what is asked for --------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["jax", "nemo"])
def test_both_backends_are_told_the_same_goal_schedule_and_text(backend: str) -> None:
    benchmark = benchmark_of(backend=backend)
    assert option(benchmark) == ["--goal=3.3,24,24,8,16"]
    (phase,) = (NEMO if backend == "nemo" else JAX).plan(benchmark).phases
    told = dict(word.split("=", 1) for word in phase.command if "=" in word)
    assert told["--goal"] == "3.3,24,24,8,16"
    assert any("configs/mlperf/tiny_text" in word for word in phase.command)
    rates = {
        "jax": ("learning_rate", "adam_b2", "adam_eps"),
        "nemo": ("optim.config.lr", "optim.config.adam_beta2", "optim.config.adam_eps"),
    }
    assert [float(told[name]) for name in rates[backend]] == [0.001, 0.95, 1e-05]


@pytest.mark.parametrize(
    ("typed", "what"),
    [
        ({"steps": 23}, "the first evaluation comes after the last step: 24 over 23"),
        ({"settings": {"global_batch_size": "24"}}, "a batch of 24 does not divide the 128 sequences"),
        ({"inject_slowdown": 0.5}, "--inject_slowdown does not go with --task=mlperf"),
        ({"settings": {"adam_b2": "0.99"}}, "adam_b2 is llama31_8b_tiny's own: 0.95"),
        ({"settings": {"eval_steps": "1"}}, "eval_steps is llama31_8b_tiny's own: 8"),
        ({"settings": {"learning_rate": "-1"}}, "learning_rate=-1: a number above 0 is expected"),
        ({"backend": "nemo", "settings": {"optim.config.lr": "0.1"}}, "optim.config.lr is llama31_8b_tiny's own"),
        ({"data": "/text"}, "llama31_8b_tiny is trained on tiny_text"),
        ({"model": "llama31_8b"}, "no jax mlperf recipe trains model 'llama31_8b'"),
        ({"model": "llama3_tiny"}, "unknown MLPerf benchmark 'llama3_tiny'"),
    ],
)
def test_what_would_be_another_benchmark_is_refused(typed: dict[str, object], what: str) -> None:
    with pytest.raises(RequestError) as refusal:
        benchmark_of(**typed)
    assert what in str(refusal.value)


def test_the_learning_rate_is_the_users_to_choose() -> None:
    for backend, name in (("jax", "learning_rate"), ("nemo", "optim.config.lr")):
        chosen = benchmark_of(backend=backend, settings={"learning_rate": "0.01"})
        assert chosen.knobs[name] == 0.01
        assert chosen.convergence is not None
        assert chosen.convergence.schedule.final_learning_rate == pytest.approx(0.001)


# --- its MLLOG ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("losses", "status"), [([5.0, 4.0, 3.3], "success"), ([5.0, 4.0, 3.4], "aborted")])
def test_a_run_says_in_its_mllog_what_it_did(losses: list[float | None], status: str) -> None:
    benchmark = benchmark_of(steps=72)
    goal, towards, record = goal_of(benchmark), benchmark.convergence, record_of(benchmark, losses)
    assert goal is not None
    assert towards is not None
    rules = CONFIGS.mlperf("llama31_8b_tiny")
    run = written(rules, benchmark, towards, goal, record, record.steps, "unnamed")
    assert run is not None
    lines = entries(run)
    said = {line.key: line for line in lines}
    assert said["run_stop"].metadata["status"] == status
    assert said["run_stop"].time_ms == round(1000 * record.evaluations[-1].ended_unix)
    assert said["run_start"].time_ms - said["init_start"].time_ms == 10_000
    accuracies = [line for line in lines if line.key == "eval_accuracy"]
    assert [(line.value, line.metadata["samples_count"]) for line in accuracies] == [
        (loss, 384 * place) for place, loss in enumerate(losses, start=1)
    ]


# --- nothing is left open -------------------------------------------------------------------------------


@pytest.mark.parametrize("losses", [[5.0, 4.0, 3.3], [5.0, None, None], []])
def test_every_null_of_such_a_result_has_its_reason(losses: list[float | None]) -> None:
    benchmark = benchmark_of(steps=72)
    result = result_of(benchmark, record_of(benchmark, losses, steps=72))
    found = msgspec.to_builtins(result.convergence)
    nulls = [f"convergence.{name}" for name, value in found.items() if value is None]
    nulls += [f"convergence.time_to_train.{name}" for name, v in (found["time_to_train"] or {}).items() if v is None]
    assert [path for path in nulls if path not in result.null_because] == []
