"""Evaluations that come no nearer to their target, and those that only seem so."""

import pytest

from tests.benchmarks.diagnosis.reading import diagnosis, ids

LINE = ':::MLLOG {{"time_ms": {}, "key": "{}", "value": {}, "metadata": {{"status": "{}"}}}}\n'
# As published runs have them.
FALLING = [0.9415, 0.9366, 0.9337, 0.9309, 0.9290, 0.9271, 0.9258]


def log(values: list[float], status: str = "aborted", benchmark: str = "llama2_70b_lora") -> str:
    lines = [LINE.format(1795341600000, "submission_benchmark", f'"{benchmark}"', "")]
    lines += [LINE.format(1795341600000 + 1000 * n, "eval_accuracy", value, "") for n, value in enumerate(values)]
    return "".join([*lines, *([LINE.format(1795341700000, "run_stop", "null", status)] if status else [])])


def test_a_run_that_was_stuck_says_so_before_that_it_was_aborted() -> None:
    found = diagnosis(a_log=log([0.98, 0.951, 0.949, 0.9495, 0.9489, 0.9494, 0.949, 0.9492]))
    assert ids(found) == ["eval_stuck", "run_aborted"]
    assert found.entries[0].first.line == 4
    assert "0.9492" in found.entries[0].first.text
    said = " ".join(found.entries[0].do)
    assert all(word in said for word in ("MAX_STEPS", "learning rate", "VAL_CHECK_INTERVAL"))


def test_a_run_whose_evaluations_become_worse() -> None:
    assert ids(diagnosis(a_log=log([0.95, 0.94, 0.95, 0.96, 0.98, 1.2])))[0] == "eval_diverging"


@pytest.mark.parametrize(
    ("values", "status", "benchmark"),
    [
        (FALLING, "", "llama2_70b_lora"),
        (FALLING, "success", "llama2_70b_lora"),
        ([0.949] * 8, "success", "llama2_70b_lora"),
        ([0.949] * 5, "", "llama2_70b_lora"),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "", "resnet"),  # of others it should rise
        ([0.95, 0.96, 0.94, 0.945, 0.93, 0.925], "", "llama2_70b_lora"),
    ],
)
def test_a_run_that_converges_is_left_alone(values: list[float], status: str, benchmark: str) -> None:
    assert not diagnosis(a_log=log(values, status, benchmark)).failed


def test_a_run_that_was_aborted_while_it_still_fell() -> None:
    assert ids(diagnosis(a_log=log(FALLING))) == ["run_aborted"]
