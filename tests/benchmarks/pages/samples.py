"""Values that pages are made of: a comparison, a night and a run, with everything that each may hold."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.compare.values import Cause, Caution, Comparison, Difference, Side
from benchmarks.configs import Configs
from benchmarks.measuring.summary import RunEvidence, summarise
from benchmarks.model.bounds import bound
from benchmarks.model.published_rows import read_references
from benchmarks.nightly.night import Memory, judge_cell, unjudged
from benchmarks.nightly.suites import METRICS, WatchedMetric
from benchmarks.nightly.values import Budget, CellReport, NightReport
from benchmarks.pages.run import RunMaterial
from benchmarks.references.nearest_reference import nearest_of_result
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Recompute
from benchmarks.verdict import Verdict
from jax_backend import BACKEND
from tests.benchmarks.measuring.test_summary import DONE, record_of, steps_of
from tests.benchmarks.nightly.nights_made import CELL, GATED, entry, judged, report, tonight

CONFIGS = Configs()
NOT_TESTED = Verdict.NOT_TESTED
CAUTION = Caution(kind="not interleaved", text="the runs do not alternate")


def difference(name: str = "seconds per step", verdict: Verdict = Verdict.WORSE, **changes: Any) -> Difference:
    known: dict[str, Any] = {
        "name": name,
        "unit": "s",
        "a": 6.999,
        "b": 7.351,
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
            difference("tokens/s", NOT_TESTED, unit="", percent=-4.79, low=-5.7, high=-3.9),
            difference("MFU", NOT_TESTED, unit="%", a=None, percent=None, low=None, high=None, why="none"),
            difference("last loss", NOT_TESTED, unit="", percent=2.2, low=None, high=None, moved=True),
        ],
        "causes": [
            Cause(rank=1, kind="version", name="jaxlib", a="0.8.1", b="0.8.2", why="it compiles the step"),
            Cause(rank=2, kind="environment", name="NCCL_ALGO", a=None, b="Ring", why="it was set on one side alone"),
        ],
        "same": ["image", "nodes"],
    }  # fmt: skip
    return Comparison(**{**known, **changes})


# --- a night, as the rule judges it ---------------------------------------------------------------

DAYS = range(1, 20)


def past(days: Sequence[int] = DAYS, seed: int = 1) -> list[FinishedRun]:
    """Earlier nights around 7 seconds; that of day 6 was slowed on purpose."""
    chance = random.Random(seed)
    values = {day: 7 * (1 + chance.gauss(0, 0.004)) for day in DAYS}
    return [entry(day, values[day], slowed_by=0.5 if day == 6 else 0.0) for day in days]


def named(name: str, found: CellReport, **changes: Any) -> CellReport:
    return msgspec.structs.replace(found, cell=name, title=f"{name} bf16 on 8 x h100", **changes)


def slow_cell(name: str = "jax-llama2_tiny") -> CellReport:
    found, _ = judged(7.21, past(), [7.19, 7.24, 7.22])
    return named(name, found, notes=["the node is another one than last night"])


def quiet_cell(name: str = "nemo-llama2_tiny") -> CellReport:
    watched = [*GATED, *(WatchedMetric(METRICS[one], False) for one in ("last_loss", "memory_bytes"))]
    found, _ = judge_cell(tonight(7.007, past(seed=3)), watched, Memory())
    return named(name, found)


def new_cell(name: str = "jax-llama3_tiny") -> CellReport:
    found, _ = judged(7.0, past([17, 18, 19]))
    return named(name, found, new_baseline=["image: a1 -> b2"])


def broken_cell(name: str = "nemo-llama3_tiny") -> CellReport:
    return named(name, unjudged(CELL, "run-19", "failed", ["rank 3 was killed by signal 9 after step 12"]))


def night(**changes: Any) -> NightReport:
    cells = changes.pop("cells", [quiet_cell(), slow_cell(), new_cell(), broken_cell()])
    known: dict[str, Any] = {
        "suite": "nightly",
        "title": "The nightly suite",
        "budget": Budget(allowed=3, used=3, refused=["nemo-llama3_tiny"]),
        "notes": ["one run of 80 could not be read"],
    }
    return report(cells, **{**known, **changes})


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
