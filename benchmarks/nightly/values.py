"""The values of a suite and of a night's report."""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from benchmarks.values import Scalar, Value
from benchmarks.verdict import Verdict

UsedAs = Literal["baseline", "recent", "latest", "left out"]
Direction = Literal["lower", "higher", "same"]  # which values are better; `same`: any change is worse

Names = str | list[str] | None  # one value of a flag, or several values; None: the recipe's value
Numbers = str | int | list[str | int] | None
Watch = Literal["gate", "watch", "none"]


class Suspicion(StrEnum):
    """The suspicion about a night after the screen and the re-runs."""

    NONE = "none"
    OPEN = "open"  # suspect, until re-runs confirm or refute it
    SHARED = "shared"  # suspect, but the control cell changed too
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


class Matrix(Value, frozen=True):
    """One block of a suite: every combination of its lists is a cell."""

    backend: str | list[str]
    model: str | list[str]
    task: str | list[str] = "pretrain"
    engine: Names = None
    dtype: Names = None
    hardware: Names = None
    gpus: Numbers = None
    nodes: Numbers = None
    pgle: Names = None
    label: str | None = None  # distinguishes cells that differ only in steps or settings
    steps: Annotated[int, msgspec.Meta(gt=0)] | None = None
    window: str | None = None
    data: str | None = None
    settings: dict[str, Scalar] = {}  # keys and values as in --set


class Suite(Value, frozen=True):
    """A suite: configs/suites/NAME.yml, or the user's own file."""

    name: str
    title: str
    matrix: Annotated[list[Matrix], msgspec.Meta(min_length=1)]
    source: str
    date: str
    site: str | None = None  # the default of --site
    control: str | None = None  # the name of the cell that shows whether a whole night was slow
    exclude: list[dict[str, str | int]] = []  # a cell is excluded if it matches all keys of one of these
    metrics: dict[str, Watch] = {}  # added to the default metrics
    rerun_budget: Annotated[int, msgspec.Meta(ge=0)] = 12  # the most re-runs of all cells in one night
    baseline_across: list[Literal["benchmark", "environment", "machine"]] = []  # what may change within a baseline
    must_detect: Annotated[float, msgspec.Meta(gt=0)] | None = None  # in percent; a night must detect such a change


class Metric(Value, frozen=True):
    """A metric that a suite judges."""

    name: str
    title: str
    unit: str
    direction: Direction


class NightPoint(Value, frozen=True):
    """The value of a metric on one night of a cell, and how the rule used it."""

    night: str
    run_id: str
    value: float
    used_as: UsedAs
    why: str = ""  # why the night is excluded


class RuleVerdict(Value, frozen=True):
    """The rule's verdict on the latest night. Percentages are relative to the baseline and positive above it."""

    verdict: Verdict
    why: str  # the reason for the verdict in one sentence, with its metrics
    suspicion: Suspicion = Suspicion.NONE
    baseline: float | None = None
    baseline_nights: int = 0
    effect_percent: float | None = None  # of the value in the test that decided (see `now`)
    low_percent: float | None = None  # the ends of the 90% interval
    high_percent: float | None = None
    p: float | None = None  # of the test that decided
    noise_percent: float | None = None  # the standard deviation between nights
    smallest_detectable_percent: float | None = None  # detected and confirmed in its first night in 4 of 5 cases
    nights_needed: int | None = None  # how many more nights the baseline needs


class MetricJudgement(RuleVerdict, frozen=True, kw_only=True):
    metric: Metric
    gates: bool  # whether the metric decides the exit code; otherwise it is only watched
    latest: float | None = None
    confirmations: list[float] = []
    points: list[NightPoint] = []
    since: str | None = None  # the first night of the open alarm

    @property
    def is_regression(self) -> bool:
        """Return whether re-runs have confirmed that this metric is worse."""
        return self.verdict is Verdict.WORSE and self.suspicion is Suspicion.CONFIRMED

    @property
    def now(self) -> float | None:
        """Return the value to which the effect belongs: that of the latest run, its re-runs, or recent nights."""
        if self.baseline is None or self.effect_percent is None:
            return self.latest
        return self.baseline * (1 + self.effect_percent / 100)


class CellReport(Value, frozen=True):
    cell: str
    title: str
    run_id: str | None
    status: str  # valid, invalid, failed, missing, or `running` during the night
    reasons: list[str]
    verdict: Verdict = Verdict.NOT_TESTED
    is_control: bool = False  # whether this is the control cell, whose verdict does not decide the exit code
    new_baseline: list[str] = []  # why older nights are not comparable: what changed since the previous night
    rerun_ids: list[str] = []
    judgements: list[MetricJudgement] = []
    notes: list[str] = []
    left_out: list[NightPoint] = []  # excluded nights, each with the reason
    failed_reruns: list[str] = []  # failed re-runs that left a suspicion about a gating metric unconfirmed

    @property
    def is_regression(self) -> bool:
        return not self.is_control and any(one.gates and one.is_regression for one in self.judgements)


class Budget(Value, frozen=True):
    """How many re-runs the night may start and has started."""

    allowed: int
    used: int
    refused: list[str]  # suspect cells that got no re-runs


class NightReport(Value, frozen=True):
    schema_version: int
    suite: str
    title: str
    night: str
    started: str
    finished: str | None = None
    verdict: Verdict = Verdict.NOT_TESTED
    exit_code: int = 0
    cells: list[CellReport] = []
    budget: Budget = Budget(allowed=0, used=0, refused=[])
    could_not_see: list[str] = []
    history: list[str] = []  # the folders from which earlier nights were read
    notes: list[str] = []
    site: str = "local"
    slowed_by: float = 0.0  # the value of --inject_slowdown in this night's runs
    must_detect: float | None = None  # in percent, from the suite
    blind_below_percent: float | None = None  # a smaller change of a gating metric goes undetected; None: not blind


class Acceptance(Value, frozen=True):
    """The user's decision to accept the level of a night: later nights of the cell are compared with this level."""

    cell: str
    night: str  # the newest night at the time of the decision
    because: str
    accepted_at: str  # in UTC
    by: str
