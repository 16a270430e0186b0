"""Read the bus bandwidth from the output of nccl-tests (such as all_reduce_perf), and judge it. No I/O.

github.com/NVIDIA/nccl-tests defines the format: lines that start with `#` contain the setup and the summary.
"""

import re

from benchmarks.preflight.values import Status
from benchmarks.values import Value

RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s")
AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([0-9.]+)")
OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s+(\w+)")
FAILURE = re.compile(r".*(?:Test NCCL failure|Test CUDA failure|Test failure|NCCL WARN|error while loading).*")


class NcclTest(Value, frozen=True):
    """The result of one program of nccl-tests."""

    ranks: int
    average_gb_s: float | None  # the bus bandwidth that the program averaged over all message sizes
    wrong_values: int | None  # None: the program did not check values
    failure: str | None = None  # the line of the output that reports a failure


def parse(text: str) -> NcclTest:
    """Return the values in a program's output, which may be incomplete. A missing value is None."""
    average, bounds, failure = AVERAGE.search(text), OUT_OF_BOUNDS.search(text), FAILURE.search(text)
    return NcclTest(
        ranks=len(set(RANK.findall(text))),
        average_gb_s=float(average[1]) if average else None,
        wrong_values=int(bounds[1]) if bounds else None,
        failure=failure[0].strip() if failure else None,
    )


class NcclResult(Value, frozen=True):
    """The status of the all-reduce over all nodes, and its measurement."""

    status: Status
    text: str
    measured: NcclTest | None = None


def nccl_result(output: str, ranks: int, wanted_gb_s: float | None, source: str | None) -> NcclResult:
    measured = parse(output)
    status: Status = "failed"
    if "STEPMARK: not found" in output:
        status, text = "not_checked", "nccl-tests is neither in the image nor on PATH"
    elif measured.failure or measured.average_gb_s is None:
        last = output.strip().splitlines()[-1:] or ["no output"]
        text = measured.failure or f"no bus bandwidth: {last[0][:200]}"
    elif measured.ranks != ranks:
        status = "not_checked"
        text = f"only {measured.ranks} of {ranks} ranks ran: a program built without MPI does not test the network"
    elif measured.wrong_values:
        text = f"{measured.wrong_values} values are wrong"
    else:
        status = "ok" if measured.average_gb_s >= (wanted_gb_s or 0) else "failed"
        wanted = f"needs {wanted_gb_s:g} GB/s (source: {source or 'not given'})" if wanted_gb_s else ""
        text = f"allreduce {measured.average_gb_s:.1f} GB/s, {wanted or 'the site has no expected value'}"
    return NcclResult(status=status, text=text, measured=measured)
