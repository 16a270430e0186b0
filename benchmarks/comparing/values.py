"""What a comparison says: two sides, their figures, what was refused, and the likely causes. Values alone."""

from typing import Literal

from benchmarks.values import Value

Direction = Literal["lower", "higher", "same"]  # which way is better; same: any change is worth a look
Verdict = Literal["better", "worse", "changed", "no difference shown", "equal within the margin", "no verdict"]


class Side(Value, frozen=True):
    """One side: the runs it consists of, and what was left out of it."""

    label: str  # as it was typed
    run_ids: list[str]
    left_out: dict[str, str]  # run id -> why it does not count
    name: str = ""  # in what it differs from the other side; empty: the two are not comparable


class Figure(Value, frozen=True):
    """One side's figure, with its 95% interval; n counts runs, or the steps of a single run."""

    value: float
    low: float | None
    high: float | None
    n: int
    of: Literal["runs", "steps"]


class Difference(Value, frozen=True, kw_only=True):
    """B against A, in percent of A."""

    name: str
    unit: str
    direction: Direction
    a: Figure | None
    b: Figure | None
    percent: float | None = None  # None: not compared, or not known
    low: float | None = None  # 95%
    high: float | None = None
    chance: float | None = None  # the p value of this figure alone; None: not known
    chance_together: float | None = None  # with all figures of the comparison (Holm): the verdict's
    verdict: Verdict = "no verdict"
    why: str  # of the verdict, in one sentence
    note: str = ""  # what the figure is
    absent: bool = False  # no side's runs all have it; `why` says why


class Cause(Value, frozen=True):
    """One thing in which the two sides' provenance differs."""

    rank: int  # 1: the most likely cause of a difference in speed
    kind: str  # one of explain.KINDS
    name: str
    a: str | None
    b: str | None
    why: str  # it has this weight
    weight: float = 0.0


class Comparison(Value, frozen=True, kw_only=True):
    a: Side
    b: Side
    refused: list[str]  # why these two may not be compared; then there are no differences
    instead: list[str] = []  # where a side is a mixture or misspelt: what to type for A and B
    summary: str = ""  # how far apart the sides are in speed, in one sentence
    together: str = ""  # how many figures differ, with all of them together
    differences: list[Difference] = []
    causes: list[Cause] | None = None  # None: not asked for
    same: list[str] = []  # the kinds of provenance that were looked at and do not differ
    notes: list[str] = []
    asked: list[str] = []  # in what the two requests differ, such as "dtype: bf16 -> fp8"
    not_known: list[str] = []  # the kinds of provenance that a side does not record, and why
    margin_percent: float = 1.0  # differences within it are called equal; 0: none is
    schema_version: int = 1
