"""Entries, series and reports of made-up nights. Helpers of the tests of nights."""

from collections.abc import Sequence
from typing import Any

from benchmarks.nightly import report_text
from benchmarks.nightly.night import CellRuns, Memory, Urgency, exit_code, judge_cell, worst
from benchmarks.nightly.series import series
from benchmarks.nightly.suites import METRICS, Cell, WatchedMetric
from benchmarks.nightly.values import Budget, CellReport, MetricJudgement, NightReport, Suspicion
from benchmarks.request.resolve import Request
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.verdict import Verdict
from tests.benchmarks.history.made_runs import an_entry

SUITE, CELL = "smoke", Cell("tiny", "tiny", Request(backend="jax", model="llama2_tiny"))
IDENTITY = {"benchmark": "b1", "environment": "e1", "machine": "m1"}
GATED = [WatchedMetric(METRICS["seconds_per_step"], True), WatchedMetric(METRICS["excess"], False)]
# Ten nights with some noise, a third of a percent.
QUIET = (1.000, 1.003, 0.997, 1.001, 0.999, 1.004, 0.996, 1.002, 0.998, 1.000)


def night_name(day: int) -> str:
    return f"202611{day:02d}T023000Z"


def entry(day: int, seconds: float | None = 1.0, **fields: Any) -> FinishedRun:
    """A valid run of night `day`."""
    night = fields.get("night", night_name(day))
    run_id = fields.get("run_id", f"{night}-run")
    made: dict[str, Any] = {
        "run_id": run_id, "path": run_id, "started": f"2026-11-{day:02d}T02:30:00Z", "seconds_per_step": seconds,
        "excess": 0.01, "suite": SUITE, "cell": CELL.name, "night": night, "role": "night", "identity": IDENTITY,
        "identity_text": {kind: f"{kind} one" for kind in IDENTITY}, "memory_bytes": 1e9, "last_loss": 5.0,
    }  # fmt: skip
    return an_entry(**(made | fields))


def other(kind: str, day: int, **fields: Any) -> FinishedRun:
    """A run whose identity differs in one kind."""
    texts = {name: f"{name} {'two' if name == kind else 'one'}" for name in IDENTITY}
    return entry(day, identity={**IDENTITY, kind: "other"}, identity_text=texts, **fields)


def history(values: Sequence[float] = QUIET) -> list[FinishedRun]:
    return [entry(day, value) for day, value in enumerate(values, start=1)]


def tonight(
    seconds: float, past: Sequence[FinishedRun], reruns: Sequence[float] | None = None, day: int = 20, **fields: Any
) -> CellRuns:
    now = entry(day, seconds, **fields)
    again = None
    if reruns is not None:
        again = [entry(day, value, run_id=f"rerun-{n}", role="rerun") for n, value in enumerate(reruns)]
    return CellRuns(CELL, night_name(day), now, series(now, SUITE, CELL.name, past, []), again)


def judged(
    seconds: float, past: Sequence[FinishedRun], reruns: Sequence[float] | None = None, memory: Memory | None = None
) -> tuple[CellReport, Urgency | None]:
    return judge_cell(tonight(seconds, past, reruns), GATED, memory or Memory())


def report(cells: Sequence[CellReport], **fields: Any) -> NightReport:
    made: dict[str, Any] = {
        "schema_version": 1, "suite": SUITE, "title": "Smoke", "night": night_name(20),
        "started": "2026-11-20T02:30:00Z", "finished": "2026-11-20T02:31:30Z", "cells": list(cells),
        "verdict": worst([cell.verdict for cell in cells]), "exit_code": exit_code(cells),
        "budget": Budget(allowed=6, used=3, refused=[]),
        "could_not_see": report_text.could_not_see(cells), "history": ["results"],
        "notes": report_text.night_notes(cells),
    }  # fmt: skip
    return NightReport(**(made | fields))


def remembered(verdicts: dict[int, Verdict], accepted: Sequence[int] = ()) -> Memory:
    """The verdicts of earlier days on the seconds per step; `worse` and `better` are confirmed."""
    seconds = METRICS["seconds_per_step"]
    known: dict[tuple[str, str, str], MetricJudgement] = {}
    for day, verdict in verdicts.items():
        moved = verdict in (Verdict.WORSE, Verdict.BETTER)
        suspicion = Suspicion.CONFIRMED if moved else Suspicion.NONE
        one = MetricJudgement(metric=seconds, gates=True, verdict=verdict, why="", suspicion=suspicion)
        known[(CELL.name, seconds.name, night_name(day))] = one
    return Memory(known, [(CELL.name, night_name(day)) for day in accepted])
