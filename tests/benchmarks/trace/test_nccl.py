"""NCCL's log lines, as they stand in public logs of NCCL 2.x and RCCL -> a table of calls and sizes."""

import pytest

from benchmarks.trace.nccl import NcclCalls, read_calls

REDUCE = (
    "h015:2073494:2073958 [2] NCCL INFO AllReduce: opCount 1e7 sendbuff 0x145d0be7e400 recvbuff 0x145d0be7e400 "
    "count 18816 datatype 7 op 0 root 0 comm 0x55956223bb90 [nranks=16] stream 0x55956223a9a0"
)
GATHER = (
    "node-3:278:278 [0] NCCL INFO AllGather: opCount 1606 sendbuff 0x93fd44a00 recvbuff 0x96d44e200 count 2359808 "
    "datatype 7 op 0 root 0 comm 0x555e2c6387e0 [nranks=4] stream 0x555e2b3a4370"
)
SCATTER = (
    "cv350:86092:86620 [4] NCCL INFO ReduceScatter: opCount ce3 sendbuff 0x7f7a78400000 recvbuff 0x7f8429000000 "
    "acc (nil) count 106956800 datatype 9 op 4 root 0 comm 0x1 [nranks=8] stream 0x2 task 0 globalrank 4"
)
SEND = (
    "n1:1:2 [3] NCCL INFO Send: opCount 782f sendbuff (nil) recvbuff 0x7f59a1a8fa00 count 2097152 datatype 9 op 0 "
    "root 3 comm 0x18076b90 [nranks=4] stream 0xb617630"
)


def read(*lines: str, name: str = "nccl-n1-1") -> NcclCalls:
    return read_calls([(name, lines)])


@pytest.mark.parametrize(
    ("line", "collective", "datatype", "ranks", "size"),
    [
        (REDUCE, "AllReduce", "float32", 16, 18816 * 4),
        (GATHER, "AllGather", "float32", 4, 2359808 * 4 * 4),  # one rank gives a part of the whole
        (SCATTER, "ReduceScatter", "bfloat16", 8, 106956800 * 2 * 8),
        (SEND, "Send", "bfloat16", 4, 2097152 * 2),
        (f"3: {GATHER}", "AllGather", "float32", 4, 2359808 * 4 * 4),  # srun --label
        (f"[2026-03-12 13:57:45] {REDUCE}", "AllReduce", "float32", 16, 18816 * 4),  # NCCL 2.27
        (f"\x1b[0m{REDUCE}\n", "AllReduce", "float32", 16, 18816 * 4),
    ],
)
def test_a_line_of_a_public_log(line: str, collective: str, datatype: str, ranks: int, size: int) -> None:
    found = read(line)
    (row,) = found.rows
    assert (row.collective, row.datatype, row.ranks, row.bytes_per_call) == (collective, datatype, ranks, size)
    assert (row.calls, found.calls, found.writers, found.unreadable_lines) == (1, 1, 1, 0)


def test_calls_that_are_alike_are_one_row_and_count_per_rank() -> None:
    other = REDUCE.replace("[2]", "[3]").replace("2073494", "2073495")
    found = read(*[REDUCE] * 3, *[other] * 3, GATHER)
    assert [(row.collective, row.calls, row.calls_per_rank) for row in found.rows] == [
        ("AllGather", 1, 1),
        ("AllReduce", 6, 3),
    ]
    assert found.rows[1].total_bytes == 3 * 18816 * 4
    assert found.writers == 3


def test_sizes_types_and_communicators_are_told_apart() -> None:
    lines = [REDUCE, REDUCE.replace("18816", "1"), REDUCE.replace("datatype 7", "datatype 9")]
    assert len(read(*lines, REDUCE.replace("nranks=16", "nranks=2")).rows) == 4


def test_other_lines_are_no_calls_and_cut_ones_are_counted() -> None:
    found = read(
        "h015:1:1 [0] NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008",
        "h015:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init COMPLETE",
        REDUCE[:120],
        REDUCE.replace("datatype 7", "datatype 99"),
        REDUCE,
    )
    assert (found.calls, found.unreadable_lines) == (1, 2)


def test_a_log_without_calls_is_an_empty_table() -> None:
    assert read("nothing", "") == NcclCalls(rows=[], writers=0, calls=0, unreadable_lines=0)
