"""A table of calls and sizes from NCCL's log lines, as in public logs of NCCL 2.x and RCCL."""

import itertools
from typing import Any

import pytest

from benchmarks.trace.nccl import NcclCalls, read_calls
from tests.benchmarks.trace.made import CASES

REDUCE, GATHER = (CASES["calls"][name]["line"] for name in ("reduce", "gather"))


def read(*lines: str, name: str = "nccl-n1-1") -> NcclCalls:
    return read_calls([(name, lines)])


@pytest.mark.parametrize(("row", "around"), [*itertools.product(CASES["calls"].values(), CASES["around"])])
def test_a_line_of_a_public_log(row: dict[str, Any], around: list[str]) -> None:
    found = read(around[0] + row["line"] + around[1])
    (call,) = found.rows
    assert {name: getattr(call, name) for name in row["call"]} == row["call"]
    assert (call.calls, found.calls, found.writers, found.unreadable_lines) == (1, 1, 1, 0)


def test_calls_that_are_alike_are_one_row_and_count_per_rank() -> None:
    other = REDUCE.replace("[2]", "[3]").replace("2073494", "2073495")
    found = read(*[REDUCE] * 3, *[other] * 3, GATHER)
    assert [(row.collective, row.calls, row.calls_per_rank) for row in found.rows] == [
        ("AllGather", 1, 1),
        ("AllReduce", 6, 3),
    ]
    assert found.rows[1].total_bytes == 3 * 18816 * 4
    assert found.writers == 3


def test_other_lines_are_no_calls_and_cut_ones_are_counted() -> None:
    found = read(
        "h015:1:1 [0] NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008",
        "h015:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init COMPLETE",
        REDUCE[:120],
        REDUCE.replace("datatype 7", "datatype 99"),
        REDUCE,
    )
    assert (found.calls, found.unreadable_lines) == (1, 2)
