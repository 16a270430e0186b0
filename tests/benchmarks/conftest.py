"""A whole run folder, as a run of 12 steps leaves it; made once a test, without a framework."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import BENCHMARK, EXITS, PLAN, PROVENANCE, RESULT, RunFolder
from benchmarks.values import Benchmark
from jax_backend import BACKEND

STEPS = 12

FACTS = {
    "event": "facts",
    "process_count": 1,
    "device_count": 1,
    "local_device_count": 1,
    "device_kind": "cpu",
    "platform": "cpu",
    "parameters": 106_816,
    "trainable_parameters": 106_816,
    "mesh": {},
    "versions": {"maxtext": "0.2.5"},
    "argv": ["steps=12"],
}


def events_of(
    rank: int = 0, steps: int = STEPS, end: str | None = "done", slower: float = 0.0
) -> list[dict[str, Any]]:
    """What a worker writes: facts, steps whose seconds add up, and how it ended."""
    events: list[dict[str, Any]] = [{**FACTS, "rank": rank}]
    elapsed = 0.0
    for step in range(steps):
        seconds = (1.25 if step == 0 else 0.25 + 0.001 * (step * 7 % 5)) + slower
        elapsed += seconds
        events.append(
            {
                "event": "step",
                "step": step,
                "seconds": seconds,
                "elapsed_seconds": elapsed,
                "loss": 6.0 - step / 10,
                "gradient_norm": 1.5,
                "framework_seconds": round(seconds, 3),
                "framework_tflops_per_device": 0.02,
                "framework_tokens_per_second_per_device": 1000.5,
            }
        )
    if end:
        events.append({"event": "end", "rank": rank, "status": end, "message": "", "failures": []})
    return events


def write_events(phase_dir: Path, events: list[dict[str, Any]], rank: int = 0) -> Path:
    phase_dir.mkdir(parents=True, exist_ok=True)
    path = phase_dir / f"events-rank{rank}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def write_exits(phase_dir: Path, *codes: int) -> None:
    lines = [{"rank": rank, "exit_code": code, "interrupted": False} for rank, code in enumerate(codes)]
    (phase_dir / EXITS).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def benchmark_value() -> Benchmark:
    return resolve(Request(backend="jax", model="llama2_tiny", steps=STEPS), Configs(), BACKEND)


@pytest.fixture
def empty_run(tmp_path: Path, benchmark_value: Benchmark) -> RunFolder:
    """Benchmark, plan and provenance: what is there when the first worker starts."""
    folder = RunFolder.create(tmp_path, "run-1")
    folder.write(BENCHMARK, benchmark_value)
    folder.write(PLAN, BACKEND.plan(benchmark_value))
    folder.write(PROVENANCE, {"stepmark": "0.13.0", "notes": ["a note of the launcher"]})
    return folder


@pytest.fixture
def add_attempt() -> Callable[..., Path]:
    """Writes the raw files of one attempt of a run folder."""

    def add(folder: RunFolder, attempt: int = 1, exit_code: int | None = 0, **events: Any) -> Path:
        phase_dir = folder.phase_dir("perf", attempt)
        path = write_events(phase_dir, events_of(**events))
        if exit_code is not None:
            write_exits(phase_dir, exit_code)
        return path

    return add


@pytest.fixture
def whole_run(empty_run: RunFolder, add_attempt: Callable[..., Path]) -> RunFolder:
    add_attempt(empty_run)
    result, steps = recompute(empty_run, BACKEND)
    empty_run.write_steps(steps)
    empty_run.write(RESULT, result)
    return empty_run
