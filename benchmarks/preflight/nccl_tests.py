"""What nccl-tests print (all_reduce_perf and its kin) -> the bus bandwidth that was measured, and judged. Pure.

The format is that of github.com/NVIDIA/nccl-tests: lines of `#` say what ran and sum up.
"""

import re

from benchmarks.preflight.values import Status
from benchmarks.values import Value

RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s")
AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([0-9.]+)")
OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s+(\w+)")
FAILURE = re.compile(r".*(?:Test NCCL failure|Test CUDA failure|Test failure|NCCL WARN|error while loading).*")


class NcclTest(Value, frozen=True):
    """One program of nccl-tests, as it ended."""

    ranks: int
    average_gb_s: float | None  # bus bandwidth over all sizes, as the program itself averages
    wrong_values: int | None  # None: it did not check
    failure: str | None = None  # in the program's own words


def parse(text: str) -> NcclTest:
    """Whole output or a part of it; what is not there is None."""
    average, bounds, failure = AVERAGE.search(text), OUT_OF_BOUNDS.search(text), FAILURE.search(text)
    return NcclTest(
        ranks=len(set(RANK.findall(text))),
        average_gb_s=float(average[1]) if average else None,
        wrong_values=int(bounds[1]) if bounds else None,
        failure=failure[0].strip() if failure else None,
    )


class NcclResult(Value, frozen=True):
    """One program of nccl-tests over all nodes, and how it is judged."""

    program: str
    status: Status
    text: str
    measured: NcclTest | None = None


def nccl_result(program: str, output: str, ranks: int, wanted_gb_s: float | None, source: str | None) -> NcclResult:
    """Only the allreduce is held against the site's expectation."""
    measured = parse(output)
    status: Status
    if "STEPMARK: not found" in output:
        status, text = "not_checked", f"{program} was not found in the image or on PATH"
    elif measured.failure or measured.average_gb_s is None:
        last = output.strip().splitlines()[-1:] or ["it printed nothing"]
        status, text = "failed", measured.failure or f"no bus bandwidth: {last[0][:200]}"
    elif measured.ranks != ranks:
        status = "not_checked"
        text = f"it ran {measured.ranks} ranks of {ranks}: a program built without MPI measures no network"
    elif measured.wrong_values:
        status, text = "failed", f"{measured.wrong_values} values came out wrong"
    else:
        wanted = wanted_gb_s if program.startswith("all_reduce") else None
        status = "ok" if measured.average_gb_s >= (wanted or 0) else "failed"
        text = f"{measured.average_gb_s:.1f} GB/s" + (
            f", {wanted:g} GB/s wanted (source: {source or 'none is given'})"
            if wanted
            else ", nothing to compare with"
        )
    return NcclResult(program=program, status=status, text=text, measured=measured)
