"""The words of the package's checkers, as mlperf-logging 4.1.68 prints them."""

import pytest

from benchmarks.mlperf.checkers import Checker, read_text

COMPLIANT = """INFO - Running compliance on file: result_0.txt
INFO -  Compliance checks: training_6.1.0/common.yaml
** Logging output also at compliance_checker.log
INFO - SUCCESS
"""
WARNED = """INFO - Running compliance on file: result_0.txt
WARNING -  Required EXACTLY_ONE occurrence of 'run_start' but found 2
** Logging output also at compliance_checker.log
INFO - SUCCESS
"""
NOT_COMPLIANT = """INFO - Running compliance on file: result_0.txt
WARNING -  CHECK for 'lora_rank' failed in line 12:
:::MLLOG {"namespace": "", "time_ms": 1, "key": "lora_rank", "value": 8}
failed test:  v['value'] == 16
current context[s]={
  "global_batch_size": 8
}
current line[v]={
  "value": 8
}
------------------------------
Failed checks for eval_accuracy : (v['value'] <= 0.925) and v['value'] > 0.0
ERROR - FAILED
** Logging output also at compliance_checker.log
"""
CONVERGED_FAST = """INFO -  RCP Record: {'BS': 8}
INFO -  Submission mean epochs: 3000.0000
INFO -  Submission mean epochs faster than RCP mean but within max speedup range. \
Score should be normalized by factor of 3178.6666666666665 / 3000.0 = 1.0595555555555556
INFO - RCP found, RCP test PASSED
"""
TOO_FEW = """INFO -  Submission mean epochs: nan
ERROR - RCP found, RCP test FAILED, consider adding --rcp_bypass in when running the package_checker.
"""
PACKAGE_BAD = """INFO -  Checking System Description Files
ERROR - Incorrect number of files in dir, or wrong file names in directory a, found 3, expected 10
INFO - PACKAGE CHECKER FOUND ERRORS, LOOK INTO ERROR LOG LINES AND FIX THEM.
"""
CRASH = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
KeyError: 'division'
"""


def test_success_is_read_with_its_warnings() -> None:
    assert read_text("compliance_checker", COMPLIANT).passed
    warned = read_text("compliance_checker", WARNED)
    assert warned.passed and warned.complaints == ["Required EXACTLY_ONE occurrence of 'run_start' but found 2"]


def test_every_complaint_of_a_failure_is_read() -> None:
    said = read_text("compliance_checker", NOT_COMPLIANT)
    assert not said.passed
    assert said.complaints == [
        "CHECK for 'lora_rank' failed in line 12: failed test:  v['value'] == 16",
        "Failed checks for eval_accuracy : (v['value'] <= 0.925) and v['value'] > 0.0",
    ]


def test_the_factor_of_a_fast_convergence_is_read() -> None:
    said = read_text("rcp_checker", CONVERGED_FAST)
    assert said.passed and said.factor == pytest.approx(1.0595555)


def test_too_few_runs_fail() -> None:
    said = read_text("rcp_checker", TOO_FEW)
    assert not said.passed and "RCP test FAILED" in said.complaints[0]


def test_a_package_with_errors_fails_whatever_the_exit_code() -> None:
    said = read_text("package_checker", PACKAGE_BAD)
    assert not said.passed and "found 3, expected 10" in said.complaints[0]


@pytest.mark.parametrize("checker", ["compliance_checker", "rcp_checker", "package_checker", "system_desc_checker"])
def test_a_crash_and_silence_are_no_success(checker: Checker) -> None:
    assert read_text(checker, CRASH).complaints == ["it crashed: KeyError: 'division'"]
    assert not read_text(checker, CRASH).passed
    assert not read_text(checker, "").passed
    assert not read_text(checker, CRASH + COMPLIANT + PACKAGE_BAD).passed
