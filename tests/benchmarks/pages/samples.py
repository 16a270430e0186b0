"""Values that pages are made of: a comparison, a night and a run, with everything that each may hold."""

import random
from typing import Any

import msgspec

from benchmarks.compare.values import Cause, Caution, Comparison, Difference, Figure, Side
from benchmarks.configs import Configs
from benchmarks.measuring.summary import RunEvidence, summarise
from benchmarks.model.bounds import bound
from benchmarks.model.published_rows import read_references
from benchmarks.nightly.values import (
    Budget,
    CellReport,
    Metric,
    MetricJudgement,
    NightPoint,
    NightReport,
    Suspicion,
)
from benchmarks.pages.run import RunMaterial
from benchmarks.references.nearest_reference import nearest_of_result
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Recompute
from benchmarks.verdict import Verdict
from jax_backend import BACKEND
from tests.benchmarks.measuring.test_summary import DONE, record_of, steps_of

CONFIGS = Configs()
SECONDS = Metric(name="seconds_per_step", title="seconds per step", unit="s", direction="lower")
NOT_TESTED = Verdict.NOT_TESTED
CAUTION = Caution(kind="not interleaved", text="not run in turns", next_command="python run.py --repeats=3")
EXCESS = Metric(name="excess", title="excess", unit="ratio", direction="lower")


def difference(name: str = "seconds per step", verdict: Verdict = Verdict.WORSE, **changes: Any) -> Difference:
    known: dict[str, Any] = {
        "name": name,
        "unit": "s",
        "direction": "lower",
        "a": Figure(value=6.999, low=6.95, high=7.05, n=3, of="runs"),
        "b": Figure(value=7.351, low=7.3, high=7.4, n=3, of="runs"),
        "percent": 5.03,
        "low": 4.1,
        "high": 6.0,
        "verdict": verdict,
        "why": "B takes 5.03% longer, and the interval holds no 0",
    }
    return Difference(**{**known, **changes})


def comparison(**changes: Any) -> Comparison:
    known: dict[str, Any] = {
        "a": Side(label="october", run_ids=["run-a1", "run-a2", "run-a3"], left_out={"run-a4": "profiled"}),
        "b": Side(label="november", run_ids=["run-b1", "run-b2", "run-b3"], left_out={}),
        "refused": [],
        "verdict": Verdict.WORSE,
        "warnings": [CAUTION],
        "differences": [
            difference(),
            difference("tokens/s", NOT_TESTED, unit="", direction="higher", percent=-4.79, low=-5.7, high=-3.9),
            difference("MFU", NOT_TESTED, unit="%", a=None, percent=None, low=None, high=None, why="none"),
            difference("last loss", NOT_TESTED, unit="", percent=2.2, low=None, high=None, moved=True),
        ],
        "causes": [
            Cause(rank=2, kind="environment", name="NCCL_ALGO", a=None, b="Ring", why="it was set on one side alone"),
            Cause(rank=1, kind="version", name="jaxlib", a="0.8.1", b="0.8.2", why="it compiles the step"),
        ],
        "same": ["image", "nodes"],
        "notes": ["both sides ran on the same nodes"],
    }  # fmt: skip
    return Comparison(**{**known, **changes})


def points(count: int = 20, level: float = 7.0, last: float = 1.03, seed: int = 1) -> list[NightPoint]:
    """Nights around a level; of those between, one is left out."""
    chance = random.Random(seed)
    values = [level * (1 + chance.gauss(0, 0.006)) for _ in range(count - 1)] + [level * last]
    used = ["baseline"] * (count - 4) + ["recent"] * 3 + ["latest"]
    made = [
        NightPoint(night=f"2026-11-{number + 1:02d}", run_id=f"run-{number}", value=value, used_as=use)  # type: ignore[arg-type]
        for number, (value, use) in enumerate(zip(values, used, strict=True))
    ]
    if count > 6:
        made[5] = msgspec.structs.replace(made[5], used_as="left out", why="slowed on purpose", value=level * 1.5)
    return made


def judgement(metric: Metric = SECONDS, **changes: Any) -> MetricJudgement:
    known: dict[str, Any] = {
        "metric": metric,
        "gates": True,
        "verdict": Verdict.WORSE,
        "suspicion": Suspicion.CONFIRMED,
        "why": "the latest night is 3.0% slower than the baseline, and both confirmations agree",
        "latest": 7.21,
        "baseline": 7.0,
        "baseline_nights": 15,
        "effect_percent": 3.0,
        "low_percent": 2.1,
        "high_percent": 3.9,
        "p": 0.0004,
        "noise_percent": 0.6,
        "smallest_detectable_percent": 1.9,
        "nights_needed": None,
        "confirmations": [7.19, 7.24],
        "points": points(),
        "since": "2026-11-19",
    }
    return MetricJudgement(**{**known, **changes})


def cell(name: str = "jax-llama2_tiny", **changes: Any) -> CellReport:
    known: dict[str, Any] = {
        "cell": name,
        "title": f"{name} bf16 on 8 x h100",
        "run_id": "run-19",
        "status": "valid",
        "reasons": [],
        "verdict": Verdict.WORSE,
        "new_baseline": [],
        "rerun_ids": ["run-20", "run-21"],
        "judgements": [
            judgement(),
            judgement(EXCESS, gates=False, verdict=Verdict.SAME, why="it stays", points=points(level=1.02, last=1.0),
                      latest=1.02, baseline=1.0201, effect_percent=-0.5, low_percent=-2.0, high_percent=1.0,
                      confirmations=[], since=None),
        ],
        "notes": ["the node is another one than last night"],
    }  # fmt: skip
    return CellReport(**{**known, **changes})


def watched(name: str, title: str, unit: str) -> MetricJudgement:
    """One more metric of a suite: too young for a plot."""
    metric = Metric(name=name, title=title, unit=unit, direction="lower")
    return judgement(
        metric, gates=False, verdict=Verdict.NOT_TESTED, why=f"{title}: 1 of 8 nights", points=points()[-1:]
    )


def quiet_cell(name: str = "nemo-llama2_tiny") -> CellReport:
    judged = judgement(
        verdict=Verdict.SAME, why="equal within 1%", effect_percent=0.1, low_percent=-0.4, high_percent=0.6,
        points=points(last=1.001, seed=3), confirmations=[], since=None, latest=7.007,
    )  # fmt: skip
    more = [
        watched("tokens_per_second_per_gpu", "tokens/s per GPU", "tokens/s"),
        watched("last_loss", "last loss", "nats"),
        watched("memory_bytes", "memory", "bytes"),
    ]
    return cell(name, verdict=Verdict.SAME, judgements=[judged, *more], rerun_ids=[], notes=[])


def new_cell(name: str = "jax-llama3_tiny") -> CellReport:
    judged = judgement(
        verdict=Verdict.NOT_TESTED, why="no history: 1 of 8 nights", effect_percent=None, low_percent=None,
        high_percent=None, p=None, noise_percent=None, smallest_detectable_percent=None, nights_needed=7,
        baseline=None, baseline_nights=0, points=points()[-1:], confirmations=[], since=None,
    )  # fmt: skip
    return cell(name, verdict=Verdict.NOT_TESTED, judgements=[judged], new_baseline=["image: a1 -> b2"], rerun_ids=[])


def broken_cell(name: str = "nemo-llama3_tiny") -> CellReport:
    reasons = ["rank 3 was killed by signal 9 after step 12"]
    return cell(
        name, verdict=Verdict.NOT_TESTED, status="failed", reasons=reasons, judgements=[], rerun_ids=[], notes=[]
    )


def night(**changes: Any) -> NightReport:
    known: dict[str, Any] = {
        "schema_version": 1,
        "suite": "nightly",
        "title": "The nightly suite",
        "night": "2026-11-20",
        "started": "2026-11-20T02:00:00Z",
        "finished": "2026-11-20T02:41:10Z",
        "verdict": Verdict.WORSE,
        "exit_code": 3,
        "cells": [quiet_cell(), cell(), new_cell(), broken_cell()],
        "budget": Budget(allowed=2, used=2, refused=["nemo-llama3_tiny"]),
        "could_not_see": ["jax-llama3_tiny: less than 4.1%: it has no history"],
        "history": ["results"],
        "notes": ["one run of 80 could not be read"],
    }
    return NightReport(**{**known, **changes})


# --- a run of many GPUs ---------------------------------------------------------------------------


def gpu_material(seed: int = 2, steps: int = 60, **changes: Any) -> RunMaterial:
    """A 70B on 64 GPUs: peaks, a bound and a published row; one slow step, and one that compiled."""
    chance = random.Random(seed)
    benchmark = resolve(
        Request(backend="jax", model="llama2_70b", dtype="fp8", hardware="h100", gpus=64), CONFIGS, BACKEND
    )
    benchmark = msgspec.structs.replace(benchmark, steps=steps)
    seconds = [62.0, *(4.6 * (1 + chance.gauss(0, 0.004)) for _ in range(steps - 1))]
    seconds[steps // 2] = 6.1
    result, marked = summarise(
        RunEvidence(
            benchmark=benchmark,
            run_id="run-of-64",
            record=record_of(steps_of(seconds)),
            ended=[DONE],
            provenance_digest="sha256:1",
            recompute=Recompute(),
        )
    )
    material = RunMaterial(
        benchmark=benchmark,
        result=msgspec.structs.replace(result, status="valid", reasons=[]),
        steps=marked,
        provenance={"git": {"commit": "abc"}, "phases": {"perf": {"argv": ["python", "worker.py"]}}},
        place="results/run-of-64",
        bound=bound(benchmark, BACKEND.storage(benchmark)),
        nearest=nearest_of_result(result, read_references(CONFIGS.root)),
    )
    return msgspec.structs.replace(material, **changes)
