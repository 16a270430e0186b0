"""nccl-tests' output -> bus bandwidth. The sample has the format of their README, and a DGX H100's figure."""

import pytest

from benchmarks.preflight import nccl_tests
from benchmarks.preflight.report import nccl_result

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


def test_a_whole_output() -> None:
    found = nccl_tests.parse(SAMPLE)
    assert (found.ranks, found.hosts) == (4, ["dgx1", "dgx2"])
    assert found.average_gb_s == 334.536
    assert (found.largest_bytes, found.largest_gb_s) == (8589934592, 336.29)
    assert found.wrong_values == 0
    assert found.failure is None


def test_lines_without_groups_of_older_versions() -> None:
    assert nccl_tests.parse(SAMPLE.replace(" Group  0", "")).ranks == 4


def test_half_an_output_has_no_average() -> None:
    found = nccl_tests.parse(SAMPLE[: SAMPLE.index("  8589934592")])
    assert found.average_gb_s is None
    assert found.largest_bytes == 1073741824


def judged(
    text: str, ranks: int = 4, wanted: float | None = 300.0, program: str = "all_reduce_perf"
) -> tuple[str, str]:
    result = nccl_result(program, text, ranks, wanted, "seed 000")
    return result.status, result.text


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        (SAMPLE, "ok", "334.5 GB/s, 300 GB/s wanted (source: seed 000)"),
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
    status, found = judged(text)
    assert status == expected, found
    assert words in found


def test_a_program_without_mpi_proves_nothing_about_the_network() -> None:
    status, text = judged(SAMPLE, ranks=16)
    assert status == "not_checked"
    assert "4 ranks of 16" in text


def test_without_an_expectation_the_figure_is_only_shown() -> None:
    assert judged(SAMPLE, wanted=None)[0] == "ok"
    assert "the site expects nothing" in judged(SAMPLE, wanted=None)[1]
    slow = SAMPLE.replace("334.536", "10.0")
    assert judged(slow, program="all_gather_perf") == ("ok", "10.0 GB/s, held against nothing")
