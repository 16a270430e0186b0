"""What the package's checkers let pass is found: every kind planted in a run that is right otherwise."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from benchmarks.backend import SkippedLine
from benchmarks.configs import Configs
from benchmarks.mlperf.findings import find, find_across
from benchmarks.mlperf.records import Record
from benchmarks.mlperf.run_log import LoggedRun, read_runs
from benchmarks.mlperf.writing import WrittenRun
from tests.benchmarks.mlperf.made_runs import made_run
from tests.benchmarks.mlperf.test_time_to_train import logged

LORA = Configs().mlperf("llama2_70b_lora")
replace = msgspec.structs.replace


def errors(run: LoggedRun) -> list[str]:
    return [finding.what for finding in find(run, LORA) if finding.level == "error"]


def test_a_run_as_the_rules_have_it_has_no_error() -> None:
    assert errors(logged(made_run())) == []


def evaluations(change: Callable[[int, Any], Any]) -> WrittenRun:
    run = made_run()
    return replace(run, evaluations=[change(n, one) for n, one in enumerate(run.evaluations)])


def optimizer(**changes: float) -> WrittenRun:
    run = made_run()
    return replace(run, optimizer=replace(run.optimizer, **changes))


PLANTED: dict[str, tuple[WrittenRun, str]] = {
    "aborted": (made_run(status="aborted"), "status is 'aborted'"),
    "no end": (made_run(run_stop_ms=None), "no run_stop"),
    "no target": (evaluations(lambda _, one: replace(one, value=1.0)), "the last evaluation is 1.0, not <= 0.925"),
    "trained on": (evaluations(lambda _, one: replace(one, value=0.92)), "trained on after 0.92 had met the target"),
    "alpha": (made_run(lora=replace(LORA.lora, alpha=64.0)), "lora_alpha is 64.0, the rules of"),
    "clip": (optimizer(gradient_clip_norm=1.0), "opt_gradient_clip_norm is 1.0"),
    "decay": (optimizer(weight_decay=0.1), "opt_adamw_weight_decay is 0.1"),
    "fewer evaluation samples": (made_run(eval_samples=17), "eval_samples is 17"),
    "late": (
        evaluations(lambda _, one: replace(one, samples=one.samples + 2000)),
        "first evaluation is after 3536 samples; the rules have it after 1536 (4 x 48 steps of 8)",
    ),
    "seldom": (
        evaluations(lambda n, one: replace(one, samples=one.samples + 384 * n)),
        "768 samples between two evaluations; the rules have 384",
    ),
    "beyond its schedule": (made_run(max_steps=100), "trained 432 steps, 332 more than its schedule of 100"),
    "no number": (evaluations(lambda _, one: replace(one, value=float("nan"))), "no finite number"),
    "stopped too early": (
        made_run(run_stop_ms=made_run().evaluations[-1].stop_ms - 5000),
        "before the last evaluation",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name: str) -> None:
    run, words = PLANTED[name]
    assert any(words in what for what in errors(logged(run))), errors(logged(run))


def changed(change: Callable[[list[Record]], list[Record | SkippedLine]]) -> LoggedRun:
    (run,) = read_runs(change(logged(made_run()).records))
    return run


def test_a_repeated_start_is_found() -> None:
    run = changed(lambda records: [one for record in records for one in [record] * (1 + (record.key == "run_start"))])
    assert any("run_start is there 2 times" in what for what in errors(run))


def test_a_truncated_line_is_found_with_its_number() -> None:
    broken = SkippedLine(line=9, reason="truncated: its JSON object does not end")
    found = find(changed(lambda records: [*records, broken]), LORA)
    assert any((one.level, one.line) == ("error", 9) and "truncated" in one.what for one in found)


def test_a_clock_that_goes_back_is_found() -> None:
    def back(records: list[Record]) -> list[Record | SkippedLine]:
        middle = len(records) * 2 // 3
        return [replace(record, time_ms=record.time_ms - 90_000 * (n >= middle)) for n, record in enumerate(records)]

    assert any("the clock went back by" in what for what in errors(changed(back)))


def test_another_target_is_found() -> None:
    def easier(records: list[Record]) -> list[Record | SkippedLine]:
        return [replace(record, value=2.0) if record.key == "target_accuracy" else record for record in records]

    assert any(
        "target_accuracy is 2.0, the target of llama2_70b_lora is 0.925" in what for what in errors(changed(easier))
    )


def test_a_benchmark_that_is_not_known_is_an_error() -> None:
    assert any("unknown benchmark" in found.what for found in find(logged(made_run()), None))


def test_seeds_that_are_there_twice_are_found_across_runs() -> None:
    runs = [(f"result_{n}.txt", logged(made_run(seed=seed))) for n, seed in enumerate([1, 2, 1])]
    (found,) = find_across(runs)
    assert found.what == "2 runs have the same seed, 1: result_0.txt, result_2.txt"


def test_batches_that_differ_are_found_across_runs() -> None:
    runs = [("a", logged(made_run())), ("b", logged(made_run(seed=2, batch=16)))]
    assert any("differ in global_batch_size: 16, 8" in finding.what for finding in find_across(runs))
