"""The values of a suite and of a night's report."""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from benchmarks.values import Scalar, Value
from benchmarks.verdict import Verdict

UsedAs = Literal["baseline", "recent", "latest", "left out"]
Direction = Literal["lower", "higher", "same"]  # which way is better; same: either way is worse

Names = str | list[str] | None  # one value of a flag, several, or the recipe's value
Numbers = str | int | list[str | int] | None
Watch = Literal["gate", "watch", "none"]


class Suspicion(StrEnum):
    """What the screen and the re-runs say of a night."""

    NONE = "none"
    OPEN = "open"  # suspect; re-runs have to confirm or refute it
    SHARED = "shared"  # suspect; the control cell moved too
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
    settings: dict[str, Scalar] = {}  # as --set takes them


class Suite(Value, frozen=True):
    """configs/suites/NAME.yml, or one of the user's own."""

    name: str
    title: str
    matrix: Annotated[list[Matrix], msgspec.Meta(min_length=1)]
    source: str
    date: str
    site: str | None = None  # used without --site
    control: str | None = None  # the name of the cell that shows whether a whole night was slow
    exclude: list[dict[str, str | int]] = []  # cells that match every key of one of these are excluded
    metrics: dict[str, Watch] = {}  # added to the default figures
    rerun_budget: Annotated[int, msgspec.Meta(ge=0)] = 12  # confirmation runs of one night, of all cells
    baseline_across: list[Literal["benchmark", "environment", "machine"]] = []  # whose change is under test
    must_detect: Annotated[float, msgspec.Meta(gt=0)] | None = None  # percent; a night must see such a change


class Metric(Value, frozen=True):
    """A figure that a suite watches. The rule compares logarithms, so effects are ratios."""

    name: str
    title: str
    unit: str
    direction: Direction


class NightPoint(Value, frozen=True):
    """One night of a cell."""

    night: str
    run_id: str
    value: float
    used_as: UsedAs
    why: str = ""  # the reason for its exclusion


class RuleVerdict(Value, frozen=True):
    """The rule's verdict on the latest night. Percentages are relative to the baseline; above 0: larger."""

    verdict: Verdict
    why: str  # the verdict in one sentence, with its figures
    suspicion: Suspicion = Suspicion.NONE
    baseline: float | None = None
    baseline_nights: int = 0
    effect_percent: float | None = None  # of the test that decided: of the latest night, its re-runs or 3 nights
    low_percent: float | None = None  # 90% interval
    high_percent: float | None = None
    p: float | None = None  # of the test that decided
    noise_percent: float | None = None  # standard deviation from night to night
    smallest_detectable_percent: float | None = None  # confirmed in the first night in 4 of 5 cases
    nights_needed: int | None = None  # until there is a baseline


class MetricJudgement(RuleVerdict, frozen=True, kw_only=True):
    metric: Metric
    gates: bool  # whether it decides the exit code; otherwise it is watched
    latest: float | None = None
    confirmations: list[float] = []
    points: list[NightPoint] = []
    since: str | None = None  # the first night of the open alarm

    @property
    def is_regression(self) -> bool:
        """Whether this figure is worse, and re-runs have confirmed it."""
        return self.verdict is Verdict.WORSE and self.suspicion is Suspicion.CONFIRMED

    @property
    def now(self) -> float | None:
        """Return what changed: the value of the latest run, of its re-runs or of several nights together."""
        if self.baseline is None or self.effect_percent is None:
            return self.latest
        return self.baseline * (1 + self.effect_percent / 100)


class CellReport(Value, frozen=True):
    cell: str
    title: str
    run_id: str | None
    status: str  # of the latest run: valid, invalid, failed, missing, or running while the night continues
    reasons: list[str]
    verdict: Verdict = Verdict.NOT_TESTED
    is_control: bool = False  # its verdict does not decide the exit code
    new_baseline: list[str] = []  # what changed since the night before, so that older nights do not count
    rerun_ids: list[str] = []
    judgements: list[MetricJudgement] = []
    notes: list[str] = []
    left_out: list[NightPoint] = []  # runs that no figure may be compared with, each with the reason
    failed_reruns: list[str] = []  # that left a suspicion of a gating figure unconfirmed

    @property
    def is_regression(self) -> bool:
        return not self.is_control and any(one.gates and one.is_regression for one in self.judgements)


class Budget(Value, frozen=True):
    """Confirmation runs of this night."""

    allowed: int
    used: int
    refused: list[str]  # suspect cells without re-runs


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
    history: list[str] = []  # the folders that earlier nights were read from
    notes: list[str] = []
    site: str = "local"
    slowed_by: float = 0.0  # --inject_slowdown of this night's runs
    must_detect: float | None = None  # percent, from the suite
    blind_below_percent: float | None = None  # changes of a gating metric below it cannot be seen; None: not blind


class Acceptance(Value, frozen=True):
    """A decision of the user: from that night's level on, a cell is compared with the new level."""

    cell: str
    night: str  # the newest one at the time
    because: str
    accepted_at: str  # UTC
    by: str
