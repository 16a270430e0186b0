"""Rehearse the nightly rule: simulate the history of one cell from one real run, and judge it night by night.

This shows every verdict before a suite has enough nights. A simulated run is the real run with a scaled step time. It
has no folder, so it never enters a history.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.nightly import night as gate
from benchmarks.nightly import series
from benchmarks.nightly.judging import report_of
from benchmarks.nightly.records import Records
from benchmarks.nightly.report_text import NO_VERDICT, change_text, value_text, verdict_text
from benchmarks.nightly.suites import CONTROLLED, Cell, WatchedMetric
from benchmarks.nightly.values import CellReport, NightReport
from benchmarks.runs.campaign_record import result_of
from benchmarks.runs.finished_run import FinishedRun, changed
from benchmarks.text import columns, percent_text

MARK = "rehearsed"
# Differences from the usual step time, in percent. They simulate a quiet machine with 0.15% noise between nights.
HISTORY = (0.12, -0.16, 0.05, -0.08, 0.2, -0.14, 0.03, -0.21, 0.15, 0.04)
USUAL = (0.07, -0.1, 0.02)
SLOW, FAST = (5.1, 4.9, 5.0), (-5.1, -4.9, -5.0)
NOISY = 50  # multiplies the usual differences; with this much noise, no gate can work


class Act(NamedTuple):
    """One simulated night: what happens, and the step times of its runs as percent above the usual step time."""

    what: str
    percent: float
    reruns: Sequence[float] = USUAL
    status: str = "valid"
    noise: float = 1.0  # multiplies the differences in HISTORY


ACTS = (
    *(Act("too few nights to judge", percent) for percent in HISTORY),
    Act("nothing changed", 0.06),
    Act("one slow run; its re-runs are not slow", 1.2),
    Act("one slow run, and no re-run is left", 2.9, ()),
    Act("the run fails", 0.0, status="failed"),
    Act("the run ends, but is invalid", 0.0, status="invalid"),
    Act("every run is 5% slower", 5.0, SLOW),
    Act("the next night is slow too", 5.1, SLOW),
    Act("back to the usual speed", 0.05),
    Act("every run is 5% faster", -5.0, FAST),
    Act("a slow night after ten that vary by 8%", 5.0, SLOW, noise=NOISY),
)


class Real(NamedTuple):
    """The real run from which all simulated runs are scaled."""

    cell: Cell
    run: FinishedRun
    source: str


class RehearsedNight(NamedTuple):
    act: Act
    cell: CellReport
    exit_code: int
    blind_below_percent: float | None


def newest_real(suite: str, cells: Sequence[Cell], output_dir: Path) -> Real | None:
    """Return a real run that can be scaled, from the newest night that has one; None if no night has one."""
    by_name = {cell.name: cell for cell in cells}
    reports, _ = Records(output_dir, suite).read_newest()
    for report in reversed(reports):
        for one in report.cells:
            run = result_of(output_dir / one.run_id) if one.run_id and one.cell in by_name else None
            if run and can_be_scaled(run):
                return Real(by_name[one.cell], run, f"(night {report.night})")
    return None


def can_be_scaled(run: FinishedRun) -> bool:
    comparable = run.status == "valid" and not run.not_comparable and not run.slowed_by
    return comparable and run.metrics.seconds_per_step is not None


def play(
    real: Real, suite: str, watched: Sequence[WatchedMetric], must_detect: float | None = None
) -> list[RehearsedNight]:
    """Return every simulated night. Each is judged with the verdicts of the nights before it."""
    times = [one for one in watched if one.gates and one.metric.name in CONTROLLED]  # scaling changes these
    cell = real.cell._replace(is_control=False)
    past: list[FinishedRun] = []
    reports: list[NightReport] = []
    played = []
    for number, act in enumerate(ACTS, start=1):
        night = f"{MARK}-{number:02d}"
        named = {"suite": suite, "cell": cell.name, "night": night}
        if act.noise > 1:
            past = [_scaled(one, (act.noise - 1) * percent) for one, percent in zip(past, HISTORY, strict=False)]
        run = _scaled(real.run, act.percent, **named, run_id=night, status=act.status)
        reruns = [
            _scaled(real.run, percent, **named, run_id=f"{night}-rerun-{n}") for n, percent in enumerate(act.reruns)
        ]
        cell_runs = gate.CellRuns(cell, night, run, series.series(run, suite, cell.name, past, ()), None)
        memory = gate.memory_of(reports, (), night)
        report, urgency = gate.judge_cell(cell_runs, times, memory)
        if urgency is not None:
            report, _ = gate.judge_cell(cell_runs._replace(reruns=reruns), times, memory)
        past.append(run)
        frame = NightReport(
            schema_version=0, suite=suite, title=MARK, night=night, started="", must_detect=must_detect
        )
        reports.append(report_of(frame, [report], frame.budget, None))
        played.append(RehearsedNight(act, report, reports[-1].exit_code, reports[-1].blind_below_percent))
    return played


def rehearsal_text(suite: str, real: Real, played: Sequence[RehearsedNight]) -> str:
    """Return the table of nights and the reasons for the verdicts. Each line with a metric is marked as rehearsed."""
    rows = [
        ("NIGHT", "NOW", "CHANGE (90% INTERVAL)", "VERDICT", "EXIT CODE"),
        (f"{MARK} 1-{len(HISTORY)}: {ACTS[0].what}", "-", "-", NO_VERDICT, str(played[0].exit_code)),
    ]
    reasons = []
    for number, one in enumerate(played[len(HISTORY) :], start=len(HISTORY) + 1):
        now, change, verdict = "-", "-", f"{one.cell.verdict}: run {one.cell.status}"
        for judged in one.cell.judgements[:1]:
            now, change = value_text(judged.metric, judged.now), change_text(judged)
            verdict = verdict_text(one.cell)
            verdict += f", BLIND below {percent_text(one.blind_below_percent)}" if one.blind_below_percent else ""
            reasons.append(f"  {MARK} {number}: {judged.why}")
        rows.append((f"{MARK} {number}: {one.act.what}", now, change, verdict, str(one.exit_code)))
    return "\n".join(
        [
            f"rehearsal of suite {suite}: no night was run, and nothing enters the history",
            f"{len(played)} nights scaled from one real run, {real.run.run_id} {real.source};",
            "the verdicts are those of the nightly rule",
            "",
            *columns(rows),
            "",
            *reasons,
            "",
            f"next:  python launch/nightly.py --suite={suite}     (a real night)",
        ]
    )


def _scaled(run: FinishedRun, percent: float, **named: str) -> FinishedRun:
    slower, seconds, speed = 1 + percent / 100, run.metrics.seconds_per_step, run.metrics.tokens_per_second_per_gpu
    seconds, speed = seconds and seconds * slower, speed and speed / slower
    figures = {"seconds_per_step": seconds, "tokens_per_second_per_gpu": speed}
    return changed(run, **figures, path="", reasons=[], role="night", **named)
