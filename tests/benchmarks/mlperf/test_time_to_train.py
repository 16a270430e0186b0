"""The parts of time to train sum up to the whole, and convergence is separated from speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.mlperf.package import ExpectedSamples
from benchmarks.mlperf.run_log import LoggedRun, Record, read_runs
from benchmarks.mlperf.time_to_train import TimeToTrain, compare_convergence, olympic_mean, split_time_to_train
from tests.benchmarks.mlperf.made_runs import LORA, logged, made_run, replace

KEYS = ("block_start", "block_stop", "eval_start", "eval_stop", "checkpoint_start", "checkpoint_stop", "seed")
EXPECTED = ExpectedSamples(samples=3456, stdev=300.0, between=[8])


def apart(run: LoggedRun) -> TimeToTrain:
    found = split_time_to_train(run)
    assert found is not None
    parts = (found.training_seconds, found.evaluation_seconds, found.checkpoint_seconds, found.other_seconds)
    assert sum(parts) == pytest.approx(found.total_seconds)
    assert min(parts) >= -1e-9
    return found


def test_the_parts_of_a_run_and_a_checkpoint_inside_a_block() -> None:
    run = logged(made_run())
    found = apart(run)
    assert (found.training_seconds, found.evaluation_seconds) == pytest.approx((172.8, 12.0))
    assert found.other_seconds == pytest.approx(0.05)
    assert (found.steps, found.seconds_per_step) == (432, pytest.approx(0.4))
    assert found.total_seconds == pytest.approx(184.85)
    place, begun = next((n, one) for n, one in enumerate(run.records) if one.key == "block_start")
    marks = [
        replace(begun, key=key, time_ms=begun.time_ms + at)
        for key, at in (("checkpoint_start", 10_000), ("checkpoint_stop", 13_000))
    ]
    found = apart(replace(run, records=[*run.records[: place + 1], *marks, *run.records[place + 1 :]]))
    assert (found.checkpoint_seconds, found.training_seconds) == pytest.approx((3.0, 172.8 - 3.0))


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-5000, 90_000)), max_size=40))
def test_whatever_is_logged_the_parts_sum_up(marks: list[tuple[str, int]]) -> None:
    records = [
        Record(line=n, key=key, value=None, metadata={}, time_ms=float(at))
        for n, (key, at) in enumerate([("run_start", 0), *marks, ("run_stop", 80_000)], start=1)
    ]
    (run,) = read_runs(records)
    assert apart(run).total_seconds == 80


def test_a_log_without_blocks_is_not_divided() -> None:
    (read,) = read_runs([record for record in logged(made_run()).records if "block" not in record.key])
    found = apart(read)
    assert not found.divided and found.seconds_per_step is None


def test_a_slow_machine_and_an_unlucky_seed_are_distinguished() -> None:
    """Twice the step time at the reference's samples; the reference's step time at twice the samples."""
    slow, unlucky = logged(made_run(step_seconds=0.8)), logged(made_run(count=14))
    for run, word, seconds, alike in (
        (slow, "as the reference", 0.8, slow),
        (unlucky, "slower than the reference", 0.4, logged(made_run())),
    ):
        found = compare_convergence(run, apart(run), LORA, EXPECTED)
        assert found is not None
        assert (found.word, apart(run).seconds_per_step) == (word, pytest.approx(seconds))
        assert found.seconds_at_reference == pytest.approx(apart(alike).total_seconds)
    aborted = logged(made_run(status="aborted"))
    assert compare_convergence(aborted, apart(aborted), LORA, EXPECTED) is None


def test_the_olympic_mean_leaves_out_the_best_and_the_worst() -> None:
    assert olympic_mean([9.0, 1.0, 2.0, 4.0]) == 3.0
    assert olympic_mean([1.0, 2.0]) is None
