"""The values of a comparison: two sides, their metrics, the verdict, its warnings and the likely causes."""

from typing import Literal

from benchmarks.values import Value
from benchmarks.verdict import Verdict


class Side(Value, frozen=True):
    """One side of a comparison: its runs, and the runs that were excluded from it."""

    label: str  # the argument that selected the runs
    run_ids: list[str]
    left_out: dict[str, str]  # run id -> why the run is excluded
    name: str = ""  # describes the difference from the other side; empty: the sides are not comparable


class Difference(Value, frozen=True, kw_only=True):
    """The difference of B from A in one metric, in percent of A."""

    name: str
    unit: str
    a: float | None  # the geometric mean over the runs of side A
    b: float | None
    percent: float | None = None  # None: not compared, or not known
    low: float | None = None  # the ends of the 95% interval
    high: float | None = None
    verdict: Verdict = Verdict.NOT_TESTED  # only one metric, the step time, is tested
    why: str = ""  # the reason for the verdict, or why the metric is not compared
    moved: bool = False  # loss or memory differs by more than the margin
    note: str = ""  # how the metric is defined


class Cause(Value, frozen=True):
    """One difference between the recorded environments and requests of the two sides."""

    rank: int  # 1: the most likely cause of a difference in speed
    kind: str  # one of explain.KINDS
    name: str
    a: str | None
    b: str | None
    why: str  # the reason for the weight
    weight: float = 0.0


class Caution(Value, frozen=True):
    """A reason to trust the verdict less."""

    kind: Literal["not interleaved", "few runs", "not settled"]
    text: str
    next_command: str | None = None  # a command that resolves the warning


class Comparison(Value, frozen=True, kw_only=True):
    """The result of compare.py."""

    a: Side
    b: Side
    refused: list[str]  # why the two sides are not comparable; if not empty, there are no differences
    summary: str = ""  # one sentence with the verdict and the difference in speed
    verdict: Verdict = Verdict.NOT_TESTED
    warnings: list[Caution] = []
    differences: list[Difference] = []
    causes: list[Cause] | None = None  # None: --explain was not passed
    same: list[str] = []  # the kinds of facts that were compared and do not differ
    asked: list[str] = []  # differences of the two requests, such as "dtype: bf16 -> fp8"
    not_known: list[str] = []  # the kinds of facts that cannot be compared, and why
    margin_percent: float = 1.0  # if the interval is within this margin, the verdict is `same`; 0: it never is
    schema_version: int = 2
