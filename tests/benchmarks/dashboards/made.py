"""Entries and nights that are made up, for tests of what is drawn of them."""

from typing import Any

import msgspec

from benchmarks.gate.values import (
    Budget,
    CellReport,
    ChangePoint,
    Metric,
    MetricJudgement,
    NightPoint,
    NightReport,
)
from benchmarks.runs.finished_run import FinishedRun

SECONDS = Metric(name="seconds_per_step", title="seconds/step", unit="s", direction="lower")

PLAIN = FinishedRun(
    run_id="20261101T000000Z-jax-llama2_tiny-pretrain-bf16-1xcpu-0000",
    path="20261101T000000Z-jax-llama2_tiny-pretrain-bf16-1xcpu-0000",
    started="2026-11-01T00:00:00Z",
    status="valid",
    backend="jax",
    engine="maxtext",
    model="llama2_tiny",
    task="pretrain",
    dtype="bf16",
    hardware="cpu",
    gpus=1,
    nodes=1,
    site="local",
    host="here",
    parallelism="one device",
    sequence_length=128,
    global_batch_size=2,
    steps=50,
    window="steady",
    counted=40,
    settled=True,
    profile="none",
    pgle="off",
    seconds_per_step=0.01,
    seconds_low=0.009,
    seconds_high=0.011,
    seconds_mean=0.0101,
    excess=0.01,
    tokens_per_second=25600.0,
    tokens_per_second_per_gpu=25600.0,
    mfu_percent=None,
    mfu_convention=None,
    mfu_precision=None,
    mfu_peak_tflops=None,
    last_loss=6.0,
    memory_bytes=None,
    version="0.1",
    commit="0123456789abcdef",
    tags=[],
    suite=None,
    cell=None,
    night=None,
    role=None,
    not_comparable=[],
    slowed_by=0.0,
    identity={},
    reasons=[],
)


def entry(number: int = 0, **changes: Any) -> FinishedRun:
    """The `number`-th run: a day later than the one before."""
    started = f"2026-11-{number + 1:02d}T00:00:00Z"
    name = f"202611{number + 1:02d}T000000Z-jax-{number:04x}"
    return msgspec.structs.replace(PLAIN, **{"run_id": name, "path": name, "started": started, **changes})


def judgement(values: dict[str, float], changes: list[ChangePoint] | None = None, **others: Any) -> MetricJudgement:
    """Of the last of the nights, the others being its baseline."""
    *_, tonight = values
    made = MetricJudgement(
        metric=SECONDS,
        gates=True,
        verdict="no change",
        why="as before",
        tonight=values[tonight],
        baseline=1.0,
        baseline_nights=len(values) - 1,
        effect_percent=1.0,
        low_percent=-1.0,
        high_percent=3.0,
        p=0.5,
        noise_percent=1.0,
        smallest_detectable_percent=2.0,
        nights_needed=None,
        unreachable=False,
        confirmations=[],
        points=[
            NightPoint(night=night, run_id=f"{night.replace('-', '')}T010000Z-jax-{n:04x}", value=value,
                       used_as="tonight" if night == tonight else "baseline")
            for n, (night, value) in enumerate(values.items())
        ],
        change_points=changes or [],
    )  # fmt: skip
    return msgspec.structs.replace(made, **others)


def report(night: str, judgements: dict[str, list[MetricJudgement]], suite: str = "smoke") -> NightReport:
    """One night: the judgements of each cell."""
    return NightReport(
        schema_version=1,
        suite=suite,
        title=suite,
        night=night,
        started=f"{night}T01:00:00Z",
        finished=f"{night}T02:00:00Z",
        verdict="no change",
        exit_code=0,
        cells=[
            CellReport(
                cell=cell, title=cell, run_id="a_run", status="valid", reasons=[], verdict="no change",
                new_baseline=[], rerun_ids=[], judgements=found, notes=[],
            )
            for cell, found in judgements.items()
        ],
        budget=Budget(allowed=0, used=0, refused=[]),
        false_alarms="",
        could_not_see=[],
        history=[],
        notes=[],
    )  # fmt: skip
