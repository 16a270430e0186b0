"""MaxText, NeMo and Megatron-Bridge across the nodes of a real Slurm cluster: the same loss as one process has."""

import json
import math
from pathlib import Path

import pytest

import jax_backend
import nemo_backend
from tests.end_to_end.clusters import ClusterOfTests
from tests.end_to_end.runs import JAX, LLAMA3, NEMO, TINY, TOKEN, Run, verify

pytestmark = pytest.mark.slow

STEPS = "--steps=12"
TWO_BY_TWO = ("--nodes=2", "--gpus=4", STEPS)
# fp32, and sums in another order: a difference grows from step to step.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def cluster(cluster: ClusterOfTests) -> ClusterOfTests:
    cluster.have(jax_backend.BACKEND, nemo_backend.BACKEND)
    return cluster


@pytest.fixture(scope="module")
def maxtext(cluster: ClusterOfTests, tmp_path_factory: pytest.TempPathFactory) -> Run:
    layout = ("--set=ici_fsdp_parallelism=2", "--set=ici_data_parallelism=2", "--dtype=fp32")
    return cluster.run(tmp_path_factory.mktemp("maxtext"), JAX, TINY, *TWO_BY_TWO, *layout)


def facts_of(run: Run) -> list[dict[str, object]]:
    """What each rank saw of the others."""
    files = sorted((run.folder / "attempt-1/perf").glob("events-rank*.jsonl"))
    events = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [event for event in events if event["event"] == "facts"]


def hosts_of(run: Run) -> set[str]:
    files = (run.folder / "attempt-1/perf").glob("exits-rank*.jsonl")
    return {json.loads(path.read_text())["host"] for path in files}


def test_maxtext_trains_over_two_nodes(maxtext: Run) -> None:
    assert maxtext.code == 0, maxtext.out + maxtext.err
    result = maxtext.result
    assert (result["status"], result["benchmark"]["nodes"], result["benchmark"]["gpus"]) == ("valid", 2, 4)
    assert result["benchmark"]["parallelism"] == {"fsdp": 2, "data": 2}
    assert [fact["process_count"] for fact in facts_of(maxtext)] == [2] * 2
    assert len(hosts_of(maxtext)) == 2
    assert {step["rank"] for step in maxtext.steps} == {0, 1}
    (attempt,) = result["attempts"]
    assert (attempt["outcome"], attempt["steps"]) == ("completed", 12)
    assert result["telemetry"]["nodes"] == 2
    assert result["ranks"]["ranks"] == 2
    agreed = verify(str(maxtext.folder))
    assert agreed.returncode == 0, agreed.stdout


def own_site(cluster: ClusterOfTests, python: str) -> str:
    """A site whose jobs run in an interpreter of the user's."""
    sites = Path(cluster.variables["STEPMARK_HOME"]) / "sites"
    row = (sites / "dev.yml").read_text().replace("name: dev", "name: own", 1)
    (sites / "own.yml").write_text(row.replace("runtime: venv", f"runtime: python\npython: {python}", 1))
    return "--site=own"


def test_in_an_interpreter_that_the_site_names_maxtexts_loss_is_that_over_nodes(
    cluster: ClusterOfTests, maxtext: Run, jax_python: Path, tmp_path: Path
) -> None:
    """The same eight sequences a step, all on one device."""
    alone = ("--nodes=1", "--gpus=1", "--dtype=fp32", "--set=global_batch_size=8", STEPS, "--nocheck")
    run = cluster.run(tmp_path, JAX, TINY, own_site(cluster, str(jax_python)), *alone)
    assert run.code == 0, run.out + run.err
    assert run.result["status"] == "valid"
    assert maxtext.losses == pytest.approx(run.losses, rel=TOLERANCE)
    assert len(set(maxtext.losses)) > 8
    about = run.provenance["environment"]
    assert about["python"] == str(jax_python)
    assert " jax==" in about["packages"]
    assert "lock_sha256" not in about
    assert f"python={jax_python}" in (run.folder / "job.sbatch").read_text()


def test_no_token_is_in_any_file_on_the_screen_or_in_the_queue(cluster: ClusterOfTests, maxtext: Run) -> None:
    shown = cluster.slurm("scontrol", "show", "job", cluster.job_of(maxtext.folder))
    assert "stepmark:" in shown
    assert TOKEN not in maxtext.out + maxtext.err + shown
    for path in maxtext.folder.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path


def test_nemos_loss_over_nodes_is_that_of_one_process(cluster: ClusterOfTests, tmp_path: Path) -> None:
    """Data parallel over two nodes, against one process with the same two sequences a step."""
    over_nodes = cluster.run(
        tmp_path / "nodes", NEMO, LLAMA3, "--nodes=2", "--gpus=2", STEPS, "--set=micro_batch_size=1"
    )
    assert over_nodes.code == 0, over_nodes.out + over_nodes.err
    assert over_nodes.result["benchmark"]["parallelism"] == {"data": 2}
    assert [fact["process_count"] for fact in facts_of(over_nodes)] == [2] * 2
    assert len(hosts_of(over_nodes)) == 2
    local = cluster.run(tmp_path / "local", NEMO, LLAMA3, "--site=local", STEPS)
    assert local.code == 0, local.err
    assert local.result["benchmark"]["global_batch_size"] == over_nodes.result["benchmark"]["global_batch_size"]
    assert over_nodes.losses == pytest.approx(local.losses, rel=TOLERANCE)
    for rank in (0, 1):
        assert over_nodes.gradient_norms(rank) == pytest.approx(local.gradient_norms(), rel=1e-4)
    assert local.losses[0] == pytest.approx(math.log(512), abs=0.1)  # an untrained model knows nothing
    assert local.losses[0] - local.losses[-1] > 1


def test_megatron_bridge_trains_adapters_in_two_parts_over_two_nodes(cluster: ClusterOfTests, tmp_path: Path) -> None:
    cluster.have(nemo_backend.BACKEND, engine="bridge")
    tensor = ("--nodes=2", "--gpus=2", "--set=model.tensor_model_parallel_size=2")
    run = cluster.run(tmp_path, NEMO, "--engine=bridge", LLAMA3, "--task=lora", *tensor, STEPS)
    assert run.code == 0, run.out + run.err
    assert run.result["status"] == "valid"
    assert run.result["benchmark"]["parallelism"] == {"tensor": 2}
    assert [fact["process_count"] for fact in facts_of(run)] == [2] * 2
    assert len(hosts_of(run)) == 2
    assert (run.result["parameters"], run.result["trainable_parameters"]) == (453_248, 26_624)
    assert "adapters on rank 0: 16 of 16 tensors changed; 0 of 15 frozen tensors changed" in run.result["notes"]
    assert run.losses[0] == pytest.approx(math.log(512), abs=0.1)
    assert run.losses[-1] < run.losses[0] - 0.01
    assert run.gradient_norms(0) == run.gradient_norms(1)
    assert verify(str(run.folder)).returncode == 0
