"""Runs to compare: copies of one real run's folder (real_run/), changed by the tests."""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.compare.runs import Chosen, ComparedRun, PairPlace, read_run, time_in_name
from benchmarks.compare.values import Comparison, Difference
from benchmarks.measuring.utilisation import Mfu
from benchmarks.runs.finished_run import FinishedRun, changed, read_finished_run
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RESULT, RunFolder
from benchmarks.telemetry.gpu import GpuTelemetry, SlowGpu
from benchmarks.values import changed_benchmark

REAL = Path(__file__).with_name("real_run")
Document = dict[str, Any]
Edit = Callable[[Document], object]


def folder(place: Path, name: str = "run", **edits: Edit) -> RunFolder:
    """A copy with its JSON files edited: benchmark, plan, provenance, result."""
    path = place / name
    shutil.copytree(REAL, path)
    files = {"benchmark": BENCHMARK, "plan": PLAN, "provenance": PROVENANCE, "result": RESULT}
    for what, edit in edits.items():
        document = json.loads((path / files[what]).read_text())
        edit(document)
        (path / files[what]).write_text(json.dumps(document))
    made = RunFolder(path)
    result = json.loads((path / RESULT).read_text())
    (path / RESULT).write_text(json.dumps({**result, "provenance": made.provenance_digest()}))
    return made


REAL_RUN = read_run(RunFolder(REAL))


def run(name: str = "run", seconds: float | None = None, **changes: Any) -> ComparedRun:
    """The real run under another name; with other seconds a step, all that follows from them is other too.

    `benchmark` and `result` are fields to change in these; the rest are fields of ComparedRun.
    """
    in_benchmark, in_result = changes.pop("benchmark", {}), dict(changes.pop("result", {}))
    result = msgspec.structs.replace(REAL_RUN.result, run_id=name, **in_result)
    if seconds is not None:
        spread = result.seconds_per_step
        ratio = seconds / (spread.median or math.nan)
        scaled = {
            "median": seconds, "mean": (spread.mean or 0) * ratio, "stdev": (spread.stdev or 0) * ratio,
            "ci95": [end * ratio for end in spread.ci95 or []] or None,
        }  # fmt: skip
        result = msgspec.structs.replace(
            result,
            seconds_per_step=msgspec.structs.replace(spread, **scaled),
            tokens_per_second=(result.tokens_per_second or 0) / ratio,
            tokens_per_second_per_gpu=(result.tokens_per_second_per_gpu or 0) / ratio,
            tokens_per_second_effective=(result.tokens_per_second_effective or 0) / ratio,
        )
    benchmark = changed_benchmark(REAL_RUN.benchmark, **in_benchmark)
    shown = {name: value for name, value in in_benchmark.items() if hasattr(result.benchmark, name)}
    plain = {name: getattr(value, "name", value) for name, value in shown.items() if name != "parallelism"}
    result = msgspec.structs.replace(result, benchmark=msgspec.structs.replace(result.benchmark, **plain))
    return REAL_RUN._replace(
        **{"name": name, "path": name, "began": time_in_name(name), **changes},
        result=result,
        benchmark=benchmark,
    )


def side(label: str, *runs: ComparedRun, **left_out: str) -> Chosen:
    return Chosen(label=label, runs=runs, left_out=left_out)


def sides(a: Sequence[float], b: Sequence[float], **of_b: Any) -> tuple[Chosen, Chosen]:
    """Two sets with these seconds a step; `of_b` is changed in all runs of B."""
    return (
        side("A", *(run(f"a{number}", one) for number, one in enumerate(a))),
        side("B", *(run(f"b{number}", one, **of_b) for number, one in enumerate(b))),
    )


def paired_runs(letter: str, cell: int, seconds: Sequence[float]) -> list[ComparedRun]:
    return [
        run(f"{letter}{repeat}", one, pair=PairPlace("sweep-1", cell, repeat))
        for repeat, one in enumerate(seconds, 1)
    ]


def figure(found: Comparison, name: str) -> Difference:
    return next(one for one in found.differences if one.name == name)


def entry(run_id: str, seconds: float, **changes: Any) -> FinishedRun:
    """The real run as the index has it."""
    return changed(
        REAL_ENTRY, **{"run_id": run_id, "seconds_per_step": seconds, "identity": {"benchmark": "one"}, **changes}
    )


REAL_ENTRY = read_finished_run(RunFolder(REAL), "real_run")


def mfu(percent: float, convention: str = "dense", precision: str = "bf16", peak: float = 989.0) -> Mfu:
    return Mfu(
        convention=convention, precision_peak=precision, peak_tflops=peak, peak_source="a sheet", percent=percent
    )


def gpu(**changes: Any) -> GpuTelemetry:
    """A healthy H100."""
    fields: dict[str, Any] = {
        "gpus": 8, "energy_joules": 1e5, "joules_per_token": 1.0, "power_watts_mean": 650.0, "power_watts_max": 700.0,
        "power_limit_watts": 700.0, "sm_clock_mhz_median": 1980.0, "sm_clock_mhz_highest": 1980,
        "throttled": {"software_power_cap": 0.1},
        "slowest": SlowGpu(host="n1", index=0, uuid=None, sm_clock_mhz=1950.0),
        "temperature_c_max": 60, "memory_bytes_max": 70_000_000_000, "ecc_uncorrected": 0, "pcie_replays": 0,
        "remapped_rows": 0, "driver": "580.1", "cuda": "13.0", "null_because": {}, "notes": [],
    }  # fmt: skip
    return GpuTelemetry(**{**fields, **changes})


def on_gpu(name: str, seconds: float, benchmark: Document | None = None, **of_gpu: Any) -> ComparedRun:
    """The real run as if it had been on GPUs that were sampled."""
    telemetry = REAL_RUN.result.telemetry
    assert telemetry is not None
    hardware = msgspec.structs.replace(REAL_RUN.benchmark.hardware, name="h100", kind="gpu")
    return run(
        name,
        seconds,
        benchmark={"hardware": hardware, **(benchmark or {})},
        result={"telemetry": msgspec.structs.replace(telemetry, gpu=gpu(**of_gpu))},
    )
