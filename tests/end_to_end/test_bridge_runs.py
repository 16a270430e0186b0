"""Real Megatron-Bridge through launch/run.py: an interleaved pipeline over two processes, recorded by nsys."""

import json
import math
import os
import shutil
import statistics
from pathlib import Path

import pytest

from benchmarks.configs import DEFAULT_ROOT, Configs
from benchmarks.model import flops
from tests.end_to_end.runs import LLAMA3, NEMO, REPOSITORY, Run, Start, finish, verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs")]

BRIDGE = (NEMO, "--engine=bridge", LLAMA3)
VIRTUAL = (
    "--gpus=2",
    "--set=model.pipeline_model_parallel_size=2",
    "--set=model.virtual_pipeline_model_parallel_size=2",
    "--set=model.overlap_p2p_comm=true",
    "--set=model.batch_p2p_comm=false",
    "--set=micro_batch_size=1",
    "--set=gradient_accumulation=2",
)
PROFILE = ("--profile=nsys", "--profile_start_step=6", "--profile_stop_step=8", "--profile_ranks=1")


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of four layers: one of two processes has the first and the third, the other the rest."""
    found = Path(shutil.copytree(DEFAULT_ROOT, tmp_path_factory.mktemp("deeper") / "configs"))
    row = found / "models/llama3_tiny.yml"
    row.write_text(row.read_text().replace("\nlayers: 2\n", "\nlayers: 4\n"))
    return found


@pytest.fixture(scope="module")
def interleaved(start_bridge: Start, configs: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("bridge")
    path = f"{REPOSITORY / 'tests/stand_ins'}{os.pathsep}{os.environ['PATH']}"
    flags = (*BRIDGE, *VIRTUAL, *PROFILE, "--steps=20")
    return finish(start_bridge(folder, *flags, STEPMARK_CONFIGS=str(configs), PATH=path), folder)


def test_every_part_of_a_model_is_trained(interleaved: Run, configs: Path) -> None:
    assert interleaved.code == 0, interleaved.err
    result = interleaved.result
    assert (result["status"], result["benchmark"]["engine"]) == ("valid", "bridge")
    assert result["benchmark"]["parallelism"] == {"pipeline": 2, "virtual_pipeline": 2}
    parameters = flops.parameter_count(Configs(configs).model("llama3_tiny"))
    workers = interleaved.provenance["worker"]
    assert [(one["parameters"], one["trainable_parameters"]) for one in workers] == [(parameters,) * 2] * 2
    assert [(one["rank"], one["process_count"], one["mesh"]) for one in workers] == [
        (rank, 2, {"pipeline": 2}) for rank in (0, 1)
    ]
    assert {"megatron-bridge", "megatron-core", "torch"} <= workers[0]["versions"].keys()
    assert verify(str(interleaved.folder)).returncode == 0


def test_its_gradients_are_right(interleaved: Run) -> None:
    """Batched messages between two stages would train wrong: the gradient norm exceeds 1,000 within 20 steps."""
    losses = interleaved.losses  # of the last stage, which is on rank 1
    assert losses[0] == pytest.approx(math.log(512), abs=0.1)
    assert losses[-1] < losses[0] - 1
    assert interleaved.gradient_norms(0) == interleaved.gradient_norms(1)
    assert max(interleaved.gradient_norms()) < 50
    assert {step["tokens"] for step in interleaved.steps} == {256}


def test_bridges_own_time_is_next_to_ours(interleaved: Run) -> None:
    own = [step for step in interleaved.steps if step["rank"] == 0]
    assert all(step["framework_seconds"] for step in own)
    counted = [step for step in own[1:] if not step["excluded_because"]]
    ours, theirs = ([step[name] for step in counted] for name in ("seconds", "framework_seconds"))
    # Bridge's interval ends some Python later than the step; both have the same length.
    assert statistics.median(ours) == pytest.approx(statistics.median(theirs), rel=0.2)
    median = interleaved.result["reported_by_framework"]["seconds_per_step_median"]
    assert median == pytest.approx(statistics.median(theirs), rel=0.3)


def test_only_the_named_rank_runs_under_the_profiler(interleaved: Run) -> None:
    (path,) = (interleaved.folder / "attempt-1/perf").glob("*.nsys-rep")
    assert "bridge_worker.py" in " ".join(json.loads(path.read_text())["program"])
    assert interleaved.result["window"]["excluded"]["profiler"] == 5
    assert "profile: nsys recorded the whole run, because a CPU cannot select steps" in interleaved.result["notes"]


# --- models with experts -------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "gpus"), [("deepseek_tiny", 2), ("gpt_oss_tiny", 1)])
def test_a_model_with_experts_learns(start_bridge: Start, tmp_path: Path, model: str, gpus: int) -> None:
    """Two processes have half of the experts each, and exchange tokens by all-to-all over gloo."""
    flags = (NEMO, "--engine=bridge", f"--model={model}", f"--gpus={gpus}", "--steps=20")
    run = finish(start_bridge(tmp_path, *flags), tmp_path)
    assert run.code == 0, run.err
    assert run.result["benchmark"]["routing"] == "learned"
    parameters = flops.parameter_count(Configs().model(model))
    assert [one["parameters"] for one in run.provenance["worker"]] == [parameters] * gpus
    assert run.losses[0] == pytest.approx(math.log(512), abs=0.1)
    assert run.losses[-1] < run.losses[0] - 0.5
    balanced = [step["other_losses"] for step in run.steps if step["rank"] == 0]
    assert all(loss["load_balancing"] > 0 for loss in balanced) if model == "deepseek_tiny" else not any(balanced)
    assert verify(str(run.folder)).returncode == 0
