"""nccl-tests' output -> bus bandwidth. The sample has the format of their README, and a DGX H100's figure."""

import pytest

from benchmarks.preflight.nccl_tests import nccl_result

SAMPLE = """\
# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid 1841003 on      dgx1 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 1841004 on      dgx1 device  1 [0x43] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  913100 on      dgx2 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  913101 on      dgx2 device  1 [0x43] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1   6012.9  178.57  334.82      0   6021.1  178.33  334.37      0
  8589934592    2147483648     float     sum      -1    47894  179.35  336.29      0    48211  178.17  334.07      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 334.536
#
"""


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        (SAMPLE.replace(" Group  0", ""), "ok", "334.5 GB/s"),  # of older versions
        (SAMPLE.replace("  3 Group", "  2 Group"), "not_checked", "3 ranks of 4"),
        (SAMPLE, "ok", "334.5 GB/s, 300 GB/s wanted (source: a guide)"),
        (SAMPLE.replace("334.536", "112.4"), "failed", "112.4 GB/s, 300 GB/s wanted"),
        (SAMPLE.replace(": 0 OK", ": 7 FAILED"), "failed", "7 values came out wrong"),
        ("STEPMARK: not found: all_reduce_perf", "not_checked", "was not found"),
        ("", "failed", "it printed nothing"),
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
