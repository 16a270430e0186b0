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


@pytest.mark.parametrize(
    ("checker", "text", "passed", "complaints"),
    [
        ("compliance_checker", COMPLIANT, True, []),
        ("compliance_checker", WARNED, True, ["Required EXACTLY_ONE occurrence of 'run_start' but found 2"]),
        (
            "compliance_checker",
            NOT_COMPLIANT,
            False,
            [
                "CHECK for 'lora_rank' failed in line 12: failed test:  v['value'] == 16",
                "Failed checks for eval_accuracy : (v['value'] <= 0.925) and v['value'] > 0.0",
            ],
        ),
        ("rcp_checker", TOO_FEW, False, ["RCP test FAILED"]),
        ("package_checker", PACKAGE_BAD, False, ["found 3, expected 10"]),
        ("system_desc_checker", CRASH, False, ["it crashed: KeyError: 'division'"]),
        ("compliance_checker", CRASH + COMPLIANT, False, ["it crashed: "]),
        ("rcp_checker", "", False, ["it ended without a verdict"]),
    ],
)
def test_a_checker_passes_where_its_words_say_so(
    checker: Checker, text: str, passed: bool, complaints: list[str]
) -> None:
    said = read_text(checker, text)
    assert (said.passed, len(said.complaints)) == (passed, len(complaints))
    assert all(wanted in found for wanted, found in zip(complaints, said.complaints, strict=True))


def test_the_factor_of_a_fast_convergence_is_read() -> None:
    said = read_text("rcp_checker", CONVERGED_FAST)
    assert said.passed and said.factor == pytest.approx(1.0595555)
