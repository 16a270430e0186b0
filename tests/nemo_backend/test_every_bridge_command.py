"""Megatron-Bridge takes the command of every recipe, on each hardware, in each precision, at each scale.

Its own code resolves each configuration from the command's arguments (configurations_in_bridge.py lists the
substitutes for a GPU). An override that it refuses, ignores or replaces is a failure.
"""

import functools
import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.values import EIGHT_BIT, Benchmark, Hardware
from launch.environments import venvs
from nemo_backend import BACKEND
from nemo_backend.bridge_planning import FP8, PRETRAINED, is_benchmark_recipe
from tests.nemo_backend.test_bridge import LORA, SCALES, TUNED, command, resolved

PROGRAM = Path(__file__).with_name("configurations_in_bridge.py")
VERSIONS = {"bridge": "0.6.2", "megatron": "0.19.2"}

pytestmark = pytest.mark.slow(seconds=40)


@functools.cache
def benchmarks() -> dict[str, Benchmark]:
    found = {}
    for recipe, dtype, hardware in SCALES:
        for model, layout in itertools.product(recipe.models, recipe.layouts):
            name = f"{recipe.name} {model} {hardware} {dtype} {layout.gpus}"
            found[name] = resolved(recipe.name, model=model, dtype=dtype, hardware=hardware, gpus=layout.gpus)
    return found


def asked(name: str, benchmark: Benchmark, exchanged: dict[str, str] | None = None) -> dict[str, Any]:
    """What the program takes; `exchanged` are words that the command has otherwise."""
    words = [word.replace("{phase_dir}", "/results/run/attempt-1/perf") for word in command(benchmark)[3:]]
    words = [f"{PRETRAINED}={os.devnull}" if word.startswith(PRETRAINED) else word for word in words]  # must exist
    return {
        "name": name,
        # The gated configurations are not here; every dimension is an override.
        "arguments": ["--stated_model", *((exchanged or {}).get(word, word) for word in words)],
        "processes": benchmark.gpus,
        "variables": BACKEND.plan(benchmark).phases[0].environment,
        "device": device_of(benchmark.hardware),
    }


def device_of(hardware: Hardware) -> tuple[str, str]:
    """Return the name and the compute capability that CUDA reports."""
    target = hardware.compile_target
    return hardware.device_names[
        0
    ] if hardware.device_names else "cpu", target.compute_capability if target else "0.0"


CONTROLS: dict[str, tuple[str, dict[str, str], str]] = {
    "a field of the LoRA as an existing one": (LORA, {"++peft.dim=16": "peft.dim=16"}, "peft.dim"),
    "a new field that nothing reads": (LORA, {"++peft.dim=16": "++peft.rank=16"}, "peft.rank"),
    "a replaced field": (TUNED, {"logger.log_interval=1": "model.overlap_p2p_comm=false"}, "model.overlap_p2p_comm"),
    "no such recipe": (LORA, {"--recipe=llama3_70b_peft_8gpu_h100_bf16_config": "--recipe=llama4"}, "llama4"),
    "no such field": (TUNED, {"model.num_layers=80": "model.layers=80"}, "model.layers"),
    "a layout that does not divide": (
        TUNED,
        {"model.tensor_model_parallel_size=4": "model.tensor_model_parallel_size=3"},
        "",
    ),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    python = venvs.ensure(BACKEND.environment("bridge"))
    commands = [asked(name, benchmark) for name, benchmark in benchmarks().items()]
    commands += [asked(name, resolved(recipe), words) for name, (recipe, words, _) in CONTROLS.items()]
    done = subprocess.run(
        [str(python), "-P", str(PROGRAM)],
        input=json.dumps(commands), env={**os.environ, "HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    versions, *lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert versions == VERSIONS
    return {line.pop("name"): line for line in lines}


def facts(benchmark: Benchmark) -> dict[str, Any]:
    """Return the fields of a benchmark that the resolved configuration must have."""
    share, lora = benchmark.parallelism, benchmark.lora
    targets = str(benchmark.settings.knobs.get("peft.target_modules", "")).split(",")
    return {
        "gradient_accumulation": benchmark.batch.gradient_accumulation,
        "tensor": share.tensor,
        "pipeline": share.pipeline,
        "context": share.context,
        "virtual_pipeline": share.virtual_pipeline,
        "expert": share.expert,
        "fp8": benchmark.settings.knobs.get(FP8, "hybrid") if benchmark.dtype in EIGHT_BIT else None,
        "fp4": "e2m1" if benchmark.dtype == "nvfp4" else None,
        "bf16": benchmark.dtype != "fp32",
        "max_steps": benchmark.steps,
        "layers": benchmark.model.layers,
        "experts": benchmark.model.experts.count if benchmark.model.experts else None,
        "balanced": benchmark.routing == "balanced" if benchmark.routing else None,
        "vocabulary": benchmark.model.vocabulary_size,
        "sequence_length": benchmark.batch.sequence_length,
        "adapters": [lora.rank, lora.alpha, targets] if lora else None,
    }


def test_every_command_is_resolved_as_the_benchmark_says(answers: dict[str, dict[str, Any]]) -> None:
    wrong = {}
    for name, benchmark in benchmarks().items():
        found = dict(answers[name])
        variables, built = found.pop("variables", {}), found["built"]
        overlapped = built.pop("overlapped", None)
        (phase,) = BACKEND.plan(benchmark).phases
        # A benchmark recipe's variables must be there when Python starts; others are set in the process.
        wanted = variables if is_benchmark_recipe(benchmark) else {}
        forgotten = {key: value for key, value in wanted.items() if phase.environment.get(key) != value}
        pairs = benchmark.parallelism.virtual_pipeline > 1 and not overlapped
        if found["problem"] or built != facts(benchmark) or pairs:
            wrong[name] = answers[name]
        elif forgotten:
            wrong[name] = {"variables of the recipe": forgotten}
    assert wrong == {}


@pytest.mark.parametrize("control", CONTROLS)
def test_what_bridge_would_not_take_is_seen(answers: dict[str, dict[str, Any]], control: str) -> None:
    problem = answers[control]["problem"]
    assert problem is not None
    assert CONTROLS[control][2] in problem
