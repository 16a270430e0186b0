"""Real MaxText trains adapters through launch/run.py; and where it does not, the run is invalid and says why."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.model import flops
from benchmarks.values import Lora
from tests.end_to_end.runs import JAX, LLAMA3, NEMO, REPOSITORY, TINY, Run, Start, Starter, finish, verify

pytestmark = pytest.mark.slow

LORA = "--task=lora"
SEPARATE = ["query", "key", "value", "attention_output", "gate", "up", "mlp_output"]
WORDS = ("--set=lora_rank=4", "--set=lora_alpha=8", "--set=lora_targets=q,k,v,o,gate,up,down")

# The worker as it is, but for one thing that is done to what it loads.
FAULTY_WORKER = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("worker", {worker!r})
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
def change_a_weight(kind):
    begin = kind.begin
    def then_change(self, device_state):
        begin(self, device_state)
        embedding = device_state["state"]["model"]["token_embedder"]["embedding"]
        embedding.set_value(embedding.get_value().at[3, 5].multiply(-1))
    kind.begin = then_change

own = worker.kit.load
def load(path):
    module = own(path)
    if Path(path).name == "adapters.py":
        adapters = module
        {fault}
    return module
worker.kit.load = load
worker.kit.leave(worker.main(worker.parse(sys.argv[1:])))
"""
LAUNCHER = """
import runpy, sys
from jax_backend import planning
command = planning.worker_command
def faulty(*given):
    own = "{{repository}}/jax_backend/inside/worker.py"
    return [{faulty!r} if word == own else word for word in command(*given)]
planning.worker_command = faulty
sys.path.insert(0, {launch!r})
sys.argv[0] = {launch!r} + "/run.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""
NOT_APPLIED = "adapters.install = lambda: None"
# One number of a frozen weight has another sign from the first step on.
ONE_WEIGHT = "change_a_weight(adapters.Adapters)"


@pytest.fixture(scope="module")
def llama3(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Over two devices, which share out the frozen weights and have all adapters each; bfloat16."""
    place = tmp_path_factory.mktemp("lora3")
    return finish(start(place, JAX, LLAMA3, LORA, "--dtype=bf16", "--gpus=2", "--steps=12", *WORDS), place)


def test_adapters_train_and_nothing_else_does(llama3: Run) -> None:
    assert llama3.code == 0, llama3.err + llama3.out
    assert llama3.result["status"] == "valid"
    assert "adapters on rank 0: 14 of 14 tensors changed; 0 of 12 frozen tensors changed" in llama3.result["notes"]
    assert llama3.losses[-1] < llama3.losses[0] - 0.5
    agreed = verify(str(llama3.folder))
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr


def test_adapters_are_counted_as_the_formula_does(llama3: Run) -> None:
    dimensions = Configs().model("llama3_tiny")
    lora = Lora(rank=4, alpha=8.0, dropout=0.0, targets=SEPARATE)
    assert json.loads((llama3.folder / "benchmark.json").read_text())["lora"] == msgspec.to_builtins(lora)
    assert llama3.result["trainable_parameters"] == flops.adapter_parameter_count(dimensions, lora)
    assert llama3.result["parameters"] == flops.held_parameter_count(dimensions, lora)
    per_token = flops.flops_per_token(dimensions, 128, "causal") * 2 / 3
    assert llama3.result["model_flops_per_step"] == pytest.approx(
        per_token * 128 * llama3.result["benchmark"]["global_batch_size"]
    )


def test_what_was_seen_of_each_tensor_is_kept(llama3: Run) -> None:
    (seen,) = [event for event in llama3.events() if event["event"] == "adapters"]
    assert (seen["adapters"], seen["adapters_changed"], seen["frozen"], seen["frozen_changed"]) == (14, 14, 12, 0)
    before, after = seen["digests"]["frozen"]
    assert before == after
    assert len(set(seen["digests"]["adapters"])) == 2
    assert seen["norms"]["frozen"][0] == seen["norms"]["frozen"][1] > 0
    assert seen["norms"]["adapters"][0] != seen["norms"]["adapters"][1]


def test_nemo_trains_the_same_adapters(start_nemo: Start, llama3: Run, tmp_path: Path) -> None:
    run = finish(start_nemo(tmp_path, NEMO, LLAMA3, LORA, "--steps=8", *WORDS), tmp_path)
    assert run.code == 0, run.err + run.out
    for name in ("trainable_parameters", "parameters"):
        assert run.result[name] == llama3.result[name]
    assert "adapters on rank 0: 28 of 28 tensors changed; 0 of 15 frozen tensors changed" in run.result["notes"]
    assert [note for note in run.result["notes"] if "in Megatron's order" in note]


@pytest.mark.parametrize(
    ("fault", "reasons"),
    [
        (NOT_APPLIED, ["no adapter was made: nothing was trained", "every gradient is zero: nothing was trained"]),
        (ONE_WEIGHT, ["1 of 12 frozen weights changed (first: token_embedder/embedding)"]),
    ],
    ids=["not applied", "a frozen weight"],
)
def test_a_run_that_did_other_work_is_invalid(
    starter: Starter,
    jax_python: Path,  # noqa: ARG001 - the environment is there
    tmp_path: Path,
    fault: str,
    reasons: list[str],
) -> None:
    faulty, launcher = tmp_path / "faulty_worker.py", tmp_path / "launcher.py"
    faulty.write_text(FAULTY_WORKER.format(worker=str(REPOSITORY / "jax_backend/inside/worker.py"), fault=fault))
    launcher.write_text(LAUNCHER.format(faulty=str(faulty), launch=str(REPOSITORY / "launch")))
    flags = (f"--output_dir={tmp_path / 'runs'}", JAX, TINY, LORA, "--steps=6")
    run = finish(starter([sys.executable, str(launcher), *flags], PYTHONPATH=str(REPOSITORY)), tmp_path / "runs")
    assert run.code == 3, run.err + run.out
    assert run.result["status"] == "invalid"
    for reason in reasons:
        assert f"rank 0: {reason}" in run.result["reasons"]
