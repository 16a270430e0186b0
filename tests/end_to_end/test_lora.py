"""Adapters in real MaxText and NeMo: only they train; otherwise the run is invalid with the reason."""

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

# launch/run.py with another worker in the plan, and that worker with faults.
LAUNCHER = """
import runpy, sys
from {package} import planning
command = planning.worker_command
planning.worker_command = lambda *given: [{faulty!r} if word == {planned!r} else word for word in command(*given)]
sys.path.insert(0, {launch!r})
sys.argv[0] = {launch!r} + "/run.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""
WORKER = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("worker", {worker!r})
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
{faults}
worker.kit.leave(worker.main(worker.parse(sys.argv[1:])))
"""
# No adapter is made, and one number of a frozen weight has another sign from the first step on.
MAXTEXT_FAULTS = """
own = worker.kit.load
def load(path):
    module = own(path)
    if Path(path).name == "adapters.py":
        module.install = lambda: None
        begin = module.Adapters.begin
        def then_change(self, device_state):
            begin(self, device_state)
            embedding = device_state["state"]["model"]["token_embedder"]["embedding"]
            embedding.set_value(embedding.get_value().at[3, 5].multiply(-1))
        module.Adapters.begin = then_change
    return module
worker.kit.load = load
"""
# One adapter is cut off from the loss, and one frozen weight changes by its last bit in one step.
NEMO_FAULTS = """
import torch
from lightning.pytorch.callbacks import Callback

class Fault(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx == 0:
            modules = dict(trainer.strategy.megatron_parallel.named_modules())
            adapter = modules[next(name for name in modules if name.endswith("layers.1.mlp.linear_fc2.adapter"))]
            whole = adapter.forward
            adapter.forward = lambda *args, **kwargs: whole(*args, **kwargs).detach()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx == 1:
            frozen = [p for n, p in trainer.strategy.megatron_parallel.named_parameters() if "final_layernorm" in n]
            with torch.no_grad():
                frozen[0].view(torch.int32)[5] ^= 1

fit = worker.fit
worker.fit = lambda options, build, callbacks, on_cpu: fit(options, build, [*callbacks, Fault()], on_cpu)
"""


def run_with_faults(starter: Starter, place: Path, package: str, faults: str, *flags: str) -> Run:
    faulty, launcher, inside = place / "faulty_worker.py", place / "launcher.py", f"{package}/inside/worker.py"
    faulty.write_text(WORKER.format(worker=str(REPOSITORY / inside), faults=faults))
    planned, launch = f"{{repository}}/{inside}", str(REPOSITORY / "launch")
    launcher.write_text(LAUNCHER.format(package=package, faulty=str(faulty), planned=planned, launch=launch))
    words = [f"--output_dir={place / 'runs'}", LORA, "--steps=6", *flags]
    return finish(starter([sys.executable, str(launcher), *words], PYTHONPATH=str(REPOSITORY)), place / "runs")


@pytest.fixture(scope="module")
def maxtext(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Over two devices, which shard the frozen weights and each have all adapters; bfloat16."""
    place = tmp_path_factory.mktemp("lora3")
    return finish(start(place, JAX, LLAMA3, LORA, "--dtype=bf16", "--gpus=2", "--steps=12", *WORDS), place)


def test_adapters_train_and_nothing_else_does(maxtext: Run) -> None:
    assert maxtext.code == 0, maxtext.err + maxtext.out
    assert maxtext.result["status"] == "valid"
    assert "adapters on rank 0: 14 of 14 tensors changed; 0 of 12 frozen tensors changed" in maxtext.result["notes"]
    assert maxtext.losses[-1] < maxtext.losses[0] - 0.5
    agreed = verify(str(maxtext.folder))
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr


def test_adapters_are_counted_as_the_formula_does(maxtext: Run) -> None:
    dimensions = Configs().model("llama3_tiny")
    lora = Lora(rank=4, alpha=8.0, dropout=0.0, targets=SEPARATE)
    assert json.loads((maxtext.folder / "benchmark.json").read_text())["lora"] == msgspec.to_builtins(lora)
    assert maxtext.result["trainable_parameters"] == flops.adapter_parameter_count(dimensions, lora)
    assert maxtext.result["parameters"] == flops.held_parameter_count(dimensions, lora)
    per_token = flops.flops_per_token(dimensions, 128, "causal") * 2 / 3
    assert maxtext.result["model_flops_per_step"] == pytest.approx(
        per_token * 128 * maxtext.result["benchmark"]["global_batch_size"]
    )


@pytest.mark.usefixtures("jax_python")
def test_maxtext_without_its_adapters_and_with_a_changed_weight_is_invalid(starter: Starter, tmp_path: Path) -> None:
    run = run_with_faults(starter, tmp_path, "jax_backend", MAXTEXT_FAULTS, JAX, TINY)
    assert run.code == 3, run.err + run.out
    assert run.result["status"] == "invalid"
    for reason in (
        "no adapter was made: nothing was trained",
        "every gradient is zero: nothing was trained",
        "1 of 12 frozen weights changed (first: token_embedder/embedding)",
    ):
        assert f"rank 0: {reason}" in run.result["reasons"]


@pytest.mark.usefixtures("nemo_python")
def test_nemo_has_the_same_adapters_and_one_fault_among_them_is_invalid(
    starter: Starter, maxtext: Run, tmp_path: Path
) -> None:
    """One adapter has no gradient though the others learn, and one bit of a frozen weight changes."""
    run = run_with_faults(starter, tmp_path, "nemo_backend", NEMO_FAULTS, NEMO, LLAMA3, *WORDS)
    assert run.code == 3, run.err + run.out
    assert run.result["status"] == "invalid"
    assert len(set(run.losses)) == 6
    for name in ("trainable_parameters", "parameters"):
        assert run.result[name] == maxtext.result[name]
    (reason,) = [reason for reason in run.result["reasons"] if "receive no gradient" in reason]
    assert reason.startswith("rank 0: 2 of 28 adapters receive no gradient (first: ")
    assert "layers.1.mlp.linear_fc2.adapter" in reason
    (reason,) = [reason for reason in run.result["reasons"] if "frozen weights changed" in reason]
    assert reason.startswith("rank 0: 1 of 15 frozen weights changed (first: ")
    assert "final_layernorm.weight" in reason
    assert verify(str(run.folder)).returncode == 0
