"""nccl-tests' output -> bus bandwidth. The sample has the format of their README, and a DGX H100's figure."""

from pathlib import Path

import pytest

from benchmarks.preflight.nccl_tests import nccl_result

SAMPLE = Path(__file__).with_name("all_reduce_perf.txt").read_text()


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        (SAMPLE.replace(" Group  0", ""), "ok", "334.5 GB/s"),  # of older versions
        (SAMPLE.replace("  3 Group", "  2 Group"), "not_checked", "3 of 4 ranks"),
        (SAMPLE, "ok", "334.5 GB/s, needs 300 GB/s (source: a guide)"),
        (SAMPLE.replace("334.536", "112.4"), "failed", "112.4 GB/s, needs 300 GB/s"),
        (SAMPLE.replace(": 0 OK", ": 7 FAILED"), "failed", "7 values are wrong"),
        ("STEPMARK: not found: all_reduce_perf", "not_checked", "nor on PATH"),
        ("", "failed", "no output"),
        (
            "dgx1: Test NCCL failure common.cu:958 'unhandled error'\n",
            "failed",
            "Test NCCL failure common.cu:958",
        ),
        (
            SAMPLE[:400] + "\nslurmstepd: error: CANCELLED\n",
            "failed",
            "bandwidth: slurmstepd: error: CANCELLED",
        ),
    ],
)
def test_how_it_is_judged(text: str, expected: str, words: str) -> None:
    found = nccl_result(text, 4, 300.0, "a guide")
    assert found.status == expected, found.text
    assert words in found.text
