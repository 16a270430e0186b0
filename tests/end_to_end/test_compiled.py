"""The real training steps of the recipes, compiled here for their GPUs, and compared with the formulas.

The flagship in bf16 and a tiny model are compiled in every run of the tests. All GPU recipes for pretraining take
about half an hour:

    python -m pytest -m every_program tests/end_to_end/test_compiled.py
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.model.capacity import total_bytes
from benchmarks.model.flops import parameter_count
from benchmarks.model.layouts import shares
from benchmarks.request.resolve import Request, resolve, scales
from benchmarks.values import Benchmark
from jax_backend import BACKEND
from launch.environments import venvs
from tests.benchmarks.compilation import formulas
from tests.end_to_end.runs import LIMIT_SECONDS, REPOSITORY, Starter

pytestmark = pytest.mark.slow(seconds=30)

# With the versions of requirements-cuda.lock: GB of a device at the peak; matmuls by precision; collectives that a
# matmul or attention hides, and all of them.
FLAGSHIP = {"bf16": (63.75, {"bf16": 81}, 12, 17), "fp8": (63.49, {"bf16": 5, "fp8": 92}, 30, 40)}

AXES = ("data", "fsdp", "tensor", "pipeline")
ALWAYS_COMPILED = 1  # of the random layouts


def compile_it(starter: Starter, *flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(REPOSITORY / "launch/plan.py"), "compile", "--backend=jax", "--json", *flags]
    process = starter(command)
    out, err = process.communicate(timeout=2 * LIMIT_SECONDS)  # fp8 takes 80 s on two idle cores
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture(scope="session")
def cuda_python() -> Path:
    """MaxText's environment with JAX's plugin for CUDA; made here on a fresh machine, which takes minutes."""
    return venvs.ensure(BACKEND.environment("maxtext", "cuda"))


def compiled(starter: Starter, *flags: str) -> dict[str, Any]:
    """What --json prints of a program."""
    done = compile_it(starter, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)["variants"]
    return dict(found)


def benchmark_of(flags: Iterable[str]) -> Benchmark:
    asked: dict[str, Any] = dict(flag.removeprefix("--").split("=") for flag in flags)
    return resolve(Request(**{**asked, "backend": "jax", "gpus": int(asked["gpus"])}), Configs(), BACKEND)


def sent_bytes(found: Mapping[str, Any], axis: str) -> float:
    return float(sum(found["sent_per_step"][axis].values()))


@pytest.mark.usefixtures("cuda_python")
@pytest.mark.parametrize("dtype", ["bf16", pytest.param("fp8", marks=pytest.mark.every_program)])
def test_the_flagship_is_compiled_for_64_h100s(starter: Starter, dtype: str) -> None:
    flags = ("--model=llama2_70b", "--hardware=h100", "--gpus=64", f"--dtype={dtype}")
    found, benchmark = compiled(starter, *flags), benchmark_of(flags)
    program = found["compiled"]
    peak_gb, matmuls, hidden, collectives = FLAGSHIP[dtype]
    assert program["target"] == "NVIDIA H100 80GB HBM3"
    assert program["peak_bytes"] / 1e9 == pytest.approx(peak_gb, rel=2e-3)
    kernels = {row["kind"]: row["instructions"] for row in found["kernels"] if row["what"] == "matmul"}
    assert kernels == matmuls
    flops = sum(row["flops"] for row in found["kernels"] if row["what"] == "matmul")
    assert flops == pytest.approx(formulas.matmul_flops(benchmark, BACKEND.storage(benchmark)), rel=1e-9)
    assert sent_bytes(found, "fsdp") == pytest.approx(formulas.sent_bytes(benchmark), rel=5e-3)
    assert program["parameters"] == parameter_count(benchmark.model)
    has_compute = [one["matmuls"] + one["attentions"] > 0 for one in found["overlap"]]
    assert (sum(has_compute), len(has_compute)) == (hidden, collectives)
    assert sum(row["bytes"] for row in program["held"]) == pytest.approx(program["peak_bytes"], rel=1e-2)
    off = {
        kind["name"]: (kind["planned_bytes"] - kind["held_bytes"]) / program["peak_bytes"] for kind in found["memory"]
    }
    assert {name: share for name, share in off.items() if abs(share) > 0.01} == {}
    assert program["schedule"]["not_counted"] == []


def gpu_recipes() -> Iterator[tuple[str, ...]]:
    """Every model, hardware, precision and scale of MaxText's GPU recipes.

    A recipe for one machine is compiled at its default hardware and scale: others differ in nothing that is counted.
    """
    configs = Configs()
    for recipe in configs.recipes():
        for hardware in recipe.hardware:
            if recipe.backend != "jax" or hardware == "*":
                continue
            if configs.hardware(hardware).kind == "gpu":
                sizes = scales(recipe, configs.hardware(hardware))
                if max(sizes) <= configs.hardware(hardware).devices_per_node:
                    sizes = [recipe.defaults.gpus] if hardware == recipe.defaults.hardware else []
                for dtype in recipe.dtypes.get(hardware, recipe.dtypes.get("*", [])):
                    for model in recipe.models:
                        for gpus in sizes:
                            asked = {"model": model, "task": recipe.task, "hardware": hardware, "dtype": dtype}
                            yield tuple(f"--{name}={value}" for name, value in {**asked, "gpus": gpus}.items())


@pytest.mark.every_program
@pytest.mark.usefixtures("cuda_python")
@pytest.mark.parametrize("flags", [*gpu_recipes()], ids=" ".join)
def test_every_gpu_recipe_is_compiled(starter: Starter, flags: tuple[str, ...]) -> None:
    program, benchmark = compiled(starter, *flags)["compiled"], benchmark_of(flags)
    assert total_bytes(benchmark, BACKEND.storage(benchmark)) == pytest.approx(program["peak_bytes"], rel=0.05)
    if not benchmark.lora:
        assert program["parameters"] == parameter_count(benchmark.model)


def random_layouts() -> Iterator[Any]:
    """Tensor axes and pipelines over 8 GPUs in a random order. The first few are compiled in every run."""
    sizes = ("--hardware=b300", "--gpus=8")
    found = [
        (model, share)
        for model in ("llama32_1b", "llama31_8b")  # with one table, and with two
        for share in shares(benchmark_of((f"--model={model}", *sizes)), 8)
        if share.context == share.virtual_pipeline == 1 < share.tensor * share.pipeline
    ]
    for number, (model, share) in enumerate(random.Random(2).sample(found, len(found))):
        axes = [f"--set=ici_{axis}_parallelism={getattr(share, axis)}" for axis in AXES]
        axes.append(f"--set=micro_batch_size={share.pipeline}")  # MaxText cuts it in as many
        marks = [pytest.mark.every_program] if number >= ALWAYS_COMPILED else []
        yield pytest.param((f"--model={model}", *sizes, *axes), marks=marks, id=f"{model} {share.short()}")


@pytest.mark.usefixtures("cuda_python")
@pytest.mark.parametrize("flags", [*random_layouts()])
def test_a_layout_holds_the_planned_weights_and_optimizer(starter: Starter, flags: tuple[str, ...]) -> None:
    found = compiled(starter, *flags)
    state = sum(kind["planned_bytes"] for kind in found["memory"] if kind["name"] in ("weights", "optimizer"))
    # Not what is held at the peak: by then, a part of them may be replaced by its update.
    assert state == pytest.approx(found["compiled"]["argument_bytes"], rel=0.03)


@pytest.mark.usefixtures("cuda_python")
def test_a_small_model_with_two_replicas_and_micro_steps(starter: Starter) -> None:
    nodes = ("--gpus=4", "--nodes=2", "--set=ici_fsdp_parallelism=2", "--set=dcn_data_parallelism=2")
    sizes = ("--set=gradient_accumulation=2", "--set=micro_batch_size=1")
    planned = compiled(starter, "--model=llama3_tiny", "--hardware=h100", *nodes, *sizes)
    assert sent_bytes(planned, "data") > 0


@pytest.mark.every_program
@pytest.mark.usefixtures("cuda_python")
def test_one_device_is_compiled_too(starter: Starter) -> None:
    found = compiled(starter, "--model=llama2_tiny", "--hardware=h100", "--gpus=1")
    assert (found["compiled"]["devices"], found["compiled"]["mesh"], found["overlap"]) == (1, {}, [])
    assert sum(row["flops"] for row in found["kernels"]) > 0
