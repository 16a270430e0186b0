"""MLLOG as a log format: steps, what a step's seconds are, attempts, and what is skipped."""

import io

from benchmarks.backend import LogEvent
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.mlperf.run_log import LONGEST_LINE, Record, read_records
from benchmarks.values import Step
from tests.benchmarks.mlperf.test_run_log import line, run_lines


def events(lines: list[str]) -> list[LogEvent]:
    return list(MLLOG.read(io.BytesIO("\n".join(lines).encode())))


def steps(lines: list[str]) -> list[Step]:
    return [event.step for event in events(lines) if event.step is not None]


def loss(step: int, at: int) -> str:
    return line("tracked_stats", {"train_loss": 1.0 / step}, at=at, samples_count=9 * step, step=step)


def test_a_step_takes_the_mean_since_the_line_before_and_never_across_an_evaluation() -> None:
    found = steps(
        [
            line("block_start", at=0, step=0),
            loss(10, 2000),
            loss(20, 5000),
            line("block_stop", at=6000, step=24),
            line("eval_start", at=6000, step=24),
            line("eval_stop", at=9000, step=24),
            loss(30, 12_000),  # its block's start is not known
            line("eval_start", at=12_000),
            line("block_start", at=20_000, step=30),
            loss(40, 21_000),
        ]
    )
    assert [(step.step, step.seconds) for step in found] == [(10, 0.2), (20, 0.3), (30, None), (40, 0.1)]


def test_a_step_without_a_number_is_counted_by_its_samples_or_skipped_with_the_reason() -> None:
    train_line = line("train_loss", 1.3589, at=5000, samples_count=432, lr=0.00022)
    (found,) = steps([line("global_batch_size", 8), train_line])
    assert (found.step, found.loss, found.framework_global_batch_size) == (54, 1.3589, 8)
    (event,) = events([train_line])
    assert event.skipped is not None and "global_batch_size" in event.skipped.reason


def test_what_the_framework_printed_of_a_step_is_kept_and_the_time_of_a_whole_block_is_no_step() -> None:
    stats = {"train_step_time": 0.143, "reduced_train_loss": 8.22}
    (found,) = steps([line("tracked_stats", stats, step=31.0, samples_count=1152.0)])
    assert (found.step, found.framework_seconds, found.loss) == (31, 0.143, 8.22)
    assert steps([line("tracked_stats", {"train_step_time": 0.172}, samples_count=387)]) == []


def test_lines_of_all_ranks_are_duplicates() -> None:
    found = events([f"{rank}: {text}" for text in run_lines() for rank in (0, 1)])
    assert sum(event.duplicates for event in found) == 1
    assert len([event for event in found if event.step is not None]) == 1


def test_it_is_recognised_by_a_line_with_a_key_alone() -> None:
    assert MLLOG.recognises(line("seed", 1).encode())
    assert not MLLOG.recognises(b'print(":::MLLOG Weight initialization")\n{"key": 1}')
    assert not MLLOG.recognises(b"grep ':::MLLOG' slurm.out")


def test_the_lines_of_a_log_are_counted_however_long_they_are() -> None:
    painted = b"\rEpoch 0" * (LONGEST_LINE // 4)
    (found,) = read_records(io.BytesIO(b"\n" + painted + b"\n\n" + line("seed", 7).encode()))
    assert isinstance(found, Record) and (found.line, found.key) == (4, "seed")


def test_a_carriage_return_ends_a_line() -> None:
    text = "\n".join(["bar 5%", *run_lines()]).encode()
    keys, parted = (
        [one.key for one in read_records(io.BytesIO(one)) if isinstance(one, Record)]
        for one in (text, text.replace(b"\n", b"\r"))
    )
    assert keys == parted
