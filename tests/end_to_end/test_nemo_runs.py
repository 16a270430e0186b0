"""Real NeMo through launch/run.py: what it trains, over one process and two, and what a CPU lacks."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest

from benchmarks.configs import DEFAULT_ROOT, Configs
from benchmarks.model import flops
from benchmarks.values import Lora
from tests.end_to_end.runs import LLAMA3, NEMO, STRATEGY, Run, Start, finish, verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs")]

MODEL = Configs().model("llama3_tiny")
TARGETS = ["query_key_value", "attention_output", "mlp_input", "mlp_output"]
ALL_PARAMETERS, ADAPTERS = 426_624, 26_624
SLOWED = re.compile(r"--inject_slowdown=2.* increased the time of \d+ steps from ([\d.]+) s to ([\d.]+) s")
PROOF = "adapters on rank 0: 16 of 16 tensors changed; 0 of 15 frozen tensors changed"


@pytest.fixture(params=["nemo_pretrain", "nemo_lora"])
def default(request: pytest.FixtureRequest) -> Run:
    """The default run of each task."""
    run: Run = request.getfixturevalue(request.param)
    return run


TWO_PROCESSES = {"nemo_pipeline_parallel": {"pipeline": 2}, "nemo_lora_tensor_parallel": {"tensor": 2}}


def test_a_pretraining_learns_its_batch(nemo_pretrain: Run) -> None:
    assert nemo_pretrain.losses[0] == pytest.approx(math.log(512), abs=0.1)  # an untrained model knows nothing
    assert nemo_pretrain.losses[-1] < nemo_pretrain.losses[0] / 2


def test_adapters_learn_their_batch(nemo_lora: Run, nemo_pretrain: Run) -> None:
    assert nemo_lora.losses[0] == pytest.approx(nemo_pretrain.losses[0], abs=1e-5)  # an adapter begins as nothing
    assert nemo_lora.losses[-1] < nemo_lora.losses[0] - 0.1


def test_the_result_says_what_the_work_was_and_what_a_cpu_lacks(default: Run) -> None:
    notes = default.result["notes"]
    assert "mock data: no text was read" in notes
    (lacking,) = [note for note in notes if note.startswith("on a CPU: ")]
    for words in ("Transformer Engine", "NCCL", "fp8", "sequence parallelism", "CUDA graphs"):
        assert words in lacking
    assert "requests for a CUDA device received the CPU instead" in notes
    assert "more in result.json" in default.out


def test_lora_counts_its_adapters_as_the_formula_does(nemo_lora: Run) -> None:
    lora = Lora(rank=8, alpha=16, dropout=0.0, targets=TARGETS)
    assert nemo_lora.result["trainable_parameters"] == flops.adapter_parameter_count(MODEL, lora) == ADAPTERS
    assert nemo_lora.result["parameters"] == flops.held_parameter_count(MODEL, lora) == ALL_PARAMETERS + ADAPTERS
    assert PROOF in nemo_lora.result["notes"]


def test_pretraining_trains_every_parameter(nemo_pretrain: Run) -> None:
    assert nemo_pretrain.provenance["worker"][0]["program"] is None  # its step is not lowered as a whole
    counted = (nemo_pretrain.result["parameters"], nemo_pretrain.result["trainable_parameters"])
    assert counted == (flops.parameter_count(MODEL),) * 2 == (ALL_PARAMETERS,) * 2
    assert not [note for note in nemo_pretrain.result["notes"] if "adapter" in note]


# --- two processes ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mesh"), TWO_PROCESSES.items())
def test_two_processes_are_one_valid_run(request: pytest.FixtureRequest, name: str, mesh: dict[str, int]) -> None:
    run: Run = request.getfixturevalue(name)
    assert run.code == 0, run.err
    assert run.result["status"] == "valid"
    assert run.result["benchmark"]["parallelism"] == mesh
    assert run.result["benchmark"]["global_batch_size"] == 2
    workers = run.provenance["worker"]
    assert [worker["rank"] for worker in workers] == [0, 1]
    assert [worker["mesh"] for worker in workers] == [mesh] * 2
    assert [worker["process_count"] for worker in workers] == [2, 2]
    assert verify(str(run.folder)).returncode == 0


@pytest.mark.parametrize("name", TWO_PROCESSES)
def test_every_step_of_both_processes_is_kept(request: pytest.FixtureRequest, name: str) -> None:
    run: Run = request.getfixturevalue(name)
    wanted = range(8 if "lora" in name else 12)
    assert {(step["rank"], step["step"]) for step in run.steps} == {(rank, n) for rank in (0, 1) for n in wanted}
    assert {step["loss"] for step in run.steps if step["rank"] == 1} == {None}  # rank 0 has the loss


@pytest.mark.parametrize("name", TWO_PROCESSES)
def test_a_model_shared_out_has_the_same_parameters(request: pytest.FixtureRequest, name: str) -> None:
    workers = request.getfixturevalue(name).provenance["worker"]
    wanted = (ALL_PARAMETERS + ADAPTERS, ADAPTERS) if "lora" in name else (ALL_PARAMETERS, ALL_PARAMETERS)
    assert [(worker["parameters"], worker["trainable_parameters"]) for worker in workers] == [wanted] * 2


def test_a_model_in_two_stages_trains_like_the_whole(nemo_pretrain: Run, nemo_pipeline_parallel: Run) -> None:
    """Similar, not equal: each pipeline stage draws its weights from its own seed. Other weights of the same
    distribution give the same fall of the loss at each step, to a few per mille."""
    run = nemo_pipeline_parallel
    assert run.losses == pytest.approx(nemo_pretrain.losses[:12], abs=0.03)
    assert nemo_pretrain.losses[0] - nemo_pretrain.losses[11] > 1, "a fall that the tolerance is small against"
    assert run.gradient_norms()[0] == pytest.approx(nemo_pretrain.gradient_norms()[0], rel=0.05)
    assert run.gradient_norms(0) == run.gradient_norms(1)


def test_adapters_in_two_parts_train_like_the_whole(nemo_lora: Run, nemo_lora_tensor_parallel: Run) -> None:
    ours, whole = nemo_lora_tensor_parallel, nemo_lora
    assert ours.losses[0] == pytest.approx(whole.losses[0], abs=2e-3)
    assert ours.losses[1] == pytest.approx(whole.losses[1], abs=2e-2)
    assert ours.losses[1] < ours.losses[0] - 0.01
    assert ours.gradient_norms()[0] == pytest.approx(whole.gradient_norms()[0], rel=0.05)
    assert PROOF in ours.result["notes"]


def test_a_profiled_run_is_valid_and_says_that_it_may_not_be_compared(nemo_pipeline_parallel: Run) -> None:
    """The recorded steps and those next to them are excluded."""
    result = nemo_pipeline_parallel.result
    assert result["reasons"] == []
    (reason,) = result["not_comparable"]
    assert reason.startswith("profiled (--profile=nsys)")
    assert result["window"]["excluded"]["profiler"] == 5
    for rank in (0, 1):
        marks = {s["step"]: s["excluded_because"] for s in nemo_pipeline_parallel.steps if s["rank"] == rank}
        assert [step for step, why in marks.items() if why == "profiler"] == [5, 6, 7, 8, 9]


def test_only_the_named_rank_runs_under_the_profiler_and_a_cpu_records_the_whole_run(
    nemo_pipeline_parallel: Run,
) -> None:
    (path,) = (nemo_pipeline_parallel.folder / "attempt-1/perf").glob("*.nsys-rep")
    assert path.name == "llama3-tiny-fp32_2g_local_0_1.nsys-rep"
    report = json.loads(path.read_text())
    assert report["exit_code"] == 0
    assert "worker.py" in " ".join(report["program"])
    assert "--capture-range" not in report["options"]
    nsys_notes = [note for note in nemo_pipeline_parallel.result["notes"] if "nsys" in note]
    assert nsys_notes == ["profile: nsys recorded the whole run, because a CPU cannot select steps"]


VIRTUAL = (
    "--gpus=2",
    f"{STRATEGY}.pipeline_model_parallel_size=2",
    f"{STRATEGY}.virtual_pipeline_model_parallel_size=2",
    "--set=model.config.overlap_p2p_comm=true",
    "--set=model.config.batch_p2p_comm=false",
    "--set=micro_batch_size=1",
    "--set=gradient_accumulation=2",
)


def test_an_interleaved_pipeline_trains_every_part_of_a_model(start_nemo: Start, tmp_path: Path) -> None:
    """A Llama of four layers: one of two processes has the first and the third, the other the rest."""
    configs = Path(shutil.copytree(DEFAULT_ROOT, tmp_path / "configs"))
    row = configs / "models/llama3_tiny.yml"
    row.write_text(row.read_text().replace("\nlayers: 2\n", "\nlayers: 4\n"))
    deeper = flops.parameter_count(Configs(configs).model("llama3_tiny"))
    assert deeper == ALL_PARAMETERS + 2 * flops.layer_parameters(MODEL)
    started = start_nemo(tmp_path / "runs", NEMO, LLAMA3, *VIRTUAL, "--steps=8", STEPMARK_CONFIGS=str(configs))
    run = finish(started, tmp_path / "runs")
    assert run.code == 0, run.err
    assert run.result["status"] == "valid"
    assert run.result["benchmark"]["parallelism"] == {"pipeline": 2, "virtual_pipeline": 2}
    assert [worker["parameters"] for worker in run.provenance["worker"]] == [deeper] * 2
    assert [worker["mesh"] for worker in run.provenance["worker"]] == [{"pipeline": 2}] * 2
    assert run.losses[0] == pytest.approx(math.log(512), abs=0.1)
    assert run.losses[-1] < run.losses[0] - 0.5
    assert {step["tokens"] for step in run.steps} == {256}


# --- precisions -------------------------------------------------------------------------------


def test_bf16_trains_as_fp32_does_but_for_its_rounding(start_nemo: Start, nemo_pretrain: Run, tmp_path: Path) -> None:
    """Slowed on purpose, which changes no loss."""
    flags = ("--dtype=bf16", "--steps=4", "--inject_slowdown=2")
    run = finish(start_nemo(tmp_path, NEMO, LLAMA3, *flags), tmp_path)
    assert run.code == 0, run.err
    assert run.result["status"] == "valid"
    assert run.losses == pytest.approx(nemo_pretrain.losses[:4], abs=0.02)
    assert run.losses != nemo_pretrain.losses[:4]
    assert run.result["parameters"] == ALL_PARAMETERS
    assert run.result["slowed_by"] == 2
    (nsys_notes,) = [found for found in map(SLOWED.search, run.result["notes"]) if found]
    assert float(nsys_notes[2]) == pytest.approx(3 * float(nsys_notes[1]), rel=0.2)
    assert "no bf16 peak is published" in run.result["null_because"]["mfu"]
