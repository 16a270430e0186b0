"""MLLOG lines as runs, with any text around them and any number of runs. The logs have the form of published ones
(MLCommons training_results_v5.1), with values made for the tests.
"""

import io
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.backend import SkippedLine
from benchmarks.configs import Configs
from benchmarks.mlperf.run_log import LoggedRun, Record, read_records, read_runs
from benchmarks.mlperf.run_report import report_lines, report_run

CONFIGS = Configs()


def line(key: str, value: Any = None, at: int = 0, **metadata: Any) -> str:
    """One line as NVIDIA's submissions write it."""
    record = {"namespace": "", "time_ms": 1_000_000 + at, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**record, "metadata": {"file": "train.py", "lineno": 3, **metadata}})


def run_lines(status: str = "success", batch: int = 9) -> list[str]:
    return [
        line("cache_clear", True),
        line("init_start", at=10),
        line("submission_benchmark", "llama2_70b_lora", at=20),
        line("global_batch_size", batch, at=20),
        line("init_stop", at=60_000),
        line("run_start", at=60_000),
        line("block_start", at=60_000, samples_count=1548, step=0),
        line("tracked_stats", {"train_loss": 16.09}, at=61_700, samples_count=90, lr=0.0004998, step=10),
        line("tracked_stats", {"train_step_time": 0.17195}, at=89_500, samples_count=1548),
        line("block_stop", at=89_500, samples_count=1548, step=172),
        line("eval_start", at=89_500, samples_count=1548, step=172),
        line("eval_accuracy", 0.9385, at=91_000, samples_count=1548),
        line("eval_stop", at=91_000, samples_count=1548, step=172),
        line("block_start", at=91_000, samples_count=387, step=172),
        line("tracked_stats", {"throughput": 52.3}, at=99_000, step=1935),
        line("block_stop", at=99_000, samples_count=387, step=215),
        line("eval_start", at=99_000, samples_count=1935, step=215),
        line("eval_accuracy", 0.9241, at=100_500, samples_count=1935),
        line("eval_stop", at=100_500, samples_count=1935, step=215),
        line("run_stop", at=100_550, samples_count=1935, status=status),
    ]


def records(lines: list[str]) -> Iterator[Record | SkippedLine]:
    return read_records(io.BytesIO("\n".join(lines).encode()))


def read(lines: list[str]) -> list[LoggedRun]:
    return read_runs(records(lines))


def one(lines: list[str]) -> LoggedRun:
    (run,) = read(lines)
    return run


# --- lines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["", "0: ", "[rank0]: ", "2025-10-08 06:40:01,123 INFO ", "\x1b[32m0: "])
def test_a_line_is_found_whatever_stands_before_it(before: str) -> None:
    (found,) = records([before + line("seed", 7)])
    assert isinstance(found, Record) and (found.key, found.value) == ("seed", 7)
    assert found.rank == (0 if "0: " in before or "rank0" in before else None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line("seed", 7)[:-9], "truncated"),
        (":::MLLOG Weight initialization: dict_keys(['a'])", "no JSON object"),
        (':::MLLOG {"value": 1, "time_ms": 3}', "the key"),
        (':::MLLOG {"key": "seed", "value": 1}', "the key, time_ms"),
        (':::MLLOG {"key": "seed", "time_ms": NaN}', "the key, time_ms"),
        (":::MLLOG {nothing}", "not JSON"),
        (line("seed", 7)[:30] + line("seed", 8), "mixed with"),
        (':::MLLOG {"key": "seed", "time_ms": 1, "metadata": []} x', "not JSON"),
        (':::MLLOG {"key": "seed", "time_ms": 1, "metadata": [1]}', "or metadata"),
    ],
)
def test_a_line_that_is_none_is_named(text: str, reason: str) -> None:
    (found,) = records([text])
    assert isinstance(found, SkippedLine) and reason in found.reason


# --- runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status_line", "status"),
    [("success", "success"), ("aborted", "aborted"), ("fail", "fail"), ("failed", "fail"), ("done", "unknown")],
)
def test_the_status_is_as_the_run_says(status_line: str, status: str) -> None:
    run = one(run_lines(status_line))
    assert (run.status, run.status_text) == (status, status_line)


def test_a_run_says_its_time_its_samples_and_its_evaluations() -> None:
    run = one(run_lines())
    assert (run.benchmark, run.batch, run.samples) == ("llama2_70b_lora", 9, 1935)
    assert (run.seconds, run.init_seconds) == (40.55, 59.99)
    assert [(found.samples, found.value) for found in run.evaluations] == [(1548, 0.9385), (1935, 0.9241)]
    cut = one(run_lines()[:-1])
    assert (cut.status, cut.status_text, cut.seconds) == ("unknown", "", None)


@pytest.mark.parametrize(
    ("lines", "statuses"),
    [
        ([*run_lines("aborted"), "NCCL INFO", *run_lines()], ["aborted", "success"]),  # experiments of one job
        ([*run_lines()[:8], *run_lines()], ["unknown", "success"]),  # it crashed and began again
        (["no line of it"], []),
    ],
)
def test_the_runs_of_a_log_are_separated(lines: list[str], statuses: list[str]) -> None:
    found = read(lines)
    assert [run.status for run in found] == statuses
    assert all(len(run.evaluations) == 2 for run in found if run.status != "unknown")


def test_what_comes_after_the_stop_belongs_to_the_run() -> None:
    """AMD's submissions write train_samples last."""
    assert one([*run_lines(), line("train_samples", 3901, at=101_000)]).settings["train_samples"] == 3901


def test_the_lines_of_all_ranks_are_one_run() -> None:
    run = one([f"{rank}: {text}" for text in run_lines() for rank in (0, 1)])
    assert len(run.evaluations) == 2
    assert len(run.marks["run_start"]) == 1


def test_an_evaluation_that_is_written_twice_counts_once_and_nan_is_no_value() -> None:
    doubled = [text for text in run_lines() for _ in range(2 if "eval_accuracy" in text else 1)]
    assert len(one(doubled).evaluations) == 2
    written = [line("run_start"), line("eval_accuracy", float("nan"), samples_count=8)]  # as a bare NaN
    assert one(written).evaluations[0].value is None


WORDS = st.sampled_from(run_lines())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from([json.loads(text.removeprefix(":::MLLOG "))["key"] for text in run_lines()])
METADATA = st.dictionaries(
    st.sampled_from(["samples_count", "step", "status", "epoch_num", "lr"]), VALUES, max_size=3
)
STRANGE = st.builds(
    lambda key, value, at, where: line(key, value, at, **where), KEYS, VALUES, st.integers(), METADATA
)
CUT = st.builds(lambda text, at: text[:at], WORDS, st.integers(0, 120))


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS | STRANGE | CUT | st.text(max_size=20), max_size=30))
def test_any_log_can_be_reported(lines: list[str]) -> None:
    for run in read([text.replace("\n", " ") for text in lines]):
        reported = report_run(run, CONFIGS)
        assert report_lines(reported, reported.findings) and isinstance(msgspec.json.encode(reported), bytes)
        if reported.apart is not None:
            parts = reported.apart
            summed = (
                parts.training_seconds + parts.evaluation_seconds + parts.checkpoint_seconds + parts.other_seconds
            )
            assert summed == pytest.approx(parts.total_seconds, abs=1e-6)
