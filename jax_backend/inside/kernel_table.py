"""Nsight Systems' table of kernels by NVTX range (report nvtx_kern_sum) -> what each HLO instruction costs.

Pure standard library, and loadable by path, as hlo.py is. XLA opens a range around every kernel that it
launches, and names the instruction in it. The forms that the range took, by age of XLA (domain `TSL:` in front, or
nothing, or `:`):

    Thunk:#hlo_op=fusion.3,hlo_module=jit_step,program_id=7#
    Thunk:#hlo_op=all-gather-start.1#
    Thunk:#name=transformer/dot_general,hlo_op=fusion.3#
    Thunk:#name=transformer/dot_general,hlo_op=fusion.3,unique_hlo_op_id=812#
    XlaModule:#prefix=jit(step)/jit(main),hlo_module=jit_step,program_id=7#

(openxla/xla: xla/backends/profiler/gpu or xla/service/gpu, nvtx_utils and annotation.cc, MakeInstructionTitle.) jax's
own converter takes all that follows `hlo_op=` for the name, so that with the newest form it matches nothing.
"""

import csv
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# The name that nsys has given the report since 2023, and the one before; both make the same table.
REPORTS = ("nvtx_kern_sum", "nvtxkernsum")

_OPERATION = re.compile(r"(?:^|:)Thunk:.*[#,]hlo_op=([\w.\-]+)(?=[,#]|$)")
_MODULE = re.compile(r"(?:^|:)XlaModule:.*[#,]hlo_module=([^,#]+)(?:,program_id=(\d+))?")
# The columns, as nsys has written them since 2022; in a CSV its times are nanoseconds.
_AVERAGE = ("avg (ns)", "average")
_RANGES = ("nvtx range", "range")
MICROSECONDS = 1e-3

# A range may hold a whole path of the framework; the csv module gives up at 131,072 characters of its own accord.
FIELD_CHARACTERS = 16 << 20

# The ranges of CUDA graphs: the instructions within are launched at once, and none of them is timed.
GRAPH_RANGE = re.compile(r"command[_\-]buffer")


class TableError(Exception):
    """The table is none that this reads; the message says what is wrong with it."""


class Table(NamedTuple):
    """What one report of nsys says."""

    costs: dict[str, float]  # microseconds of an instruction: of its kernel that takes longest, on average
    modules: dict[str, set[int]]  # programs that ran: name -> XLA's numbers of it, where the ranges give them
    rows: int


def read(path: str | Path) -> Table:
    with Path(path).open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        return parse(stream)


def parse(lines: Iterable[str]) -> Table:
    csv.field_size_limit(FIELD_CHARACTERS)
    reader = csv.DictReader(lines)
    try:
        return _parse(reader)
    except csv.Error as error:
        raise TableError(f"its line {reader.line_num} is no CSV: {error}") from error


def _parse(reader: "csv.DictReader[str]") -> Table:
    columns = [name or "" for name in (reader.fieldnames or [])]
    in_range = next((name for name in columns if name.strip().lower() in _RANGES), None)
    average = next((name for name in columns if name.strip().lower() in _AVERAGE), None)
    if in_range is None or average is None:
        missing = "range" if in_range is None else "average"
        raise TableError(f"no column holds the {missing}; its columns are {', '.join(columns) or 'none'}")
    costs: dict[str, float] = {}
    modules: dict[str, set[int]] = {}
    rows = 0
    for row in reader:
        rows += 1
        text = row[in_range] or ""
        if module := _MODULE.search(text):
            modules.setdefault(module[1], set()).update([int(module[2])] if module[2] else [])
        elif operation := _OPERATION.search(text):
            cost = _number(row[average], reader.line_num) * MICROSECONDS
            costs[operation[1]] = max(cost, costs.get(operation[1], 0.0))
    return Table(costs, modules, rows)


def _number(text: str | None, line: int) -> float:
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):  # not a number fails this too
        raise TableError(f"its line {line} has '{text}' where the average is expected")
    return number


def over_ranks(tables: Sequence[Table], collectives: Iterable[str]) -> dict[str, float]:
    """The costs of several ranks as one.

    A collective's kernel also waits for the ranks that come late, and this wait is no cost of the collective: the
    rank that came last waited for nobody, so the least of its times is the nearest to the truth. Any other
    instruction is the same work on every rank: the middle one, so that a single slow GPU does not set it. Of one
    rank, which is what the recipe profiles, these are its times as they are.
    """
    moving = set(collectives)
    found: dict[str, list[float]] = {}
    for table in tables:
        for name, cost in table.costs.items():
            found.setdefault(name, []).append(cost)
    return {name: min(all_) if name in moving else statistics.median(all_) for name, all_ in found.items()}


def profile_text(costs: Mapping[str, float]) -> str:
    """XLA's ProfiledInstructionsProto as text: what xla_gpu_pgle_profile_file_or_directory_path names."""
    return "".join(
        f'costs {{ name: "{name}" cost_us: {round(cost, 6)!r} }}\n' for name, cost in sorted(costs.items())
    )
