"""NeMo takes the plan of every recipe, on each hardware, in each precision, at each scale: the old NeMo of the
container image, and the one of the lock file.

Its real classes are made from the plan's arguments, and used as far as possible without other processes
(objects_in_nemo.py lists the substitutes for a GPU).
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import ANY, Request, default_gpus, resolve, scales
from benchmarks.values import Benchmark, Recipe
from launch.environments import venvs
from nemo_backend import BACKEND
from nemo_backend.megatron import HOPPER
from nemo_backend.planning import worker_command

CONFIGS = Configs()
PROGRAM = Path(__file__).with_name("objects_in_nemo.py")
OLDER = Path(__file__).with_name("nemo_2_5.lock")
VERSIONS = {"2.5": {"nemo": "2.5.3", "megatron": "0.14.0"}, "2.7": {"nemo": "2.7.3", "megatron": "0.15.3"}}

pytestmark = pytest.mark.slow(seconds=4)


# --- all that `run.py --list` shows for engine nemo ---------------------------------------------------


def requests() -> Iterator[Request]:
    for recipe in CONFIGS.recipes():
        if (recipe.backend, recipe.engine) != (BACKEND.name, "nemo"):
            continue
        for hardware in CONFIGS.names("hardware") if ANY in recipe.hardware else recipe.hardware:
            for dtype in recipe.dtypes.get(hardware, recipe.dtypes.get(ANY, [])):
                for model, gpus in _models_and_scales(recipe, hardware):
                    yield Request(
                        backend=BACKEND.name, recipe=recipe.name, task=recipe.task,
                        model=model, hardware=hardware, dtype=dtype, gpus=gpus,
                    )  # fmt: skip


def _models_and_scales(recipe: Recipe, hardware: str) -> Iterator[tuple[str, int]]:
    """All; of a recipe for GPUs the first model at every scale, its others at the scale of its defaults."""
    device = CONFIGS.hardware(hardware)
    for model in recipe.models:
        for gpus in scales(recipe, device):
            if ANY in recipe.hardware or model == recipe.models[0] or gpus == default_gpus(recipe, device):
                yield model, gpus


class PlannedRun(NamedTuple):
    benchmarks: dict[str, Benchmark]
    refused: dict[str, RequestError]


@functools.cache
def planned() -> PlannedRun:
    found = PlannedRun({}, {})
    for request in requests():
        name = f"{request.recipe} {request.model} {request.hardware} {request.dtype} {request.gpus}"
        try:
            found.benchmarks[name] = resolve(request, CONFIGS, BACKEND)
        except RequestError as refusal:
            found.refused[name] = refusal
    return found


# --- inside both versions of NeMo -----------------------------------------------------------------------


def plan(name: str, benchmark: Benchmark, changed: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What objects_in_nemo.py takes; `changed` are settings with other values, or further ones."""
    words = [word.replace("{phase_dir}", "/results/run/attempt-1/perf") for word in worker_command(benchmark)]
    at = words.index("--") + 1
    settings = dict(word.split("=", 1) for word in words[at:]) | dict(changed or {})
    # The folder of a text does not exist here; end_to_end/ checks the data of a plan.
    options = ["--data=mock" if word.startswith("--data=") else word for word in words[3:at]]
    on_cpu, hopper = benchmark.hardware.kind == "cpu", benchmark.hardware.name in HOPPER
    return {
        "name": name,
        "arguments": [*options, *(f"{key}={value}" for key, value in settings.items())],
        "gpus_here": 0 if on_cpu else benchmark.gpus // benchmark.nodes,
        "capability": [9, 0] if hopper else [10, 0],
    }


FLAGSHIP = "nemo_llama31_70b_pretrain llama31_70b h100 fp8 64"
CONTROLS: dict[str, tuple[dict[str, str], str]] = {
    "a field that the precision has not": ({"trainer.plugins.fp8_scaling": "delayed"}, "fp8_scaling"),
    "a layout that does not divide the GPUs": ({"trainer.strategy.tensor_model_parallel_size": "3"}, ""),
    "a batch that does not divide": ({"data.global_batch_size": "129"}, "129"),
    "an overlap that NeMo turns off": ({"trainer.strategy.sequence_parallel": "false"}, "tp_comm_overlap"),
    "more GPUs than a node has": ({"trainer.devices": "16"}, "machine only has"),
}


def equal_plans() -> list[list[str]]:
    """Names of plans that differ in nothing but the name of the device; each is built once."""
    found: dict[str, list[str]] = {}
    for name, benchmark in planned().benchmarks.items():
        words = [word for word in plan(name, benchmark)["arguments"] if not word.startswith("--device_name=")]
        found.setdefault(" ".join(words), []).append(name)
    return list(found.values())


class Answers(NamedTuple):
    versions: dict[str, str]
    of: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def older(pytestconfig: pytest.Config) -> Path:
    """The wheels of the other NeMo, unpacked; kept between runs."""
    folder = Path(pytestconfig.cache.mkdir(f"nemo-{VERSIONS['2.5']['nemo']}"))  # type: ignore[union-attr]
    if not (folder / "nemo" / "__init__.py").is_file():
        wheels = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", f"--target={folder}"]
        subprocess.run([*pip, *wheels, "--requirement", str(OLDER)], check=True)
    return folder


@pytest.fixture(scope="module", params=["2.5", "2.7"])
def answers(request: pytest.FixtureRequest) -> Answers:
    python = venvs.ensure(BACKEND.environment("nemo"))
    place = [str(request.getfixturevalue("older"))] if request.param == "2.5" else []
    plans = [plan(same[0], planned().benchmarks[same[0]]) for same in equal_plans()]
    plans += [plan(name, planned().benchmarks[FLAGSHIP], changed) for name, (changed, _) in CONTROLS.items()]
    done = subprocess.run(
        [str(python), "-P", str(PROGRAM), *place],
        input=json.dumps(plans), env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    versions, *lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert versions == VERSIONS[request.param]
    assert [line["name"] for line in lines] == [one["name"] for one in plans]
    found = {line.pop("name"): line for line in lines}
    return Answers(versions, found | {name: found[same[0]] for same in equal_plans() for name in same})


# --- the tests --------------------------------------------------------------------------------------------


def worker_settings(benchmark: Benchmark) -> dict[str, Any]:
    """What NeMo's objects hold of a benchmark once they are built."""
    share = benchmark.parallelism
    separate = benchmark.lora and {"query", "gate"} & set(benchmark.lora.targets)
    return {
        "gradient_accumulation": benchmark.batch.gradient_accumulation,
        "tensor": share.tensor,
        "pipeline": share.pipeline,
        "context": share.context,
        "fp8": "hybrid" if benchmark.dtype == "fp8" else None,
        "bf16": benchmark.dtype != "fp32",
        "world": benchmark.gpus,
        "max_steps": benchmark.steps,
        "adapters": ("CanonicalLoRA" if separate else "LoRA") if benchmark.lora else None,
    }


def test_every_plan_is_built_as_the_benchmark_says(answers: Answers) -> None:
    wrong = {
        name: answers.of[name]
        for name, benchmark in planned().benchmarks.items()
        if answers.of[name] != {"problem": None, "built": worker_settings(benchmark)}
    }
    assert wrong == {}


@pytest.mark.parametrize("control", CONTROLS)
def test_what_nemo_would_not_take_is_seen(answers: Answers, control: str) -> None:
    _, word = CONTROLS[control]
    problem = answers.of[control]["problem"]
    assert problem is not None
    assert word in problem


def test_nothing_is_left_out_but_hardware_that_nemo_does_not_run_on() -> None:
    assert {refusal.what.split(" on ")[0] for refusal in planned().refused.values()} <= {"NeMo does not run"}
    recipes = {recipe.name for recipe in CONFIGS.recipes() if (recipe.backend, recipe.engine) == ("nemo", "nemo")}
    assert {name.split()[0] for name in planned().benchmarks} == recipes


# --- the check itself, as a job runs it -------------------------------------------------------------------


def checked(name: str, folder: Path) -> tuple[int, str]:
    """Exit code and last line of `worker.py --check` with a plan's own command."""
    python = venvs.ensure(BACKEND.environment("nemo"))
    phase = BACKEND.check_phase(planned().benchmarks[name])
    assert phase is not None
    command = phase.command[phase.command.index("--") + 1 :]
    places = {"python": python, "repository": PROGRAM.parents[2], "phase_dir": folder}
    words = [word.format(**places) for word in command]
    variables = {key: value.format(**places) for key, value in phase.environment.items()}
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()[-1]


def test_a_node_that_can_run_it_is_ok(tmp_path: Path) -> None:
    code, line = checked("nemo_tiny_lora llama3_tiny cpu fp32 4", tmp_path)
    assert code == 0, line
    assert line.startswith("stepmark check: ok {")
    found = json.loads(line.removeprefix("stepmark check: ok "))
    assert found["devices"] == ["cpu"]
    assert found["versions"]["nemo-toolkit"] == VERSIONS["2.7"]["nemo"]


def test_a_node_without_its_gpus_is_not(tmp_path: Path) -> None:
    code, line = checked(FLAGSHIP, tmp_path)
    assert code == 1
    assert line.startswith("stepmark check: torch cannot use the GPUs; ")
    assert "; try: " in line
