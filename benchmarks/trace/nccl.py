"""Make a table of collectives from NCCL's log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=COLL). No I/O.

NCCL writes one line for each call by each rank. This is such a line, here in two parts:

 node1:2073494:2073958 [2] NCCL INFO AllReduce: opCount 1e7 sendbuff 0x145d recvbuff 0x145d count 18816 datatype 7
 op 0 root 0 comm 0x55956223bb90 [nranks=16] stream 0x55956223a9a0

The format is that of NCCL 2.x, src/enqueue.cc. RCCL adds `acc`, `task` and `globalrank`. `count` is the input of one
rank to an all-gather, or the output of one rank of a reduce-scatter. The table shows total sizes as in nccl-tests:
count times nranks for an all-gather, a reduce-scatter and an all-to-all. For send and recv, it is the message's size.
"""

import re
from collections import Counter
from collections.abc import Iterable

from benchmarks.values import Value

LINE = re.compile(
    r"(?:(?P<host>[^\s:]+):(?P<pid>\d+):\d+ )?\[(?P<device>\d+)\] (?:\S+ )?NCCL INFO (?P<collective>\w+): "
    r"opCount [0-9a-fA-F]+ .*?\bcount (?P<count>\d+) datatype (?P<datatype>\d+) .*?\[nranks=(?P<ranks>\d+)[,\]]"
)
CALL = "opCount "
BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)  # of ncclDataType_t: int8, uint8, int32, ... bfloat16, float8e4m3, e5m2
DATATYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "fp8_e4m3",
    "fp8_e5m2",
)  # fmt: skip
OF_THE_WHOLE = {"AllGather", "ReduceScatter", "AlltoAll", "AllToAll", "Gather", "Scatter"}


class CallRow(Value, frozen=True):
    """The calls of one collective with the same data type, number of ranks and size."""

    collective: str
    datatype: str
    ranks: int  # the number of ranks in the communicator
    bytes_per_call: int
    calls: int  # of all ranks together
    calls_per_rank: float
    total_bytes: int  # the size of all calls by one rank


class NcclCalls(Value, frozen=True):
    """The collective calls in all logs."""

    rows: list[CallRow]
    writers: int  # the number of devices that logged calls; a device counts once per process
    calls: int
    unreadable_lines: int  # lines about calls that are cut off or have an unknown data type


def read_calls(files: Iterable[tuple[str, Iterable[str]]]) -> NcclCalls:
    """Return the calls in several logs. Each log is a pair of its name and its lines."""
    found: dict[tuple[str, int, int, int], Counter[tuple[str, ...]]] = {}  # kind of call -> writer -> calls
    unreadable = 0
    for name, lines in files:
        for line in lines:
            if CALL not in line:
                continue
            match = LINE.search(line)
            if match is None or int(match["datatype"]) >= len(BYTES):
                unreadable += 1
                continue
            kind = (match["collective"], int(match["datatype"]), int(match["ranks"]), int(match["count"]))
            writer = (match["host"] or name, match["pid"] or "", match["device"])
            found.setdefault(kind, Counter())[writer] += 1
    rows = []
    for (collective, datatype, ranks, elements), by_writer in found.items():
        size = elements * BYTES[datatype] * (ranks if collective in OF_THE_WHOLE else 1)
        per_rank = by_writer.total() / len(by_writer)
        rows.append(
            CallRow(
                collective=collective,
                datatype=DATATYPES[datatype],
                ranks=ranks,
                bytes_per_call=size,
                calls=by_writer.total(),
                calls_per_rank=per_rank,
                total_bytes=round(size * per_rank),
            )
        )
    rows.sort(key=lambda row: (-row.total_bytes, row.collective, row.ranks, row.bytes_per_call))
    return NcclCalls(
        rows=rows,
        writers=len(set().union(*found.values())),
        calls=sum(row.calls for row in rows),
        unreadable_lines=unreadable,
    )
