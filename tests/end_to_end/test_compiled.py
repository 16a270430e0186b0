"""The real Llama 2 70B, lowered and compiled here for 64 virtual devices, and held against the formulas."""

import json
import subprocess
import sys

import pytest

from tests.end_to_end.runs import LIMIT_SECONDS, REPOSITORY, Starter

pytestmark = pytest.mark.slow

FULL = ("--set=remat_policy=full", "--set=micro_batch_size=1", "--set=use_iota_embed=false")


def compile_it(starter: Starter, *flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(REPOSITORY / "launch/plan.py"), "--backend=jax", "--compile", "--json", *flags]
    process = starter(command)
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.usefixtures("jax_python")
def test_the_70b_holds_what_the_formulas_say(starter: Starter) -> None:
    done = compile_it(starter, "--model=llama2_70b", "--gpus=64", *FULL)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    program, lines = found["compiled"], {line["what"]: line for line in found["lines"]}
    assert found["not_explained"] == []
    assert program["parameters"] == 68_976_648_192
    assert program["state_bytes"] == pytest.approx(12 * 68_976_648_192 / 64, rel=1e-6)
    assert sum(group["flops"] for group in program["matmuls"]) == pytest.approx(2.2715e15, rel=2e-5)
    traffic = lines["weights and gradients over fsdp"]
    assert traffic["counted"] == pytest.approx(405.33e9, rel=2e-5)
    assert sorted(program["loops"].values()) == [80, 80]
    assert program["peak_memory_bytes"] < 2e9


@pytest.mark.usefixtures("jax_python")
def test_a_small_model_with_two_replicas_and_micro_steps(starter: Starter) -> None:
    layout = ("--set=ici_fsdp_parallelism=2", "--set=ici_data_parallelism=2")
    sizes = ("--gpus=4", "--set=gradient_accumulation=2", "--set=micro_batch_size=1")
    done = compile_it(starter, "--model=llama3_tiny", "--hardware=cpu", *layout, *sizes)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line["what"]: line for line in json.loads(done.stdout)["lines"]}
    assert lines["gradients over data"]["counted"] > 0
    assert lines["matmuls of the model"]["counted"] > lines["matmuls of the model"]["expected"]


@pytest.mark.usefixtures("jax_python")
def test_one_device_is_compiled_too(starter: Starter) -> None:
    """Nothing is partitioned there: what was lowered is counted."""
    done = compile_it(starter, "--model=llama2_tiny", "--hardware=cpu", "--gpus=1")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["compiled"]["devices"], found["compiled"]["mesh"], found["compiled"]["collectives"]) == (1, {}, [])
    assert sum(group["flops"] for group in found["compiled"]["matmuls"]) > 0
