"""What a suite asks for, and what a night says: every cell, every metric, judged. Values alone."""

from typing import Annotated, Literal

import msgspec

from benchmarks.values import Scalar, Value

Verdict = Literal["regression", "improvement", "no change", "inconclusive", "invalid"]
Outcome = Verdict | Literal["suspect"]  # re-runs must confirm it first
UsedAs = Literal["baseline", "recent", "tonight", "left out"]
Direction = Literal["lower", "higher", "same"]  # which way is better; same: either way is a regression

Names = str | list[str] | None  # one value of a flag, several, or what the recipe says
Numbers = str | int | list[str | int] | None
Watch = Literal["gate", "watch", "none"]


class Matrix(Value, frozen=True):
    """One block of a suite: every combination of what its lists name is a cell."""

    backend: str | list[str]
    model: str | list[str]
    task: str | list[str] = "pretrain"
    engine: Names = None
    dtype: Names = None
    hardware: Names = None
    gpus: Numbers = None
    nodes: Numbers = None
    pgle: Names = None
    label: str | None = None  # tells cells apart that differ in nothing else but steps or settings
    steps: Annotated[int, msgspec.Meta(gt=0)] | None = None
    window: str | None = None
    data: str | None = None
    settings: dict[str, Scalar] = {}  # as --set takes them


class Suite(Value, frozen=True):
    """configs/suites/NAME.yml, or one of a user's own."""

    name: str
    title: str
    matrix: Annotated[list[Matrix], msgspec.Meta(min_length=1)]
    source: str
    date: str
    site: str | None = None  # where --site is not given
    control: Matrix | None = None  # one small cell: run after each run of every cell, on that cell's nodes
    exclude: list[dict[str, str | int]] = []  # cells that match all of one of these are none
    metrics: dict[str, Watch] = {}  # beside what is always watched
    rerun_budget: Annotated[int, msgspec.Meta(ge=0)] = 12  # confirmation runs of one night, of all cells
    baseline_across: list[Literal["benchmark", "environment", "machine"]] = []  # whose change is under test


class Metric(Value, frozen=True):
    """A figure that a suite watches. All are judged as logarithms, so effects are ratios."""

    name: str
    title: str
    unit: str
    direction: Direction


class NightPoint(Value, frozen=True):
    """One night of a cell, as the gate saw it."""

    night: str
    run_id: str
    value: float
    used_as: UsedAs
    why: str = ""  # of what is left out
    control: float | None = None  # the same figure of the control beside it


class ChangePoint(Value, frozen=True):
    """From this night on the level is another one."""

    night: str
    percent: float  # the new level against the one before
    p: float
    told_before: bool = False  # by an earlier night's report


class Judged(Value, frozen=True):
    """What the rule says of tonight. Percentages are of the baseline; above 0: the figure is larger."""

    verdict: Outcome
    why: str  # the verdict in one sentence, with its figures
    baseline: float | None = None  # the level that tonight was held against
    baseline_nights: int = 0
    effect_percent: float | None = None  # of what decided: tonight, 3 nights, the re-runs, or the nights since
    low_percent: float | None = None  # 90% interval
    high_percent: float | None = None
    p: float | None = None  # of the test that decided: how often chance alone gets so far
    noise_percent: float | None = None  # standard deviation from night to night
    smallest_detectable_percent: float | None = None  # seen in the first night in 4 of 5 cases
    nights_needed: int | None = None  # until "no change" can be said; with too few nights, until one is judged
    unreachable: bool = False  # at this noise no number of nights would do


class MetricJudgement(Judged, frozen=True, kw_only=True):
    verdict: Verdict
    metric: Metric
    gates: bool  # whether it decides the exit code; else it is watched
    tonight: float | None = None
    confirmations: list[float] = []
    confirmation_controls: list[float | None] = []  # the same figure of the control beside each
    points: list[NightPoint] = []
    change_points: list[ChangePoint] = []
    control_percent: float | None = None  # how far tonight's control was from its own usual level
    control_p: float | None = None
    suspect: bool = False  # far off, and neither confirmed nor refuted: no later baseline holds such a night

    @property
    def now(self) -> float | None:
        """What the change is of: tonight's run, its re-runs or several nights together."""
        if self.baseline is None or self.effect_percent is None:
            return self.tonight
        return self.baseline * (1 + self.effect_percent / 100)


class SharedNoise(Value, frozen=True):
    """The share of the night-to-night variance that re-runs share with the run they confirm: a site's own figure."""

    share: float
    low: float  # 90% interval
    high: float
    nights: int  # with re-runs, that it is from
    nodes: float | None = None  # of the share, what is the nodes'; None: not known


class Estimate(Value, frozen=True):
    """Of a site's own nights."""

    value: float
    low: float  # 90% interval
    high: float
    nights: int  # that it is from


class NightCourse(Value, frozen=True):
    """How nights follow each other."""

    memory: Estimate  # lag-1 autocorrelation
    drift_percent: Estimate  # a month; above 0: it becomes worse
    noise_percent: float  # about the drift, from night to night
    control_sees: Estimate | None = None  # share of what lasts from night to night that it shows too


class CellReport(Value, frozen=True):
    cell: str
    title: str
    run_id: str | None
    status: str  # of tonight's run: valid, invalid, failed, missing, or running while the night goes on
    reasons: list[str]
    verdict: Verdict = "invalid"
    new_baseline: list[str] = []  # what changed since the night before, so that older nights no longer count
    rerun_ids: list[str] = []
    judgements: list[MetricJudgement] = []
    notes: list[str] = []
    left_out: list[NightPoint] = []  # runs that no metric may be compared with, each with the reason
    controls: dict[str, str] = {}  # run -> the control's run beside it
    fresh_nodes: bool | None = None  # whether the re-runs had other nodes than the first run
    failed_reruns: list[str] = []  # that left a suspicion of a gating figure unconfirmed


class Budget(Value, frozen=True):
    """Confirmation runs of this night."""

    allowed: int
    used: int
    refused: list[str]  # cells that were suspect, and got none


class NightReport(Value, frozen=True):
    schema_version: int
    suite: str
    title: str
    night: str
    started: str
    finished: str | None = None
    verdict: Verdict = "inconclusive"
    exit_code: int = 0
    cells: list[CellReport] = []
    budget: Budget = Budget(allowed=0, used=0, refused=[])
    false_alarms: str = ""  # what the rule's simulation says of a suite of this size and noise, in one sentence
    shared_noise: SharedNoise | None = None  # None: too few nights with re-runs
    night_course: NightCourse | None = None  # None: too few nights
    control_sees: Estimate | None = None  # share of a slow night that it shows too; None: too few re-runs with one
    could_not_see: list[str] = []
    history: list[str] = []  # the folders that earlier nights were read from
    notes: list[str] = []
    site: str = "local"
    slowed_by: float = 0.0  # --inject_slowdown of tonight's runs
    swept: bool = False  # whether all nights were searched for change points


class Acceptance(Value, frozen=True):
    """A person's word: from that night's level on, a cell is held against the new level. Lines of decisions.jsonl."""

    cell: str
    night: str  # the newest one when it was said
    because: str
    said: str  # UTC
    by: str
