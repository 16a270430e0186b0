"""Invented runs and nights, for tests of their charts."""

from typing import Any

from msgspec.structs import replace

from benchmarks.nightly.night import unjudged
from benchmarks.nightly.suites import METRICS
from benchmarks.nightly.values import MetricJudgement, NightPoint, NightReport
from benchmarks.runs.finished_run import FinishedRun, changed, finished_run
from benchmarks.verdict import Verdict
from tests.benchmarks.nightly import nights_made
from tests.benchmarks.nightly.nights_made import CELL

PLAIN = finished_run({
    "run_id": "", "path": "", "started": "", "status": "valid", "backend": "jax", "engine": "maxtext",
    "model": "llama2_tiny", "task": "pretrain", "dtype": "bf16", "hardware": "cpu", "gpus": 1, "nodes": 1,
    "site": "local", "host": "here", "parallelism": "one device", "sequence_length": 128, "global_batch_size": 2,
    "steps": 50, "window": "steady", "counted": 40, "seconds_per_step": 0.01, "seconds_mean": 0.0101, "excess": 0.01,
    "tokens_per_second": 25600.0, "tokens_per_second_per_gpu": 25600.0, "last_loss": 6.0,
    "commit": "0123456789abcdef", "identity": {},
})  # fmt: skip


def entry(number: int = 0, **changes: Any) -> FinishedRun:
    """The `number`-th run: a day later than the one before."""
    started = f"2026-11-{number + 1:02d}T00:00:00Z"
    name = f"202611{number + 1:02d}T000000Z-jax-{number:04x}"
    return changed(PLAIN, **{"run_id": name, "path": name, "started": started, **changes})


def judgement(values: dict[str, float], since: str | None = None, gates: bool = True) -> MetricJudgement:
    """Judge the last of these nights; the others are its baseline."""
    *_, latest = values
    points = [
        NightPoint(
            night=night,
            run_id=f"{night.replace('-', '')}T010000Z-jax-{number:04x}",
            value=value,
            used_as="latest" if night == latest else "baseline",
        )
        for number, (night, value) in enumerate(values.items())
    ]
    return MetricJudgement(
        metric=METRICS["seconds_per_step"],
        gates=gates,
        verdict=Verdict.SAME,
        why="",
        latest=values[latest],
        points=points,
        since=since,
    )


def report(night: str, judgements: dict[str, list[MetricJudgement]], suite: str = "smoke") -> NightReport:
    """One night: the judgements of each cell."""
    valid = unjudged(CELL, "", "valid", [])
    cells = [replace(valid, cell=cell, judgements=found) for cell, found in judgements.items()]
    return nights_made.report(cells, suite=suite, night=night, started=f"{night}T01:00:00Z")
