"""Run folders for the tests of many runs: whole ones that verify, and quick ones that an index can read."""

import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.configs import Configs
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.finished_run import FinishedRun, finished_run
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RESULT, STEPS, RunFolder
from jax_backend import BACKEND
from tests.benchmarks.conftest import FACTS, events_of, write_events, write_exits

STEPS_OF_A_RUN = 12
LONG_AGO = 1_700_000_000.0
ENVIRONMENT = {"name": "jax-maxtext", "lock_file": "requirements.lock", "lock_sha256": "e4c92fe" + "0" * 57}
MACHINE = {"hostname": "here", "cpu": "a processor"}


def whole_run(root: Path, run_id: str = "20261122T034511Z-jax-llama2_tiny-pretrain-bf16-1xcpu-eeab") -> RunFolder:
    """A run as it is when it has ended: launch/verify.py agrees with it."""
    benchmark = resolve(Request(backend="jax", model="llama2_tiny", steps=STEPS_OF_A_RUN), Configs(), BACKEND)
    folder = RunFolder.create(root, run_id)
    folder.write(BENCHMARK, benchmark)
    folder.write(PLAN, BACKEND.plan(benchmark))
    phase = folder.phase_dir("perf")
    write_events(phase, events_of(steps=STEPS_OF_A_RUN))
    write_exits(phase, 0)
    (phase / "rank-0.log").write_text("the framework's own words\n")
    about: dict[str, Any] = {
        "stepmark": "0.13.0", "git": {"commit": "a1" * 20, "changed_files": 0}, "environment": ENVIRONMENT,
        "machine": MACHINE, "notes": [], "run_id": run_id, "labels": {"tags": [], "nightly": None},
        "worker": [{"rank": 0, **{key: value for key, value in FACTS.items() if key != "event"}}],
        "files": folder.raw_digests(),
    }  # fmt: skip
    folder.write(PROVENANCE, about)
    result, steps = recompute(folder, BACKEND)
    assert result.status == "valid", result.reasons
    folder.write_steps(steps)
    folder.write(RESULT, result)
    return folder


@functools.cache
def _files() -> dict[str, bytes]:
    place = Path(tempfile.mkdtemp())
    try:
        folder = whole_run(place)
        return {name: (folder.path / name).read_bytes() for name in (BENCHMARK, PROVENANCE, RESULT, STEPS)}
    finally:
        shutil.rmtree(place)


def quick_run(
    root: Path,
    run_id: str,
    *,
    result: dict[str, Any] | None = None,
    seconds: float = 0.25,
    old: bool = True,
    **fields: Any,
) -> Path:
    """The files that an index reads. `said` are keys of the benchmark, and tags, nightly, commit of the provenance;
    `result` keys of the result; `old`: its folder was changed long ago."""
    benchmark, about, figures = (json.loads(_files()[name]) for name in (BENCHMARK, PROVENANCE, RESULT))
    about |= {"run_id": run_id, "labels": {"tags": fields.pop("tags", []), "nightly": fields.pop("nightly", None)}}
    about["git"] = {"commit": fields.pop("commit", "a1" * 20), "changed_files": 0}
    for name in ("model", "hardware", "site"):
        if name in fields:
            benchmark[name]["name"] = fields.pop(name)
    benchmark |= fields
    figures |= {"run_id": run_id}
    figures["benchmark"] |= {name: benchmark[name] for name in ("backend", "dtype", "gpus")}
    figures["benchmark"]["model"] = benchmark["model"]["name"]
    figures["seconds_per_step"]["median"] = seconds
    figures |= result or {}
    path = root / run_id
    path.mkdir(parents=True)
    for name, value in ((BENCHMARK, benchmark), (PROVENANCE, about), (RESULT, figures)):
        put(path / name, json.dumps(value))
    (path / STEPS).write_bytes(_files()[STEPS])
    if old:
        age(path)
    return path


def put(path: Path, text: str) -> None:
    """As Stepmark writes: whole, by renaming."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def age(path: Path) -> None:
    """Changed long ago, so that an index that knows it need not look again."""
    os.utime(path, (LONG_AGO, LONG_AGO))


def an_entry(**changes: Any) -> FinishedRun:
    base: dict[str, Any] = {
        "run_id": "20261122T034511Z-x", "path": "20261122T034511Z-x", "started": "2026-11-22T03:45:11Z",
        "status": "valid", "backend": "jax", "engine": "maxtext", "model": "llama2_70b", "task": "pretrain",
        "dtype": "bf16", "hardware": "h100", "gpus": 64, "nodes": 8, "site": "eos", "host": "node1",
        "parallelism": "fsdp 64", "sequence_length": 4096, "global_batch_size": 256, "steps": 50, "window": "steady",
        "counted": 40, "settled": True, "profile": "none", "pgle": "off", "seconds_per_step": 7.0, "seconds_low": 6.9,
        "seconds_high": 7.1, "seconds_mean": 7.02, "excess": 0.003, "tokens_per_second": 149796.6,
        "tokens_per_second_per_gpu": 2340.6, "mfu_percent": 52.6, "mfu_convention": "recipe",
        "mfu_precision": "bf16", "mfu_peak_tflops": 989.0, "last_loss": 5.4, "memory_bytes": 7e10, "version": "0.6.0",
        "commit": "a1b2c3d4", "tags": [], "suite": None, "cell": None, "night": None, "role": None,
        "not_comparable": [], "slowed_by": 0.0, "identity": {}, "reasons": [],
    }  # fmt: skip
    return finished_run(base | changes)
