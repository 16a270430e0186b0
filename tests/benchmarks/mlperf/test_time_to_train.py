"""Time to train, taken apart: the parts sum up to the whole, and convergence is told from speed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.configs import Configs
from benchmarks.mlperf.records import Record
from benchmarks.mlperf.reference_points import Expected
from benchmarks.mlperf.run_log import LoggedRun, read_runs
from benchmarks.mlperf.time_to_train import compare_convergence, olympic_mean, take_apart
from benchmarks.mlperf.writing import WrittenRun, WrittenStep, entries
from benchmarks.values import TimeToTrain
from tests.benchmarks.mlperf.made_runs import START_MS, made_run

LORA = Configs().mlperf("llama2_70b_lora")
KEYS = ("block_start", "block_stop", "eval_start", "eval_stop", "checkpoint_start", "checkpoint_stop", "seed")


def logged(run: WrittenRun) -> LoggedRun:
    """A written run as it is read again."""
    records = [
        Record(line=n, key=e.key, value=e.value, event=e.event, metadata=e.metadata, time_ms=float(e.time_ms))
        for n, e in enumerate(entries(run), start=1)
    ]
    (read,) = read_runs(records)
    return read


def apart(run: WrittenRun) -> TimeToTrain:
    found = take_apart(logged(run))
    assert found is not None
    return found


def total(parts: TimeToTrain) -> float:
    return parts.training_seconds + parts.evaluation_seconds + parts.checkpoint_seconds + parts.other_seconds


def test_the_parts_of_a_run() -> None:
    found = apart(made_run())
    assert (found.training_seconds, found.evaluation_seconds) == pytest.approx((172.8, 12.0))
    assert found.other_seconds == pytest.approx(0.05) and found.init_seconds == 60.001
    assert (found.steps, found.seconds_per_step) == (432, pytest.approx(0.4))
    assert total(found) == pytest.approx(found.total_seconds) == pytest.approx(184.85)


def test_a_checkpoint_inside_a_block_is_a_checkpoint_and_no_training() -> None:
    run = logged(made_run())
    place, begun = next((n, one) for n, one in enumerate(run.records) if one.key == "block_start")
    marks = [
        msgspec.structs.replace(begun, key=key, time_ms=begun.time_ms + at)
        for key, at in (("checkpoint_start", 10_000), ("checkpoint_stop", 13_000))
    ]
    records = [*run.records[: place + 1], *marks, *run.records[place + 1 :]]
    found = take_apart(msgspec.structs.replace(run, records=records))
    assert found is not None
    assert found.checkpoint_seconds == pytest.approx(3.0)
    assert found.training_seconds == pytest.approx(172.8 - 3.0)
    assert total(found) == pytest.approx(found.total_seconds)


def test_what_lies_between_steps_is_idle_where_every_step_is_timed() -> None:
    run = made_run(count=1)
    steps = [
        WrittenStep(step=n, time_ms=START_MS + 60_001 + 400 * n, loss=1.0, seconds=0.3)
        for n in range(1, run.evaluations[0].step + 1)
    ]
    found = apart(msgspec.structs.replace(run, steps=steps))
    assert found.steps == 192 and found.idle_seconds == pytest.approx(192 * 0.1)
    assert apart(msgspec.structs.replace(run, steps=steps[:-1])).idle_seconds is None


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-5000, 90_000)), max_size=40))
def test_whatever_is_logged_the_parts_sum_up(marks: list[tuple[str, int]]) -> None:
    records = [
        Record(line=n, key=key, value=None, event="", metadata={}, time_ms=float(at))
        for n, (key, at) in enumerate([("run_start", 0), *marks, ("run_stop", 80_000)], start=1)
    ]
    (run,) = read_runs(records)
    found = take_apart(run)
    assert found is not None
    assert total(found) == pytest.approx(80.0)
    assert min(found.training_seconds, found.evaluation_seconds, found.checkpoint_seconds) >= 0
    assert found.other_seconds >= -1e-9


def test_a_log_without_blocks_is_not_divided() -> None:
    run = logged(made_run())
    bare = [record for record in run.records if "block" not in record.key]
    (read,) = read_runs(bare)
    found = take_apart(read)
    assert found is not None and not found.divided and found.seconds_per_step is None


def expected(samples: float, stdev: float = 300.0) -> Expected:
    return Expected(batch=8, samples=samples, stdev=stdev, how="found", between=[8])


def test_a_slow_machine_and_an_unlucky_seed_are_told_apart() -> None:
    """Twice the step time at the reference's samples; the reference's step time at twice the samples."""
    slow, unlucky = made_run(step_ms=800, count=6), made_run(step_ms=400, count=14)
    told = []
    for run in (slow, unlucky):
        read, parts = logged(run), apart(run)
        found = compare_convergence(read, parts, LORA, expected(3456))
        assert found is not None
        told.append((found.word, parts.seconds_per_step, found.seconds_at_reference))
    assert told[0][:2] == ("as the reference", pytest.approx(0.8))
    assert told[1][:2] == ("slower than the reference", pytest.approx(0.4))
    assert told[0][2] == pytest.approx(apart(slow).total_seconds)
    assert told[1][2] == pytest.approx(apart(made_run(count=6)).total_seconds)


def test_nothing_is_said_of_a_run_that_did_not_converge() -> None:
    run = made_run(status="aborted")
    assert compare_convergence(logged(run), apart(run), LORA, expected(3456)) is None


def test_the_olympic_mean_leaves_out_the_best_and_the_worst() -> None:
    assert olympic_mean([9.0, 1.0, 2.0, 4.0]) == 3.0
    assert olympic_mean([1.0, 2.0]) is None
