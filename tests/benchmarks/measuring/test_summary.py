"""What a run wrote -> result.json: valid, invalid or failed, each for its reason, and never a false claim."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.job_record import ProcessEnd
from benchmarks.logs.foreign import ForeignResult, summarise_foreign
from benchmarks.measuring.failures import NO_RECORD
from benchmarks.measuring.summary import Result, RunEvidence, summarise
from benchmarks.measuring.utilisation import Workload
from benchmarks.model.flops import parameter_count
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import (
    Benchmark,
    Lora,
    Peak,
    PgleSeen,
    RunRecord,
    Step,
    WorkerEnd,
    WorkerFacts,
    changed_benchmark,
    json_text,
    to_builtins,
)
from jax_backend import BACKEND

CONFIGS = Configs()
GOOD = [1.5, *[0.5] * 9]


def benchmark_of(dtype: str = "bf16", steps: int = 10, **wanted: Any) -> Benchmark:
    return resolve(Request(backend="jax", model="llama2_tiny", dtype=dtype, steps=steps, **wanted), CONFIGS, BACKEND)


def facts_of(rank: int = 0, processes: int = 1) -> WorkerFacts:
    parameters = parameter_count(CONFIGS.model("llama2_tiny"))
    return WorkerFacts(
        rank=rank,
        process_count=processes,
        device_count=processes,
        local_device_count=1,
        device_kind="cpu",
        platform="cpu",
        parameters=parameters,
        trainable_parameters=parameters,
        mesh={},
        versions={"maxtext": "0.2.5"},
        argv=[],
    )


def steps_of(seconds: Sequence[float | None] = GOOD, rank: int = 0) -> list[Step]:
    return [
        Step(step=n, seconds=value, loss=6.0 - n / 10, tokens=None, rank=rank, framework_seconds=0.4)
        for n, value in enumerate(seconds)
    ]


def record_of(steps: list[Step], ends: list[WorkerEnd] | None = None, **changed: Any) -> RunRecord:
    good = [WorkerEnd(rank=0, status="done")]
    return RunRecord(
        **{
            "attempt": 1,
            "facts": [facts_of()],
            "steps": steps,
            "ends": good if ends is None else ends,
            "unreadable": [],
            **changed,
        }
    )


def summary(
    record: RunRecord,
    ended: Sequence[ProcessEnd] = (ProcessEnd(rank=0, exit_code=0),),
    benchmark: Benchmark | None = None,
    digest: str | None = "sha256:0",
) -> tuple[Result, list[Step]]:
    result, steps = summarise(
        RunEvidence(
            benchmark=benchmark or benchmark_of(),
            run_id="run-1",
            record=record,
            ended=ended,
            provenance_digest=digest,
        )
    )
    return result, list(steps)


def result_of(record: RunRecord, *ended: ProcessEnd, benchmark: Benchmark | None = None) -> Result:
    return summary(record, ended, benchmark)[0]


DONE = ProcessEnd(rank=0, exit_code=0)


def test_a_good_run_is_valid() -> None:
    result, steps = summary(record_of(steps_of()))
    assert (result.status, result.reasons) == ("valid", [])
    assert result.seconds_per_step.median == 0.5
    assert result.tokens_per_second == 512
    assert (result.loss.first, result.loss.last) == (6.0, pytest.approx(5.1))
    assert result.parameters == result.trainable_parameters == 106_816
    assert result.reported_by_framework["seconds_per_step_median"] == 0.4
    assert [step.excluded_because for step in steps] == ["compile", *[None] * 9]
    assert {step.tokens for step in steps} == {256}
    assert any("too short to confirm" in note for note in result.notes)


# --- failed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "ended", "reason"),
    [
        ([], [ProcessEnd(rank=0, exit_code=-9)], "rank 0 was killed by signal 9 after step 3"),
        ([], [ProcessEnd(rank=0, exit_code=-11)], "rank 0 was killed by signal 11 (SIGSEGV) after step 3"),
        (
            [WorkerEnd(rank=0, status="error", message="ValueError: no")],
            [ProcessEnd(rank=0, exit_code=1)],
            "rank 0 failed (ValueError: no) after step 3",
        ),
        ([], [ProcessEnd(rank=0, exit_code=7)], "rank 0 ended with exit code 7 after step 3"),
        ([], [DONE], "rank 0 ended without a final record after step 3"),
        ([], [ProcessEnd(rank=0, exit_code=None)], "rank 0 did not end and was killed after step 3"),
        (
            [WorkerEnd(rank=0, status="interrupted")],
            [ProcessEnd(rank=0, exit_code=130, interrupted=True)],
            "interrupted by the user after step 3",
        ),
        (None, [ProcessEnd(rank=0, exit_code=1)], "rank 0 ended with exit code 1 after step 3"),
        (None, [], f"{NO_RECORD} after step 3"),
        (None, [DONE], "the run trained 4 of 10 steps"),
    ],
)
def test_a_run_that_did_not_go_through_failed(
    ends: list[WorkerEnd] | None, ended: list[ProcessEnd], reason: str
) -> None:
    result, steps = summary(record_of(steps_of(GOOD[:4]), ends), ended)
    assert (result.status, result.reasons) == ("failed", [reason])
    assert result.tokens_per_second is None
    assert result.seconds_per_step.median is None
    assert result.null_because["tokens_per_second"] == "the run failed"
    assert len(steps) == 4


def test_a_worker_that_never_trained() -> None:
    result, steps = summary(record_of([], [], facts=[]), [ProcessEnd(rank=0, exit_code=-9)])
    assert result.status == "failed"
    assert result.reasons[0] == "rank 0 was killed by signal 9 before its first step"
    assert (result.parameters, result.loss.first, steps) == (None, None, [])


def test_one_lost_rank_of_two_fails_the_run() -> None:
    record = record_of(steps_of() + steps_of(GOOD[:3], rank=1))
    result = result_of(record, DONE, ProcessEnd(rank=1, exit_code=-9))
    assert result.status == "failed"
    assert result.reasons == ["rank 1 was killed by signal 9 after step 2"]


# --- invalid --------------------------------------------------------------------------------------


def test_broken_assertions_make_it_invalid_and_keep_its_figures() -> None:
    failures = ["the loss is not finite in 2 steps (first: 3, 4)", "every gradient is zero: nothing was trained"]
    record = record_of(steps_of(), [WorkerEnd(rank=0, status="done", failures=failures)])
    result = result_of(record, DONE)
    assert result.status == "invalid"
    assert result.reasons == [f"rank 0: {failure}" for failure in failures]
    assert result.seconds_per_step.median == 0.5


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"parameters": 999}, "rank 0: the framework made 999 parameters, but llama2_tiny has 106,816"),
        (
            {"trainable_parameters": 999},
            "rank 0: the framework trained 999 parameters instead of 106,816",
        ),
        ({"mesh": {"data": 2}}, "rank 0: the mesh has 2 devices, but the benchmark has 1"),
    ],
)
def test_a_framework_that_trained_something_else_makes_it_invalid(other: dict[str, Any], reason: str) -> None:
    fact = msgspec.structs.replace(facts_of(), **other)
    result = result_of(record_of(steps_of(), facts=[fact]), ProcessEnd(rank=0, exit_code=0))
    assert (result.status, result.reasons) == ("invalid", [reason])


ADAPTERS = Lora(rank=4, alpha=8, dropout=0.0, targets=["query_key_value"])


@pytest.mark.parametrize(("trained", "status"), [(2 * 4 * (64 + 128), "valid"), (106_816, "invalid"), (0, "invalid")])
def test_of_a_run_with_adapters_they_alone_are_trained_and_counted_on_top(trained: int, status: str) -> None:
    """The matrix of 64 x (4 + 2 x 2) heads x 16 has adapters of 64 x 4 and 4 x 128, in each of 2 layers."""
    benchmark = msgspec.structs.replace(benchmark_of(), task="lora", lora=ADAPTERS)
    fact = msgspec.structs.replace(facts_of(), parameters=106_816 + 1_536, trainable_parameters=trained)
    result = result_of(record_of(steps_of(), facts=[fact]), DONE, benchmark=benchmark)
    assert result.status == status
    assert (result.trainable_parameters, result.parameters) == (trained, 108_352)
    frozen_alone = msgspec.structs.replace(fact, parameters=106_816)
    assert result_of(record_of(steps_of(), facts=[frozen_alone]), DONE, benchmark=benchmark).status == "invalid"


def test_what_the_first_ranks_worker_noted_stands_in_the_result() -> None:
    facts = [msgspec.structs.replace(facts_of(rank), notes=[f"begun {rank}"]) for rank in (0, 1)]
    ends = [WorkerEnd(rank=rank, status="done", notes=[f"ended {rank}"]) for rank in (0, 1)]
    result = result_of(record_of(steps_of(), ends, facts=facts), DONE)
    assert result.notes[:3] == ["synthetic data: no text was read", "begun 0", "ended 0"]
    assert not {"begun 1", "ended 1"} & set(result.notes)


def test_a_loss_that_became_nan_is_null_with_its_reason() -> None:
    steps = steps_of()
    steps[-1] = msgspec.structs.replace(steps[-1], loss=None)
    result = result_of(
        record_of(steps, [WorkerEnd(rank=0, status="done", failures=["the loss is not finite"])]), DONE
    )
    assert (result.status, result.loss.last) == ("invalid", None)
    assert "loss.last" in result.null_because


def test_faster_than_the_hardware_is_invalid() -> None:
    benchmark = benchmark_of(hardware="h100", window="last")
    result = result_of(record_of(steps_of([1.0, *[1e-9] * 9])), DONE, benchmark=benchmark)
    assert result.status == "invalid"
    assert "are faster than" in result.reasons[0]


def test_failed_outranks_invalid_and_both_reasons_are_listed() -> None:
    record = record_of(steps_of(GOOD[:4]), [WorkerEnd(rank=0, status="done", failures=["NaN"])])
    result = result_of(record, DONE)
    assert (result.status, result.reasons) == ("failed", ["the run trained 4 of 10 steps", "rank 0: NaN"])


# --- no false claims --------------------------------------------------------------------------------


def test_emulated_fp8_is_valid_says_so_and_claims_no_speed() -> None:
    result = result_of(record_of(steps_of()), DONE, benchmark=benchmark_of("fp8"))
    assert (result.status, result.reasons) == ("valid", [])
    assert result.seconds_per_step.median is None
    assert (result.tokens_per_second, result.tokens_per_second_per_gpu, result.mfu) == (None, None, None)
    assert result.days_per_trillion_tokens is None
    assert "fp8 is emulated" in result.null_because["seconds_per_step"]
    assert any("valid only for correctness" in note for note in result.notes)
    assert result.loss.first == 6.0
    assert result.window.counted == 9


def nulls(path: str, value: Any) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from nulls(f"{path}.{key}" if path else key, inner)


RECORDS = {
    "good": (record_of(steps_of()), [DONE]),
    "one step": (record_of(steps_of(GOOD[:1])), [DONE]),
    "killed": (record_of(steps_of(GOOD[:4]), []), [ProcessEnd(rank=0, exit_code=-9)]),
    "nothing": (record_of([], [], facts=[]), []),
    "no times": (record_of(steps_of([None] * 10)), [DONE]),
    "zero seconds": (record_of(steps_of([0.0] * 10)), [DONE]),
}


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("name", RECORDS)
def test_every_null_has_its_reason(name: str, dtype: str) -> None:
    record, ended = RECORDS[name]
    result, _ = summary(record, ended, benchmark_of(dtype), digest=None)
    for path in nulls("", to_builtins(result)):
        above = [path.rsplit(".", n)[0] for n in range(path.count(".") + 1)]
        assert any(result.null_because.get(place) for place in above), f"{path} is null without a reason"


# --- several ranks ----------------------------------------------------------------------------------


def test_the_steps_of_all_ranks_are_kept_and_marked_alike() -> None:
    slow_rank = [2.0, *[0.7] * 9]
    record = record_of(
        steps_of() + steps_of(slow_rank, rank=1),
        [WorkerEnd(rank=0, status="done"), WorkerEnd(rank=1, status="done")],
    )
    result, steps = summary(record, [DONE, ProcessEnd(rank=1, exit_code=0)])
    assert result.status == "valid"
    assert result.seconds_per_step.median == 0.5
    assert len(steps) == 20
    marks = {rank: [s.excluded_because for s in steps if s.rank == rank] for rank in (0, 1)}
    assert marks[0] == marks[1] == ["compile", *[None] * 9]


def test_a_step_that_only_another_rank_reported_does_not_count() -> None:
    record = record_of(steps_of(GOOD[:3]) + steps_of(GOOD[:5], rank=1), [])
    _, steps = summary(record, [ProcessEnd(rank=0, exit_code=-9), ProcessEnd(rank=1, exit_code=-15)])
    marks = [s.excluded_because for s in steps if s.rank == 1]
    assert marks == ["compile", None, None, "not_on_rank_0", "not_on_rank_0"]


# --- the contract -----------------------------------------------------------------------------------

CONTRACT: dict[str, Any] = {
    "schema_version": None,
    "run_id": None,
    "status": None,
    "reasons": None,
    "benchmark": [
        "backend", "engine", "model", "task", "dtype", "hardware", "gpus", "nodes", "sequence_length",
        "global_batch_size", "parallelism",
    ],
    "window": [
        "rule", "first_step", "last_step", "counted", "settled", "excluded", "settling",
        "drift_percent_per_minute", "median_off_percent", "steps_to_tell",
    ],
    "seconds_per_step": ["median", "mean", "stdev", "ci95", "excess"],
    "tokens_per_second": None,
    "tokens_per_second_effective": None,
    "tokens_per_second_per_gpu": None,
    "days_per_trillion_tokens": None,
    "model_flops_per_step": None,
    "mfu": None,
    "loss": ["first", "last"],
    "trainable_parameters": None,
    "parameters": None,
    "provenance": None,
    "reported_by_framework": [
        "seconds_per_step_median", "tflops_per_device_median", "tokens_per_second_per_device_median",
    ],
    "null_because": None,
    "notes": None,
    "attempts": None,
    "telemetry": None,
    "ranks": None,
    "pgle": None,
    "not_comparable": None,
    "hfu": None,
    "slowed_by": None,
    "mlperf": None,
    "flops_differences": None,
}  # fmt: skip


def test_result_json_has_exactly_the_keys_of_the_contract() -> None:
    benchmark = benchmark_of(hardware="h100")
    data = msgspec.json.decode(json_text(result_of(record_of(steps_of()), DONE, benchmark=benchmark)))
    assert list(data) == list(CONTRACT)
    for name, keys in CONTRACT.items():
        if keys is not None:
            assert list(data[name]) == keys, name
    assert list(data["mfu"][0]) == ["convention", "precision_peak", "peak_tflops", "peak_source", "percent"]
    assert data["schema_version"] == 1
    low, high = data["seconds_per_step"]["ci95"]
    assert low <= data["seconds_per_step"]["median"] <= high


def test_what_is_computed_twice_makes_hfu_and_without_it_hfu_is_null() -> None:
    benchmark = benchmark_of(hardware="h100")
    twice = BACKEND.storage(benchmark).recompute
    known, _ = summarise(
        RunEvidence(benchmark=benchmark, run_id="run-1", record=record_of(steps_of()), ended=[DONE], recompute=twice)
    )
    assert known.mfu
    assert known.hfu
    assert (known.hfu[0].convention, known.hfu[0].peak_tflops) == ("recipe", known.mfu[0].peak_tflops)
    assert known.hfu[0].percent > known.mfu[0].percent
    unknown = result_of(record_of(steps_of()), DONE, benchmark=benchmark)
    assert unknown.hfu is None
    assert "the recomputed work is unknown" in unknown.null_because["hfu"]


def test_a_measured_peak_gives_a_cpu_its_mfu() -> None:
    peak = Peak(tflops=0.1, source="launch/peak.py, today")
    benchmark = msgspec.structs.replace(benchmark_of(), measured_peaks={"bf16": peak})
    result = result_of(record_of(steps_of()), DONE, benchmark=benchmark)
    assert result.mfu
    assert (result.mfu[0].convention, result.mfu[0].peak_tflops) == ("recipe, measured", 0.1)
    assert "mfu" not in result.null_because
    failed = result_of(record_of(steps_of(GOOD[:3])), DONE, benchmark=benchmark)
    assert (failed.mfu, failed.hfu) == (None, None)
    assert failed.null_because["hfu"] == "the run failed"


def test_a_foreign_log_gets_the_same_figures() -> None:
    found = to_builtins(foreign(steps_of()))
    own = to_builtins(result_of(record_of(steps_of()), DONE))
    for name in ("status", "window", "tokens_per_second", "model_flops_per_step", "loss", "reported_by_framework"):
        assert found[name] == own[name], name
    assert found["seconds_per_step"]["ci95"] != own["seconds_per_step"]["ci95"]


def foreign(steps: list[Step]) -> ForeignResult:
    return summarise_foreign(
        steps,
        Workload(
            model=CONFIGS.model("llama2_tiny"),
            hardware=CONFIGS.hardware("cpu"),
            task="pretrain",
            dtype="bf16",
            gpus=1,
            sequence_length=128,
            global_batch_size=2,
        ),
        window="steady",
        seconds_resolution=lambda _: 0.001,
        rate_resolution=lambda _: 0.001,
    )


def with_batches(*batches: int | None) -> list[Step]:
    steps = zip(steps_of(), batches, strict=True)
    return [msgspec.structs.replace(step, framework_global_batch_size=batch) for step, batch in steps]


def test_a_foreign_logs_batch_must_be_the_flags_in_every_counted_step() -> None:
    assert foreign(with_batches(1, *[2] * 4, None, *[2] * 4)).status == "valid"  # the first is not counted
    found = foreign(with_batches(1, 2, 2, 2, 2, 2, 2, 4, 8, 8))
    assert found.status == "invalid"
    assert found.reasons == [
        "the log's global batch is 4, 8 in 3 of 9 steps (first: 7), but --global_batch_size is 2"
    ]


@pytest.mark.parametrize(
    ("losses", "trained"), [([1.0] * 3, True), ([1.0] * 4, False), ([1.0, 1.0, 1.0, 1.001], True)]
)
def test_a_foreign_log_of_one_loss_has_trained_nothing(losses: list[float], trained: bool) -> None:
    steps = [Step(step=n, seconds=0.5, loss=loss, tokens=None) for n, loss in enumerate(losses)]
    assert any("nothing was trained" in reason for reason in foreign(steps).reasons) == (not trained)


# --- what else affected the run ---------------------------------------------------------------------


def with_pgle(way: str, seen: PgleSeen | None, hardware: str = "h100") -> Result:
    benchmark = changed_benchmark(benchmark_of(hardware=hardware), pgle=way)
    return result_of(msgspec.structs.replace(record_of(steps_of()), pgle=seen), DONE, benchmark=benchmark)


APPLIED = PgleSeen(applied=True, reason="every rank has read it", recompile_step=3)
EMPTY = PgleSeen(applied=False, reason="every trace was empty", recompile_step=3, empty_traces=3)


def test_a_profile_that_is_proven_is_no_reason_against_a_run() -> None:
    result = with_pgle("nsys", APPLIED)
    assert (result.status, result.reasons, result.not_comparable) == ("valid", [], [])
    assert result.pgle is not None
    assert (result.pgle.way, result.pgle.seen) == ("nsys", APPLIED)


@pytest.mark.parametrize(
    ("way", "seen", "hardware", "reason"),
    [
        ("nsys", None, "h100", "PGLE was not applied: the run recorded no evidence"),
        ("auto", None, "cpu", "PGLE was not applied: the run recorded no evidence"),
        ("auto", EMPTY, "h100", "PGLE was not applied: every trace was empty"),
        (
            "auto", msgspec.structs.replace(EMPTY, recompile_step=None), "cpu",
            "PGLE was not applied: every trace was empty",
        ),
    ],
)  # fmt: skip
def test_pgle_that_is_not_proven_makes_a_run_invalid(
    way: str, seen: PgleSeen | None, hardware: str, reason: str
) -> None:
    result = with_pgle(way, seen, hardware)
    assert (result.status, result.reasons) == ("invalid", [reason])


def test_without_pgle_there_is_none_and_the_result_says_why() -> None:
    result = with_pgle("off", None)
    assert result.pgle is None
    assert result.null_because["pgle"] == "it was off (--pgle=off)"


@pytest.mark.parametrize("kind", ["nsys", "xplane", "nccl"])
def test_a_profiled_run_may_never_be_compared(kind: str) -> None:
    benchmark = changed_benchmark(benchmark_of(hardware="h100"), profile=kind)
    result = result_of(record_of(steps_of()), DONE, benchmark=benchmark)
    assert result.status == "valid"
    assert result.not_comparable == [f"profiled (--profile={kind}): recording changes the measured times"]
