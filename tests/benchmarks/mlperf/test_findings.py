"""Defects that the package's checkers miss are found: each kind is planted in an otherwise correct run."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.backend import SkippedLine
from benchmarks.mlperf.findings import find
from benchmarks.mlperf.run_log import INTERLEAVED, LoggedRun, Record, read_runs
from tests.benchmarks.mlperf.made_runs import LORA, WrittenRun, logged, made_run, replace


def errors(run: LoggedRun) -> list[str]:
    return [finding.what for finding in find(run, LORA) if finding.level == "error"]


def warnings(run: LoggedRun) -> list[str]:
    return [finding.what for finding in find(run, LORA) if finding.level == "warning"]


def test_a_run_as_the_rules_have_it_has_no_error() -> None:
    assert errors(logged(made_run())) == []


def evaluations(change: Callable[[int, Any], Any]) -> WrittenRun:
    run = made_run()
    return replace(run, evaluations=[change(n, one) for n, one in enumerate(run.evaluations)])


def changed(change: Callable[[list[Record]], list[Record | SkippedLine]]) -> LoggedRun:
    (run,) = read_runs(change(logged(made_run()).records))
    return run


def going_back(records: list[Record]) -> list[Record | SkippedLine]:
    middle = len(records) * 2 // 3
    return [replace(record, time_ms=record.time_ms - 90_000 * (n >= middle)) for n, record in enumerate(records)]


def twice(key: str, value: Any) -> LoggedRun:
    """A setting that is logged with another value before its own."""
    return changed(
        lambda records: [
            one for two in records for one in ([replace(two, value=value), two] if two.key == key else [two])
        ]
    )


def at(key: str, time_ms: float) -> LoggedRun:
    return changed(lambda records: [replace(one, time_ms=time_ms) if one.key == key else one for one in records])


BROKEN = SkippedLine(line=9, reason="truncated: its JSON object does not end")


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (made_run(status="aborted"), "status is aborted"),
        (made_run(stopped_unix=None), "status is not given"),
        (made_run(extra_lines={"lora_alpha": 64.0}), "lora_alpha is 64.0, but"),
        (made_run(extra_lines={"opt_gradient_clip_norm": 1.0}), "opt_gradient_clip_norm is 1.0"),
        (made_run(extra_lines={"opt_adamw_weight_decay": 0.1}), "opt_adamw_weight_decay is 0.1"),
        (made_run(extra_lines={"eval_samples": 17}), "eval_samples is 17"),
        (made_run(extra_lines={"global_batch_size": 0}), "global_batch_size is 0, but must be"),
        (made_run(extra_lines={"global_batch_size": -8}), "global_batch_size is -8"),
        (made_run(extra_lines={"global_batch_size": float("nan")}), "global_batch_size is nan"),
        (made_run(extra_lines={"global_batch_size": "8"}), "global_batch_size is '8'"),
        (twice("global_batch_size", 16), "global_batch_size is 16, 8, but must be"),
        (twice("lora_alpha", 64.0), "lora_alpha is 64.0, but"),
        (twice("target_accuracy", 2.0), "target_accuracy is 2.0, but"),
        (at("run_stop", -5.0), "before run_start"),
        (
            changed(lambda records: [one for one in records for _ in range(1 + (one.key == "run_start"))]),
            "run_start appears 2 times",
        ),
        (changed(lambda records: [*records, BROKEN]), "unreadable MLLOG line: truncated"),
    ],
)
def test_what_makes_a_log_no_result_is_an_error(run: WrittenRun | LoggedRun, words: str) -> None:
    found = errors(run if isinstance(run, LoggedRun) else logged(run))
    assert any(words in what for what in found), found


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (evaluations(lambda _, one: replace(one, loss=0.92)), "after 0.92 had met the target"),
        (
            evaluations(lambda _, one: replace(one, sequences=one.sequences + 2000)),
            "after 3536 samples; the rules require 1536",
        ),
        (
            evaluations(lambda n, one: replace(one, sequences=one.sequences + 384 * n)),
            "the rules require 384",
        ),
        (
            made_run(extra_lines={"opt_learning_rate_training_steps": 100}),
            "trained 432 steps, 332 more than its schedule of 100",
        ),
        (changed(lambda records: [*records, replace(BROKEN, reason=INTERLEAVED)]), "unreadable MLLOG line: mixed"),
        (changed(going_back), "the clock went back by"),
        (logged(made_run(extra_lines={"submission_benchmark": "gpt3"})), "benchmark"),
    ],
)
def test_what_the_checkers_accept_is_a_warning(run: WrittenRun | LoggedRun, words: str) -> None:
    read = run if isinstance(run, LoggedRun) else logged(run)
    found = warnings(read) if words != "benchmark" else [one.what for one in find(read, None)]
    assert any(words in what for what in found), found
    assert errors(read) == []


def test_the_open_division_fixes_no_settings() -> None:
    assert errors(logged(made_run(extra_lines={"submission_division": "open", "lora_alpha": 64.0}))) == []


def test_a_finding_has_its_line_and_an_unknown_benchmark_is_one() -> None:
    found = find(changed(lambda records: [*records, BROKEN]), None)
    assert [one.line for one in found if "truncated" in one.what] == [9]
    assert any("unknown benchmark" in one.what for one in found)
