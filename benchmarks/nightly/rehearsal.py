"""A rehearsal: a simulated history of one cell, made from one real run and judged night by night by the rule. Pure.

It shows every verdict before a suite has enough nights. The real run's step time is scaled into that of each night.
These runs have no folder, so no history can hold them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from benchmarks.errors import RequestError
from benchmarks.nightly import night as gate
from benchmarks.nightly import series
from benchmarks.nightly.report_text import NO_VERDICT, change_text, value_text, verdict_text
from benchmarks.nightly.suites import CONTROLLED, Cell, Watched
from benchmarks.nightly.values import CellReport, NightReport
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.text import columns

MARK = "rehearsed"
# Percent from the level: a quiet machine, 0.15% from night to night.
HISTORY = (0.12, -0.16, 0.05, -0.08, 0.2, -0.14, 0.03, -0.21, 0.15, 0.04)
USUAL = (0.07, -0.1, 0.02)
SLOW, FAST = (5.1, 4.9, 5.0), (-5.1, -4.9, -5.0)
_HEAD = ("NIGHT", "NOW", "CHANGE (90% INTERVAL)", "VERDICT", "EXIT CODE")


class Act(NamedTuple):
    """One night: what happens, and its step times in percent from the level."""

    what: str
    percent: float
    reruns: Sequence[float] = USUAL
    status: str = "valid"


ACTS = (
    *(Act("too few nights to judge", percent) for percent in HISTORY),
    Act("nothing changed", 0.06),
    Act("one slow run; its re-runs are as usual", 1.2),
    Act("one slow run; no re-runs are left", 2.9, ()),
    Act("the run fails", 0.0, status="failed"),
    Act("the run ends, but is invalid", 0.0, status="invalid"),
    Act("every run is 5% slower", 5.0, SLOW),
    Act("the next night too", 5.1, SLOW),
    Act("as fast as before again", 0.05),
    Act("every run is 5% faster", -5.0, FAST),
)


class Played(NamedTuple):
    act: Act
    cell: CellReport
    exit_code: int


def gated_times(watched: Sequence[Watched], suite: str) -> list[Watched]:
    """The figures that a rehearsal changes."""
    found = [one for one in watched if one.gates and one.metric.name in CONTROLLED]
    if not found:
        raise RequestError(
            f"a rehearsal makes steps slower and faster, and suite {suite} gates no such figure",
            where=f"suite {suite}: metrics",
            next_command=f"metrics: {{{CONTROLLED[0]}: gate}}",
        )
    return found


def play(real: FinishedRun, suite: str, cell: Cell, watched: Sequence[Watched]) -> list[Played]:
    """Every act, each night judged with what the gate said of those before."""
    cell = cell._replace(is_control=False)
    past: list[FinishedRun] = []
    reports: list[NightReport] = []
    played = []
    for number, act in enumerate(ACTS, start=1):
        night = f"{MARK}-{number:02d}"
        named = replace(real, path="", suite=suite, cell=cell.name, night=night, reasons=[])
        run = replace(_scaled(named, act.percent), run_id=night, role="night", status=act.status)
        reruns = [
            replace(_scaled(named, percent), run_id=f"{night}-rerun-{n}", role="rerun")
            for n, percent in enumerate(act.reruns, start=1)
        ]
        tonight = gate.Tonight(cell, night, run, series.series(run, suite, cell.name, past, (), ()), None)
        memory = gate.memory_of(reports, (), night)
        report, urgency = gate.judge_cell(tonight, watched, memory)
        if urgency is not None:
            report, _ = gate.judge_cell(tonight._replace(reruns=reruns), watched, memory)
        past.append(run)
        reports.append(
            NightReport(schema_version=0, suite=suite, title=MARK, night=night, started="", cells=[report])
        )
        played.append(Played(act, report, gate.exit_code([report])))
    return played


def _scaled(run: FinishedRun, percent: float) -> FinishedRun:
    slower, speed = 1 + percent / 100, run.tokens_per_second_per_gpu
    seconds = run.seconds_per_step
    return replace(
        run,
        seconds_per_step=seconds and seconds * slower,
        tokens_per_second_per_gpu=speed and speed / slower,
    )


# --- what is shown --------------------------------------------------------------------------------


def rehearsal_text(suite: str, real: FinishedRun, whence: str, played: Sequence[Played]) -> str:
    """Every line with a figure says that it is rehearsed."""
    numbered = list(enumerate(played, start=1))[len(HISTORY) :]
    history = (f"{MARK} 1-{len(HISTORY)}: {ACTS[0].what}", "-", "-", NO_VERDICT, str(played[0].exit_code))
    return "\n".join(
        [
            f"rehearsal of suite {suite}: no night was run, and nothing enters the history",
            f"{len(played)} nights made of one real run, {real.run_id} {whence}, by scaling its steps;",
            "the verdicts are those of the gate's own rule",
            "",
            *columns([_HEAD, history, *(_row(number, one) for number, one in numbered)]),
            "",
            *(f"  {line}" for number, one in numbered for line in _why(number, one)),
            "",
            f"next:  python launch/nightly.py --suite={suite}     (a real night)",
        ]
    )


def _row(number: int, one: Played) -> tuple[str, ...]:
    judged = next(iter(one.cell.judgements), None)
    figures = (value_text(judged.metric, judged.now), change_text(judged)) if judged else ("-", "-")
    verdict = verdict_text(one.cell) if judged else f"{one.cell.verdict}: run {one.cell.status}"
    return (f"{MARK} {number}: {one.act.what}", *figures, verdict, str(one.exit_code))


def _why(number: int, one: Played) -> list[str]:
    return [f"{MARK} {number}: {judged.why}" for judged in one.cell.judgements]
