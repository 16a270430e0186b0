"""--until on real MaxText and NeMo: a clean end before the last step, on every rank after the same one.

How noisy this machine is decides when a run knows its median; so most runs here have a target that any machine
reaches at the soonest step, which a person cannot ask for.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.measuring.summary import Result
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Until
from launch.running.execute import execute
from tests.end_to_end.runs import JAX, STRATEGY, TINY, Start, finish, verify

pytestmark = pytest.mark.slow

ANY_MACHINE = Until(half_width=100.0, at_least=15)
DECIDED = 17  # 15 counted steps after the one that compiles, and two more looks
AHEAD = {"jax": 3, "nemo": 2}  # MaxText has begun the next step when one is looked at
PIPELINE = {f"{STRATEGY.removeprefix('--set=')}.pipeline_model_parallel_size": "2", "gradient_accumulation": "2"}


def ended_early(output_dir: Path, **wanted: Any) -> tuple[Path, Result]:
    request = Request(**{"model": "llama2_tiny", "until": "ci:10%", **wanted})
    backend = find_backend(request.backend)
    benchmark = msgspec.structs.replace(resolve(request, Configs(), backend), until=ANY_MACHINE)
    folder, result = execute(benchmark, backend, output_dir, "run-1", telemetry=False)
    return folder.path, result


def events(folder: Path, rank: int, kind: str) -> list[dict[str, Any]]:
    text = (folder / f"attempt-1/perf/events-rank{rank}.jsonl").read_text()
    return [event for event in map(json.loads, text.splitlines()) if event["event"] == kind]


@pytest.mark.parametrize(
    ("wanted", "ranks"),
    [
        pytest.param({"backend": "jax"}, 1, id="maxtext"),
        pytest.param({"backend": "jax", "gpus": 2, "nodes": 2}, 2, id="maxtext on two processes"),
        pytest.param({"backend": "nemo", "model": "llama3_tiny", "task": "lora"}, 1, id="nemo with adapters"),
        pytest.param({"backend": "nemo", "gpus": 2}, 2, id="nemo on two processes"),
        pytest.param({"backend": "nemo", "gpus": 2, "settings": PIPELINE}, 2, id="nemo in a pipeline"),
    ],
)
def test_all_ranks_end_after_the_same_step(
    jax_python: Path,  # noqa: ARG001 - the environments are there
    nemo_python: Path,  # noqa: ARG001
    tmp_path: Path,
    wanted: dict[str, Any],
    ranks: int,
) -> None:
    folder, result = ended_early(tmp_path, **wanted)
    assert (result.status, result.reasons) == ("valid", [])
    last = DECIDED + AHEAD[wanted["backend"]]
    for rank in range(ranks):
        assert [event["step"] for event in events(folder, rank, "step")] == list(range(last + 1))
        (stopped,) = events(folder, rank, "stopped")
        assert (stopped["step"], stopped["decided"]) == (last, DECIDED)
        (end,) = events(folder, rank, "end")
        assert (end["status"], end["failures"]) == ("done", [])
    assert result.until is not None
    assert (result.until.reached, result.until.decided, result.until.steps) == (True, DECIDED, last + 1)
    assert result.until.saving is not None
    assert result.until.saving > 0
    agreed = verify(str(folder))
    assert agreed.returncode == 0, agreed.stdout

    if wanted == {"backend": "jax"}:
        a_decision_that_was_changed_afterwards_is_seen(folder)


def a_decision_that_was_changed_afterwards_is_seen(folder: Path) -> None:
    """Of a run that is there already: another would take as long to start."""
    path = folder / "attempt-1/perf/events-rank0.jsonl"
    path.write_text(path.read_text().replace(f'"decided": {DECIDED}', f'"decided": {DECIDED + 1}'))
    differs = verify(str(folder))
    assert differs.returncode == 3
    assert f"by its steps the rule is met after step {DECIDED}" in differs.stdout


def test_a_target_that_is_not_reached_runs_all_steps_and_says_so(start: Start, tmp_path: Path) -> None:
    run = finish(start(tmp_path, JAX, TINY, "--until=ci:0.05%", "--steps=22"), tmp_path)
    assert run.code == 0, run.err
    assert run.result["status"] == "valid"
    until = run.result["until"]
    assert (until["reached"], until["steps"], until["fixed_steps"], until["saving"]) == (False, 22, 22, 0.0)
    assert "never reached" in run.out
    assert "step 22/22" in run.err
    assert "the median is known to +-" in run.err
    assert "at most" in run.err


@pytest.mark.parametrize("flag", ["--until=0.5%", "--until=ci:20%"])
def test_what_cannot_be_asked_is_refused_before_anything_starts(start: Start, tmp_path: Path, flag: str) -> None:
    run = finish(start(tmp_path, JAX, TINY, flag), tmp_path)
    assert run.code == 2
    assert "next:  --until=ci:0.5%" in run.err
    assert os.listdir(tmp_path) == []  # noqa: PTH208
