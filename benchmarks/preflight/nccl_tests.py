"""What nccl-tests print (all_reduce_perf and its kin) -> the bus bandwidth that was measured. Pure.

The format is that of github.com/NVIDIA/nccl-tests: lines of `#` that say what ran, a row a message size with the
results out of place and in place, and two lines of `#` that sum up.
"""

import re

from benchmarks.values import Value

RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d+)")
AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([0-9.]+)")
OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s+(\w+)")
FAILURE = re.compile(r".*(?:Test NCCL failure|Test CUDA failure|Test failure|NCCL WARN|error while loading).*")


class NcclTest(Value, frozen=True):
    """One program of nccl-tests, as it ended."""

    ranks: int
    hosts: list[str]
    average_gb_s: float | None  # bus bandwidth over all sizes, as the program itself averages
    largest_bytes: int | None
    largest_gb_s: float | None  # bus bandwidth at the largest size, out of place
    wrong_values: int | None  # None: it did not check
    failure: str | None = None  # in the program's own words


def parse(text: str) -> NcclTest:
    """Whole output or a part of it; what is not there is None."""
    ranks = RANK.findall(text)
    rows = [row for line in text.splitlines() if (row := _row(line)) is not None]
    average, bounds, failure = AVERAGE.search(text), OUT_OF_BOUNDS.search(text), FAILURE.search(text)
    largest = max(rows, default=None)
    return NcclTest(
        ranks=len({number for number, _, _ in ranks}),
        hosts=sorted({host for _, host, _ in ranks}),
        average_gb_s=float(average[1]) if average else None,
        largest_bytes=largest[0] if largest else None,
        largest_gb_s=largest[1] if largest else None,
        wrong_values=int(bounds[1]) if bounds else None,
        failure=failure[0].strip() if failure else None,
    )


def _row(line: str) -> tuple[int, float] | None:
    """Size in bytes and bus bandwidth out of place: columns 1 and 8 of 13.

    size count type redop root, then time algbw busbw #wrong for each of both ways.
    """
    columns = line.split()
    if len(columns) != 13 or not columns[0].isdigit() or not columns[1].isdigit():
        return None
    try:
        return int(columns[0]), float(columns[7])
    except ValueError:
        return None
