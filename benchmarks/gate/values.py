"""What a night says: every cell, every metric, judged. Values alone."""

from typing import Literal

from benchmarks.values import Value

Verdict = Literal["regression", "improvement", "no change", "inconclusive", "invalid"]
Direction = Literal["lower", "higher", "same"]  # which way is better; same: either way is a regression


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
    used_as: Literal["baseline", "recent", "tonight", "left out"]
    why: str = ""  # of what is left out


class ChangePoint(Value, frozen=True):
    """From this night on the level is another one."""

    night: str
    percent: float  # the new level against the one before
    p: float


class MetricJudgement(Value, frozen=True):
    metric: Metric
    gates: bool  # whether it decides the exit code; else it is watched
    verdict: Verdict
    why: str  # the verdict in one sentence, with its figures
    tonight: float | None
    baseline: float | None
    baseline_nights: int
    effect_percent: float | None  # against the baseline; above 0: the figure is larger
    low_percent: float | None  # 90% interval
    high_percent: float | None
    p: float | None  # of the test that decided
    noise_percent: float | None  # standard deviation from night to night
    smallest_detectable_percent: float | None  # seen in the first night in 4 of 5 cases
    nights_needed: int | None  # until "no change" can be said, were there none
    unreachable: bool  # at this noise no number of nights would do
    confirmations: list[float]
    points: list[NightPoint]
    change_points: list[ChangePoint]


class CellReport(Value, frozen=True):
    cell: str
    title: str
    run_id: str | None
    status: str  # of tonight's run: valid, invalid, failed, or missing
    reasons: list[str]
    verdict: Verdict
    new_baseline: list[str]  # what changed since the night before, so that older nights no longer count
    rerun_ids: list[str]
    judgements: list[MetricJudgement]
    notes: list[str]


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
    finished: str | None
    verdict: Verdict
    exit_code: int
    cells: list[CellReport]
    budget: Budget
    false_alarms: str  # what the rule's simulation says of a suite of this size, in one sentence
    could_not_see: list[str]
    history: list[str]  # the folders that earlier nights were read from
    notes: list[str]
