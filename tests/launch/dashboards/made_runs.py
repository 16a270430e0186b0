"""Complete run folders with given steps, without training."""

import json
from pathlib import Path
from typing import Any

from benchmarks.configs import Configs
from benchmarks.dashboard.events import write_ended
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RunFolder
from benchmarks.values import Benchmark, Peak, changed_benchmark
from jax_backend import BACKEND
from launch.running.execute import store_result
from tests.benchmarks.conftest import FACTS, write_events, write_exits

BEGIN = 1_800_000_000.0
MEASURED = {"bf16": Peak(tflops=0.1, source="measured: by a test")}


def benchmark(**changes: Any) -> Benchmark:
    plain = resolve(Request(backend="jax", model="llama2_tiny"), Configs(), BACKEND)
    return changed_benchmark(plain, **changes)


def begun(root: Path, run_id: str, **changes: Any) -> RunFolder:
    """A run that was started, and has written nothing."""
    asked = benchmark(**changes)
    folder = RunFolder.create(root, run_id)
    folder.write(BENCHMARK, asked)
    folder.write(PLAN, BACKEND.plan(asked))
    folder.write(PROVENANCE, {"run_id": run_id, "notes": [], "labels": {"tags": [], "nightly": None}})
    folder.phase_dir("perf").mkdir(parents=True)
    return folder


def train(folder: RunFolder, seconds: list[float], begin: float = BEGIN) -> None:
    """What rank 0's worker writes."""
    events: list[dict[str, Any]] = [
        {**FACTS, "rank": 0, "mesh": {"data": folder.benchmark().gpus}},
        {"event": "started", "unix_seconds": begin, "host": "here"},
    ]
    elapsed = 0.0
    for step, one in enumerate(seconds):
        elapsed += one
        events.append(
            {"event": "step", "step": step, "seconds": one, "elapsed_seconds": elapsed, "loss": 6.0 - step / 100}
        )
    events.append({"event": "end", "rank": 0, "status": "done"})
    write_events(folder.phase_dir("perf"), events)
    write_exits(folder.phase_dir("perf"), 0)


def sample(folder: RunFolder, times: list[float], gpu: list[Any] | None = None, node: str = "node0") -> None:
    """What the sampler writes: one sample at each of these times."""
    place = folder.telemetry_dir(1)
    place.mkdir(parents=True, exist_ok=True)
    lines = [
        {"event": "sample", "time": time, "cpu_utilisation": 0.5, "memory_used_bytes": (4 + number) * 1_000_000_000,
         "memory_available_bytes": 1, "load": 1.0, "gpus": [gpu] if gpu else []}
        for number, time in enumerate(times)
    ]  # fmt: skip
    with (place / f"node-{node}.jsonl").open("a") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))


def ended(root: Path, run_id: str, step_seconds: float = 0.5, steps: int = 50, **changes: Any) -> RunFolder:
    """A run with a result, of steps that last so long, every tenth a bit longer."""
    folder = begun(root, run_id, steps=steps, **changes)
    train(folder, [step_seconds * (1.2 if step % 10 == 9 else 1.0) for step in range(steps)])
    store_result(folder, BACKEND)
    write_ended(folder)
    return folder
